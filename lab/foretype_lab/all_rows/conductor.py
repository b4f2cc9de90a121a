"""Runs benches in turns: a round of this tree, a round of the other, the first of each round changing.

Machines differ by a factor of two from one hour to the next, so a figure is compared with one that was taken beside it, and the ratio
has an interval over rounds. A bench that fails has rows that say why, and the next one is run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from foretype_eval.statistics import clustered_ratio

from foretype_lab.all_rows.table import Aimed, Bench, Better, Row, picked
from foretype_lab.errors import BenchFailedError

OURS: Final = "ours"
THEIRS: Final = "against"
_DIGITS: Final = 4
_BEHIND: Final = 1.1
_NO_RECORD: Final = "missed, and no record names the limit"

Ask = Callable[[Bench, str], dict[str, Any]]
"""The report of a bench, run on a side. Raises BenchFailedError."""


def conduct(
    benches: Sequence[Bench], ask: Ask, *, against: bool, kept: Mapping[str, dict[str, Any]] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each bench, when it is done.

    Args:
        against: there is another side.
        kept: rows by name that were measured before; a bench whose rows all have a value there is not run again.
    """
    before = kept or {}
    for bench in benches:
        known = [before.get(row.name) for row in bench.row]
        if known and all(one is not None and one["value"] is not None for one in known):
            yield [one for one in known if one is not None]
        else:
            yield _measured(bench, ask, (OURS, THEIRS)[: bench.sides(against=against)])


def _measured(bench: Bench, ask: Ask, sides: tuple[str, ...]) -> list[dict[str, Any]]:
    reports: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    reason: dict[str, str] = {}
    for number in range(bench.rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            if side in reason or OURS in reason:
                continue
            try:
                reports[side].append(ask(bench, side))
            except BenchFailedError as error:
                reason[side] = str(error)
    if OURS in reason:
        return [_row(row, record=reason[OURS]) for row in bench.row]
    theirs = [] if THEIRS in reason else reports.get(THEIRS, [])
    return [_figure(row, reports[OURS], theirs, reason.get(THEIRS)) for row in bench.row]


def _figure(
    row: Row, ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], reason: str | None
) -> dict[str, Any]:
    try:
        values = [row.value(report) for report in ours]
        peers = [picked(report, row.peer) for report in ours] if row.peer else []
    except BenchFailedError as error:
        return _row(row, record=str(error))
    if not row.peer:
        try:
            peers = [row.value(report) for report in theirs]
        except BenchFailedError as error:
            reason = str(error)
    value = statistics.median(values)
    ratio, bounds = clustered_ratio(values, peers, digits=_DIGITS) if peers else (None, None)
    low, high = bounds or (None, None)
    met = row.met(value, ratio, statistics.median(peers) if peers else None)
    compared = [mine / other for mine, other in zip(values, peers, strict=False) if other] or values
    middle = statistics.median(compared)
    record = f"the other side: {reason}" if reason else None
    if met is False:
        record = row.record or _NO_RECORD
    return _row(
        row,
        value=round(value, _DIGITS),
        against=round(statistics.median(peers), _DIGITS) if peers else None,
        ratio=ratio,
        low=low,
        high=high,
        met=met,
        record=record,
        spread=round((max(compared) - min(compared)) / middle, 3) if len(compared) > 1 and middle else None,
    )


def _row(row: Row, **known: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("value", "unit", "against", "ratio", "low", "high", "aim", "met", "record", "spread"))
    return {"name": row.name} | empty | {"unit": row.unit, "aim": aim_of(row)} | known


def behind(benches: Sequence[Bench], found: Mapping[str, dict[str, Any]]) -> list[str]:
    """Why a gate stays shut: rows without a figure, and rows a tenth behind the other commit even at the better end of their interval."""
    said: list[str] = []
    for row in (row for bench in benches for row in bench.row):
        value, low, high = (found[row.name][name] for name in ("value", "low", "high"))
        if value is None:
            said.append(f"{row.name}: {found[row.name]['record']}")
        elif low is not None and (low > _BEHIND if row.better is Better.LOWER else high < 1 / _BEHIND):
            said.append(f"{row.name}: {low:g} to {high:g} of the other commit's")
    return said


def aim_of(row: Row) -> str | None:
    """The aim in words; None where there is none."""
    if row.aim is None:
        return None
    of = " of the peer's" if row.of is Aimed.PEER else ""
    return f"{'≤' if row.better == 'lower' else '≥'} {row.aim:g}{of}"
