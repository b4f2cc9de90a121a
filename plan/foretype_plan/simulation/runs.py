"""Scenarios run over seeds: rows that are kept, means with intervals, and what differs from the first variant."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from foretype_plan.errors import PlanError
from foretype_plan.scenario import Tier
from foretype_plan.simulation.figures import interval
from foretype_plan.simulation.people import Arrivals
from foretype_plan.simulation.scenarios import SCENARIOS, Base

Progress = Callable[[str, int, int], None]
_Row = dict[str, Any]


class Rows:
    """What was run already, in a file of JSON lines; an interrupted run goes on where it was. None keeps nothing.

    Raises:
        PlanError: the file cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[str, _Row] = {}
        if path is None or not path.exists():
            return
        try:
            for line in path.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):  # one that was cut short is made again
                    row = json.loads(line)
                    self._rows[row["key"]] = row["row"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PlanError("out", f"{path} is no file of rows: {error}; name another") from error

    def get(self, key: str) -> _Row | None:
        return self._rows.get(key)

    def add(self, key: str, row: _Row) -> None:
        self._rows[key] = row
        if self._path is not None:
            whole = b"".join(json.dumps({"key": one, "row": kept}).encode() + b"\n" for one, kept in self._rows.items())
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_bytes(whole)


def run_scenario(
    name: str, *, tier: Tier, arrivals: Arrivals, seconds: float, seeds: int, rows: Rows, progress: Progress
) -> dict[str, Any]:
    """All variants, each with `seeds` seeds.

    Returns:
        `variants`: of each `figures`, mean with its 95 % interval; `compared`: what differs from the first variant, seed by seed.

    Raises:
        PlanError: unknown, or it cannot be run with this hardware and these arrivals.
    """
    if name not in SCENARIOS:
        raise PlanError("scenario", f"{name!r} is none of {', '.join(SCENARIOS)}")
    scenario = SCENARIOS[name]
    settings = blake2b(repr((tier, arrivals, seconds)).encode(), digest_size=8).hexdigest()
    found: dict[str, list[_Row]] = {}
    total = len(scenario.variants) * seeds
    for variant, run in scenario.variants.items():
        for seed in range(seeds):
            key = f"{name}/{variant}/{seed}/{settings}"
            row = rows.get(key)
            if row is None:
                cell, more = run(Base(tier, arrivals, seconds, seed))
                row = rounded(cell.report() | {"classes": cell.tally.classes()} | more)
                rows.add(key, row)
            found.setdefault(variant, []).append(row)
            progress(name, sum(map(len, found.values())), total)
    first = next(iter(found))
    return {
        "scenario": name,
        "says": scenario.says,
        "model": tier.model,
        "gpu": tier.gpu,
        "seeds": seeds,
        "variants": [{"name": variant, "figures": _figures(each), "of_seeds": each} for variant, each in found.items()],
        "compared": [
            {"name": variant, "with": first, "figures": _differences(found[first], each)}
            for variant, each in found.items()
            if variant != first
        ],
    }


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in row.items() if isinstance(value, (int, float))}


def _figures(each: Sequence[_Row]) -> dict[str, dict[str, float]]:
    rows = [_numbers(row) for row in each]
    return {key: rounded(interval([row[key] for row in rows])) for key in rows[0]}


def _differences(before: Sequence[_Row], after: Sequence[_Row]) -> dict[str, dict[str, float]]:
    pairs = [(_numbers(left), _numbers(right)) for left, right in zip(before, after, strict=True)]
    keys = pairs[0][0].keys() & pairs[0][1].keys()
    return {key: rounded(interval([right[key] - left[key] for left, right in pairs])) for key in sorted(keys)}


def rounded(value: Any) -> Any:
    """Six digits: more say nothing, and differ between machines. No number is without bound, or none."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {str(key): rounded(one) for key, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in cast("Sequence[Any]", value)]
    return value
