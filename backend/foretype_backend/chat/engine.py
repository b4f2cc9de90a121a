"""A chat server as an engine: OpenAI's `/chat/completions`, upstream. The server applies its model's own chat template."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.openai.events import OpenAIConfig, ServerFeatures
from foretype_backend.engines.port import Capabilities, Chunk, EngineStatistics, GenerationRequest
from foretype_backend.engines.salting import as_text
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.errors import EngineUnavailableError, PromptRefusedError, SaltIgnoredError
from foretype_backend.prefix.origin import Origin


class Conversations(OpenAIEngine):
    """Prompts are bodies: `prompt_text` is the JSON of `messages` and what else the server is to get.

    Args:
        free_model: that some requests name instead; proved as the other is.
    """

    path = "chat/completions"
    may_chat = True

    def __init__(self, config: OpenAIConfig, *, free_model: str | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        self._free_model = free_model

    def _models(self) -> tuple[str, ...]:
        return (self._model,) if self._free_model is None else (self._model, self._free_model)

    def _salted_body(self, prompt: Sequence[int]) -> dict[str, Any]:
        asked = {"messages": [{"role": "user", "content": as_text(prompt)}]}
        return {**self._config.extra_body, **asked, "max_tokens": 1}

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        """A conversation cannot be warmed by its tokens."""

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        if request.prompt_text is None:
            raise PromptRefusedError("chat needs messages, not token ids")
        body: dict[str, Any] = msgspec.json.decode(request.prompt_text)
        return {
            "model": self._model,
            **self._config.extra_body,
            **body,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": request.params.max_tokens,
        }


class ChatEngine(Conversations):
    """One server, asked for conversations.

    A server that is away at the start is no reason not to start: it is asked with the first request.

    Args:
        shared: as of :class:`OpenAIEngine`. A server that is there at the start and does not keep salts apart is refused then.
    """

    def __init__(self, config: OpenAIConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self._features = ServerFeatures(usage=True)

    async def start(self) -> None:
        """Make the client; where one tenant has the server nothing is asked yet."""
        if self._client is not None:
            return
        self._open()
        self._looking = asyncio.create_task(self._look_again(), name="chat server's metrics")
        try:
            await self.keep_apart()
        except SaltIgnoredError:
            await self._hang_up()
            raise
        except EngineUnavailableError:
            pass  # it is asked with the first request

    async def _look_again(self) -> None:
        await self.scrape()
        await super()._look_again()

    async def _prove_salts(self) -> None:
        if not self._model:
            await self._find_model()
        await super()._prove_salts()

    def statistics(self) -> EngineStatistics:
        return super().statistics()._replace(kv_use=self.metrics.kv_use)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        if not self._model:
            await self._find_model()
        async with contextlib.aclosing(cast("AsyncGenerator[Chunk]", super().generate(request))) as chunks:
            async for chunk in chunks:
                yield chunk


class ChatReplica(Conversations, VllmServerEngine):
    """One replica of a chat model among several. The token ids of a prompt only say what of it is likely to be cached."""

    aborted_as = "chatcmpl-{}"
    reads_ids = False
    arguments = (*VllmServerEngine.arguments, "free_model")
    checked_with = '{"messages":[{"role":"user","content":"x"}]}'

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), token_ids=False, logprobs=False)
