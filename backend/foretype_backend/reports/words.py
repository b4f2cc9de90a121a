"""The figures of a report as people read them: each with what it is a part of. Pure; a terminal and a page show the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

SUPPRESSED: Final = "suppressed"
"""The key of what stands in the place of figures that are not shown: why."""


class Line(NamedTuple):
    """One figure: `value`, its `interval` ("" where there is none), and what it is `of`."""

    name: str
    value: str
    interval: str
    of: str


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _number(value: float) -> str:
    return f"{value:.3f}"


def _price(value: float) -> str:
    return f"{value:.3g}"


_WRITTEN: Final[dict[str, tuple[Callable[[float], str], str]]] = {
    "acceptance": (_percent, "suggestions read"),
    "accepted_per_opportunity": (_number, "opportunities"),
    "retained_per_opportunity": (_number, "opportunities"),
    "retained_characters": (_percent, "accepted characters"),
    "persistence": (_percent, "accepts"),
    "keystrokes_saved": (_percent, "keys"),
    "cancel_rate": (_percent, "requests"),
    "parses": (_percent, "texts"),
    "next_edit_acceptance": (_percent, "next edits shown"),
    "next_edit_jumps": (_percent, "far next edits"),
    "next_edit_kept": (_percent, "characters of next edits"),
    "next_edit_reversed": (_percent, "accepted next edits"),
    "cost_per_accepted_token": (_price, "accepted tokens"),
}


def told(figures: dict[str, Any]) -> list[Line]:
    """Every figure of a group, in the order of importance; ages in the name: `persistence 300 s`."""
    lines: list[Line] = []
    for name, (write, of) in _WRITTEN.items():
        figure = figures[name]
        if figure is None:
            lines.append(Line(name, "–", "", "no prices are set"))
        elif "value" in figure:
            lines.append(_line(name, figure, write, of))
        else:
            lines += [_line(f"{name} {age} s", one, write, of) for age, one in figure.items()]
    return lines


def _line(name: str, figure: dict[str, Any], write: Callable[[float], str], of: str) -> Line:
    value, low, high = figure["value"], figure["low"], figure["high"]
    interval = "" if low is None or high is None else f"{write(low)} to {write(high)}"
    return Line(name, "–" if value is None else write(value), interval, f"{figure['denominator']:,.0f} {of}")
