"""What Ollama's `/api/generate` streams: a JSON object per line, the last with `done` and the counts.

Source: notes on ollama fb30760, api/types.go `GenerateResponse`. It counts the prompt with what its cache held, and does not say how much that was.
"""

from __future__ import annotations

import msgspec

from foretype_backend.engines.openai.events import Event, Reader
from foretype_backend.engines.port import EngineFinish
from foretype_backend.errors import EngineUnavailableError, Fault


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


class AnswerLines(Reader):
    """Of Ollama's answer."""

    expected = "Ollama"

    def _event(self, line: bytes) -> Event | None:
        if not line.strip():
            return None
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
