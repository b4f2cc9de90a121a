"""What a load run keeps, and its report.

Latencies count from the moment that was planned, so a generator or a gateway that falls behind shows it (no coordinated
omission).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foretype_eval.load.aborts import relayed_s
from foretype_eval.load.sent_request import SentRequest
from foretype_eval.statistics import percentiles


def percentiles_ms(values_s: Sequence[float]) -> dict[str, Any]:
    """n, p50, p95, p99 and the largest, in milliseconds; values below zero count as zero."""
    values_ms = [max(0.0, value * 1000) for value in values_s]
    return percentiles(values_ms)._asdict() | {"max": round(max(values_ms), 3) if values_ms else None}


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
