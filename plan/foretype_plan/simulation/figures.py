"""What a run counts, and how several runs become one figure with its interval."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Final

_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t, 95 % in two sides, by degrees of freedom from 1 on; beyond nine 2.2 is wide enough."""


def quantile(values: Sequence[float], share: float) -> float | None:
    """Of sorted values, the one that `share` of them do not exceed; None of none."""
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else None


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean over seeds, and its 95 % interval (Student's t); of one value no interval."""
    mean = fmean(values)
    if len(values) < 2:
        return {"mean": mean, "low": mean, "high": mean}
    t = _T[len(values) - 2] if len(values) - 2 < len(_T) else 2.2
    half = t * stdev(values) / math.sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


class Tally:
    """Counts of one run, from `begin_s` on.

    Attributes:
        asked, refused, silent, good: requests by class; `silent` were not asked on the ladder's last rung, `good` had their first token
            within their objective.
        ttft_s, tpot_s: by class.
    """

    def __init__(self, begin_s: float, objectives_s: Mapping[str, float]) -> None:
        self.begin_s = begin_s
        self._objectives_s = objectives_s
        self.asked: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.silent: Counter[str] = Counter()
        self.good: Counter[str] = Counter()
        self.cancelled = self.lost = 0
        self.ttft_s: dict[str, list[float]] = defaultdict(list)
        self.tpot_s: list[float] = []
        self.by_tenant: dict[str, Counter[str]] = defaultdict(Counter)
        self.rungs: list[tuple[float, str, str]] = []
        self.prompt_tokens = self.cached_tokens = 0
        self.late_by_minute: Counter[int] = Counter()
        self.asked_by_minute: Counter[int] = Counter()

    def ask(self, tenant: str, class_: str, asked_s: float) -> None:
        self.asked[class_] += 1
        self.by_tenant[tenant]["asked"] += 1
        self.asked_by_minute[int((asked_s - self.begin_s) / 60)] += 1

    def first(
        self, tenant: str, class_: str, asked_s: float, ttft_s: float, *, prompt_tokens: int, cached_tokens: int
    ) -> None:
        self.ttft_s[class_].append(ttft_s)
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        if ttft_s <= self._objectives_s.get(class_, math.inf):
            self.good[class_] += 1
            self.by_tenant[tenant]["good"] += 1
        else:
            self.late_by_minute[int((asked_s - self.begin_s) / 60)] += 1

    def report(self, seconds: float) -> dict[str, Any]:
        """Figures of the run; milliseconds, shares of 1."""
        asked = sum(self.asked.values())
        firsts = sorted(value for values in self.ttft_s.values() for value in values)
        paces = sorted(self.tpot_s)
        return {
            "requests": asked,
            "rate": asked / seconds,
            "ttft_p50_ms": _ms(quantile(firsts, 0.5)),
            "ttft_p95_ms": _ms(quantile(firsts, 0.95)),
            "ttft_p99_ms": _ms(quantile(firsts, 0.99)),
            "tpot_p50_ms": _ms(quantile(paces, 0.5)),
            "tpot_p99_ms": _ms(quantile(paces, 0.99)),
            "goodput": _share(sum(self.good.values()), asked - self.cancelled),
            "refused": _share(sum(self.refused.values()), asked),
            "silent": _share(sum(self.silent.values()), asked),
            "cancelled": _share(self.cancelled, asked),
            "lost": _share(self.lost, asked),
            "cached_share": _share(self.cached_tokens, self.prompt_tokens),
        }

    def classes(self) -> dict[str, dict[str, float]]:
        """By class: share refused, milliseconds to the first token."""
        return {
            name: {
                "asked": float(self.asked[name]),
                "refused": _share(self.refused[name], self.asked[name]),
                "ttft_p50_ms": _ms(quantile(sorted(self.ttft_s[name]), 0.5)),
                "ttft_p99_ms": _ms(quantile(sorted(self.ttft_s[name]), 0.99)),
            }
            for name in sorted(self.asked)
        }

    def tenants(self) -> dict[str, dict[str, float]]:
        """By tenant: goodput, and the shares of its requests that were refused or not asked for its rung."""
        return {
            name: {
                "goodput": _share(found["good"], found["asked"] - found["cancelled"]),
                "refused": _share(found["refused"], found["asked"]),
                "silent": _share(found["silent"], found["asked"]),
            }
            for name, found in sorted(self.by_tenant.items())
        }


def _ms(value: float | None) -> float:
    return 0.0 if value is None else 1000 * value


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
