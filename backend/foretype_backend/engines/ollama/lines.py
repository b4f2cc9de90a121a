"""What Ollama's `/api/generate` streams: a JSON object per line, the last with `done` and the counts.

Source: notes on ollama fb30760, api/types.go `GenerateResponse`. It counts the prompt with what its cache held, and does not say how much that was.
"""

from __future__ import annotations

import msgspec

from foretype_backend.engines.openai.events import Event
from foretype_backend.engines.port import EngineFinish
from foretype_backend.errors import EngineUnavailableError, Fault

_LINE_MAX_BYTES = 1 << 20


class _Token(msgspec.Struct):
    logprob: float | None = None


class _Line(msgspec.Struct):
    response: str = ""
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[_Token] | None = None
    error: str | None = None


_decoder = msgspec.json.Decoder(_Line)


class AnswerLines:
    """Events out of the lines of one answer, in whatever pieces they come."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._part = b""

    def feed(self, data: bytes) -> list[Event]:
        *lines, self._part = (self._part + (data or b"\n")).split(b"\n")
        if len(self._part) > _LINE_MAX_BYTES:
            raise EngineUnavailableError(f"{self._url}: sent a line without end; is it Ollama?", fault=Fault.GARBAGE)
        found: list[Event] = []
        for line in lines:
            if not line.strip():
                continue
            found.append(self._event(line))
            if found[-1].last:
                break
        return found

    def _event(self, line: bytes) -> Event:
        try:
            said = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise EngineUnavailableError(
                f"{self._url}: sent a line that is no answer of Ollama ({error}); is it one?", fault=Fault.GARBAGE
            ) from None
        if said.error is not None:
            raise EngineUnavailableError(
                f"{self._url}: failed while generating: {said.error[:300]}; see `ollama ps` and its log",
                fault=Fault.ERROR,
            )
        values = [token.logprob for token in said.logprobs or ()]
        logprobs = tuple(value for value in values if value is not None)
        return Event(
            text=said.response,
            tokens=len(values) or int(bool(said.response)),
            logprobs=logprobs if len(logprobs) == len(values) else (),
            finish=None if not said.done else _FINISH.get(said.done_reason or "", EngineFinish.END_TOKEN),
            prompt_tokens=(said.prompt_eval_count or 0) if said.done else None,
            generated_tokens=said.eval_count if said.done else None,
            last=said.done,
        )


_FINISH = {"length": EngineFinish.LENGTH, "load": EngineFinish.ABORTED, "unload": EngineFinish.ABORTED}
