"""The texts that both ends of a connection remember, so that they travel once; counted for the tenant, within its bound."""

from __future__ import annotations

from typing import Final

from foretype_context.prompt.templates import Grammar
from foretype_wire.gateway_protocol import GatewaySession
from foretype_wire.messages import Complete, WireSegment
from foretype_wire.segment_cache import SegmentCache

from foretype_backend.admission.bounds import Bound
from foretype_backend.serving.render import Renderer, Resolved, SessionEncoder, resolve

_ENTRY_BYTES: Final = 256
"""What a remembered text takes beside its own bytes."""


class RememberedTexts:
    """Of one connection: its segment cache, and the ids that its texts were encoded to.

    Args:
        bound: of all connections, by tenant.
    """

    __slots__ = ("_bound", "_counted", "_encoder", "_former", "_max_segments", "_renderer", "_session", "_tenant")

    def __init__(
        self, session: GatewaySession, renderer: Renderer, bound: Bound, tenant: str, *, max_segments: int
    ) -> None:
        self._session = session
        self._renderer = renderer
        self._bound = bound
        self._tenant = tenant
        self._max_segments = max_segments
        self._counted = 0  # bytes, as they are counted for the tenant
        self._former = Resolved()
        self._encoder: SessionEncoder | None = None  # most connections are silent, and need none

    def use(self, renderer: Renderer) -> None:
        """Another one renders from now on: texts stay, their ids do not."""
        self._renderer, self._encoder = renderer, None

    def encoder(self) -> SessionEncoder:
        if self._encoder is None:
            self._encoder = self._renderer.remembering()
        return self._encoder

    def forget(self) -> None:
        """Drop all of it; the client is asked for it again."""
        self._session.cache = SegmentCache(self._session.cache.capacity_bytes)
        self._count()
        self._encoder, self._former = None, Resolved()

    def close(self) -> None:
        self._session.cache.clear()
        self._count()

    def resolve(self, message: Complete[WireSegment], grammar: Grammar) -> Resolved:
        """The segments of a request, or the digests of those that are not known here. Raises InvalidRequestError."""
        cache, most, former = self._session.cache, self._max_segments, self._former
        try:
            found = resolve(cache, message.segments, grammar, max_segments=most, former=former)
            if not found.missing:
                self._former = found
            return found
        finally:
            self._count()
            while self._bound.full(self._tenant) and self._counted:
                self._session.cache.shrink(len(self._session.cache) // 2)
                self._count()

    def _count(self) -> None:
        cache = self._session.cache
        now = cache.size_bytes + _ENTRY_BYTES * len(cache)
        if now != self._counted:
            self._bound.add(self._tenant, now - self._counted)
            self._counted = now
