"""What of a large file its document holds: the lines around the place that was asked about last. Pure.

The editor's positions stay those of the whole file, whose lines are kept. What is made of the document (prompt, syntax, what the
local candidate learns) costs what the window costs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from foretype_context.syntax.document import Edit

from foretype_lsp.documents.positions import Lines

REACH_CHARS: Final = 100_000
"""What a window holds on either side of its place: more than any prompt, some 2,500 lines."""

_MARGIN_CHARS: Final = 20_000
"""A place that is closer to where a window ends wants another one; no prompt for a place further inside sees that it ends."""


class Window(NamedTuple):
    """Characters `[start, end)` of the whole text."""

    start: int
    end: int

    def serves(self, offset: int, chars: int) -> bool:
        """Whether enough of a text of `chars` is around `offset`, and not so much that it should be cut anew."""
        before = self.start == 0 or offset - self.start >= _MARGIN_CHARS
        behind = self.end == chars or self.end - offset >= _MARGIN_CHARS
        return before and behind and self.end - self.start <= 8 * REACH_CHARS

    def inside(self, offset: int) -> int:
        """Where in the window a place of the whole text is; one outside of it is at its nearer end."""
        return min(max(offset, self.start), self.end) - self.start

    def after(self, edit: Edit) -> tuple[Window, Edit | None]:
        """The window behind an edit of the whole text, and the edit of its own text; None where that stays as it is."""
        start, end, text = edit
        grown = edit.growth
        if end <= self.start and start < self.start:
            return Window(self.start + grown, self.end + grown), None
        if start > self.end:
            return self, None
        # What an edit puts in the place of a border belongs to the window.
        own = Edit(self.inside(start), self.inside(end), text)
        first = min(start, self.start)
        return Window(first, first + (self.end - self.start) - (own.end - own.start) + len(text)), own


def around(lines: Lines, offset: int) -> Window:
    """The window for a place: whole lines, except for a line that is as long as a window."""
    start, end = max(0, offset - REACH_CHARS), min(lines.chars, offset + REACH_CHARS)
    first = lines.start_of(lines.position_at(start).line)
    behind = lines.position_at(end).line + 1
    last = lines.start_of(behind) if behind < len(lines) else lines.chars
    return Window(first if start - first <= REACH_CHARS else start, last if last - end <= REACH_CHARS else end)
