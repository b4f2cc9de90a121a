"""From rows to the printed summary: every share with a clustered interval, brace-only items apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretype_eval.fim.grade import GradedRow
from foretype_eval.statistics import Interval, cluster_bootstrap, percentiles


def _share(rows: Sequence[GradedRow], value: Callable[[GradedRow], bool | None], seed: int) -> Interval | None:
    known = [(outcome, row.cluster) for row in rows if (outcome := value(row)) is not None]
    if not known:
        return None
    return cluster_bootstrap(
        [float(outcome) for outcome, _ in known], [cluster for _, cluster in known], seed=seed, proportion=True
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def summarise(rows: Sequence[GradedRow], *, seed: int = 0) -> dict[str, Any]:
    """The figures of a run. `ci` holds 95 % BCa intervals over clusters; null where nothing could be measured."""
    measures: dict[str, Callable[[GradedRow], bool | None]] = {
        "pass_at_1": lambda row: row.passed,
        "exact_match": lambda row: row.exact,
        "empty_rate": lambda row: row.empty,
        "end_of_middle_rate": lambda row: None if row.finish is None else row.finish == "end_of_middle",
        "repetition_rate": lambda row: row.repeats,
        "no_harm_rate": lambda row: row.no_harm,
    }
    intervals = {name: _share(rows, value, seed) for name, value in measures.items()}
    plain = [row for row in rows if not row.brace_only]
    braces = [row for row in rows if row.brace_only]
    answered = [row for row in rows if row.ttft_ms is not None]
    lengths = [row.chars / row.reference_chars for row in rows if row.reference_chars]
    tokens = [row.generated_tokens for row in rows if row.generated_tokens is not None]
    computed = sum(row.prompt_tokens or 0 for row in rows) - sum(row.cached_tokens or 0 for row in rows)
    return {
        "n": len(rows),
        **{name: None if found is None else _rounded(found.estimate) for name, found in intervals.items()},
        "ci": {name: None if found is None else found.ends() for name, found in intervals.items()},
        "ci_method": "95 % BCa bootstrap over clusters, 10,000 resamples; exact binomial where all outcomes are equal",
        "clusters": len({row.cluster for row in rows}),
        "executed": sum(row.passed is not None for row in rows),
        "outcomes": dict(sorted(Counter(row.outcome for row in rows if row.outcome).items())),
        "finish": dict(sorted(Counter(row.finish for row in rows if row.finish).items())),
        "errors": dict(sorted(Counter(row.error for row in rows if row.error).items())),
        "without_brace_only": _slice(plain),
        "brace_only": _slice(braces),
        "blank_references": sum(row.blank_reference for row in rows),
        "similarity": _rounded(float(np.mean([row.similarity for row in rows]))) if rows else None,
        "length_ratio_p50": _rounded(float(np.median(lengths))) if lengths else None,
        "generated_tokens_mean": _rounded(float(np.mean(tokens))) if tokens else None,
        "prompt_tokens_computed": computed,
        "ttft_ms": percentiles([row.ttft_ms for row in answered if row.ttft_ms is not None])._asdict(),
        "total_ms": percentiles([row.total_ms for row in answered if row.total_ms is not None])._asdict(),
    }


def _slice(rows: Sequence[GradedRow]) -> dict[str, Any]:
    executed = [row for row in rows if row.passed is not None]
    return {
        "n": len(rows),
        "pass_at_1": _rounded(sum(bool(row.passed) for row in executed) / len(executed)) if executed else None,
        "exact_match": _rounded(sum(row.exact for row in rows) / len(rows)) if rows else None,
    }
