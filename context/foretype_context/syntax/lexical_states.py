"""The lexical state at the beginning of any line of a text that is edited.

States are kept about every thousand characters. An edit costs nothing but what stands behind it, and of that no more than up to where
the state is again what it was. A place far away in a large file is not read up to: reading begins at an outer line above it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from foretype_context.syntax.reading import LexicalState, Reading, start_state
from foretype_context.text.lines import LineIndex

_STEP_CHARS: Final = 1_000
_FAR_CHARS: Final = 60_000
_NEAR_CHARS: Final = 20_000
_LOOK_LINES: Final = 400


class LexicalStates:
    """Follows every edit; reads when it is asked.

    Args:
        language: LSP language id.
    """

    __slots__ = ("_language", "_marks", "_states", "_valid")

    def __init__(self, language: str) -> None:
        self._language = language
        self._marks: list[int] = []
        self._states: list[LexicalState] = []
        self._valid: int = 0

    def edited(self, start: int, end: int, grown: int) -> None:
        """`[start, end)` became a text that is longer by `grown`."""
        marks, states = self._marks, self._states
        first, last = bisect_right(marks, start), bisect_right(marks, end)
        # Marks behind the valid ones wait for the state that they had to come again. With two edits above them it may come again too early.
        until = len(marks)
        if first < self._valid < until:
            until = max(self._valid, last)
        elif self._valid < first:
            until = first
        marks[first:] = [mark + grown for mark in marks[last:until]]
        states[first:] = states[last:until]
        self._valid = min(self._valid, first)

    def at(self, text: str, lines: LineIndex, line: int) -> LexicalState:
        """The state at the beginning of `line` of the text as it is after all edits."""
        marks, states, target = self._marks, self._states, lines.start(line)
        if not self._valid:
            # What stands around code is told from the whole file: a fragment of one seldom has any.
            marks[:], states[:] = [0], [start_state(self._language, inside="<?" not in text)]
            self._valid = 1
        while True:
            kept = bisect_right(marks, target, 0, self._valid) - 1
            at = marks[kept]
            if at == target:
                return states[kept]
            if target - at > _FAR_CHARS:
                self._begin_at(_outer_line(text, lines, target - _NEAR_CHARS), kept + 1)
                continue
            end = target
            if kept == self._valid - 1:
                stale = marks[self._valid] if self._valid < len(marks) else target
                step = lines.line_of(at + _STEP_CHARS) + 1
                end = min(target, stale, lines.start(step) if step < len(lines) else target)
            reading = Reading(self._language, states[kept])
            reading.read(text, at, end)
            is_mark = kept == self._valid - 1 and self._valid < len(marks) and marks[self._valid] == end
            if end == target and (kept < self._valid - 1 or (end - at < _STEP_CHARS and not is_mark)):
                return reading.state
            self._keep(end, reading.state)

    def _begin_at(self, at: int, place: int) -> None:
        del self._marks[place:], self._states[place:]
        self._marks.append(at)
        self._states.append(start_state(self._language))
        self._valid = place + 1

    def _keep(self, at: int, state: LexicalState) -> None:
        """`at` is the first mark behind the valid ones; where it has the state that it had, so have all below it."""
        place = self._valid
        if place < len(self._marks) and self._marks[place] == at:
            is_same = self._states[place] == state
            self._states[place] = state
            self._valid = len(self._marks) if is_same else place + 1
        else:
            self._marks.insert(place, at)
            self._states.insert(place, state)
            self._valid = place + 1


def _outer_line(text: str, lines: LineIndex, offset: int) -> int:
    """Start of the first line from `offset` on that begins at the margin with a word; it is the most likely to be outside of everything."""
    number = lines.line_of(offset)
    for line in range(number, min(number + _LOOK_LINES, len(lines))):
        if text[lines.start(line) : lines.start(line) + 1].isalpha():
            return lines.start(line)
    return lines.start(number)
