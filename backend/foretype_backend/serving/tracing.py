"""Spans of a request in the gateway: its stages one after the other, with the names of `timings_ms`.

::

    foretype.completion          receipt to end; child of the client's span, parent of the replica's (`traceparent`)
    ├─ foretype.admit            parsing, rendering, encoding
    ├─ foretype.queue            for a slot, and in the engine
    ├─ foretype.prefill          prompt tokens that were cached and computed
    ├─ foretype.decode_first     until there is text
    └─ foretype.stream           the rest

A request's times are known when it is over, so its stages become spans then: while it runs, tracing costs what one span costs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from foretype_wire.messages import Usage

from foretype_backend.admission.outcomes import FINISHES, Reason
from foretype_backend.serving.completion import Record

if TYPE_CHECKING:  # OpenTelemetry's libraries, which a gateway that traces nothing never loads
    from foretype_wire.tracing.spans import Span, Tracing

_LANGUAGE: Final = re.compile(r"[a-z0-9+#._-]{1,32}")


class RequestTracer:
    """Traces the requests of one service.

    Args:
        tracing: timed by the service's clock.
        pool: the name that its spans carry.
    """

    def __init__(self, tracing: Tracing, *, pool: str) -> None:
        self._tracing = tracing
        self._pool = pool
        self._open: dict[str, Span] = {}

    def begin(self, record: Record) -> None:
        """A request has arrived; `record.traceparent` is what its engine is told."""
        job = record.job
        span = self._tracing.begin(
            "foretype.completion",
            job.received,
            parent=job.traceparent or None,
            server=True,
            attributes={"foretype.pool": self._pool, "foretype.class": job.class_.value},
        )
        self._open[job.key] = span
        record.traceparent = self._tracing.traceparent(span)

    def ended(self, record: Record, reason: Reason, usage: Usage, now: float) -> None:
        """A request is over at `now`, seconds on the service's clock."""
        job = record.job
        span = self._open.pop(job.key, None)
        if span is None:
            return
        if span.is_recording():
            self._stages(record, span, usage, now)
            if job.tenant:
                span.set_attribute("foretype.tenant", job.tenant)
            if _LANGUAGE.fullmatch(job.language):  # the client's word for it, which may be any text
                span.set_attribute("foretype.language", job.language)
        told = {
            "foretype.reason": reason.value,
            "foretype.attempts": record.attempts,
            "foretype.tokens_after_cancel": usage.tokens_after_cancel,
        }
        self._tracing.end(span, now, told, error="" if reason in FINISHES else reason.value)

    def _stages(self, record: Record, span: Span, usage: Usage, now: float) -> None:
        timings = record.timings(now)
        began = record.job.received
        attributes: Mapping[str, Mapping[str, str | int]] = {
            "prefill": {
                "foretype.prompt_tokens": usage.prompt_tokens,
                "foretype.cached_tokens": usage.cached_tokens,
                "foretype.computed_tokens": max(0, usage.prompt_tokens - usage.cached_tokens),
                "foretype.cached_source": usage.cached_source,
            },
            "stream": {"foretype.generated_tokens": usage.generated_tokens},
        }
        for stage in ("admit", "queue", "prefill", "decode_first", "stream"):
            ended = began + getattr(timings, stage) / 1000
            if ended > began:  # else it never came to that
                self._tracing.stage(f"foretype.{stage}", began, ended, span, attributes.get(stage))
            began = ended
        if record.first_text is not None:
            self._tracing.mark(span, "first_token", record.first_text)
