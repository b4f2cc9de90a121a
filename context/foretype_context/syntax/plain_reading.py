"""Reads brackets, and quotes that end on their line, where no lexis says how a language writes them: any code, and prose around it.

It is asked about a line and the text written behind it, and understands nothing of a file: a bracket in a comment counts, too. What a
quote holds may be code (of a template, of an attribute), so that brackets are paired in it as well, but never across its ends.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final, NamedTuple

from foretype_context.syntax.reading import LexicalState, lexis_of

_SIGNS: Final = re.compile(r"\\[\\\"'`]|[()\[\]{}\"'`\n]")
_OPENER_OF: Final = MappingProxyType({")": "(", "]": "[", "}": "{"})
_LINE_CHARS: Final = 2_000
"""On either side of the cursor: a file may be one line."""
QUOTES: Final = frozenset("\"'`")
_OPENS_APOSTROPHE: Final = re.compile(r"(?<!\w)'(?=\S)")
_CLOSES_APOSTROPHE: Final = re.compile(r"(?<=\S)'(?!\w)")
"""The apostrophe of `don't` and `dogs'` opens nothing, and that of `don't` closes nothing."""
_ENUMERATES: Final = re.compile(r"(?<=\w[ \t])[A-Za-z\d]\)(?= \w)")
"""`see a) the first`."""


def is_plain(language: str) -> bool:
    """Whether nobody knows what brackets are in a language: prose, one without a lexis, a page with its scripts."""
    return not lexis_of(language).brackets


class _Open(NamedTuple):
    sign: str
    at: int


class PlainReading:
    """As :class:`foretype_context.syntax.reading.Reading`, as far as it goes.

    Attributes:
        pairs: opener's offset by that of its closer.
        strays: offsets of brackets that close nothing.
    """

    __slots__ = ("_open_until", "_stack", "pairs", "strays")

    def __init__(self) -> None:
        self._stack: list[_Open] = []
        self._open_until: dict[str, int] = {}  # quotes that nothing ends up to there
        self.pairs: dict[int, int] = {}
        self.strays: list[int] = []

    @property
    def state(self) -> LexicalState:
        """Nobody knows of text that goes on over lines."""
        return LexicalState()

    @property
    def depth(self) -> int:
        return len(self._stack)

    @property
    def in_braces(self) -> bool:
        return bool(self._stack) and self._stack[-1].sign == "{"

    def read(self, text: str, at: int, end: int) -> None:
        """Reads `text[at:end]`; what of its line stands left and right of that tells a quote from an apostrophe."""
        for found in _SIGNS.finditer(text, at, end):
            sign, start = found[0], found.start()
            if sign in _OPENER_OF.values():
                self._stack.append(_Open(sign, start))
            elif sign in _OPENER_OF:
                self._close(_OPENER_OF[sign], start)
            elif sign == "\n":
                self._end_line()
            elif sign in QUOTES:
                self._quote(sign, text, start)

    def _close(self, opener: str, at: int) -> None:
        """Ends the innermost bracket of that kind in this quote, with what stands open in it."""
        for depth in range(len(self._stack) - 1, -1, -1):
            sign, start = self._stack[depth]
            if sign == opener:
                del self._stack[depth:]
                self.pairs[at] = start
            if sign == opener or sign in QUOTES:
                return
        self.strays.append(at)

    def _quote(self, sign: str, text: str, at: int) -> None:
        depth = next((depth for depth, frame in enumerate(self._stack) if frame.sign == sign), None)
        if depth is None:
            if (sign != "'" or _OPENS_APOSTROPHE.match(text, at)) and self._is_closed(sign, text, at + 1):
                self._stack.append(_Open(sign, at))
        elif sign != "'" or _CLOSES_APOSTROPHE.match(text, at):
            self.pairs[at] = self._stack[depth].at
            del self._stack[depth:]

    def _is_closed(self, sign: str, text: str, at: int) -> bool:
        """Whether a quote that begins before `at` ends on its line."""
        if at <= self._open_until.get(sign, 0):
            return False
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        for found in _SIGNS.finditer(text, at, end):
            if found[0] == sign and (sign != "'" or _CLOSES_APOSTROPHE.match(text, found.start())):
                return True
        self._open_until[sign] = end
        return False

    def _end_line(self) -> None:
        depth = next((depth for depth, frame in enumerate(self._stack) if frame.sign in QUOTES), None)
        if depth is not None:
            del self._stack[depth:]


class PlainLine:
    """The cursor's line, read so.

    Args:
        typed, tail: the line left and right of the cursor.
    """

    def __init__(self, typed: str, tail: str) -> None:
        self._typed, self._tail = typed[-_LINE_CHARS:], tail[:_LINE_CHARS]
        line, now = self._read("", self._tail)
        # Counted from the line's end: there they stay where they are.
        self._closers = [at - len(line) for at, opener in now.pairs.items() if opener < len(self._typed) <= at]

    def doubled(self, shown: str, replaces: int = 0) -> int:
        """How many closers right of the cursor, of what was opened left of it, close nothing with `shown` between.

        None of a text that closes more than the line has open: that is no code (`a) first`), or more than the line tells.
        """
        if not self._closers or "\n" in shown:
            return 0
        line, reading = self._read(shown, self._tail[replaces:])
        size = len(line)
        start, end = len(self._typed), len(self._typed) + len(shown)
        if any(start <= at < end for at in reading.strays) or _ENUMERATES.search(line, start, end):
            return 0
        return sum(size + at >= end and size + at not in reading.pairs for at in self._closers)

    def closers(self, shown: str) -> list[int]:
        """Offsets in `shown` of what closes something of the line."""
        reading, start = self._read(shown, self._tail)[1], len(self._typed)
        return [at - start for at in reading.pairs if start <= at < start + len(shown)]

    def _read(self, shown: str, tail: str) -> tuple[str, PlainReading]:
        """The line with `shown`."""
        line, reading = self._typed + shown + tail, PlainReading()
        reading.read(line, 0, len(line))
        return line, reading
