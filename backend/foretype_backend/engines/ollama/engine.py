"""Ollama through its own API: text that bypasses its templates (`raw`), with the same context size and keep-alive in every request.

Ollama's `/v1/completions` wraps the prompt as a user's message, and cannot set the context size. A `num_ctx` that differs from the last
one makes Ollama load the model anew, so `num_ctx` is chosen once. Prompts are sent as text, because Ollama refuses token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from foretype_context.text.pasted import shell_line

from foretype_backend.engines.ollama.lines import AnswerLines
from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.openai.events import OpenAIConfig, Reader, ServerFeatures, status_error
from foretype_backend.engines.openai.model_list import pick_model
from foretype_backend.engines.port import Capabilities, GenerationRequest
from foretype_backend.engines.prompt_limits import check_prompt
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError, SaltIgnoredError
from foretype_backend.prefix.origin import Origin

KEEP_ALIVE: Final = "30m"
_IDLE_S: Final = 120.0
"""Long, because a model that was not used for half an hour is loaded again with the next key."""


class OllamaEngine(OpenAIEngine):
    """Engine port over `/api/generate`.

    Args:
        config: with the address of the server itself, without `/v1`.
        text: turns a prompt's token ids into the text that the server is sent.
        keep_alive: how long the model stays in memory after a request, as Ollama writes durations.
    """

    path = "api/generate"

    def __init__(
        self,
        config: OpenAIConfig,
        *,
        text: Callable[[Sequence[int]], str],
        keep_alive: str = KEEP_ALIVE,
        shared: bool = False,
    ) -> None:
        super().__init__(config, shared=shared)
        self._text = text
        self._keep_alive = keep_alive

    @classmethod
    def from_config(cls, **config: object) -> OllamaEngine:
        """From the fields of :class:`OpenAIConfig`, and the arguments."""
        own: dict[str, Any] = {name: config.pop(name) for name in ("text", "keep_alive", "shared") if name in config}
        url = str(config.pop("url", "")).rstrip("/").removesuffix("/v1")
        return cls(OpenAIConfig.of(**{"idle_timeout_s": _IDLE_S} | config, url=url), **own)

    async def ready(self) -> None:
        await self._request("GET", "api/version")

    async def _prove_salts(self) -> None:
        raise SaltIgnoredError(
            f"{self._config.url}: an Ollama cannot keep tenants apart. Put `vllm serve` there, which takes `cache_salt`"
        )

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
        tokens = check_prompt(
            request.token_ids,
            params.max_tokens,
            context_limit_tokens=self._context_limit_tokens,
            vocabulary_tokens=None,
        )
        body: dict[str, Any] = {**self._generate(self._text(request.token_ids), tokens), "stream": True}
        body["options"] |= {"temperature": params.temperature}
        if params.stop_strings:
            body["options"]["stop"] = list(params.stop_strings)
        if self._features.logprobs:
            body["logprobs"] = True
        return body

    def _reader(self, request: GenerationRequest) -> Reader:
        return AnswerLines(self._url)

    def _refused(self, url: str, status: int, text: str) -> EngineUnavailableError | PromptRefusedError:
        return self._model_missing(self._model) if status == 404 and self._model else status_error(url, status, text)

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        """Does nothing: Ollama computes one request at a time, and the request of the next key would wait for the warm-up."""

    def capabilities(self) -> Capabilities:
        return Capabilities(
            salt=False,
            priority=False,
            cached_tokens=False,
            token_ids=False,
            logprobs=self._features.logprobs,
            context_limit_tokens=self._context_limit_tokens,
            block_tokens=1,
            model=self._model,
            notes=("prompts go as raw text (exact: false)", "how much of a prompt was cached is not known"),
        )

    def __repr__(self) -> str:
        return f"<OllamaEngine {self._config.url} {self._model!r} running={len(self._live)}>"
