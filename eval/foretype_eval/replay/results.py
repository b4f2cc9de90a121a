"""Rows of a replay, and what is made of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec
import numpy as np

from foretype_eval.replay.developer import Tally
from foretype_eval.replay.trace import RequestRecord
from foretype_eval.statistics import Interval, clustered_ratio, has_spread, percentiles

STAGE_SAMPLES = 40
_RESAMPLES = 2000
_RATIOS = {
    "cpo": ("accepted_chars", "opportunities"),
    "late_rate": ("late", "answered"),
    "a_line_precision": ("sessions_right", "sessions"),
    "show_rate": ("shown", "opportunities"),
    "cached_share": ("cached_tokens", "prompt_tokens"),
}
"""Of a summary beside the keystrokes saved: which counts of its rows are divided by which."""


class CommitRow(msgspec.Struct, frozen=True, kw_only=True):
    """One system on one commit; counts only, never text."""

    system: str
    commit: str
    keys_without: int
    keys_with: int
    opportunities: int
    shown: int
    sessions: int
    sessions_right: int
    accepts: int
    accepted_chars: int
    requests: int
    cancelled: int
    late: int
    answered: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    tokens_after_cancel: int
    by_source: dict[str, int]
    slices: dict[str, list[int]] = {}
    """Suggestion sessions, right ones among them, and accepted characters, by `language:…`, `position:…`, `length:…`."""
    stages_ms: dict[str, list[float]] = {}
    """Milliseconds by stage of up to STAGE_SAMPLES requests."""


def row_of(system: str, commit: str, tally: Tally, records: Sequence[RequestRecord]) -> CommitRow:
    """Close the books of one commit. An answer is late if a key came between its request and its last token."""
    answered = [record for record in records if record.characters]
    keys = tally.key_times_s

    def late(record: RequestRecord) -> bool:
        following = bisect_right(keys, record.sent_s)
        return following < len(keys) and keys[following] < record.last_s

    return CommitRow(
        system=system,
        commit=commit,
        keys_without=tally.keys_without,
        keys_with=tally.keys_with,
        opportunities=tally.opportunities,
        shown=tally.shown,
        sessions=tally.sessions,
        sessions_right=tally.sessions_right,
        accepts=tally.accepts,
        accepted_chars=tally.accepted_chars,
        requests=len(records),
        cancelled=sum(record.cancelled for record in records),
        late=sum(map(late, answered)),
        answered=len(answered),
        prompt_tokens=sum(record.prompt_tokens for record in records),
        cached_tokens=sum(record.cached_tokens for record in records),
        generated_tokens=sum(record.generated_tokens for record in records),
        tokens_after_cancel=sum(record.tokens_after_cancel for record in records),
        by_source=dict(sorted(tally.by_source.items())),
        slices=dict(sorted(tally.slices.items())),
        stages_ms=_stages([record for record in records if record.stages_ms]),
    )


def _stages(records: Sequence[RequestRecord]) -> dict[str, list[float]]:
    """Samples spread evenly over the requests, by stage; stages that took no time anywhere are left out."""
    step = max(1, -(-len(records) // STAGE_SAMPLES))
    found: dict[str, list[float]] = {}
    for record in records[::step]:
        for stage, value in record.stages_ms.items():
            found.setdefault(stage, []).append(round(value, 2))
    return {stage: values for stage, values in sorted(found.items()) if any(values)}


def _ratio(rows: Sequence[CommitRow], over: str, under: str, seed: int) -> tuple[float | None, list[float] | None]:
    """Sum of `over` by sum of `under` with a 95 % interval, resampling commits; None where they are all alike."""
    tops, bottoms = ([getattr(row, name) for row in rows] for name in (over, under))
    return clustered_ratio(tops, bottoms, seed=seed, resamples=_RESAMPLES)


def paired_ratio(
    first: Sequence[CommitRow],
    second: Sequence[CommitRow],
    over: str,
    under: str,
    *,
    seed: int = 0,
    level: float = 0.95,
) -> Interval | None:
    """Difference of two ratios over the same commits in the same order, first - second, with its interval.

    Commits are resampled, both systems together. None where a denominator is empty;
    without an interval where the commits are all alike.
    """
    if len(first) != len(second):
        raise ValueError(f"the same commits in both: got {len(first)} and {len(second)}")
    tops, bottoms = (
        np.array([[getattr(row, name) for row in rows] for rows in (first, second)], dtype=float)
        for name in (over, under)
    )
    if not first or not bottoms.sum(axis=1).all():
        return None
    picks = np.random.default_rng(seed).integers(0, len(first), size=(_RESAMPLES, len(first)))
    top, bottom = tops[:, picks].sum(axis=2), bottoms[:, picks].sum(axis=2)
    known = (bottom > 0).all(axis=0)
    draws = top[0, known] / bottom[0, known] - top[1, known] / bottom[1, known]
    exact = tops.sum(axis=1) / bottoms.sum(axis=1)
    low = high = None
    if has_spread(draws):
        low, high = (float(np.quantile(draws, at)) for at in ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(exact[0] - exact[1]), low, high, len(first), len(first))


def summary(rows: Sequence[CommitRow], *, seed: int = 0) -> dict[str, object]:
    """What one system did over all commits; `ci` holds 95 % intervals, clustered by commit.

    `overhead_ms`: first text minus the engine's own queue, prefill and first decode, as `foretype bench latency` has it; None where
    latencies were laid from a trace.
    """
    keep, keep_ci = _ratio(rows, "keys_with", "keys_without", seed)
    ratios = {name: _ratio(rows, over, under, seed) for name, (over, under) in _RATIOS.items()}
    sources: dict[str, int] = {}
    for row in rows:
        for source, count in row.by_source.items():
            sources[source] = sources.get(source, 0) + count
    overhead = [value for row in rows for value in row.stages_ms.get("overhead", ())]
    total = {
        name: sum(getattr(row, name) for row in rows)
        for name in (
            "requests",
            "cancelled",
            "accepts",
            "accepted_chars",
            "shown",
            "sessions",
            "opportunities",
            "keys_without",
            "keys_with",
        )
    }
    return {
        "commits": len(rows),
        "ksr": None if keep is None else round(1 - keep, 6),
        **{name: ratio for name, (ratio, _) in ratios.items()},
        **total,
        "overhead_ms": percentiles(overhead)._asdict() if overhead else None,
        "shown_by_source": dict(sorted(sources.items())),
        "ci": {
            "ksr": None if keep_ci is None else [round(1 - keep_ci[1], 6), round(1 - keep_ci[0], 6)],
            **{name: interval for name, (_, interval) in ratios.items()},
        },
    }
