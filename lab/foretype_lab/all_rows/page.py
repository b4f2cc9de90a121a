"""Tables of a page from files of `bench all --json`: nothing in them is typed in by hand. Pure.

A page says which rows stand where: `<!-- rows NAME … -->` and `<!-- end of rows -->` around them, NAME of benches; `front` are the
few that the table marks so; without a name, all that no other place of the page has. Aims and records are those of `rows.toml` today,
figures those of the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from foretype_lab.all_rows.conductor import aim_of
from foretype_lab.all_rows.table import Bench, Row
from foretype_lab.errors import BenchFailedError

_PLACE: Final = re.compile(r"(<!-- rows((?: [\w.-]+)*) -->\n).*?(<!-- end of rows -->)", re.DOTALL)
_FRONT: Final = "front"
_HEAD: Final = "| | measured | beside | ratio | aim | |\n|---|--:|--:|--:|--:|---|"
_NOT_MEASURED: Final = "not measured"
_SPREAD_MOST: Final = 0.2
"""Rounds that lie further apart say more about the machine than about the product."""


class MeasuredRow(msgspec.Struct, frozen=True):
    """A row of `bench all`, as far as a page needs it: `met`, `aim` and what is recorded of a miss are the table's.

    `spread`: how far its rounds lie apart, as a share of their median (of the ratio, where there is one); None after one round.
    """

    name: str
    value: float | None
    unit: str
    against: float | None
    ratio: float | None
    low: float | None
    high: float | None
    record: str | None
    spread: float | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A file of `bench all --json`; `at` is when it was written (ISO 8601), and where that is not known, before all others."""

    at: str = ""
    commit: str | None
    against: str | None
    machine: dict[str, Any]
    rows: list[MeasuredRow]


def rows_by_name(files: Sequence[Measured]) -> dict[str, MeasuredRow]:
    """What was measured, by the row's name: the newest file that has a value wins; they come in that order."""
    found: dict[str, MeasuredRow] = {}
    for row in (row for file in files for row in file.rows):
        if row.value is not None or row.name not in found:
            found[row.name] = row
    return found


def page_with_rows(
    page: str, benches: Sequence[Bench], files: Mapping[str, Measured], *, link: Callable[[str], str] = str
) -> str:
    """The page with its tables written anew.

    Args:
        files: by their names, as they are to be called.
        link: how the page names a file of the repository: a record of the table.

    Raises:
        BenchFailedError: the page has no place for rows, or names a bench that is none.
    """
    places = [match[2].split() for match in _PLACE.finditer(page)]
    if not places:
        raise BenchFailedError("the page has no place for rows: <!-- rows --> and <!-- end of rows --> around them")
    named = {name for names in places for name in names}
    if unknown := named - {_FRONT, *(bench.name for bench in benches)}:
        raise BenchFailedError(f"the page names {', '.join(sorted(unknown))}: no bench of this table")
    found = rows_by_name(list(files.values()))

    def table(match: re.Match[str]) -> str:
        names = set(match[2].split())
        rows = [
            row
            for bench in benches
            for row in bench.row
            if bench.name in names or (row.front and _FRONT in names) or (not names and bench.name not in named)
        ]
        lines = [_line(row, found.get(row.name), link) for row in rows]
        sources = "" if names else "\n".join(_sources(files)) + "\n"
        return f"{match[1]}\n{_HEAD}\n" + "\n".join(lines) + f"\n\n{sources}{match[3]}"

    return _PLACE.sub(table, page)


def missed_without_record(benches: Sequence[Bench], files: Sequence[Measured]) -> list[str]:
    """Names of rows that miss their aim, where no record says what stands in the way."""
    found = rows_by_name(files)
    return [
        row.name for bench in benches for row in bench.row if _met(row, found.get(row.name)) is False and not row.record
    ]


def _met(row: Row, found: MeasuredRow | None) -> bool | None:
    return None if found is None or found.value is None else row.met(found.value, found.ratio, found.against)


def _line(row: Row, found: MeasuredRow | None, link: Callable[[str], str]) -> str:
    aim = aim_of(row) or ""
    if found is None or found.value is None:
        reason = f": {found.record}" if found is not None and found.record else ""
        return f"| {row.name} | – | | | {aim} | {_NOT_MEASURED}{reason} |"
    if found.spread is not None and found.spread > _SPREAD_MOST:
        return f"| {row.name} | – | | | {aim} | not published: its rounds lie {found.spread:.0%} apart |"
    met = _met(row, found)
    said = {
        True: "met",
        False: f"{_missed(row)}: [why]({link(row.record)})" if row.record else "missed",
        None: "",
    }[met]
    ratio = "" if found.ratio is None else _number(found.ratio)
    if found.low is not None and found.high is not None:
        ratio += f" ({_number(found.low)} to {_number(found.high)})"
    against = "" if found.against is None else _number(found.against)
    unit = f" {row.unit}" if row.unit else ""
    return f"| {row.name} | {_number(found.value)}{unit} | {against} | {ratio} | {aim} | {said} |"


def _missed(row: Row) -> str:
    return "missed" if row.floor is None else f"retired, the floor is {row.floor:g}"


def _number(value: float) -> str:
    """Three digits that say something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _sources(files: Mapping[str, Measured]) -> Iterator[str]:
    for name, file in files.items():
        machine = file.machine
        beside = f", beside commit {file.against[:8]}" if file.against else ""
        commit = f"commit {file.commit[:8]}" if file.commit else "no commit"
        load = machine.get("load_1min")
        at_end = "" if load is None else f", load {load:g} at the end"
        at = f"{file.at[:10]}, " if file.at else ""
        yield (
            f"- [{PurePosixPath(name).name}]({name}): {at}{commit}{beside}; {machine['cores']} cores, {machine['processor']}{at_end}"
        )
