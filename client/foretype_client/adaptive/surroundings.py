"""What stands around the line that is written: it stays while only that line is typed in, and so does what was found in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.evidence import Ints, Occurrences, standing
from foretype_client.adaptive.levels import CountedFollowers, Levels
from foretype_client.adaptive.lexemes import LINE_END, Vocabulary
from foretype_client.adaptive.other_files import OtherFiles
from foretype_client.adaptive.stream import Ids, LexemeStream
from foretype_client.adaptive.table import HISTORY_MAX
from foretype_client.adaptive.templates import LineTemplates, Scene
from foretype_client.adaptive.views import BesideLine

NOTHING: Final = -1
"""Stands in `ids` where the line is that is written: it is no evidence for itself."""
_ANSWERS_MAX: Final = 4096
_WEIGHED_MAX: Final = 64

Answer = tuple[Ids, npt.NDArray[np.float64]] | None
"""Candidates and their chances; None without any."""


Weighed = tuple[Levels, npt.NDArray[np.float64]] | None
"""Levels of evidence and the chances they give; None without any."""


class Surroundings:
    """One line's surroundings.

    Args:
        line: the line that is written, by its number in `stream`.
        common: lexemes with smaller numbers are those of the corpus table.

    Attributes:
        ids: lexemes of the file, with `NOTHING` instead of the line.
        begin: where that is.
        before: the last lexemes before it.
        others: the other files, searchable.
        written: what was written lately.
        beside: what stands beside the line.
        margin: its indentation.
    """

    def __init__(
        self,
        stream: LexemeStream,
        line: int,
        other: OtherFiles,
        vocabulary: Vocabulary,
        common: int,
        written: Ids,
    ) -> None:
        self._stream = stream
        self._key = (stream.around, line)
        self.margin = 0
        begin, end = stream.span(line)
        self.ids: Ids = np.concatenate((stream.ids[:begin], np.full(1, NOTHING, np.int32), stream.ids[end:]))
        self.begin = begin
        self.before: list[int] = stream.ids[max(0, begin - HISTORY_MAX) : begin].tolist()
        self.written = written
        above = _until_end(self.before[-2::-1])[::-1]
        below = _until_end(self.ids[begin + 1 : begin + 1 + HISTORY_MAX].tolist())
        self.beside: BesideLine = BesideLine(self.ids, begin, self.before, above, below, common)
        self.others: Occurrences = other.occurrences
        self.templates: LineTemplates = LineTemplates(vocabulary, common, Scene(stream, line, other))
        self._places: dict[int, Ints] = {}
        self._answers: dict[tuple[tuple[int, ...], str], Answer] = {}
        self._counted: dict[tuple[int, ...], CountedFollowers] = {}
        self._weighed: dict[tuple[tuple[int, ...], str], Weighed] = {}

    def still(self, stream: LexemeStream, line: int, others: Occurrences) -> bool:
        """Whether these are the surroundings of that line, now."""
        return self._stream is stream and self._key == (stream.around, line) and self.others is others

    def indent(self, margin: int) -> None:
        """The line's indentation is this; nothing but the score of templates knows of it."""
        if margin != self.margin:
            self.margin: int = margin
            self._answers.clear()

    def places(self, lexeme: int) -> Ints:
        """Where `lexeme` stands in the file, looked for once."""
        if lexeme not in self._places:
            self._places[lexeme] = standing(self.ids, self.begin, lexeme)
        return self._places[lexeme]

    def counted(self, typed: tuple[int, ...], count: Callable[[], CountedFollowers]) -> CountedFollowers:
        """What `count` finds after these lexemes of the line: the same for every key of the word that comes next."""
        if typed not in self._counted:
            if len(self._counted) >= _WEIGHED_MAX:
                self._counted.clear()
            self._counted[typed] = count()
        return self._counted[typed]

    def weighed(self, typed: tuple[int, ...], half: str, weigh: Callable[[], Weighed]) -> Weighed:
        """What `weigh` says after these lexemes of the line and this half-typed word, asked for once."""
        key = (typed, half)
        if key not in self._weighed:
            if len(self._weighed) >= _WEIGHED_MAX:
                self._weighed.clear()
            self._weighed[key] = weigh()
        return self._weighed[key]

    def known(self, typed: tuple[int, ...], half: str) -> tuple[Answer] | None:
        """What was answered before after these lexemes of the line and this half-typed word, in a tuple of one."""
        return (self._answers[typed, half],) if (typed, half) in self._answers else None

    def keep(self, typed: tuple[int, ...], half: str, answer: Answer) -> Answer:
        if len(self._answers) >= _ANSWERS_MAX:
            self._answers.clear()
        self._answers[typed, half] = answer
        return answer


def _until_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(LINE_END)] if LINE_END in ids else ids


class Spot(NamedTuple):
    """A place in a document.

    Attributes:
        around: what stands around its line.
        typed: lexemes before it on its line.
        half: the half-typed word, which is not in `typed`.
    """

    around: Surroundings
    typed: tuple[int, ...]
    half: str


class Following:
    """What follows a path at a place; what is found stays with the line's surroundings.

    Args:
        look: finds it, in about a millisecond.

    Attributes:
        looks: how often it had to be looked for.
    """

    def __init__(self, spot: Spot, look: Callable[[list[int]], Answer]) -> None:
        self._spot = spot
        self._look = look
        self.looks: int = 0

    def __call__(self, path: list[int]) -> Answer:
        around, typed, half = self._spot
        typed, half = (*typed, *path), "" if path else half
        if (known := around.known(typed, half)) is not None:
            return known[0]
        self.looks += 1
        return around.keep(typed, half, self._look(path))
