"""Brackets of a fragment: which it opens, which it closes, and which it must not close.

Strings and comments are skipped by a small scanner that works on fragments no parser would take. Where it cannot know (the
start of the enclosing statement is too far away) it says so, and nothing is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Final

from foretype_context.syntax.languages import language_spec
from foretype_context.text.document import Snapshot

__all__ = [
    "OpenBrackets",
    "Within",
    "excess_closer",
    "missing_closers",
    "open_quote",
    "statement_start",
    "surroundings",
    "within_by_quotes",
]

_PAIRS: Final = {")": "(", "]": "[", "}": "{"}
_OPENERS: Final = frozenset(_PAIRS.values())
_CLOSERS: Final = {opener: closer for closer, opener in _PAIRS.items()}
_LOOK_LINES: Final = 200
_LOOK_CHARS: Final = 20_000


@lru_cache(maxsize=32)
def _code(line_comment: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<comment>{re.escape(line_comment)})|(?P<quote>\"\"\"|'''|[\"'`])|[()\[\]{{}}]")


@lru_cache(maxsize=32)
def _string(quote: str) -> re.Pattern[str]:
    # A string in single quotes ends at the line's end: half a string must not swallow the rest of the text.
    ends = re.escape(quote) if len(quote) == 3 or quote == "`" else rf"{quote}|\n"
    return re.compile(rf"\\.|(?P<end>{ends})", re.DOTALL)


class _Scanner:
    """Yields brackets that are code; keeps the open quote from one text to the next."""

    def __init__(self, line_comment: str) -> None:
        self._code = _code(line_comment)
        self.quote = ""
        self.in_comment = False

    def brackets(self, text: str) -> Iterator[tuple[int, str]]:
        at = 0
        while True:
            found = (_string(self.quote) if self.quote else self._code).search(text, at)
            if found is None:
                return
            at = found.end()
            if self.quote:
                if found["end"]:
                    self.quote = ""
            elif found["comment"]:
                at = text.find("\n", at)
                if at < 0:
                    self.in_comment = True
                    return
            elif found["quote"]:
                self.quote = found["quote"]
            else:
                yield found.start(), found.group()


def open_quote(text: str, line_comment: str) -> str:
    """The quote of the string that stands open at the end of `text`, or empty."""
    scanner = _Scanner(line_comment)
    for _ in scanner.brackets(text):
        pass
    return scanner.quote


class Within(StrEnum):
    """Text that is no code."""

    COMMENT = "comment"
    STRING = "string"


def within_by_quotes(snapshot: Snapshot, offset: int) -> Within | None:
    """Whether `offset` is in a line comment or a string, told from the start of the enclosing statement by the scanner alone."""
    scanner = _Scanner(language_spec(snapshot.language).line_comment)
    for _ in scanner.brackets(snapshot.text[statement_start(snapshot, offset) : offset]):
        pass
    if scanner.in_comment:
        return Within.COMMENT
    return Within.STRING if scanner.quote else None


def closes_more(text: str, line_comment: str) -> bool:
    """Whether `text` has a bracket that closes none of its own."""
    depth = 0
    for _, bracket in _Scanner(line_comment).brackets(text):
        depth += 1 if bracket in _OPENERS else -1
        if depth < 0:
            return True
    return False


def missing_closers(text: str, line_comment: str) -> str:
    """What closes everything that stands open at the end of `text`: its string, then its brackets, innermost first."""
    scanner = _Scanner(line_comment)
    stack: list[str] = []
    for _, bracket in scanner.brackets(text):
        if bracket in _OPENERS:
            stack.append(bracket)
        elif stack and stack[-1] == _PAIRS[bracket]:
            stack.pop()
    return scanner.quote + "".join(_CLOSERS[bracket] for bracket in reversed(stack))


class OpenBrackets:
    """What brackets stand open at the cursor.

    Attributes:
        known: whether the enclosing statement was found; if not, nothing is known.
        stack: brackets open left of the cursor, outermost first.
        closed_right: how many of them the text right of the cursor closes.
        quote: the string quote open at the cursor, or empty.
    """

    __slots__ = ("closed_right", "known", "quote", "stack")

    def __init__(self, known: bool, stack: tuple[str, ...], closed_right: int, quote: str) -> None:
        self.known = known
        self.stack = stack
        self.closed_right = closed_right
        self.quote = quote


def _is_outer(snapshot: Snapshot, line: int) -> bool:
    """Whether a line begins at the margin with something that is no closing bracket; its ending is whitespace, too."""
    start = snapshot.line_start(line)
    first = snapshot.text[start : start + 1]
    return bool(first) and not first.isspace() and first not in ")]}"


def statement_start(snapshot: Snapshot, offset: int) -> int:
    """Start of the nearest outermost line above `offset`, or of the line where the search ends."""
    line = first = snapshot.line_of(offset)
    while first > 0 and line - first < _LOOK_LINES and not _is_outer(snapshot, first):
        first -= 1
    return snapshot.line_start(first)


def surroundings(snapshot: Snapshot, offset: int, *, skip_right: int = 0) -> OpenBrackets:
    """Scans from the enclosing outermost line to the next one; `skip_right` characters right of the cursor are left out."""
    line, start = snapshot.line_of(offset), statement_start(snapshot, offset)
    known = start == 0 or _is_outer(snapshot, snapshot.line_of(start))
    if not known or offset - start > _LOOK_CHARS:
        return OpenBrackets(False, (), 0, "")
    scanner = _Scanner(language_spec(snapshot.language).line_comment)
    stack: list[str] = []
    for _, bracket in scanner.brackets(snapshot.text[start:offset]):
        if bracket in _OPENERS:
            stack.append(bracket)
        elif stack and stack[-1] == _PAIRS[bracket]:
            stack.pop()
    quote = scanner.quote
    last = line + 1
    while last < snapshot.line_count and last - line < _LOOK_LINES and not _is_outer(snapshot, last):
        last += 1
    end = snapshot.line_start(last) if last < snapshot.line_count else len(snapshot.text)
    rest, left = stack[:], len(stack)
    for _, bracket in scanner.brackets(snapshot.text[offset + skip_right : min(end, offset + _LOOK_CHARS)]):
        if bracket in _OPENERS:
            rest.append(bracket)
        elif rest and rest[-1] == _PAIRS[bracket]:
            rest.pop()
            left = min(left, len(rest))
    return OpenBrackets(True, tuple(stack), len(stack) - left, quote)


def excess_closer(text: str, around: OpenBrackets, line_comment: str) -> int | None:
    """Offset of the first bracket in `text` that closes nothing: neither what `text` opened nor what is still open.

    A bracket that stands open left of the cursor may be closed only if the text right of the cursor does not close it.
    """
    if not around.known:
        return None
    allowed = len(around.stack) - around.closed_right
    outer, own = list(around.stack), list[str]()
    scanner = _Scanner(line_comment)
    scanner.quote = around.quote
    for at, bracket in scanner.brackets(text):
        if bracket in _OPENERS:
            own.append(bracket)
        elif own:
            if own.pop() != _PAIRS[bracket]:
                return at
        elif allowed > 0 and outer and outer[-1] == _PAIRS[bracket]:
            outer.pop()
            allowed -= 1
        else:
            return at
    return None
