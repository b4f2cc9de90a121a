"""llama.cpp's own server by its own interface: ids, a slot for each document, and an end where the grammar ends.

Its `/v1/completions` writes control tokens as nothing and does not say their ids; `/infill` builds prompts of its own. Here prompts go as
ids to `/completion`, whose parts carry the ids.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final, cast

from foretype_context.text.pasted import shell_line

from foretype_backend.engines.llama_cpp.parts import AnswerParts
from foretype_backend.engines.llama_cpp.slots import Slots
from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.openai.events import OpenAIConfig, Reader, ServerFeatures
from foretype_backend.engines.openai.http_stream import HttpStreams, StreamedResponse
from foretype_backend.engines.openai.model_list import pick_model
from foretype_backend.engines.openai.streaming import Stream
from foretype_backend.engines.port import Capabilities, GenerationRequest
from foretype_backend.engines.prompt_limits import check_prompt
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError, SaltIgnoredError
from foretype_backend.prefix.origin import Origin

_IDLE_S: Final = 120.0
"""A server that went to sleep loads its model again with the next key."""
_LOADING_S: Final = 0.5
"""Between two questions to a server that still loads its model."""
_SAID_LAST: Final = ("content", "tokens", "stop", "stop_type", "tokens_predicted", "tokens_evaluated", "timings")
"""Of its last part: else the whole prompt comes back with it."""


class LlamaCppEngine(OpenAIEngine):
    """Engine port over `/completion`.

    Args:
        config: with the address of the server itself, without `/v1`.
    """

    path = "completion"

    def __init__(self, config: OpenAIConfig, *, shared: bool = False) -> None:
        super().__init__(config, shared=shared)
        self._file = ""  # the model's, as the server says
        self._slots = Slots(1)

    @classmethod
    def from_config(cls, **config: object) -> LlamaCppEngine:
        """From the fields of :class:`OpenAIConfig`, and `shared`."""
        shared = bool(config.pop("shared", False))
        url = str(config.pop("url", "")).rstrip("/").removesuffix("/v1")
        return cls(OpenAIConfig.of(**{"idle_timeout_s": _IDLE_S} | config, url=url), shared=shared)

    async def ready(self) -> None:
        await self._same_model()

    async def _prove_salts(self) -> None:
        raise SaltIgnoredError(
            f"{self._config.url}: llama.cpp cannot keep tenants apart. Put `vllm serve` there, which takes `cache_salt`"
        )

    async def _find_model(self) -> None:
        props = await self._loaded()
        settings = cast("object", props.get("default_generation_settings"))
        if not isinstance(settings, dict):
            raise EngineUnavailableError(
                f"{self._config.url}: says no `default_generation_settings`; it is no llama-server: try `--engine openai`"
            )
        self._file = str(props.get("model_path") or "")
        name = PurePath(self._file).stem or str(props.get("model_alias") or "model")
        self._model = self._model or pick_model((name,), None, self._config.url)
        limit = cast("dict[str, object]", settings).get("n_ctx")
        self._has_context(limit, more="start llama-server with `-np 2 -c 8192`: `-c` is what its slots share")
        total = props.get("total_slots")
        self._slots = Slots(total if isinstance(total, int) and total > 0 else 1)

    async def _loaded(self) -> dict[str, Any]:
        """`/props`, as soon as the model is loaded: until then it answers 503."""
        async with asyncio.timeout(self._config.load_timeout_s):
            while True:
                try:
                    return await self._request("GET", "props")
                except EngineUnavailableError as error:
                    if error.fault is not Fault.BUSY:
                        raise
                await asyncio.sleep(_LOADING_S)

    async def _probe(self) -> ServerFeatures:
        """One token, that is seen to come with its id: where it does not, prompts of ids may be anything."""
        reply = await self._request("POST", self.path, self._completion([1, 1, 1], 1, {}) | {"stream": False})
        if not reply.get("tokens") or reply.get("tokens_evaluated") not in (3, 4):
            raise EngineUnavailableError(
                f"{self._config.url}: does not count a prompt of three ids as three; it is no llama-server of 2025 or newer"
            )
        return ServerFeatures(token_ids=True, logprobs=True, usage=True)

    async def _listed(self) -> list[str]:
        """Its one model, under the name that it had at the start while it is the same file."""
        now = str((await self._request("GET", "props")).get("model_path") or "")
        return [self._model if now == self._file else PurePath(now).stem]

    async def _same_model(self) -> None:
        """Raises EngineUnavailableError where the server has another model than at the start."""
        now = str((await self._request("GET", "props")).get("model_path") or "")
        if now != self._file:
            raise EngineUnavailableError(
                f"{self._config.url}: serves {PurePath(now).name} now, not {PurePath(self._file).name}; start that again, or "
                f"`{shell_line('foretype', 'use', self._config.url)}`",
                fault=Fault.REPLACED,
            )

    async def _connect(self, stream: Stream, streams: HttpStreams) -> StreamedResponse:
        """Another process can only be there where no connection to the former is left."""
        if not streams.connections:
            await self._same_model()
        return await super()._connect(stream, streams)

    def _completion(self, prompt: Sequence[int], tokens: int, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            "prompt": list(prompt),
            "n_predict": tokens,
            "cache_prompt": True,
            "return_tokens": True,
            "return_progress": True,  # says at the beginning what was cached: most answers are ended before their end
            "n_probs": 1,
            "temperature": 0.0,
            "response_fields": _SAID_LAST,
            **self._config.extra_body,
            **fields,
        }

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        params = request.params
        tokens = check_prompt(
            request.token_ids,
            params.max_tokens,
            context_limit_tokens=self._context_limit_tokens,
            vocabulary_tokens=None,
        )
        fields: dict[str, Any] = {"stream": True, "temperature": params.temperature}
        if params.stop_strings:
            fields["stop"] = list(params.stop_strings)
        return self._completion(request.token_ids, tokens, fields | self._slot(request.origin))

    def _slot(self, origin: Origin | None) -> dict[str, Any]:
        """Where the document's cache is; a request of no document takes what the server gives it."""
        if origin is None or not origin.document:
            return {}
        return {"id_slot": self._slots.of((origin.tenant, origin.session, origin.repository, origin.document))}

    def _reader(self, request: GenerationRequest) -> Reader:
        return AnswerParts(self._url, request.params.end_token_ids)

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        if self._live:
            return
        with contextlib.suppress(PromptRefusedError):
            await self._request(
                "POST", self.path, self._completion(token_ids, 0, self._slot(origin)) | {"stream": False}
            )

    def capabilities(self) -> Capabilities:
        return Capabilities(
            salt=False,
            priority=False,
            cached_tokens=True,
            token_ids=False,
            logprobs=True,
            context_limit_tokens=self._context_limit_tokens,
            block_tokens=1,
            model=self._model,
            notes=("prompts go as token ids", f"a slot for each document: {self._slots}"),
        )

    def __repr__(self) -> str:
        return f"<LlamaCppEngine {self._config.url} {self._model!r} running={len(self._live)}>"
