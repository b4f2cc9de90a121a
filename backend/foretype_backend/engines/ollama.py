"""Ollama through its own API: text that bypasses its templates (`raw`), with the same context size and keep-alive in every request.

Ollama's `/v1/completions` wraps the prompt as a user's message, and cannot set the context size. A `num_ctx` that differs from the last
one makes Ollama load the model anew, so `num_ctx` is chosen once. Prompts are sent as text, because Ollama refuses token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import msgspec
from foretype_context.text.pasted import shell_line

from foretype_backend.engines.openai.engine import LocalServerEngine
from foretype_backend.engines.openai.events import (
    Event,
    OpenAIConfig,
    Reader,
    ServerFeatures,
    Token,
    all_of,
    status_error,
)
from foretype_backend.engines.openai.model_list import pick_model
from foretype_backend.engines.port import Capabilities, EngineFinish, GenerationRequest
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError
from foretype_backend.prefix.origin import Origin

KEEP_ALIVE: Final = "30m"
_FINISH: Final = {"length": EngineFinish.LENGTH, "load": EngineFinish.ABORTED, "unload": EngineFinish.ABORTED}


class _Line(msgspec.Struct):
    response: str = ""
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[Token] | None = None
    error: str | None = None


class _AnswerLines(Reader):
    """What `/api/generate` streams: a JSON object per line, the last with `done` and the counts.

    Source: notes on ollama fb30760, api/types.go `GenerateResponse`. It counts the prompt with what its cache held, and does not say how much that was.
    """

    expected = "Ollama"
    nonsense = "a line that is no answer of Ollama"
    decoder = msgspec.json.Decoder(_Line)

    def _event(self, line: bytes) -> Event | None:
        if not line.strip():
            return None
        said: _Line = self._decoded(line)
        if said.error is not None:
            raise self._failed(f"{said.error[:300]}; see `ollama ps` and its log")
        values = [token.logprob for token in said.logprobs or ()]
        return Event(
            text=said.response,
            tokens=len(values) or int(bool(said.response)),
            logprobs=all_of(values),
            finish=None if not said.done else _FINISH.get(said.done_reason or "", EngineFinish.END_TOKEN),
            prompt_tokens=(said.prompt_eval_count or 0) if said.done else None,
            generated_tokens=said.eval_count if said.done else None,
            last=said.done,
        )


class OllamaEngine(LocalServerEngine):
    """Engine port over `/api/generate`.

    Args:
        config: with the address of the server itself, without `/v1`.
        text: turns a prompt's token ids into the text that the server is sent.
        keep_alive: how long the model stays in memory after a request, as Ollama writes durations.
    """

    kind = "an Ollama"
    path = "api/generate"
    arguments = ("text", "keep_alive", "shared")

    def __init__(
        self,
        config: OpenAIConfig,
        *,
        text: Callable[[Sequence[int]], str],
        keep_alive: str = KEEP_ALIVE,
        shared: bool = False,
    ) -> None:
        super().__init__(config, shared=shared, text=text)
        self._text = text
        self._keep_alive = keep_alive

    async def ready(self) -> None:
        await self._request("GET", "api/version")

    async def _listed(self) -> list[str]:
        listed = cast("object", (await self._request("GET", "api/tags")).get("models"))
        entries = cast("list[object]", listed) if isinstance(listed, list) else []
        return [str(cast("dict[str, object]", one).get("name")) for one in entries if isinstance(one, dict)]

    async def _find_model(self) -> None:
        names = await self._listed()
        named = self._model
        if named and named not in names and f"{named}:latest" in names:
            named = f"{named}:latest"
        get = f"; get it with `{shell_line('ollama', 'pull', named or 'qwen2.5-coder:1.5b-base')}`"
        if named and named not in names:
            raise self._model_missing(named, names)
        self._model = pick_model(names, named, self._config.url, get=get, only=True)
        model_info: Any = (await self._request("POST", "api/show", {"model": self._model})).get("model_info")
        info = cast("dict[str, object]", model_info) if isinstance(model_info, dict) else {}
        self._has_context(info.get(f"{info.get('general.architecture')}.context_length"))

    def _model_missing(self, name: str, names: Sequence[str] = ()) -> EngineUnavailableError:
        has = f" (it has {', '.join(names[:8])})" if names else ""
        return EngineUnavailableError(
            f"{self._config.url}: Ollama has no model {name!r}{has}; get it with `{shell_line('ollama', 'pull', name)}`",
            fault=Fault.ERROR,
        )

    async def _probe(self) -> ServerFeatures:
        """Loads the model, and finds out whether Ollama reports log-probabilities: versions before 0.12 do not."""
        await self._request("POST", self.path, self._generate("", 1) | {"stream": False})
        reply = await self._request("POST", self.path, self._generate("a", 1) | {"stream": False, "logprobs": True})
        if "response" not in reply or reply.get("done") is not True:
            raise EngineUnavailableError(f"{self._config.url}: does not answer as Ollama does; is it one?")
        return ServerFeatures(logprobs=bool(reply.get("logprobs")), usage=True)

    def _generate(self, prompt: str, tokens: int) -> dict[str, Any]:
        options: dict[str, Any] = {"num_ctx": self._context_limit_tokens, "num_predict": tokens, "temperature": 0.0}
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": prompt,
            "raw": True,
            "truncate": False,  # else Ollama cuts the front of a long prompt, and with it the family's own prefix token
            "shift": False,
            "keep_alive": self._keep_alive,
            "options": options,
            **self._config.extra_body,
        }
        return body

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        params = request.params
        tokens = self._most_tokens(request)
        body: dict[str, Any] = {**self._generate(self._text(request.token_ids), tokens), "stream": True}
        body["options"] |= {"temperature": params.temperature}
        if params.stop_strings:
            body["options"]["stop"] = list(params.stop_strings)
        if self._features.logprobs:
            body["logprobs"] = True
        return body

    def _reader(self, request: GenerationRequest) -> Reader:
        return _AnswerLines(self._url)

    def _refused(self, url: str, status: int, text: str) -> EngineUnavailableError | PromptRefusedError:
        return self._model_missing(self._model) if status == 404 and self._model else status_error(url, status, text)

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        """Does nothing: Ollama computes one request at a time, and the request of the next key would wait for the warm-up."""

    def capabilities(self) -> Capabilities:
        notes = ("prompts go as raw text (exact: false)", "how much of a prompt was cached is not known")
        return replace(super().capabilities(), cached_tokens=False, block_tokens=1, notes=notes)
