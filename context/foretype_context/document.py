"""Open documents: text, line index and syntax tree, all kept up to date edit by edit.

A :class:`Document` changes, its :class:`Snapshot` never does: take one before the first await and work on that.
Offsets are code points everywhere. Lone surrogates, which editors do send, become U+FFFD, one for one, so that offsets stay
and every text that leaves this module can be encoded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tree_sitter import Parser, Tree

from foretype_context.languages import language_of, parser_for
from foretype_context.lines import LineIndex
from foretype_context.tokens import well_formed

__all__ = ["TREE_LIMIT_CHARS", "Document", "Edit", "EditOutOfRange", "Snapshot"]

TREE_LIMIT_CHARS: Final = 600_000
"""No tree above this size: a first parse holds the GIL for 90 ms per million characters, and nothing may wait for that."""

SLOW_PARSE_MS: Final = 40.0
SLOW_PARSES: Final = 3
"""So many slow re-parses in a row (adversarial or broken source) and the document goes on without a tree."""


class EditOutOfRange(ValueError):
    """An edit does not lie inside the document; the remedy is to send the whole text again."""


class Edit(NamedTuple):
    """Replace the characters `[start, end)` by `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A document at one version. Cheap to take and immutable.

    Attributes:
        tree: tree-sitter tree of exactly this text, or None (no grammar, too large, too slow).
    """

    uri: str
    path: str
    language: str
    version: int
    text: str
    lines: LineIndex
    tree: Tree | None

    @property
    def line_count(self) -> int:
        """At least 1; a text that ends with a line ending has an empty last line."""
        return len(self.lines)

    def line_of(self, offset: int) -> int:
        return self.lines.line_of(offset)

    def line_start(self, line: int) -> int:
        return self.lines.start(line)

    def line_end(self, line: int) -> int:
        """Offset behind the last character of `line`, its ending not included."""
        end = self.next_line_start(line)
        text = self.text
        if end > self.lines.start(line):
            if text[end - 1] == "\n":
                end -= 1
                if end > self.lines.start(line) and text[end - 1] == "\r":
                    end -= 1
            elif text[end - 1] == "\r":
                end -= 1
        return end

    def next_line_start(self, line: int) -> int:
        """Offset behind the ending of `line`: where the next line starts, or the text's end."""
        return self.lines.start(line + 1) if line + 1 < len(self.lines) else len(self.text)

    def line_text(self, line: int) -> str:
        """The text of `line` without its ending."""
        return self.text[self.lines.start(line) : self.line_end(line)]

    def byte_of(self, offset: int) -> int:
        """UTF-8 byte offset of a character offset."""
        return offset if self.text.isascii() else len(self.text[:offset].encode())


class Document:
    """A text that is edited.

    Args:
        uri: the document's identity.
        text: its whole text.
        language: LSP language id; if empty, told from `path`.
        path: shown in prompts, relative to its repository where that is known.
        version: of the text, as the editor counts.
        timer: monotonic seconds, to notice a parser that is too slow on this text.
    """

    def __init__(
        self,
        uri: str,
        text: str,
        *,
        language: str = "",
        path: str = "",
        version: int = 0,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.uri = uri
        self.path = path
        self.language = language or language_of(path)
        self.version = version
        self._text = well_formed(text)
        self._lines = LineIndex.of(self._text)
        self._timer = timer
        self._slow = 0
        self._parser: Parser | None = parser_for(self.language)
        self._tree: Tree | None = None
        if self._parser is not None and len(self._text) <= TREE_LIMIT_CHARS:
            self._tree = self._parser.parse(self._text.encode())

    @property
    def text(self) -> str:
        return self._text

    def snapshot(self) -> Snapshot:
        return Snapshot(self.uri, self.path, self.language, self.version, self._text, self._lines, self._tree)

    def apply(self, edits: Sequence[Edit], version: int) -> None:
        """Applies edits in sequence, each in the coordinates that the one before it left.

        Raises:
            EditOutOfRange: an edit lies outside the text; none of `edits` was applied.
        """
        text, lines = self._text, self._lines
        tree = self._tree.copy() if self._tree is not None else None
        for start, end, new in edits:
            if not 0 <= start <= end <= len(text):
                raise EditOutOfRange(f"edit [{start}, {end}) outside a text of {len(text)} characters: send it whole")
            new = well_formed(new)
            after = f"{text[:start]}{new}{text[end:]}"
            if tree is not None:
                _edit_tree(tree, text, start, end, new)
            text, lines = after, lines.after(start, end, len(new), after)
        self._text, self._lines, self.version = text, lines, version
        self._tree = self._reparsed(tree)

    def _reparsed(self, tree: Tree | None) -> Tree | None:
        if tree is None or self._parser is None or len(self._text) > TREE_LIMIT_CHARS:
            return None
        began = self._timer()
        parsed = self._parser.parse(self._text.encode(), tree)
        self._slow = self._slow + 1 if (self._timer() - began) * 1e3 > SLOW_PARSE_MS else 0
        return None if self._slow >= SLOW_PARSES else parsed


def _edit_tree(tree: Tree, text: str, start: int, end: int, new: str) -> None:
    """Tells the tree about one edit; rows and columns are bytes, as tree-sitter counts."""
    ascii_text = text.isascii()

    def point(offset: int) -> tuple[int, tuple[int, int]]:
        row = text.count("\n", 0, offset)
        line = text.rfind("\n", 0, offset) + 1
        if ascii_text:
            return offset, (row, offset - line)
        return len(text[:offset].encode()), (row, len(text[line:offset].encode()))

    start_byte, start_point = point(start)
    end_byte, end_point = point(end) if end != start else (start_byte, start_point)
    new_bytes = len(new.encode())
    rows = new.count("\n")
    last_line = len(new[new.rfind("\n") + 1 :].encode())
    new_point = (start_point[0] + rows, last_line if rows else start_point[1] + last_line)
    tree.edit(start_byte, end_byte, start_byte + new_bytes, start_point, end_point, new_point)
