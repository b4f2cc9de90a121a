"""What a suggestion does to the text around it: closers that close nothing, strings that swallow what stands below.

The cursor's line is read whole, the text below as far as the next line that stands no deeper than an outer one above: there both sides of the cursor must
fit again. Whatever is wrong there already is no fault of the suggestion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import indent_columns
from foretype_context.syntax.lexis import Within
from foretype_context.syntax.plain_reading import PlainLine, is_plain
from foretype_context.syntax.reading import LexicalState, Reading, Sort, lexis_of, within_of

_LOOK_LINES: Final = 200
_LOOK_CHARS: Final = 4_000
_CANDIDATES_MAX: Final = 12
_CLOSING_LINE: Final = re.compile(r"\s*[)\]}]+[;,]?\s*(?://.*|/\*.*)?")
_BEGINS: Final = re.compile(r"\s*([)\]}]+)")
_ARROWS: Final = re.compile(r"[-=]>|>=|<=|<<|[<>]")


@dataclass(frozen=True, slots=True)
class _Effect:
    """What reading a suggestion, and the text behind it, came upon: see :class:`foretype_context.syntax.reading.Reading`.

    Attributes:
        own: faults inside the suggestion.
        lows: its closers of what stood open at the cursor.
        behind: faults in the rest of the line.
        below: of the lines below: faults and frames that are missing where both sides meet, and frames too many; None: as they are
            without it.
        keeps: the lines below are read as they are without it, and the rest of its own has no fault more.
    """

    own: tuple[int, ...]
    lows: tuple[int, ...]
    behind: int
    below: tuple[int, int] | None
    keeps: bool


class _Line(NamedTuple):
    """The cursor's line as it is: faults right of the cursor, and the state at its end."""

    faults: int
    state: LexicalState


class _Below(NamedTuple):
    """The text below the cursor's line up to where both sides meet, what comes behind that, and how many frames stand open there.

    `fewer`: so many of these may be closed where the suggestion ends in a closing line. A namespace's content stands where it stands
    itself, and then nobody can tell whose end a closer at the margin is.
    `near`: where in `rest` the next line of the cursor's own body begins, in which nothing of that body may be closed; 0: nowhere.
    `now`: that text as it is, read through.
    """

    rest: str
    far: str
    depth: int
    fewer: int
    near: int
    now: _Passage


class _Passage:
    """Reads on below a line, as far as it is asked for.

    Attributes:
        at_near: the state where the next line of the cursor's own body begins; None: not come by.
        last: where looking ends.
    """

    __slots__ = ("_at", "_near", "_text", "at_near", "last", "reading")

    def __init__(self, reading: Reading, text: str, at: int, near: int, last: int) -> None:
        self.reading = reading
        self._text, self._at, self._near = text, at, near
        self.last = last
        self.at_near: LexicalState | None = None

    def to(self, end: int) -> None:
        if self._at < self._near <= end:
            self.reading.read(self._text, self._at, self._near)
            self._at, self.at_near = self._near, self.reading.state
        if self._at < end:
            self.reading.read(self._text, self._at, end)
            self._at = end


class Surroundings:
    """The text around a cursor, read once."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._language = view.snapshot.language
        self._angles = lexis_of(self._language).angles and view.tail.lstrip().startswith(">")
        self._plain = PlainLine(view.typed, view.tail) if is_plain(self._language) and view.tail.strip() else None
        self._before = view.snapshot.lexical_at(view.line)
        self._at_cursor = self._read(view.typed, self._before).state
        self._effects: dict[tuple[str, int], _Effect] = {}

    @cached_property
    def _below(self) -> _Below:
        view, snapshot = self._view, self._view.snapshot
        near, state = self._next_of_body(), self._line_now.state
        now = _Passage(self._reading(state), snapshot.text, view.line_end, near and view.line_end + near, self._last)
        line, depth, fewer = self._meets_again(now)
        end = snapshot.line_start(line) if line < snapshot.line_count else len(snapshot.text)
        end = min(max(end, view.line_end), self._last)
        rest, far = snapshot.text[view.line_end : end], snapshot.text[end : self._last]
        now.to(end)
        depth = depth if in_text(now.reading.state) else min(depth, now.reading.depth)
        return _Below(rest, far, depth, fewer, near, now)

    @cached_property
    def _last(self) -> int:
        """Where looking ends: the start of a line, or the text's end."""
        view, text = self._view, self._view.snapshot.text
        end = view.offset + _LOOK_CHARS
        return len(text) if end >= len(text) else max(text.rfind("\n", view.line_end, end) + 1, view.line_end)

    def _next_of_body(self) -> int:
        """See :class:`_Below`: told where the cursor's line is a statement in braces."""
        view, snapshot, top = self._view, self._view.snapshot, self._before.stack[-1:]
        own = indent_columns(view.typed + view.tail)
        if not top or top[0].sort is not Sort.BRACKET or top[0].opener != "{":
            return 0
        for line in range(view.line + 1, min(view.line + _LOOK_LINES, snapshot.line_count)):
            text = snapshot.line_text(line)
            columns, first = indent_columns(text), text.lstrip()[:1]
            if (columns < own and first) or (columns == own and first and first in ")]}"):
                return 0
            if columns == own and first and first != "#":
                return snapshot.line_start(line) - view.line_end
        return 0

    @cached_property
    def _line_now(self) -> _Line:
        typed, tail = self._view.typed, self._view.tail
        reading = self._read(typed + tail, self._before)
        return _Line(sum(at >= len(typed) for at in reading.faults), reading.state)

    @cached_property
    def _below_now(self) -> tuple[int, int]:
        return self._fits(self._view.typed + self._view.tail, self._line_now.state, self._below.now)

    @property
    def faults_now(self) -> int:
        """How many faults the text behind the cursor has without a suggestion."""
        return self._line_now.faults + self._below_now[0]

    def state_behind(self, shown: str) -> LexicalState:
        """At the end of a suggestion."""
        return self._read(self._view.typed + shown, self._before).state

    def before_comment(self, shown: str) -> str | None:
        """Where `shown` makes a comment of the rest of its line: what of it stands before that comment."""
        state = self.state_behind(shown)
        if not self._comments(state) or self._comments(self._at_cursor) or not state.stack[-1].opener:
            return None  # without an opener it is what a directive says
        end = len(shown)
        while self._comments(self.state_behind(shown[: end - 1])):
            end -= 1
        opener = state.stack[-1].opener
        # The comment's sign may begin left of the cursor.
        return shown[:end].removesuffix(opener).rstrip() if shown[:end].endswith(opener) else ""

    def _comments(self, state: LexicalState) -> bool:
        """Whether the rest of the line is comment."""
        return not in_text(state) and within_of(self._language, state) is Within.COMMENT

    def is_text(self, shown: str) -> bool:
        """Whether what stands behind a suggestion is in the comment or string that the cursor is in."""
        states = (self._at_cursor, self.state_behind(shown))
        return all(within_of(self._language, state) is not None for state in states)

    def leaves_string(self, shown: str, tail: str) -> bool:
        """Whether the rest of the line begins a string, which its line does not end, behind a suggestion that ends in code."""
        quote = tail.lstrip()[:1]
        if quote not in ('"', "'", "`") or in_text(self.state_behind(shown)):
            return False
        state = self.state_behind(shown + tail)
        return in_text(state) and state.stack[-1].opener == quote  # half of a docstring's quotes is no string

    def leaves_open(self, shown: str) -> int:
        """How much of what a suggestion opens is still open where both sides of the cursor must fit again."""
        return (self._effect(shown, 0).below or self._below_now)[1]

    def closes(self, shown: str) -> int:
        """How much of what stands open at the cursor a suggestion closes."""
        return len(self._effect(shown, 0).lows)

    def faults(self, shown: str, replaces: int = 0) -> int:
        """How many faults the text around the cursor has with a suggestion."""
        effect = self._effect(shown, replaces)
        return len(effect.own) + effect.behind + (effect.below or self._below_now)[0] + self._doubled(shown, replaces)

    def _doubled(self, shown: str, replaces: int) -> int:
        """How many closers right of the cursor a suggestion says as well, where brackets and quotes are all that is known."""
        return 0 if self._plain is None else self._plain.doubled(shown, replaces)

    def without_faults(self, shown: str, replaces: int = 0) -> str:
        """The longest beginning of `shown`, ended before a closer or a fault, with which the text has the fewest faults."""
        effect = self._effect(shown, replaces)
        doubled = self._plain.closers(shown) if self._plain is not None and self._doubled(shown, replaces) else []
        if effect.keeps and not effect.lows and not effect.own and not doubled:
            return shown
        least = self.faults(shown, replaces)
        best = shown
        ends = sorted({*effect.own, *effect.lows, *doubled}, reverse=True)
        if least > 0:
            for end in dict.fromkeys((*ends[: _CANDIDATES_MAX - 1], *ends[-1:])):
                found = self.faults(shown[:end], replaces)
                if found < least:
                    best, least = shown[:end], found
        # What is there already may be wrong; the suggestion may not make it worse.
        return best if least <= self.faults_now else ""

    def _read(self, text: str, state: LexicalState) -> Reading:
        reading = Reading(self._language, state)
        reading.read(text, 0, len(text))
        return reading

    def _effect(self, shown: str, replaces: int) -> _Effect:
        known = self._effects.get((shown, replaces))
        if known is not None:
            return known
        typed, tail = self._view.typed, self._view.tail[replaces:]
        start, end = len(typed), len(typed) + len(shown)
        line = typed + shown + tail
        reading = Reading(self._language, self._before)
        reading.floor = len(self._at_cursor.stack)
        # All at once: a sign may begin left of the cursor or in the suggestion, and end right of it.
        reading.read(line, 0, len(line))
        own = tuple(at - start for at in reading.faults if start <= at < end)
        lows = tuple(at - start for at in reading.lows if start <= at < end)
        behind = sum(at >= end for at in reading.faults)
        state, now = reading.state, self._line_now
        is_same = not self._angles and state.stack == now.state.stack and state.waiting == now.state.waiting
        keeps = is_same and behind <= now.faults
        below = None if is_same else self._read_below(line, state)
        effect = self._effects[shown, replaces] = _Effect(own, lows, behind, below, keeps)
        return effect

    def _read_below(self, line: str, state: LexicalState) -> tuple[int, int]:
        """What :meth:`_fits` says of the text below the cursor's line, which ends in `state`."""
        below, at = self._below, len(line)
        text = line + below.rest + below.far
        passage = _Passage(self._reading(state), text, at, below.near and at + below.near, len(text))
        passage.to(at + len(below.rest))
        return self._fits(line, state, passage)

    def _reading(self, state: LexicalState) -> Reading:
        reading = Reading(self._language, state)
        reading.floor = len(state.stack)
        return reading

    def _fits(self, line: str, state: LexicalState, passage: _Passage) -> tuple[int, int]:
        """Of a passage to where both sides meet, below a line that ends in `state`: faults and missing frames; and frames too many."""
        reading = passage.reading
        closed = 0 if passage.at_near is None else self._closed_early(line, passage.at_near)
        if in_text(reading.state) and not in_text(state) and not in_text(self._at_cursor) and not state.waiting:
            missing = 0  # code ends the line: a string down there is the file's own
        elif in_text(reading.state):
            # What swallows the line where both sides should meet has to end somewhere.
            passage.to(passage.last)
            # A comment ends at its first end; of quotes that are all alike nobody knows which one is an end, but that their number is even.
            ends = in_text(state) and state.stack[-1].closer not in state.stack[-1].opener and bool(reading.lows)
            missing = int(in_text(reading.state) and not ends)
        else:
            closes = _CLOSING_LINE.fullmatch(line.rpartition("\n")[2]) is not None
            missing = max(0, self._below.depth - (self._below.fewer if closes else 0) - reading.depth)
        left = max(0, reading.depth - self._below.depth) if self._below.depth >= 0 else 0
        return len(reading.faults) + max(missing, closed) + self._surplus_angles(line), left

    def _closed_early(self, line: str, state: LexicalState) -> int:
        """How much of the cursor's own body a line closes, told by the `state` before the next line of that body."""
        if (
            "\n" in line
            or in_text(state)
            or (not self._view.typed.strip() and line[len(self._view.typed) :][:1].isspace())
        ):
            return 0
        closes = _BEGINS.match(line)
        # `}, more)` ends what it is the last line of.
        return 0 if closes and closes.end() < len(line) else max(0, self._depth_behind(closes) - len(state.stack))

    def _depth_behind(self, closes: re.Match[str] | None) -> int:
        return len(self._before.stack) - (len(closes[1]) if closes else 0)

    def _surplus_angles(self, line: str) -> int:
        """How many type arguments more the cursor's line closes than it opens."""
        if not self._angles:
            return 0
        depth = lowest = 0
        for sign in _ARROWS.findall(line.partition("\n")[0]):
            depth += {"<": 1, ">": -1}.get(sign, 0)
            lowest = min(lowest, depth)
        return -lowest

    def _meets_again(self, now: _Passage) -> tuple[int, int, int]:
        """The line below that stands no deeper than one above, how many frames stand open there (-1: nobody knows), and how many fewer may."""
        view, snapshot = self._view, self._view.snapshot
        begins_here = not view.typed.strip() and view.tail[:1].isspace()
        own = indent_columns(view.typed if begins_here else view.typed + view.tail)
        last = min(view.line + _LOOK_LINES, snapshot.line_count)
        # Then what is read below reads strings for code.
        is_in_text = in_text(self._at_cursor) or in_text(self._line_now.state)
        at_margin = 0  # closers there
        for line in range(view.line + 1, last):
            start = snapshot.line_start(line)
            if start > self._last:
                return line, -1, 0
            text = snapshot.line_text(line)
            columns = indent_columns(text)
            if not text.strip() or text.lstrip()[0] in ")]}#" or (columns >= own and columns):
                at_margin += text[:1] in (")", "]", "}")
                continue
            now.to(start)
            if is_in_text or not in_text(now.reading.state):
                if not columns:
                    reading = Reading(self._language, now.reading.state)
                    reading.read(snapshot.text, start, self._last)
                    # A closer at the margin is missing where something is open at the text's end, and may be where nobody sees that end.
                    at_margin = max(at_margin, reading.depth if self._last == len(snapshot.text) else 1)
                return line, self._depth_above(columns), 0 if columns else at_margin
        return last, 0 if last == snapshot.line_count else -1, 0

    def _depth_above(self, columns: int) -> int:
        snapshot = self._view.snapshot
        first = self._view.line if self._view.typed.strip() else self._view.line - 1
        for line in range(first, max(self._view.line - _LOOK_LINES, -1), -1):
            text = snapshot.line_text(line)
            if not text.strip():
                continue
            found, closes = indent_columns(text), text.lstrip()[0] in ")]}#"
            if found > columns or (closes and found == columns):
                continue
            if closes:
                return -1
            state = snapshot.lexical_at(line)
            in_expression = bool(state.stack) and state.stack[-1].closer in (")", "]")
            if not in_text(state) and not in_expression:
                return len(state.stack)
        return 0


def in_text(state: LexicalState) -> bool:
    """Whether a place is inside a string or comment that goes on below."""
    return bool(state.stack) and state.stack[-1].sort is Sort.TEXT and bool(state.stack[-1].closer)
