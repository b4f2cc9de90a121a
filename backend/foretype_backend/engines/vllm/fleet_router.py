"""A fleet's own router (llm-d, production-stack, Ray Serve LLM's) as one server: which replica answers is its to say.

It may take no token ids, or return none: then texts are read, and sent where ids are refused. Figures and aborts would reach any
replica, so that none are asked for: a request is cancelled by closing its stream. One replica's bad answer is not the router's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.openai.events import OpenAIConfig, ServerFeatures
from foretype_backend.engines.openai.streaming import Stream
from foretype_backend.engines.port import Capabilities, GenerationRequest
from foretype_backend.engines.vllm.metrics import VllmMetrics
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.errors import EngineUnavailableError

_CHECKS: Final = 3
_CHECK_PAUSE_S: Final = 0.05


class FleetRouterEngine(VllmServerEngine):
    """See the module.

    Args:
        session_header: by which the router keeps a session on one replica; "" sends none.
        text: as of :class:`OpenAIEngine`, where ids are refused.
    """

    arguments = (*VllmServerEngine.arguments, "session_header", "text")

    def __init__(
        self,
        config: OpenAIConfig,
        *,
        session_header: str = "",
        text: Callable[[Sequence[int]], str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(config, **options)
        self._as_text = text
        self._session_header = session_header

    async def _without_token_ids(self) -> ServerFeatures:
        self.reads_ids = False
        return await OpenAIEngine._probe(self)

    async def scrape(self) -> VllmMetrics:
        return self.metrics  # each answer would be another replica's

    async def _post_abort(self, request_ids: list[str]) -> bool:
        return False

    async def check(self) -> None:
        """Raises EngineUnavailableError where no replica behind the router answers, of a few that it may choose."""
        for left in reversed(range(_CHECKS)):
            try:
                return await super().check()
            except EngineUnavailableError:
                if not left:
                    raise
            await asyncio.sleep(_CHECK_PAUSE_S)

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        if self.reads_ids:
            return super()._stream_body(request)
        if request.prompt_text is None and not self._features.token_ids and self._as_text is None:
            request = GenerationRequest(request.id, request.token_ids, request.params, prompt_text="a")  # of a check
        return OpenAIEngine._stream_body(self, request)

    def _address(self, stream: Stream, request: GenerationRequest) -> None:
        super()._address(stream, request)
        session = "" if request.origin is None else request.origin.session
        if self._session_header and session:
            # A name of its own: what a session is called here is nobody's business there.
            stream.headers[self._session_header] = blake2b(session.encode(), digest_size=16).hexdigest()

    def capabilities(self) -> Capabilities:
        found = super().capabilities()
        if self.reads_ids:
            return found
        exact = "prompts go as token ids" if self._features.token_ids else "prompts go as text (exact: false)"
        return replace(
            found,
            token_ids=False,
            logprobs=self._features.logprobs,
            cached_tokens=self._features.usage,
            notes=(exact, "answers are read as text", *found.notes),
        )
