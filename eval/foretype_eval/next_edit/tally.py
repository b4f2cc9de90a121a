"""What was offered and what became of it, counted by document, fixture or commit; and the figures that are made of it. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from foretype_context.syntax.document import Edit

from foretype_eval.statistics import cluster_bootstrap, clustered_ratio, percentiles

TAB_KEYS: Final = 2
"""Of a next edit that is taken: one to go there, one to apply it."""
_POISSON: Final = 3.69
"""Of something that was never seen, as many as this might have been expected, at 97.5 %."""


@dataclass(frozen=True, slots=True)
class WrongOffer:
    """What was offered and not wanted, for those who improve the rules; its lines are other people's code."""

    cluster: str
    path: str
    evidence: str
    line: str
    offered: str
    done: tuple[str, ...]
    """What was edited before, newest first."""


@dataclass(slots=True)
class ClusterTally:
    """Counts of one cluster: items of one cluster are not independent, so intervals draw clusters.

    Attributes:
        opportunities: edits that could have been offered.
        met: those that were, before they were made.
        right, wrong: of what was shown, by evidence.
        keys: typed by hand.
        keys_saved: by what was right, its two Tabs taken off.
        jumps: of what was right, places without an edit.
        ms: processor time of each question.
    """

    cluster: str
    opportunities: int = 0
    met: int = 0
    keys: int = 0
    keys_saved: int = 0
    right: dict[str, int] = field(default_factory=dict[str, int])
    wrong: dict[str, int] = field(default_factory=dict[str, int])
    jumps: int = 0
    ms: list[float] = field(default_factory=list[float])
    mistakes: list[WrongOffer] = field(default_factory=list[WrongOffer])

    def judged(self, evidence: str, *, right: bool) -> None:
        counts = self.right if right else self.wrong
        counts[evidence] = counts.get(evidence, 0) + 1


def by_hand(edit: Edit) -> int:
    """Keys that an edit takes without help: one to get there, one to take out, one for each character that is put in."""
    return 1 + (edit.end > edit.start) + len(edit.text)


def figures(tallies: Sequence[ClusterTally], *, seed: int = 0) -> dict[str, Any]:
    """Counts and shares; `ci` holds 95 % intervals over clusters, None where they tell no spread.

    Of wrong ones per 1,000 keys where none was wrong, the interval ends at what might still have been expected.
    """
    right = [sum(one.right.values()) for one in tallies]
    wrong = [sum(one.wrong.values()) for one in tallies]
    precision, precision_ci = _share(tallies, right, wrong, seed)
    missed = [one.opportunities - one.met for one in tallies]
    recall, recall_ci = _share(tallies, [one.met for one in tallies], missed, seed)
    keys = sum(one.keys for one in tallies)
    per_key, per_key_ci = clustered_ratio(wrong, [one.keys / 1000 for one in tallies], seed=seed, digits=4)
    if not sum(wrong) and keys:
        per_key_ci = [0.0, round(1000 * _POISSON / keys, 4)]
    evidence = sorted({kind for one in tallies for kind in (*one.right, *one.wrong)})
    times = percentiles([value for one in tallies for value in one.ms])
    return {
        "opportunities": sum(one.opportunities for one in tallies),
        "shown": sum(right) + sum(wrong),
        "right": sum(right),
        "wrong": sum(wrong),
        "precision": precision,
        "recall": recall,
        "keys": keys,
        "wrong_per_1000_keys": per_key,
        "jumps": sum(one.jumps for one in tallies),
        "keys_saved": sum(one.keys_saved for one in tallies),
        "ms": {"p50": times.p50, "p99": times.p99, "n": times.n},
        "ci": {"precision": precision_ci, "recall": recall_ci, "wrong_per_1000_keys": per_key_ci},
        "by_evidence": {kind: _of_kind(tallies, kind, seed) for kind in evidence},
    }


def _of_kind(tallies: Sequence[ClusterTally], kind: str, seed: int) -> dict[str, Any]:
    right, wrong = [one.right.get(kind, 0) for one in tallies], [one.wrong.get(kind, 0) for one in tallies]
    precision, ci = _share(tallies, right, wrong, seed)
    counts = {"shown": sum(right) + sum(wrong), "right": sum(right), "wrong": sum(wrong)}
    return {**counts, "precision": precision, "ci": {"precision": ci}}


def _share(
    tallies: Sequence[ClusterTally], good: Sequence[int], bad: Sequence[int], seed: int
) -> tuple[float | None, list[float] | None]:
    values = [[1.0] * g + [0.0] * max(b, 0) for g, b in zip(good, bad, strict=True)]
    clusters = [one.cluster for one, own in zip(tallies, values, strict=True) for _ in own]
    if not clusters:
        return None, None
    found = cluster_bootstrap(list(itertools.chain(*values)), clusters, seed=seed, resamples=2000, proportion=True)
    return round(found.estimate, 4), found.ends()
