"""Spans of a language server and its gateway, caught on their way to a collector: where between two messages the time went."""

import time
from contextlib import contextmanager
from typing import NamedTuple

from json_server import QuietHandler, listening
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ASKED = ("interactive", "block")  # the classes of what a user waits for


class Asked(NamedTuple):
    """One request of the language server's to its gateway; times in milliseconds on `time.perf_counter`'s clock.

    `computed_tokens`, `prefill_ms`: of the engine; None where it did not say.
    """

    sent_ms: float
    first_token_ms: float
    computed_tokens: int | None
    prefill_ms: float | None


class Spans:
    """What has arrived so far."""

    def __init__(self):
        self._spans = []
        self._shift_ns = time.time_ns() - time.perf_counter_ns()

    def arrived(self, body):
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self._spans += scope.spans

    def asked(self):
        """The requests that somebody waited for and that brought a token, in the order in which they were sent."""
        completions = {span.parent_span_id: span.span_id for span in self._spans if span.name == "foretype.completion"}
        prefills = {span.parent_span_id: span for span in self._spans if span.name == "foretype.prefill"}
        found = []
        for span in self._spans:
            first = [event.time_unix_nano for event in span.events if event.name == "first_token"]
            if span.name == "foretype.request" and first and _value(span, "foretype.class") in ASKED:
                prefill = prefills.get(completions.get(span.span_id))
                computed = None if prefill is None else _value(prefill, "foretype.computed_tokens")
                took_ms = None if prefill is None else (prefill.end_time_unix_nano - prefill.start_time_unix_nano) / 1e6
                found.append(Asked(self._ms(span.start_time_unix_nano), self._ms(first[0]), computed, took_ms))
        return sorted(found)

    def _ms(self, unix_ns):
        return (unix_ns - self._shift_ns) / 1e6


def _value(span, name):
    for attribute in span.attributes:
        if attribute.key == name:
            return getattr(attribute.value, attribute.value.WhichOneof("value"))
    return None


@contextmanager
def collector():
    """A collector for the programs that are started meanwhile with the environment it gives: spans, and that environment."""
    spans = Spans()

    class Handler(QuietHandler):
        def do_POST(self):
            spans.arrived(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

    with listening(Handler) as server:
        yield (
            spans,
            {
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
                "OTEL_BSP_SCHEDULE_DELAY": "500",
            },
        )
