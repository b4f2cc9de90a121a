"""The paired table: commits or problems are resampled, both runs together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from foretype_eval.compare.runs import Run
from foretype_eval.errors import EvalError
from foretype_eval.fim.grade import GradedRow
from foretype_eval.replay.results import CommitRow, paired_ratio
from foretype_eval.statistics import holm, mcnemar, paired_difference

LEAST_JOINED: Final = 0.8
"""Share of the smaller run that must be in the other one; below it they are not runs over the same items."""

RATIOS: Final = {
    "ksr": ("keys_with", "keys_without", -1),
    "cpo": ("accepted_chars", "opportunities", 1),
    "a_line_precision": ("sessions_right", "sessions", 1),
    "show_rate": ("shown", "opportunities", 1),
    "late_rate": ("late", "answered", 1),
    "cached_share": ("cached_tokens", "prompt_tokens", 1),
    "requests_per_opportunity": ("requests", "opportunities", 1),
}
"""Measures of a replay: counts of which one is divided by the other, and the sign that makes it grow with what it is named for."""


def compare_runs(first: Run, second: Run, *, seed: int = 0) -> dict[str, Any]:
    """Differences second - first, system by system or measure by measure.

    Raises:
        EvalError: of different kinds, or over different items.
    """
    if bool(first.fim) is not bool(second.fim):
        raise EvalError(f"{first.name} and {second.name} are runs of different kinds")
    return _fim(first, second, seed) if first.fim else _replay(first, second, seed)


def joined(first: set[str], second: set[str], what: str) -> list[str]:
    """Items of both runs. Raises EvalError where they are too few."""
    both = first & second
    least = min(len(first), len(second))
    if not both or len(both) < LEAST_JOINED * least:
        raise EvalError(f"only {len(both)} of {least} {what} are in both runs; run both over the same ones")
    return sorted(both)


def joined_commits(first: Run, second: Run, system: str) -> tuple[list[CommitRow], list[CommitRow]]:
    """Rows of one system for the commits of both runs, in the same order. Raises EvalError: too few, or typed otherwise."""
    ours, theirs = first.of(system), second.of(system)
    commits = joined(set(ours), set(theirs), "commits")
    a, b = [ours[commit] for commit in commits], [theirs[commit] for commit in commits]
    if any(x.keys_without != y.keys_without for x, y in zip(a, b, strict=True)):
        raise EvalError(f"{system}: the same commits have other keystrokes; were other --suffix files typed?")
    return a, b


def _replay(first: Run, second: Run, seed: int) -> dict[str, Any]:
    names = [system for system in first.systems() if system in second.systems()]
    if not names:
        raise EvalError(f"no system is in both: {', '.join(first.systems())} and {', '.join(second.systems())}")
    systems: dict[str, Any] = {}
    for system in names:
        ours, theirs = first.of(system), second.of(system)
        a, b = joined_commits(first, second, system)
        measures: dict[str, Any] = {}
        for name, (over, under, sign) in RATIOS.items():
            found = paired_ratio(b, a, over, under, seed=seed)
            if found is not None:
                ends = found.ends(6)
                bounds = None if ends is None else sorted(sign * bound for bound in ends)
                measures[name] = {"difference": round(sign * found.estimate, 6), "ci": bounds}
        systems[system] = {
            "commits": len(a),
            "only_first": len(ours.keys() - theirs.keys()),
            "only_second": len(theirs.keys() - ours.keys()),
            "measures": measures,
        }
    return {"kind": "replay", "first": first.name, "second": second.name, "systems": systems}


def _fim(first: Run, second: Run, seed: int) -> dict[str, Any]:
    ids = joined(set(first.fim), set(second.fim), "items")
    a, b = [first.fim[id] for id in ids], [second.fim[id] for id in ids]
    wanted: dict[str, Callable[[GradedRow], bool | None]] = {
        "pass_at_1": lambda row: row.passed,
        "exact_match": lambda row: row.exact,
        "empty_rate": lambda row: row.empty,
    }
    measures: dict[str, Any] = {}
    for name, value in wanted.items():
        pairs = [
            (x, y, row.cluster)
            for row, other in zip(a, b, strict=True)
            if (x := value(row)) is not None and (y := value(other)) is not None
        ]
        if not pairs:
            continue
        before, after, clusters = [x for x, _, _ in pairs], [y for _, y, _ in pairs], [c for _, _, c in pairs]
        interval = paired_difference([float(y) for y in after], [float(x) for x in before], clusters, seed=seed)
        test = mcnemar(before, after)
        measures[name] = {
            "n": len(pairs),
            "first": round(sum(before) / len(pairs), 6),
            "second": round(sum(after) / len(pairs), 6),
            "difference": round(interval.estimate, 6),
            "ci": interval.ends(6),
            "only_first": test.only_first,
            "only_second": test.only_second,
            "mcnemar_p": test.p_value,
        }
    for measure, p_value in zip(measures.values(), holm([m["mcnemar_p"] for m in measures.values()]), strict=True):
        measure["mcnemar_p_holm"] = p_value
    only = {"only_first": len(first.fim) - len(ids), "only_second": len(second.fim) - len(ids)}
    return {"kind": "fim", "first": first.name, "second": second.name, "items": len(ids), **only, "measures": measures}
