"""Which figures there are, how each is measured, and what it should reach: `rows.toml`, read. Pure."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from foretype_lab.errors import BenchFailedError

GATE_ROUNDS: Final = 2
"""Of each bench of the hot path: enough for a ratio with an interval, in ten minutes."""
_TABLE: Final = Path(__file__).with_name("rows.toml")


class Better(StrEnum):
    LOWER = "lower"
    HIGHER = "higher"


class Aimed(StrEnum):
    """What the aim is of: the figure, or the figure by its counterpart's in the same report."""

    VALUE = "value"
    PEER = "peer"


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of a bench's report.

    Attributes:
        name: unique in the table.
        pick: where it stands in the report, `a.b.c`.
        less: a figure that is taken off, such as how late the machine's own timers are; never below 0.
        peer: where the counterpart's figure stands in the same report.
        unit: of the figure.
        aim: to be reached; None is reported alone.
        of: what the aim is of.
        better: on which side of the aim it should be.
        record: the page that names the limit where the aim is missed.
        floor: what was measured to be the least, in the unit of the aim; with one the aim is retired, and not missed.
        front: it stands on the front page.
    """

    name: str
    pick: str
    unit: str
    less: str = ""
    peer: str = ""
    aim: float | None = None
    of: Aimed = Aimed.VALUE
    better: Better = Better.LOWER
    record: str = ""
    floor: float | None = None
    front: bool = False

    def value(self, report: dict[str, Any]) -> float:
        """Raises BenchFailedError: the report has no such figure."""
        found = picked(report, self.pick)
        return max(0.0, found - picked(report, self.less)) if self.less else found

    def met(self, value: float, ratio: float | None, against: float | None = None) -> bool | None:
        """Whether the aim is reached; None where there is no aim, or nothing to compare with. Anything is any number of times nothing."""
        reached = value if self.of is Aimed.VALUE else ratio
        if self.of is Aimed.PEER and against == 0 and value > 0:
            reached = math.inf
        if self.aim is None or reached is None:
            return None
        return reached <= self.aim if self.better is Better.LOWER else reached >= self.aim


class Bench(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that prints one JSON object, and the rows that are in it.

    Attributes:
        command: with `{python}`, `{here}` (this checkout) and `{recording}` to be filled in.
        rounds: how often it is run; each side once a round.
        minutes: that one run takes, about; three times that, and a minute more, ends it.
        gate: it belongs to the hot path.
        alone: its report has the counterparts, so that it is not run on the other commit.
        beside: the counterpart's command, with a report of the same form; the other side is then this one, not a commit.
        needs: programs that must be on the machine.
    """

    name: str
    command: tuple[str, ...]
    minutes: float
    row: tuple[Row, ...]
    rounds: int = 3
    gate: bool = False
    alone: bool = False
    beside: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def sides(self, *, against: bool) -> int:
        """How many are run in a round, where there is a commit to compare `against`, or not."""
        return 2 if self.beside or (against and not self.alone) else 1


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bench: tuple[Bench, ...]


def load_table(path: Path = _TABLE) -> tuple[Bench, ...]:
    """Raises msgspec.ValidationError or msgspec.DecodeError, naming the field; OSError."""
    return msgspec.toml.decode(path.read_bytes(), type=_Table).bench


def picked(report: dict[str, Any], path: str) -> float:
    """The number at `a.b.c`. Raises BenchFailedError: there is none."""
    found: Any = report
    for name in path.split("."):
        found = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise BenchFailedError(f"its report has no figure {path}")
    return float(found)
