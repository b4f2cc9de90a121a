"""Non-inferiority, metric by metric: the candidate may be worse than the baseline by a margin, and must be shown not to be by more.

Pure. Difference is candidate less baseline, oriented so that more is better. Its lower bound is one-sided, 95 %, and the lesser of two:
that of the paired bootstrap over clusters, and what as many clusters could have missed: a kind of cluster with which the candidate
loses all that the baseline has stays unseen in k of them with more than 5 % as long as it is rarer than 1 - 0.05^(1/k). So runs that
agree everywhere pass only where there are enough of them, and no bound has less width than its data.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from foretype_eval.compare.paired import RATIOS, joined, joined_commits
from foretype_eval.compare.runs import Run
from foretype_eval.errors import EvalError
from foretype_eval.fim.grade import GradedRow
from foretype_eval.replay.results import CommitRow, paired_ratio
from foretype_eval.statistics import Interval, paired_difference

LEVEL: Final = 0.95
"""Of each one-sided bound; `low` and `high` together are the ends of a 90 % interval."""

LEAST_CLUSTERS: Final = 20
"""A bootstrap over fewer problems or commits is too narrow, and decides nothing."""

MARGINS: Final[Mapping[str, float]] = {
    "pass_at_1": 0.02,
    "exact_match": 0.02,
    "no_harm": 0.02,
    "ksr": 0.01,
    "a_line_precision": 0.02,
}
"""How much worse a candidate may be, as shares of items, keystrokes and sessions: two points, of keystrokes one."""

_REFUSED_MOST: Final = 0.05

_FIM: Final[Mapping[str, Callable[[GradedRow], bool | None]]] = {
    "pass_at_1": lambda row: row.passed,
    "exact_match": lambda row: row.exact,
    "no_harm": lambda row: row.no_harm,
}


class MetricVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says of one metric.

    Attributes:
        before, after: of the baseline and of the candidate.
        low, high: one-sided bounds of the difference at `LEVEL`.
        verdict: `passes`, `fails`, or `undecided`: too few items, and no pass.
        n, clusters: items, and problems or commits that they come from.
        needed: items after which this difference and spread would pass; None where no number of them would, or it passes.
    """

    metric: str
    difference: float
    low: float
    high: float
    margin: float
    passes: bool
    verdict: str
    before: float
    after: float
    n: int
    clusters: int
    needed: int | None = None
    reason: str = ""


def judge_fim(baseline: Run, candidate: Run, margins: Mapping[str, float], *, seed: int = 0) -> list[MetricVerdict]:
    """A verdict for each measure that both benchmark runs have.

    Raises:
        EvalError: other items, or the baseline was not measured.
    """
    ids = joined(set(baseline.fim), set(candidate.fim), "items")
    rows = [(baseline.fim[id], candidate.fim[id]) for id in ids]
    refused = [row.error for row, _ in rows if row.error]
    if len(refused) > _REFUSED_MOST * len(rows):
        raise EvalError(
            f"--baseline: {len(refused)} of {len(rows)} items were refused ({refused[0]}); whoever is not measured cannot be kept up with"
        )
    found: list[MetricVerdict] = []
    for metric, value in _FIM.items():
        pairs = [
            (float(a), float(b), row.cluster)
            for row, other in rows
            if (a := value(row)) is not None and (b := value(other)) is not None
        ]
        if not pairs:
            continue
        first, second, clusters = [a for a, _, _ in pairs], [b for _, b, _ in pairs], [c for _, _, c in pairs]
        interval = paired_difference(second, first, clusters, seed=seed, level=2 * LEVEL - 1)
        found.append(
            _verdict(
                metric,
                interval,
                margins[metric],
                before=sum(first) / len(first),
                after=sum(second) / len(second),
                most=(_most(first, clusters), _most(second, clusters)),
            )
        )
    if not found:
        raise EvalError("--baseline, --candidate: the runs have no measure in common")
    return found


def judge_replay(
    baseline: Run, candidate: Run, system: str, margins: Mapping[str, float], *, seed: int = 0
) -> list[MetricVerdict]:
    """A verdict on keystrokes saved and on how many suggestions are right, of one system. Raises EvalError."""
    first, second = joined_commits(baseline, candidate, system)
    found: list[MetricVerdict] = []
    for metric in ("ksr", "a_line_precision"):
        over, under, sign = RATIOS[metric]
        interval = paired_ratio(second, first, over, under, seed=seed, level=2 * LEVEL - 1)
        if interval is None:
            continue
        ends = None if interval.low is None or interval.high is None else (sign * interval.low, sign * interval.high)
        oriented = Interval(
            sign * interval.estimate,
            *((None, None) if ends is None else (min(ends), max(ends))),
            sum(getattr(row, under) for row in first),
            interval.n_clusters,
        )

        def share(rows: Sequence[CommitRow], over: str = over, under: str = under, sign: int = sign) -> float:
            below = sum(getattr(row, under) for row in rows)
            ratio = sum(getattr(row, over) for row in rows) / below if below else 0.0
            return ratio if sign > 0 else 1 - ratio

        def best(rows: Sequence[CommitRow], under: str = under) -> float:
            usual = sum(getattr(row, under) for row in rows) / len(rows)  # a commit of a few sessions weighs little
            return max((share([row]) for row in rows if getattr(row, under) >= max(1, usual)), default=0.0)

        found.append(
            _verdict(
                metric,
                oriented,
                margins[metric],
                before=share(first),
                after=share(second),
                most=(best(first), best(second)),
            )
        )
    if not found:
        raise EvalError(f"--replay: nothing was typed or shown in the commits of {system}; name other commits")
    return found


def deciding(verdicts: Sequence[MetricVerdict]) -> MetricVerdict:
    """The one on which the whole depends: one that fails before one that is undecided, then the one with the least room."""
    order = ("fails", "undecided", "passes")
    return min(verdicts, key=lambda one: (order.index(one.verdict), (one.low + one.margin) / max(one.margin, 1e-9)))


def _verdict(
    metric: str,
    interval: Interval,
    margin: float,
    *,
    before: float,
    after: float,
    most: tuple[float, float],
) -> MetricVerdict:
    """`most`: what the baseline and the candidate have in their best cluster."""
    difference, clusters = interval.estimate, interval.n_clusters
    unseen = 1 - (1 - LEVEL) ** (1 / clusters)
    bootstrapped = difference if interval.low is None else interval.low
    low = min(bootstrapped, difference - unseen * max(0.0, most[0] + difference))
    high = max(
        difference if interval.high is None else interval.high, difference + unseen * max(0.0, most[1] - difference)
    )
    told, reason, needed = "passes", "", None
    if most[0] <= 0:
        told, reason = "undecided", "the baseline has none right here, so that nothing could be lost; take other items"
    elif difference <= -margin:
        told, reason = "fails", "worse by the margin or more"
    elif low < -margin or clusters < LEAST_CLUSTERS:
        told = "undecided"
        needed = _needed(difference, bootstrapped, margin, interval, most[0])
        reason = f"too few: {interval.n_items:,} items of {clusters:,} problems or commits; about {needed:,} would do"
    return MetricVerdict(
        metric=metric,
        difference=round(difference, 6) + 0.0,
        low=round(low, 6) + 0.0,
        high=round(high, 6) + 0.0,
        margin=margin,
        passes=told == "passes",
        verdict=told,
        before=round(before, 6),
        after=round(after, 6),
        n=interval.n_items,
        clusters=clusters,
        needed=needed,
        reason=reason,
    )


def _needed(difference: float, low: float, margin: float, interval: Interval, worst: float) -> int:
    """Items until a bound with this spread, and that of what may be unseen, stand above the margin."""
    room, clusters = difference + margin, interval.n_clusters
    by_spread = clusters * ((difference - low) / room) ** 2
    share = room / max(1e-9, worst + difference)
    by_unseen = math.log(1 - LEVEL) / math.log(1 - share) if share < 1 else 1.0
    return math.ceil(max(by_spread, by_unseen, LEAST_CLUSTERS) * interval.n_items / clusters)


def _most(values: Sequence[float], clusters: Sequence[str]) -> float:
    """The greatest mean of a cluster."""
    of: defaultdict[Any, list[float]] = defaultdict(list)
    for value, cluster in zip(values, clusters, strict=True):
        of[cluster].append(value)
    return max(sum(own) / len(own) for own in of.values())
