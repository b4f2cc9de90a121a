"""Open documents: text, line index and the syntax tree around the cursor, all kept up to date edit by edit.

A :class:`Document` changes, its :class:`Snapshot` never does: take one before the first await and work on that.
Offsets are code points everywhere. Lone surrogates, which editors do send, become U+FFFD, one for one, so that offsets stay
and every text that leaves this module can be encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from foretype_context.errors import EditRangeError
from foretype_context.syntax.languages import language_of
from foretype_context.syntax.lexical_states import LexicalStates
from foretype_context.syntax.neighbourhood import Neighbourhood, ParsedRegion
from foretype_context.syntax.reading import LexicalState
from foretype_context.text.lines import LineIndex
from foretype_context.text.strings import common_prefix, common_suffix, well_formed


class Edit(NamedTuple):
    """Replace the characters `[start, end)` by `text`."""

    start: int
    end: int
    text: str

    @property
    def growth(self) -> int:
        """By how many characters it makes a text longer."""
        return len(self.text) - (self.end - self.start)


def difference(old: str, new: str) -> Edit:
    """The one edit between two texts: what is left without their common start and end."""
    start = common_prefix(old, new)
    end = common_suffix(old, new, min(len(old), len(new)) - start)
    return Edit(start, len(old) - end, new[start : len(new) - end])


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A document at one version. Cheap to take and immutable.

    Attributes:
        syntax: answers :meth:`syntax_at`; parses when it is first asked.
        lexical: answers :meth:`lexical_at`; reads when it is first asked.
    """

    uri: str
    path: str
    language: str
    version: int
    text: str
    lines: LineIndex
    syntax: Callable[[int], ParsedRegion | None]
    lexical: Callable[[int], LexicalState]

    def syntax_at(self, offset: int) -> ParsedRegion | None:
        """The tree of what stands around `offset`; None: no grammar, too slow, or the document had moved on when it was asked."""
        return self.syntax(offset)

    def lexical_at(self, line: int) -> LexicalState:
        """The state in which `line` begins."""
        return self.lexical(line)

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
        return self._span(line)[1]

    def next_line_start(self, line: int) -> int:
        """Offset behind the ending of `line`: where the next line starts, or the text's end."""
        return self.lines.span(line)[1]

    def line_text(self, line: int) -> str:
        """The text of `line` without its ending."""
        start, end = self._span(line)
        return self.text[start:end]

    def _span(self, line: int) -> tuple[int, int]:
        """Of `line` without its ending. Asked for hundreds of lines with every answer."""
        text, (start, end) = self.text, self.lines.span(line)
        if end > start and text[end - 1] in "\r\n":
            end -= 2 if end - start > 1 and text[end - 1] == "\n" and text[end - 2] == "\r" else 1
        return start, end


@dataclass(frozen=True, eq=False)
class Change:
    """What one event made of a document.

    Attributes:
        before: the text.
        after: the document.
        edits: each in the coordinates that the one before it left.
        at_s: when it came, on the teller's monotonic clock.
    """

    before: str
    after: Snapshot
    edits: tuple[Edit, ...]
    at_s: float

    @cached_property
    def edit(self) -> Edit:
        """All `edits` as one of `before`, without what it leaves as it was at its start and end."""
        if not self.edits:
            return Edit(0, 0, "")
        start, end = len(self.before), 0  # of what they reach over, as it stands after each
        for edit in self.edits:
            start, end = min(start, edit.start), max(end, edit.end) + edit.growth
        after = self.after.text
        short = difference(self.before[start : end + len(self.before) - len(after)], after[start:end])
        return Edit(start + short.start, start + short.end, short.text)


class _SyntaxOf:
    """The syntax of one version, parsed when somebody asks and the document still stands there.

    A change must cost what it changed, and most versions live for one key only: nobody asks for their tree.
    """

    __slots__ = ("_ask", "_chars", "_given")

    def __init__(self, ask: Callable[[int], ParsedRegion | None], chars: int) -> None:
        self._ask = ask
        self._chars = chars
        self._given: tuple[int, ParsedRegion | None] | None = None

    def __call__(self, offset: int) -> ParsedRegion | None:
        if self._given is not None:
            asked, region = self._given
            if asked == offset or (region is not None and region.serves(offset, self._chars)):
                return region
        region = self._ask(offset)
        self._given = offset, region
        return region


class _LexicalOf:
    """The states of one version: what was asked of it is remembered, and once the document has moved on it is read by itself.

    A suggestion is finished again with every key where it was made, which is some versions ago.
    """

    __slots__ = ("_given", "_language", "_lines", "_own", "_read", "_text")

    def __init__(self, read: Callable[[int], LexicalState | None], language: str, text: str, lines: LineIndex) -> None:
        self._read = read
        self._language, self._text, self._lines = language, text, lines
        self._given: dict[int, LexicalState] = {}
        self._own: LexicalStates | None = None

    def __call__(self, line: int) -> LexicalState:
        if line not in self._given:
            state = self._read(line)
            self._given[line] = self._by_itself(line) if state is None else state
        return self._given[line]

    def _by_itself(self, line: int) -> LexicalState:
        if self._own is None:
            self._own = LexicalStates(self._language)
        return self._own.at(self._text, self._lines, line)


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
        self._text = self._before = well_formed(text)
        self._edits: tuple[Edit, ...] = ()
        self._lines = LineIndex.of(self._text)
        self._around = Neighbourhood(self.language)
        self._states = LexicalStates(self.language)

    @property
    def text(self) -> str:
        return self._text

    def snapshot(self) -> Snapshot:
        text, lines = self._text, self._lines

        def ask(offset: int) -> ParsedRegion | None:
            return self._around.at(text, lines, offset) if self._text is text else None

        def read(line: int) -> LexicalState | None:
            return self._states.at(text, lines, line) if self._text is text else None

        syntax, lexical = _SyntaxOf(ask, len(text)), _LexicalOf(read, self.language, text, lines)
        return Snapshot(self.uri, self.path, self.language, self.version, text, lines, syntax, lexical)

    def change(self, at_s: float) -> Change:
        """What the last :meth:`apply` did, as an event of `at_s`."""
        return Change(self._before, self.snapshot(), self._edits, at_s)

    def apply(self, edits: Sequence[Edit], version: int) -> None:
        """Applies edits in sequence, each in the coordinates that the one before it left.

        Raises:
            EditRangeError: an edit lies outside the text; none of `edits` was applied.
        """
        text, lines = self._text, self._lines
        steps: list[tuple[str, Edit]] = []
        for start, end, new in edits:
            if not 0 <= start <= end <= len(text):
                raise EditRangeError(f"edit [{start}, {end}) outside a text of {len(text)} characters: send it whole")
            new = well_formed(new)
            after = f"{text[:start]}{new}{text[end:]}"
            steps.append((text, Edit(start, end, new)))
            text, lines = after, lines.after(start, end, len(new), after)
        for before, edit in steps:
            self._around.edited(before, *edit)
            self._states.edited(edit.start, edit.end, edit.growth)
        self._before, self._edits = self._text, tuple(edit for _, edit in steps)
        self._text, self._lines, self.version = text, lines, version
