"""A document as an array of lexeme numbers that follows its edits line by line."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.lexemes import LINE_END, Vocabulary, lex, shape_of
from foretype_client.adaptive.renaming import common_ends

Ids = npt.NDArray[np.int32]
Marks = npt.NDArray[np.int64]
"""(N, 3): of each line its shape (:func:`~foretype_client.adaptive.lexemes.shape_of`, 0 where it is blank), its first lexeme's class, its indentation."""

SHAPE: Final = 0
HEAD: Final = 1
MARGIN: Final = 2

_WRITTEN_LINES_MAX: Final = 60
"""More lines than that at once were not typed: another branch, a formatter, a window that moved."""
_DISTINCT_CHARS: Final = 20
"""A line as long as this mostly stands once in a file."""
_BLANKS: Final = " \t\r\f\v"


def _moved(old: list[str], new: list[str]) -> tuple[int, int, int] | None:
    """Where a long run of lines stands in both, and its length; None where none is found by its first, middle or last lines."""
    for place in (range(len(new)), range(len(new) // 2, len(new)), range(len(new) - 1, -1, -1)):
        at = next((at for at in place if len(new[at]) >= _DISTINCT_CHARS), None)
        if at is None or old.count(new[at]) != 1:
            continue
        first, second = old.index(new[at]), at
        while first and second and old[first - 1] == new[second - 1]:
            first, second = first - 1, second - 1
        length, most = 0, min(len(old) - first, len(new) - second)
        while length < most and old[first + length] == new[second + length]:
            length += 1
        if length > len(new) // 4:
            return first, second, length
    return None


class LexemeStream:
    """Lexeme numbers of a text, each non-blank line ending in `LINE_END`.

    Attributes:
        ids: int32 array of all lines.
        starts: int64 array: where in `ids` each line begins; one more entry than lines, the last is `len(ids)`.
        marks: what lines look like.
        written_lately: lines that changed since :meth:`take_written` was called last, once the cursor has left them.
        around: a number that stays while nothing changes but the line that was typed in last.
    """

    def __init__(self, vocabulary: Vocabulary, text: str = "") -> None:
        self._vocabulary = vocabulary
        self._text: str | None = None
        self._lines: list[str] = []
        self.ids: Ids = np.zeros(0, np.int32)
        self.starts: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self.marks: Marks = np.zeros((0, 3), np.int64)
        self.around: int = 0
        self._typed_line = -1
        self._typed = False
        self.written_lately: list[list[int]] = []
        self._written: tuple[Ids, npt.NDArray[np.int64], Marks] | None = None
        self.update(text)

    @property
    def written(self) -> npt.NDArray[np.int64]:
        """Numbers of the lines that are not blank."""
        return self._of_written()[1]

    @property
    def looks(self) -> Marks:
        """`marks` of the lines that are not blank."""
        return self._of_written()[2]

    def _of_written(self) -> tuple[Ids, npt.NDArray[np.int64], Marks]:
        if self._written is None or self._written[0] is not self.ids:
            lines = np.flatnonzero(self.marks[:, SHAPE])
            self._written = (self.ids, lines, self.marks[lines])
        return self._written

    def take_written(self) -> list[list[int]]:
        """Lines that changed since the last call, without blank ones and the one that is typed in."""
        found, self.written_lately = self.written_lately, []
        return found

    def update(self, text: str, typed_line: int = -1) -> None:
        """Follow the text; lexes only the lines that differ. The same text again costs nothing and keeps `ids`.

        Args:
            typed_line: the cursor's line, by its number in `text`.
        """
        if text == self._text:
            return
        fresh_file, self._text = self._text is None, text
        self.around += 1
        if "\r" in text:  # lines are those of the document: a lone carriage return ends one too
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        head, tail = common_ends(self._lines, lines)
        stop, lines = len(self._lines) - tail, lines[head : len(lines) - tail]
        moved = _moved(self._lines[head:stop], lines) if min(stop - head, len(lines)) > _WRITTEN_LINES_MAX else None
        if moved is None:
            return self._replace(head, stop, lines, typed_line, fresh_file)
        old, new, length = moved  # a window of a large text that has moved: what it still shows is known
        self._typed = False
        self._replace(head + old + length, stop, lines[new + length :], typed_line, fresh_file=True)
        return self._replace(head, head + old, lines[:new], typed_line, fresh_file=True)

    def _replace(self, head: int, stop: int, lines: list[str], typed_line: int, fresh_file: bool = False) -> None:
        """Lines `head` to `stop` become these."""
        if self._typed and not head <= self._typed_line < stop:
            self._wrote(self.line(self._typed_line))
        self._typed_line, self._typed = typed_line, False
        gone = None if fresh_file or len(lines) > _WRITTEN_LINES_MAX else {*self._lines[head:stop]}
        fresh: list[int] = []
        sizes: list[int] = []
        marks: list[tuple[int, int, int]] = []
        for number, line in enumerate(lines, start=head):
            ids, mark = self._line(line)
            if gone is not None and line not in gone:
                if number == typed_line:
                    self._typed = True
                else:
                    self._wrote(ids)
            fresh += ids
            sizes.append(len(ids))
            marks.append(mark)
        begin, end = int(self.starts[head]), int(self.starts[stop])
        new = np.array(fresh, np.int32)
        self.ids = np.concatenate((self.ids[:begin], new, self.ids[end:]))
        inner = begin + np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))) if sizes else np.array([begin])
        shifted = self.starts[stop + 1 :] + (len(fresh) - (end - begin))
        self.starts = np.concatenate((self.starts[:head], inner.astype(np.int64), shifted))
        between = np.array(marks, np.int64).reshape(-1, 3)
        self.marks = np.concatenate((self.marks[:head], between, self.marks[stop:]))
        self._lines[head:stop] = lines

    def retype(self, text: str, line: int, start: int, end: int) -> None:
        """Follow the text where, as a rule, line `line` alone changed, or a line end was typed before it.

        Comparing what is around it runs at the speed of memory; splitting a long text into lines does not.

        Args:
            start, end: characters between which line `line` now stands.
        """
        old = self._text
        if old is None or old == text or "\r" in text or "\n" in text[start:end]:
            return self.update(text, line)
        if not self._alone(old, text, line, start, end):
            above = text.rfind("\n", 0, max(0, start - 1)) + 1
            if not line or not self._alone(old, text, line - 1, above, end):
                return self.update(text, line)
            lines = text[above:end].split("\n")
            head, tail = common_ends(self._lines[line - 1 : line], lines)
            self._text = text
            self.around += 1
            return self._replace(line - 1 + head, line - tail, lines[head : len(lines) - tail], line)
        if line != self._typed_line:
            if self._typed:
                self._wrote(self.line(self._typed_line))
            self.around += 1
            self._typed_line = line
        self._typed = True
        self._text = text
        self._lines[line] = text[start:end]
        ids, mark = self._line(text[start:end])
        new = np.array(ids, np.int32)
        low, high = self.span(line)
        self.ids = np.concatenate((self.ids[:low], new, self.ids[high:]))
        if len(new) != high - low:
            self.starts = self.starts.copy()
            self.starts[line + 1 :] += len(new) - (high - low)
        self.marks = self.marks.copy()
        self.marks[line] = mark
        return None

    def _alone(self, old: str, text: str, line: int, start: int, end: int) -> bool:
        """Whether `text` differs from the `old` one in its line `line` alone, instead of which characters `start` to `end` stand there."""
        stop = end - (len(text) - len(old))
        return (
            start <= stop
            and 0 <= line < len(self._lines)
            and old[start:stop] == self._lines[line]
            and text.endswith(old[stop:])
            and text.startswith(old[:start])
        )

    def span(self, line: int) -> tuple[int, int]:
        """Half-open range of `ids` that holds line `line`."""
        return int(self.starts[line]), int(self.starts[line + 1])

    def line(self, number: int) -> list[int]:
        """Lexemes of a line, its end included."""
        low, high = self.span(number)
        return self.ids[low:high].tolist()

    def _wrote(self, ids: list[int]) -> None:
        if len(ids) > 1:
            self.written_lately.append(ids)

    def _line(self, line: str) -> tuple[list[int], tuple[int, int, int]]:
        text = line.strip(_BLANKS)
        margin = len(line) - len(line.lstrip(_BLANKS))
        if not text:
            return [], (0, 0, margin)
        ids = self._vocabulary.ids(lex(text))
        classes = self._vocabulary.classes(ids)
        return [*ids, LINE_END], (shape_of(classes), classes[0], margin)
