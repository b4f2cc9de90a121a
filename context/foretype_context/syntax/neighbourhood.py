"""The syntax tree around a place: of some hundred lines, kept up to date edit by edit.

All that is asked of a tree is asked about the cursor. The tree of a whole file takes thirty times its bytes, and a key in a file of
10,000 lines costs 2 ms then, or 20 where it breaks the syntax; the tree of a neighbourhood costs the same in every file.
Files that are no larger than a neighbourhood are parsed whole.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tree_sitter import Tree

from foretype_context.syntax.languages import parser_for
from foretype_context.syntax.outline import defines
from foretype_context.syntax.parsing import parse_in_steps
from foretype_context.text.lines import LineIndex

ABOVE_CHARS: Final = 9_000
BELOW_CHARS: Final = 4_500
_LEAST_ABOVE_CHARS: Final = 2_500
_LEAST_BELOW_CHARS: Final = 1_500
_MOST_CHARS: Final = 27_000
"""A region is found anew when it has grown to this; one that is larger from the start (very long lines) has no tree."""

PARSE_STEPS: Final = 1_500
EDIT_STEPS: Final = 600
"""Limits of a region's first parse and of those after edits, in :func:`foretype_context.syntax.parsing.parse_in_steps`. Adversarial text,
which can take seconds, is given up after 30 to 100 ms, and after a third of that while it is typed."""

_SKIPS_MAX: Final = 64


class ParsedRegion(NamedTuple):
    """Characters `[start, end)` of a text, and the tree of exactly these, in bytes from `start`."""

    start: int
    end: int
    tree: Tree

    def serves(self, offset: int, chars: int) -> bool:
        """Whether `offset` is far enough from where the region was cut out of its text of `chars` characters."""
        above = self.start == 0 or offset - self.start >= _LEAST_ABOVE_CHARS
        below = self.end == chars or self.end - offset >= _LEAST_BELOW_CHARS
        return above and below and self.start <= offset <= self.end


class Neighbourhood:
    """Keeps the region that was asked about last. It follows every edit; it is parsed when it is asked about.

    Args:
        language: LSP language id.
    """

    __slots__ = ("_fresh", "_give_ups", "_language", "_parsers", "_region", "_skips")

    def __init__(self, language: str) -> None:
        self._language = language
        # A fragment of a file is not always written like its beginning.
        self._parsers = (parser_for(language), parser_for(language, fragment=True))
        self._region: ParsedRegion | None = None
        self._fresh = False
        self._give_ups = self._skips = 0

    def edited(self, text: str, start: int, end: int, new: str) -> None:
        """`[start, end)` of `text` becomes `new`. Costs the region at most, never the text."""
        region = self._region
        if region is None or start > region.end:
            return
        grown = len(new) - (end - start)
        if end < region.start:
            self._region = ParsedRegion(region.start + grown, region.end + grown, region.tree)
        elif (region.start < start or region.start == 0) and end <= region.end and 2 * (end - start) <= region.end:
            around = text[region.start : region.end]
            tree = edited_tree(region.tree, around, start - region.start, end - region.start, new)
            self._region, self._fresh = ParsedRegion(region.start, region.end + grown, tree), False
        else:
            self._region = None

    def at(self, text: str, lines: LineIndex, offset: int) -> ParsedRegion | None:
        """The region around `offset` of `text`, the text as it is after all edits; None: no grammar, or given up.

        A parse that was given up is tried again after 1, 2, 4 … 64 questions more: a text that is slow to parse stays so for
        a while, and nobody may wait for it at every key.
        """
        if self._parsers[0] is None:
            return None
        if self._skips:
            self._skips -= 1
            return None
        region = self._region
        if region is None or region.end - region.start > _MOST_CHARS or not region.serves(offset, len(text)):
            start, end = _borders(text, lines, offset)
            if end - start > _MOST_CHARS:
                self._region = None
                return None
            self._region = self._parsed(text, start, end, None)
        elif not self._fresh:
            self._region = self._parsed(text, region.start, region.end, region.tree)
        self._fresh = self._region is not None
        return self._region

    def _parsed(self, text: str, start: int, end: int, base: Tree | None) -> ParsedRegion | None:
        parser = self._parsers[start > 0]
        tree = parser and parse_in_steps(parser, text[start:end].encode(), EDIT_STEPS if base else PARSE_STEPS, base)
        if tree is None:
            self._skips = min(1 << self._give_ups, _SKIPS_MAX)
            self._give_ups += 1
            return None
        self._give_ups = 0
        return ParsedRegion(start, end, tree)


def _borders(text: str, lines: LineIndex, offset: int) -> tuple[int, int]:
    """Where the region around `offset` begins and ends, each at the start of a line."""
    chars = len(text)
    if chars <= ABOVE_CHARS + BELOW_CHARS:
        return 0, chars
    start, end = 0, chars
    if offset > ABOVE_CHARS:
        start = _outermost(text, lines, offset - ABOVE_CHARS, offset - _LEAST_ABOVE_CHARS)
    if chars - offset > BELOW_CHARS:
        end = _outermost(text, lines, offset + _LEAST_BELOW_CHARS, offset + BELOW_CHARS, last=True)
    return start, end


def _outermost(text: str, lines: LineIndex, start: int, end: int, *, last: bool = False) -> int:
    """Start of the line in `[start, end)` that is most likely outside of every string, comment and bracket.

    The first of several that are as likely, or with `last` the last one; where none begins there, the border of lines before
    `start`, or with `last` behind `end`.
    """

    def line_start(number: int) -> int:
        return lines.start(number) if number < len(lines) else len(text)

    best: tuple[bool, int, int] | None = None
    found = line_start(lines.line_of(end) + 1) if last else line_start(lines.line_of(start))
    for number in range(lines.line_of(start) + 1, lines.line_of(end) + 1):
        at = line_start(number)
        line = text[at : line_start(number + 1)]
        stripped = line.lstrip()
        if not stripped or stripped[0] in ")]}>*":
            continue
        rank = (not defines(line), len(line) - len(stripped), -number if last else number)
        if best is None or rank < best:
            best, found = rank, at
    return found


def edited_tree(tree: Tree, text: str, start: int, end: int, new: str) -> Tree:
    """A copy of the tree of `text`, told about one edit: trees are handed out. Rows and columns are bytes, as tree-sitter counts."""

    def point(offset: int) -> tuple[int, tuple[int, int]]:
        line = text.rfind("\n", 0, offset) + 1
        return len(text[:offset].encode()), (text.count("\n", 0, offset), len(text[line:offset].encode()))

    start_byte, start_point = point(start)
    end_byte, end_point = point(end) if end != start else (start_byte, start_point)
    rows = new.count("\n")
    last_line = len(new[new.rfind("\n") + 1 :].encode())
    new_point = (start_point[0] + rows, last_line if rows else start_point[1] + last_line)
    edited = tree.copy()
    edited.edit(start_byte, end_byte, start_byte + len(new.encode()), start_point, end_point, new_point)
    return edited
