"""Spans with times of our own clocks. Importing this needs the extra `otel`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from foretype_wire.tasks import in_own_thread

__all__ = ["Attributes", "Span", "Tracing"]

Attributes = Mapping[str, str | int | float | bool]
"""Of a span: labels, counts and times. Never source text, file names or ids that a client chose."""

_W3C: Final = TraceContextTextMapPropagator()
_HEADER: Final = "traceparent"
_PARENT_CHARS: Final = 256
_JUMP_NS: Final = 50_000_000
_CLOSE_S: Final = 3.0


class Tracing:
    """Makes spans of one service and has them exported.

    Args:
        clock: seconds that spans are timed by; it may stand still while the machine sleeps.
        wall_ns: Unix nanoseconds.
    """

    def __init__(self, provider: TracerProvider, *, clock: Callable[[], float], wall_ns: Callable[[], int]) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("foretype")
        self._clock = clock
        self._wall_ns = wall_ns
        self._offset_ns = 0

    def begin(
        self,
        name: str,
        at_s: float,
        *,
        parent: Span | str | None = None,
        server: bool = False,
        attributes: Attributes | None = None,
    ) -> Span:
        """A span that is open from `at_s` on.

        Args:
            parent: a span of ours, or the `traceparent` that somebody sent (W3C Trace Context; one that cannot be read begins
                a trace of its own, as the standard wants it).
            server: it answers a request of another process; else it is a client's or inner work.
        """
        kind = SpanKind.SERVER if server else SpanKind.INTERNAL
        return self._tracer.start_span(
            name, _context(parent), kind=kind, attributes=attributes, start_time=self._ns(at_s)
        )

    def end(self, span: Span, at_s: float, attributes: Attributes | None = None, *, error: str = "") -> None:
        """Close a span; `error` is a code, never a message: those may hold text."""
        if attributes:
            span.set_attributes(attributes)
        if error:
            span.set_status(StatusCode.ERROR, error)
        span.end(self._ns(at_s))

    def stage(
        self, name: str, start_s: float, end_s: float, parent: Span, attributes: Attributes | None = None
    ) -> None:
        """A part of `parent` that is over."""
        self.end(self.begin(name, start_s, parent=parent, attributes=attributes), max(start_s, end_s))

    def mark(self, span: Span, name: str, at_s: float) -> None:
        """An event: something that happened in a span."""
        span.add_event(name, timestamp=self._ns(at_s))

    def traceparent(self, span: Span) -> str:
        """What makes a span elsewhere a child of `span`: `00-<trace id>-<span id>-<flags>`."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, set_span_in_context(span, Context()))
        return carrier.get(_HEADER, "")

    async def close(self) -> None:
        """Send what is left, for at most three seconds."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await in_own_thread(self._provider.shutdown)
        except TimeoutError:
            pass

    def _ns(self, at_s: float) -> int:
        offset_ns = self._wall_ns() - round(self._clock() * 1e9)
        if abs(offset_ns - self._offset_ns) > _JUMP_NS:  # below, spans of one trace stay in step with each other
            self._offset_ns = offset_ns
        return self._offset_ns + round(at_s * 1e9)


def _context(parent: Span | str | None) -> Context:
    """Never the surrounding one: what an embedding program traces is not the parent of ours."""
    if isinstance(parent, str):
        return _W3C.extract({_HEADER: parent[:_PARENT_CHARS]}, Context())
    return Context() if parent is None else set_span_in_context(parent, Context())
