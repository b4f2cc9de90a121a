"""Spans in memory, for tests."""

from collections.abc import Callable

from foretype_wire.tracing.spans import Tracing
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

EPOCH_NS = 1_700_000_000_000_000_000


class Traces:
    """Finished spans of one service; `tracing` is what product code gets."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider, clock=clock, wall_ns=lambda: EPOCH_NS + round(clock() * 1e9))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def times_ms(span: ReadableSpan) -> tuple[float, float]:
    """When it began and ended, in milliseconds of the test's clock."""
    assert span.start_time is not None and span.end_time is not None
    return ((span.start_time - EPOCH_NS) / 1e6, (span.end_time - EPOCH_NS) / 1e6)


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    context = parent.get_span_context()
    return span.parent is not None and span.parent.span_id == context.span_id
