"""What a load run keeps, and its report.

Latencies count from the moment that was planned, so a generator or a gateway that falls behind shows it (no coordinated
omission); HdrHistogram keeps three digits at any size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from foretype_eval.load.aborts import relayed_s
from foretype_eval.load.sent_request import SentRequest

_HIGHEST_US: Final = 600_000_000


class _Histogram(Protocol):
    """The part of an HdrHistogram that is used; the package has no types."""

    def record_value(self, value: int) -> bool: ...
    def get_value_at_percentile(self, percentile: float) -> int: ...


def percentiles_ms(values_s: Sequence[float]) -> dict[str, Any]:
    """n, p50, p95, p99 and the largest, in milliseconds; values below zero count as zero."""
    if not values_s:
        return {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}
    # Here and not above: the environment of vLLM cannot have this package (it wants another setuptools), and has the other benches.
    from hdrh import histogram as hdrh  # pyright: ignore[reportMissingTypeStubs]

    histogram = cast(_Histogram, hdrh.HdrHistogram(1, _HIGHEST_US, 3))
    for value in values_s:
        histogram.record_value(min(_HIGHEST_US, max(1, round(value * 1e6))))
    points = {name: histogram.get_value_at_percentile(p) / 1000 for name, p in _POINTS.items()}
    return {"n": len(values_s)} | {name: round(float(value), 3) for name, value in points.items()}


_POINTS: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


@dataclass(slots=True)
class Recorder:
    """Counts and latencies (seconds) of the measured part of a run.

    Attributes:
        queued_s: waited for a slot, as the gateway told it of answered requests.
        cancel_s: from an explicit cancel to its `done`.
        cancel_sent_s: when a request was cancelled or superseded, by its id.
        kept: each request, in the order of asking, for who plays them again; None, which is usual, keeps none.
    """

    ttft_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    total_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    queued_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cancel_s: list[float] = field(default_factory=list[float])
    cancel_sent_s: dict[str, float] = field(default_factory=dict[str, float])
    late_s: list[float] = field(default_factory=list[float])
    kept: list[SentRequest] | None = None
    outcomes: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    asked_class: Counter[str] = field(default_factory=Counter[str])
    refused_class: Counter[str] = field(default_factory=Counter[str])
    requests: int = 0
    answered_in_time: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    wasted_tokens: int = 0
    needs: int = 0
    lost_connections: int = 0

    def report(
        self, *, seconds: float, engine_first_s: float, aborted_s: Mapping[str, float] | None = None
    ) -> dict[str, Any]:
        """The figures.

        Args:
            engine_first_s: what the scripted engine itself takes to its first frame.
            aborted_s: when it was told to abort, by request; None where that is not known.
        """
        firsts = [value for values in self.ttft_s.values() for value in values]
        return {
            "requests": self.requests,
            "achieved_rate": round(self.requests / seconds, 1),
            "answered_rate": round(sum(map(len, self.total_s.values())) / seconds, 1),
            "added_ms": percentiles_ms([value - engine_first_s for value in firsts]),
            "ttft_ms": {name: percentiles_ms(values) for name, values in sorted(self.ttft_s.items())},
            "total_ms": {name: percentiles_ms(values) for name, values in sorted(self.total_s.items())},
            "cancel_ms": percentiles_ms(relayed_s(self.cancel_sent_s, aborted_s or {})),
            "cancel_done_ms": percentiles_ms(self.cancel_s),
            "availability": round(self.answered_in_time / self.requests, 6) if self.requests else None,
            "refused": sum(self.refused.values()),
            "refused_by_code": dict(sorted(self.refused.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            "unanswered": self.requests - sum(self.outcomes.values()),
            "cached_share": round(self.cached_tokens / self.prompt_tokens, 4) if self.prompt_tokens else None,
            "wasted_token_share": round(self.wasted_tokens / self.generated_tokens, 4)
            if self.generated_tokens
            else None,
            "needs": self.needs,
            "lost_connections": self.lost_connections,
            "generator_late_ms": percentiles_ms(self.late_s),
        }
