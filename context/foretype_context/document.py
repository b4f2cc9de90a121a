"""Open documents: text, line index and syntax tree, all kept up to date edit by edit.

A :class:`Document` changes, its :class:`Snapshot` never does: take one before the first await and work on that.
Offsets are code points everywhere. Lone surrogates, which editors do send, become U+FFFD, one for one, so that offsets stay
and every text that leaves this module can be encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tree_sitter import Parser, Tree

from foretype_context.languages import language_of, parser_for
from foretype_context.lines import LineIndex
from foretype_context.parsing import parse_in_steps
from foretype_context.tokens import well_formed

__all__ = ["TREE_LIMIT_CHARS", "Document", "Edit", "EditOutOfRange", "Snapshot"]

TREE_LIMIT_CHARS: Final = 600_000
"""No tree above this size: a first parse holds the GIL for 90 ms per million characters, and nothing may wait for that."""

FIRST_PARSE_STEPS: Final = 6_000
EDIT_PARSE_STEPS: Final = 200
"""Limits of a parse, counted in the parser's own progress calls (10 µs each as a rule, 50 µs while it recovers from an error),
so that the same text gives the same tree on every machine. A key in 10,000 lines takes 40 to 110 steps, 0.4 to 2 ms; an opening bracket
that nothing closes took 760 steps and 30 ms, and so did every key after it. Such a text has no tree until a later edit repairs
it, and syntax is then asked of the neighbourhood alone (:func:`foretype_context.syntax.spot_before`)."""

_EAGER_TRIES: Final = 2
_REPAIR_TRIES: Final = 4
_REPAIRS: Final = frozenset(")]}\"'`")
_SETTLE_CHARS: Final = 50_000
_SETTLING_PARSES: Final = 4


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
        syntax: gives `tree`; parses when it is first asked.
    """

    uri: str
    path: str
    language: str
    version: int
    text: str
    lines: LineIndex
    syntax: Callable[[], Tree | None]

    @property
    def tree(self) -> Tree | None:
        """Tree of exactly this text; None: no grammar, too large, too slow, or the document had moved on when it was asked."""
        return self.syntax()

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


class _TreeOf:
    """The tree of one version, parsed when somebody asks and the document still stands there.

    A change must cost what it changed, and most versions live for one key only: nobody asks for their tree.
    """

    __slots__ = ("_settle", "_tree")

    def __init__(self, settle: Callable[[], Tree | None] | None, tree: Tree | None) -> None:
        self._settle = settle
        self._tree = tree

    def __call__(self) -> Tree | None:
        if self._settle is not None:
            self._tree, self._settle = self._settle(), None
        return self._tree


class Document:
    """A text that is edited.

    Args:
        uri: the document's identity.
        text: its whole text.
        language: LSP language id; if empty, told from `path`.
        path: shown in prompts, relative to its repository where that is known.
        version: of the text, as the editor counts.
    """

    def __init__(
        self,
        uri: str,
        text: str,
        *,
        language: str = "",
        path: str = "",
        version: int = 0,
    ) -> None:
        self.uri = uri
        self.path = path
        self.language = language or language_of(path)
        self.version = version
        self._text = well_formed(text)
        self._lines = LineIndex.of(self._text)
        self._parser: Parser | None = parser_for(self.language)
        self._late = 0
        self._unparsed = self._repairs = self._resting = False
        # The newest tree there is, edited along with the text; equal to `_tree` unless a parse ran out of time.
        self._base: Tree | None = None
        self._tree: Tree | None = None
        self.refresh()

    @property
    def text(self) -> str:
        return self._text

    def snapshot(self) -> Snapshot:
        text = self._text

        def settle() -> Tree | None:
            return self._settled() if self._text is text else None

        syntax = _TreeOf(settle if self._unparsed or self._resting else None, self._tree)
        return Snapshot(self.uri, self.path, self.language, self.version, text, self._lines, syntax)

    def _settled(self) -> Tree | None:
        """The tree of the text as it is now, with what is left to parse of the last edits."""
        if self._resting:
            self.refresh()
        if self._unparsed:
            repairs, self._unparsed, self._repairs = self._repairs, False, False
            if self._base is not None:
                self._reparse(self._base, repairs=repairs)
        return self._tree

    def apply(self, edits: Sequence[Edit], version: int) -> None:
        """Applies edits in sequence, each in the coordinates that the one before it left.

        Raises:
            EditOutOfRange: an edit lies outside the text; none of `edits` was applied.
        """
        text, lines = self._text, self._lines
        base = self._base.copy() if self._base is not None else None
        for start, end, new in edits:
            if not 0 <= start <= end <= len(text):
                raise EditOutOfRange(f"edit [{start}, {end}) outside a text of {len(text)} characters: send it whole")
            new = well_formed(new)
            after = f"{text[:start]}{new}{text[end:]}"
            if base is not None:
                if 2 * (end - start) > len(text):
                    base = None
                else:
                    _edit_tree(base, text, start, end, new)
            text, lines = after, lines.after(start, end, len(new), after)
        self._text, self._lines, self.version = text, lines, version
        if base is None and self._base is not None:
            # The text was replaced: nothing of the old tree is left to build on.
            self._base = self._tree = None
            self.refresh()
        elif base is not None:
            self._base, self._tree, self._unparsed = base, None, True
            self._repairs |= any(not _REPAIRS.isdisjoint(edit.text[-8:]) for edit in edits)

    def refresh(self, steps: int = FIRST_PARSE_STEPS) -> bool:
        """Parses now, with a larger limit: at the first sight of a text, or when nobody types. True if there is a tree."""
        self._unparsed = self._repairs = self._resting = False
        if self._parser is None or len(self._text) > TREE_LIMIT_CHARS:
            self._tree = self._base = None
        elif self._tree is None:
            self._tree = self._parsed(self._base, steps)
            self._base = self._tree or self._base
            self._late = 0
            if self._tree is not None and len(self._text) > _SETTLE_CHARS:
                # The first re-parses after a fresh parse cost ten times the later ones: have them now, not at the first keys.
                for _ in range(_SETTLING_PARSES):
                    tree = self._tree.copy()
                    tree.edit(0, 0, 0, (0, 0), (0, 0), (0, 0))
                    self._tree = self._base = self._parsed(tree, steps) or self._tree
        return self._tree is not None

    def rest(self) -> None:
        """Lets the tree go, nine tenths of a document's memory; it is parsed anew when somebody asks again."""
        if self._base is not None:
            self._base = self._tree = None
            self._unparsed = self._repairs = False
            self._resting = True

    def _reparse(self, base: Tree, *, repairs: bool) -> None:
        self._base, self._tree = base, None
        if len(self._text) > TREE_LIMIT_CHARS:
            self._base = None
            return
        # While the text stays broken, trying at every key would cost the limit at every key, up to 20 ms. What closes
        # something may have repaired it, but not for ever; then `refresh` tries when nobody types.
        if self._late < (_REPAIR_TRIES if repairs else _EAGER_TRIES):
            self._tree = self._parsed(base, EDIT_PARSE_STEPS)
            self._late = 0 if self._tree is not None else self._late + 1
        self._base = self._tree or base

    def _parsed(self, base: Tree | None, steps: int) -> Tree | None:
        if self._parser is None:
            return None
        return parse_in_steps(self._parser, self._text.encode(), steps, base)


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
