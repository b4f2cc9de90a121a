"""What llama.cpp's `/completion` streams: parts with their token, the last with `stop` and the counts.

Source: llama.cpp 3f545be, tools/server/server-task.cpp (`to_json_non_oaicompat`) and server-context.cpp (`process_token`). A control token has
no text there, only its id; and a part whose character is not whole yet is not sent, so the text is what counts and not the ids.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from foretype_backend.engines.openai.events import Event, Reader
from foretype_backend.engines.port import EngineFinish
from foretype_backend.errors import EngineUnavailableError, Fault


class _Token(msgspec.Struct):
    logprob: float | None = None


class _Timings(msgspec.Struct):
    cache_n: int | None = None


class _Progress(msgspec.Struct):
    total: int | None = None
    cache: int | None = None


class _Part(msgspec.Struct):
    content: str = ""
    tokens: list[int] = []
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: _Timings | None = None
    completion_probabilities: list[_Token] | None = None
    prompt_progress: _Progress | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Part)


class AnswerParts(Reader):
    """Of llama.cpp's answer.

    Args:
        end_token_ids: control tokens: the text ends before the first of them, whatever the server goes on to write.
    """

    expected = "llama.cpp"

    def __init__(self, url: str, end_token_ids: frozenset[int]) -> None:
        super().__init__(url)
        self._end_token_ids = end_token_ids
        self._ended = False

    def _event(self, line: bytes) -> Event | None:
        name, _, payload = line.partition(b":")
        if name not in (b"data", b"error") or payload.strip() == b"[DONE]":
            return None
        return self._part_of(payload.strip(), failed=name == b"error")

    def _part_of(self, payload: bytes, *, failed: bool) -> Event:
        try:
            said = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise EngineUnavailableError(
                f"{self._url}: sent a part that is none of llama.cpp's ({error}); is it its server?",
                fault=Fault.GARBAGE,
            ) from None
        if failed or said.error is not None:
            told = json.dumps(said.error)[:300] if said.error is not None else payload[:300].decode(errors="replace")
            raise EngineUnavailableError(
                f"{self._url}: failed while generating: {told}; see its log", fault=Fault.ERROR
            )
        if said.stop:
            return self._last(said)
        if (progress := said.prompt_progress) is not None:  # once for every batch of the prompt
            return Event(prompt_tokens=progress.total, cached_tokens=progress.cache)
        if self._ended:  # it was no end to the server, which goes on
            return Event(finish=EngineFinish.END_TOKEN, last=True, cut=True)
        if not self._end_token_ids.isdisjoint(said.tokens):
            self._ended = True  # as a rule the next part is the last, with the counts
            return Event(finish=EngineFinish.END_TOKEN)
        values = [token.logprob for token in said.completion_probabilities or ()]
        logprobs = tuple(value for value in values if value is not None)
        return Event(
            text=said.content,
            tokens=len(said.tokens) or int(bool(said.content)),
            token_ids=tuple(said.tokens),
            logprobs=logprobs if said.content and len(logprobs) == len(values) else (),
        )

    def _last(self, said: _Part) -> Event:
        limit = said.stop_type == "limit" and not self._ended
        return Event(
            text="" if self._ended else said.content,
            finish=EngineFinish.LENGTH if limit else EngineFinish.END_TOKEN,
            prompt_tokens=said.tokens_evaluated or 0,
            generated_tokens=said.tokens_predicted,
            cached_tokens=said.timings.cache_n if said.timings is not None else None,
            last=True,
        )
