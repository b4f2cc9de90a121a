"""Lines of a window: as a model reads them, the places of its numbered markers, and what changed between two texts. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

_AROUND: Final = 3
"""Lines beside a change, as in every unified diff."""


def lines_of(text: str) -> list[str]:
    """Its lines without their endings, LF or CRLF; an ending at the end begins no further line."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_cursor(text: str, cursor: int) -> int:
    """Where the character `cursor` of a text is once its line endings are LF."""
    before = text[:cursor]
    inside = before.endswith("\r") and text[cursor : cursor + 1] == "\n"
    return len(before.replace("\r\n", "\n")) - inside


def boundaries(lines: Sequence[str], fewest: int, most: int) -> list[int]:
    """Lines before which a marker stands, the first and the one behind the last among them: at an empty line where there is one."""
    found = [0]
    while len(lines) - found[-1] > most:
        first, last = found[-1] + fewest, min(found[-1] + most, len(lines) - fewest)
        found.append(next((at for at in range(first, last + 1) if not lines[at].strip()), max(first, last)))
    return [*found, len(lines)]


def hunks(old: Sequence[str], new: Sequence[str], line: int = 0) -> list[str]:
    """A unified diff without its two lines of names; `line` is the number of the first line, from 0."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    told: list[str] = []
    for group in matcher.get_grouped_opcodes(_AROUND):
        (_, first, _, now, _), (_, _, last, _, then) = group[0], group[-1]
        told.append(f"@@ -{_range(line, first, last)} +{_range(line, now, then)} @@")
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                told += [f" {one}" for one in old[i1:i2]]
                continue
            told += [f"-{one}" for one in old[i1:i2]]
            told += [f"+{one}" for one in new[j1:j2]]
    return told


def _range(line: int, start: int, end: int) -> str:
    """As `diff -u` counts: an empty range names the line before it, a single line has no length."""
    count = end - start
    if count == 1:
        return f"{line + start + 1}"
    return f"{line + start + (count > 0)},{count}"
