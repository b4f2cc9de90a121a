"""A chat server as an engine: OpenAI's `/chat/completions`, upstream. The server applies its model's own chat template."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, cast

import httpx
import msgspec

from foretype_backend.engines.openai import OpenAIEngine, Stream
from foretype_backend.engines.openai_wire import OpenAIConfig, ServerFeatures
from foretype_backend.engines.port import Chunk, EngineStatistics, GenerationRequest, Origin, PromptRefused
from foretype_backend.engines.vllm_metrics import LOOK_EVERY_S, read_metrics

__all__ = ["ChatEngine"]


class ChatEngine(OpenAIEngine):
    """Prompts are bodies: `prompt_text` is the JSON of `messages` and what else the server is to get.

    A server that is away at the start is no reason not to start: it is asked with the first request.

    Args:
        send_salt: add `cache_salt` (vLLM), so that tenants share no cache.
    """

    path = "chat/completions"

    def __init__(self, config: OpenAIConfig, *, send_salt: bool = False) -> None:
        super().__init__(config)
        self._send_salt = send_salt
        self._features = ServerFeatures(usage=True)
        self._kv_use: float | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Make the client; nothing is asked yet."""
        if self._client is None:
            self._open()
            self._looking = asyncio.create_task(self._look_again(), name="chat server's metrics")

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await super().close()

    async def look(self) -> None:
        """Read how full the server's cache is, where it says so (vLLM's `/metrics`)."""
        kv_use = None
        with contextlib.suppress(httpx.HTTPError, ValueError):
            answer = await self._http().get(self._config.root("/metrics"))
            if answer.status_code == 200:
                kv_use = read_metrics(answer.text).kv_use
        self._kv_use = kv_use

    async def _look_again(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def statistics(self) -> EngineStatistics:
        return super().statistics()._replace(kv_use=self._kv_use)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        if not self._model:
            await self._find_model()
        async with contextlib.aclosing(cast("AsyncGenerator[Chunk]", super().generate(request))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        """A chat server takes no tokens; nothing is warmed."""

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        if request.prompt_text is None:
            raise PromptRefused("chat needs messages, not token ids")
        body: dict[str, Any] = msgspec.json.decode(request.prompt_text)
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        return {
            "model": self._model,
            **self._config.extra_body,
            **body,
            **stream,
            "max_tokens": request.params.max_tokens,
        }

    def _address(self, stream: Stream, request: GenerationRequest) -> None:
        if self._send_salt and request.salt is not None:
            stream.body["cache_salt"] = request.salt
