"""One replica of a chat model among several: `vllm serve` as :class:`VllmServerEngine` knows it, asked for conversations.

Prompts are bodies, as of :class:`foretype_backend.chat.engine.ChatEngine`; their token ids only say what of them is likely to be cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from foretype_backend.engines.openai.events import OpenAIConfig
from foretype_backend.engines.port import Capabilities, GenerationParams, GenerationRequest, Origin
from foretype_backend.engines.salting import as_text
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.errors import PromptRefusedError

_CHECK: Final = '{"messages":[{"role":"user","content":"x"}]}'


class ChatReplica(VllmServerEngine):
    """See the module.

    Args:
        free_model: that some requests name instead; proved as the other is.
    """

    path = "chat/completions"
    aborted_as = "chatcmpl-{}"
    reads_ids = False

    def __init__(self, config: OpenAIConfig, *, free_model: str | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        self._free_model = free_model

    @classmethod
    def from_config(cls, **config: object) -> ChatReplica:
        ours = ("vocabulary_tokens", "transfer_parameters", "shared", "name", "free_model")
        own: dict[str, Any] = {name: config.pop(name) for name in ours if name in config}
        return cls(OpenAIConfig.of(**config), **own)

    def _models(self) -> tuple[str, ...]:
        return (self._model,) if self._free_model is None else (self._model, self._free_model)

    def _salted_body(self, prompt: Sequence[int]) -> dict[str, Any]:
        asked = {"messages": [{"role": "user", "content": as_text(prompt)}]}
        return {**self._config.extra_body, **asked, "max_tokens": 1}

    async def check(self) -> None:
        """An answer of two tokens and the server's own figures. Raises EngineUnavailableError."""
        await self._find_model()
        self._checks += 1
        two = GenerationParams(max_tokens=2)
        request = GenerationRequest(f"foretype-check-{self._checks}", [1], two, salt="foretype", prompt_text=_CHECK)
        async for _ in self.generate(request):
            pass
        await self.scrape()

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

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), token_ids=False, logprobs=False)
