"""Indentation as the file has it: tabs or blanks, and no blank too many.

Only what cannot be meant otherwise is put right. Where indentation is syntax and it is not clear what was meant, the check of
syntax (:mod:`foretype_context.finish.in_place`) refuses the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from functools import reduce
from math import gcd
from typing import Final

from foretype_context.finish.surroundings import in_text
from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import code_above, indent_columns, previous_filled_line
from foretype_context.syntax.reading import Reading

_LOOK_LINES: Final = 60
_UNITS: Final = (2, 3, 4, 8)
INDENTED: Final = frozenset({"python", "yaml"})
_OPENS: Final = (":", "{", "(", "[")
_GOES_ON_BELOW: Final = (*_OPENS, ",", "\\")


class Begins(Enum):
    """As what a line begins."""

    STATEMENT = auto()  # or one of a list that the cursor is in
    CODE = auto()
    DOCSTRING = auto()
    TEXT = auto()  # what stands in a string or comment stays as it is


def as_in_file(lines: list[str], view: View, language: str, begins: list[Begins]) -> list[str]:
    """The lines of a suggestion, the first behind the cursor, in the indentation of the file.

    Args:
        begins: as what each line begins.
    """
    if language in INDENTED:
        lines = [_first(lines[0], view), *lines[1:]]
    margins = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines]
    movable = [
        number > 0 and margin != "" and begins[number] is not Begins.TEXT for number, margin in enumerate(margins)
    ]
    code = [number for number, moves in enumerate(movable) if moves and begins[number] is not Begins.DOCSTRING]
    if not code:
        return lines
    own = [margins[number] for number in code]
    style, unit = _style(view)
    opens = view.typed.strip() != "" or _opens(lines[0], view)

    def moved(new: Callable[[str], str]) -> list[str]:
        return [
            new(margin) + line[len(margin) :] if moves else line
            for line, margin, moves in zip(lines, margins, movable, strict=True)
        ]

    if style == "\t" and all(set(margin) == {" "} for margin in own):
        made = _unit_of([len(margin) for margin in own], view, unit)
        return lines if made is None else moved(lambda margin: "\t" * (indent_columns(margin) // made))
    if style == " " and all(set(margin) == {"\t"} for margin in own):
        made = _blanks_of(len(own[0]), view, unit, opens=opens)
        return moved(lambda margin: " " * (made * margin.count("\t")) + margin.replace("\t", ""))
    if language in INDENTED and style == " ":
        statements = [len(margins[number]) for number in code if begins[number] is Begins.STATEMENT]
        too_many = _too_many(statements, view, unit)
        if too_many and all(set(margin) == {" "} and len(margin) >= too_many for margin in own):
            return moved(lambda margin: margin[too_many:] if too_many > 0 else margin + " " * -too_many)
    return lines


def _opens(line: str, view: View) -> bool:
    """Whether the first line of a suggestion ends with what opens something, a comment behind it or none."""
    reading, written = Reading(view.snapshot.language, view.snapshot.lexical_at(view.line)), view.typed + line
    return reading.code(written, 0, len(written)).rstrip().endswith(_OPENS)


def _blanks_of(tabs: int, view: View, unit: int, *, opens: bool) -> int:
    """How many blanks of the file a tab of a suggestion is, told from where its second line must stand."""
    wanted = indent_columns(view.typed) + (unit if opens else 0)
    return wanted // tabs if wanted % tabs == 0 and wanted // tabs in _UNITS else unit


def _too_many(columns: list[int], view: View, unit: int) -> int:
    """Blanks that every statement of a suggestion has beyond a step, or negative that it lacks; 0 where that may be meant."""
    steps = {(column - indent_columns(view.typed)) % unit for column in columns}
    if len(steps) != 1 or steps <= {0, unit / 2}:
        return 0
    step = steps.pop()
    snapshot, depth = view.snapshot, len(view.snapshot.lexical_at(view.line).stack)
    for number in range(max(0, view.line - _LOOK_LINES), min(view.line + _LOOK_LINES, snapshot.line_count)):
        text = snapshot.line_text(number)
        odd = (indent_columns(text) - indent_columns(view.typed)) % unit == step
        if odd and text.strip() and len(snapshot.lexical_at(number).stack) <= depth:
            return 0
    return step if step < unit / 2 else step - unit


def _first(line: str, view: View) -> str:
    """Without blanks that make an indentation where none can begin, behind what is typed of it."""
    if view.typed.strip() or not line[:1].isspace() or not line.strip():
        return line
    above = previous_filled_line(view.snapshot, view.line)
    stripped = line.lstrip(" \t")
    columns = indent_columns(view.typed + line)
    if above is None:
        return stripped
    if code_above(view.snapshot, view.line).endswith(_GOES_ON_BELOW):
        return line
    margins = {0, indent_columns(above)}
    for number in range(view.line - 1, max(view.line - _LOOK_LINES, -1), -1):
        text = view.snapshot.line_text(number)
        if text.strip():
            margins.add(min(min(margins - {0}, default=0), indent_columns(text)))
    return line if columns in margins else stripped


def _style(view: View) -> tuple[str, int]:
    """With what lines near the cursor begin, and how many blanks make one step; "" where none is indented or both are used."""
    snapshot = view.snapshot
    margin = set(view.typed[: len(view.typed) - len(view.typed.lstrip())])
    tabs, columns, steps, opened = 0, list[int](), Counter[int](), -1
    first_line = max(0, view.line - _LOOK_LINES)
    reading = Reading(snapshot.language, snapshot.lexical_at(first_line))
    for number in range(first_line, min(view.line + _LOOK_LINES, snapshot.line_count)):
        is_text = in_text(reading.state)
        code = reading.code(snapshot.text, snapshot.line_start(number), snapshot.next_line_start(number)).rstrip()
        if is_text:
            continue  # a licence in a comment, a script in a string
        text = snapshot.line_text(number)
        stripped = text.strip()
        blanks = len(text) - len(text.lstrip(" "))
        if text[:1] == "\t":
            tabs += 1
        elif blanks and stripped and text.lstrip()[0] != "*":
            columns.append(blanks)
            if blanks > opened >= 0:
                steps[blanks - opened] += 1
        if stripped:
            opened = blanks if code.endswith(_OPENS) else -1
    # Where both are used the cursor's own line tells, and what the text has.
    if tabs > 4 * len(columns) and margin <= {"\t"}:
        return "\t", 4
    if len(columns) > 4 * tabs and margin <= {" "}:
        unit = steps.most_common(1)[0][0] if steps else reduce(gcd, columns)
        return " ", unit if unit in _UNITS else 4
    return "", 4


def _unit_of(columns: list[int], view: View, unit: int) -> int | None:
    """How many blanks of a suggestion make one step, told from where its first line must stand; None where nothing fits."""
    level = indent_columns(view.typed) // unit
    opens = view.typed.strip() != "" and columns[0] > 0
    for level_of_first in (level + 1, level) if opens else (level, level + 1):
        if level_of_first and columns[0] % level_of_first == 0:
            made = columns[0] // level_of_first
            if made in _UNITS and all(column % made == 0 for column in columns):
                return made
    return next((made for made in (4, 2) if all(column % made == 0 for column in columns)), None)
