"""The exporter: batches of spans over OTLP/HTTP, in a thread of the SDK's own. Importing this needs the extra `otel`."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from foretype_wire.tracing.spans import Tracing


def exporting_tracing(
    service: str, *, clock: Callable[[], float], named: bool, endpoint: str | None, sample_share: float | None
) -> Tracing:
    """See :func:`foretype_wire.tracing.opening.open_tracing`.

    Args:
        named: the environment names the service.
        endpoint: the URL to post to, or None for the environment's.
    """
    own = {"service.version": version("foretype")} | ({} if named else {"service.name": service})
    # Of the SDK's detectors only this one: others would send the command line and the host.
    resource = Resource(own).merge(OTELResourceDetector().detect())
    provider = TracerProvider(
        resource=resource,
        sampler=None if sample_share is None else ParentBasedTraceIdRatio(sample_share),
        shutdown_on_exit=False,  # a collector that is away would hold up the end of the process
    )
    exporter = OTLPSpanExporter(endpoint=endpoint)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider, clock=clock, wall_ns=time.time_ns)
