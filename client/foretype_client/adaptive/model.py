"""The adaptive model behind the port of local candidates."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
from foretype_context.syntax.document import Snapshot

from foretype_client.adaptive.candidates import LocalCandidate
from foretype_client.adaptive.evidence import (
    alike_in_file,
    latest_in_file,
    places_in_file,
    places_in_others,
    places_in_written,
)
from foretype_client.adaptive.levels import CountedFollowers, Levels
from foretype_client.adaptive.lexemes import LINE_END, Vocabulary, lex
from foretype_client.adaptive.mixture import Weights, chances, fitted_weights, with_proposals
from foretype_client.adaptive.network import reranked
from foretype_client.adaptive.other_files import OtherFileOccurrences, OtherFiles
from foretype_client.adaptive.scoring import Scorer
from foretype_client.adaptive.search import best_line
from foretype_client.adaptive.stream import LexemeStream
from foretype_client.adaptive.surroundings import Answer, Following, Spot, Surroundings, Weighed
from foretype_client.adaptive.table import HISTORY_MAX, ContextRow, CorpusTable
from foretype_client.adaptive.templates import TemplateProposal
from foretype_client.adaptive.threshold import SHOW_RULE, ShowRule, openings
from foretype_client.adaptive.user_text import RecentlyWritten
from foretype_client.adaptive.views import CandidateView, WrittenLine, view_of

__all__ = ["AdaptiveModel", "Spot"]

_HALF_WORD: Final = re.compile(r" ?\w+$")
_BLANKS: Final = " \t\r\f\v"
_CHARS_MIN: Final = 3
"""Shorter texts are not worth a look: taking one costs a key as well."""
_LOOKS_MAX: Final = 2
_STEPS_MAX: Final = 30
"""Lexemes looked at in all while searching for the best line."""
_DOCUMENTS_MAX: Final = 700
"""Files kept, least recently used dropped first."""
_OTHERS_LEXEMES_MAX: Final = 300_000
"""Lexemes of other files looked into, latest files first."""


class AdaptiveModel:
    """Suggests the rest of the line from this file, the files seen lately, and a table of published code.

    Args:
        table: None without one.
        weights: of the levels of evidence; those that ship by default.
        show: which texts are worth a look; or by language, from what the user takes.
        looks_max: those of them, in one call, that no call before has looked at; bounds the time. The next call goes on from there.
            Half as many in the first call on a line, when what stands around it is new.
        chars_max: longer files are looked at through a window of this size around the cursor.
        vocabulary_max: different lexemes kept before everything is read afresh.
    """

    def __init__(
        self,
        table: CorpusTable | None = None,
        *,
        weights: Weights | None = None,
        show: ShowRule | Callable[[str], ShowRule] = SHOW_RULE,
        looks_max: int = _LOOKS_MAX,
        chars_max: int = 500_000,
        vocabulary_max: int = 200_000,
    ) -> None:
        self._table = table
        self._weights = fitted_weights() if weights is None else weights
        self._scorer = Scorer(self._weights.templates)
        self._show = show
        self._looks_max = looks_max
        self._chars_max = chars_max
        self._common = 0 if table is None else len(table.lexemes)
        self._vocabulary_max = vocabulary_max + self._common
        self._others_of = OtherFileOccurrences(_OTHERS_LEXEMES_MAX)
        self._streams: OrderedDict[str, LexemeStream] = OrderedDict()
        self._vocabulary = self._fresh_vocabulary()
        self._written = RecentlyWritten()
        self._around: Surroundings | None = None
        self._beside: tuple[str, OtherFiles] | None = None
        self.unfinished = False

    def learn(self, uri: str, text: str) -> None:
        """Look into another file from now on; an open document needs no call."""
        self._follow(uri, text[: self._chars_max])

    def prepare(self, uri: str) -> None:
        """The files beside it are merged, so that its first key need not."""
        if uri in self._streams:
            self._others(uri)

    def forget(self, uri: str) -> None:
        self._streams.pop(uri, None)
        self._beside = None

    def forget_written(self) -> None:
        """What was written until now belongs to another session."""
        for stream in self._streams.values():
            stream.take_written()
        self._written = RecentlyWritten()
        self._around = None

    def known(self) -> list[str]:
        """Documents that are looked into."""
        return list(self._streams)

    def suggest(self, snapshot: Snapshot, offset: int) -> LocalCandidate | None:
        self.unfinished = False
        around = self._around
        spot = self.spot(snapshot, offset)
        looks_max = self._looks_max if spot.around is around else self._looks_max // 2
        following = self._next(spot)
        keys = openings(following, self._vocabulary.lexeme, spot.half)
        likeliest = max(keys.values(), default=0.0)
        show = self._show if isinstance(self._show, ShowRule) else self._show(snapshot.language)
        least = show.least(likeliest)
        if least > likeliest:  # no text is more probable than its own first character
            return None
        found = self._best(spot, following, least, looks_max=looks_max)
        self.unfinished: bool = found is None and following.looks >= looks_max
        if found is None or not show.allows(found.text, found.confidence, keys.get(found.text[0], 0.0)):
            return None
        return found

    def candidate(self, snapshot: Snapshot, offset: int, *, least: float = 0.02) -> LocalCandidate | None:
        """The most probable rest of the line; its confidence is the chance that all of it is right, `least` or more."""
        spot = self.spot(snapshot, offset)
        return self._best(spot, self._next(spot), least)

    def _best(
        self, spot: Spot, following: Following, least: float, looks_max: float = math.inf
    ) -> LocalCandidate | None:
        found = best_line(following, least=least, steps_max=_STEPS_MAX, may_go_on=lambda: following.looks < looks_max)
        if found is None:
            return None
        text = self._spelled(found.ids)[len(spot.half) :].rstrip()
        return LocalCandidate(text, found.chance) if len(text) >= _CHARS_MIN else None

    def spot(self, snapshot: Snapshot, offset: int) -> Spot:
        """The document and the lexemes before a place in it."""
        line = snapshot.line_of(offset)
        typed = snapshot.text[snapshot.line_start(line) : offset].lstrip(_BLANKS)
        first = self._window(snapshot, line)
        # A window may begin where the file does, and still not be all of it.
        last = snapshot.line_count if len(snapshot.text) <= self._chars_max else self._last(snapshot, line)
        text = snapshot.text[snapshot.line_start(first) : snapshot.line_end(last - 1)]
        base = snapshot.line_start(first)
        typing = (line - first, snapshot.line_start(line) - base, snapshot.line_end(line) - base)
        stream = self._follow(snapshot.uri, text, typing)
        lexemes = lex(typed)
        half = lexemes.pop() if lexemes and (lexemes[-1] == " " or _HALF_WORD.match(lexemes[-1])) else ""
        margin = offset - snapshot.line_start(line) - len(typed)
        around = self._surroundings(snapshot.uri, stream, line - first, margin)
        return Spot(around, tuple(self._vocabulary.ids(lexemes)), half)

    def evidence(self, spot: Spot, path: list[int]) -> Levels | None:
        """Levels of evidence for what follows `path` at a place."""
        around = spot.around
        typed = (*spot.typed, *path)
        counted = around.counted(typed, lambda: self._count(around, typed))
        half = "" if path else spot.half
        return counted.levels(self._continuing(counted, half) if half else None)

    def _count(self, around: Surroundings, typed: tuple[int, ...]) -> CountedFollowers:
        history = [*around.before, *typed][-HISTORY_MAX:]
        rows = [] if self._table is None else self._table.rows(history, self._vocabulary)
        places = places_in_others(around.others, history)
        latest: list[ContextRow] = []
        if history:
            alike = alike_in_file(around.ids, around.places(history[-1]), history)
            places += places_in_file(around.ids, around.begin, alike)
            places += places_in_written(around.written, history)
            latest = latest_in_file(around.ids, around.begin, alike)
        in_line = typed[::-1].index(LINE_END) if LINE_END in typed else len(typed)
        return CountedFollowers(places, rows, in_line, latest)

    def _continuing(self, counted: CountedFollowers, half: str) -> npt.NDArray[np.bool_]:
        """Which candidates begin with what is typed of a word."""
        spelled = self._vocabulary.lexeme
        return np.array([spelled(id).startswith(half) for id in counted.ids.tolist()], np.bool_)

    def proposals(self, spot: Spot, path: list[int]) -> list[TemplateProposal]:
        """What lines like this one say comes after `path`; nothing beyond its end."""
        if LINE_END in path:
            return []
        half = "" if path else spot.half
        return spot.around.templates.proposals((*spot.typed, *path), half, spot.around.margin, self._scorer)

    def id_of(self, lexeme: str) -> int:
        return self._vocabulary.ids([lexeme])[0]

    def view(self, spot: Spot, path: list[int]) -> CandidateView | None:
        """Candidates for what follows `path`, with chances as levels and templates give them, and what is known of the likeliest."""
        typed, half = (*spot.typed, *path), "" if path else spot.half
        weighed = spot.around.weighed(typed, half, lambda: self._weigh(spot, path))
        levels, told = weighed or (None, None)
        proposals = self.proposals(spot, path)
        answer = with_proposals(
            None if levels is None or told is None else (levels.ids, told), proposals, self._weights.templates
        )
        if answer is None:
            return None
        line = WrittenLine(typed, len(half), spot.around.beside)
        scored = [(proposal.id, proposal.score) for proposal in proposals]
        return view_of(answer, levels, told, scored, line, self._vocabulary)

    def _weigh(self, spot: Spot, path: list[int]) -> Weighed:
        levels = self.evidence(spot, path)
        return None if levels is None else (levels, chances(levels, self._weights.levels))

    def _next(self, spot: Spot) -> Following:
        def look(path: list[int]) -> Answer:
            view = self.view(spot, path)
            if view is None:
                return None
            network = self._weights.network
            return view.ids, view.chance if network is None else reranked(view, network)

        return Following(spot, look)

    def _spelled(self, ids: list[int]) -> str:
        return "".join(map(self._vocabulary.lexeme, ids))

    def _surroundings(self, uri: str, stream: LexemeStream, line: int, margin: int) -> Surroundings:
        other = self._others(uri)
        if self._around is None or not self._around.still(stream, line, other.occurrences):
            self._around = Surroundings(stream, line, other, self._vocabulary, self._common, self._written.ids)
        self._around.indent(margin)
        return self._around

    def _others(self, uri: str) -> OtherFiles:
        """Everything seen outside `uri`, latest last; asked for at every key, it stays while only `uri` is followed."""
        if self._beside is None or self._beside[0] != uri:
            others = self._others_of.of([stream for other, stream in self._streams.items() if other != uri])
            self._beside = (uri, others)
        return self._beside[1]

    def _fresh_vocabulary(self) -> Vocabulary:
        return Vocabulary() if self._table is None else Vocabulary(self._table.lexemes)

    def _follow(self, uri: str, text: str, typing: tuple[int, int, int] | None = None) -> LexemeStream:
        if self._beside is not None and self._beside[0] != uri:
            self._beside = None
        if len(self._vocabulary) > self._vocabulary_max:
            self._vocabulary = self._fresh_vocabulary()
            self._streams.clear()
            self._beside = None
            self._written = RecentlyWritten()
        stream = self._streams.get(uri)
        if stream is None:
            stream = self._streams[uri] = LexemeStream(self._vocabulary, text)
            while len(self._streams) > _DOCUMENTS_MAX:
                self._streams.popitem(last=False)
                self._beside = None
        elif typing is not None:
            stream.retype(text, *typing)
        else:
            stream.update(text)
        self._written.add(stream.take_written())
        self._streams.move_to_end(uri)
        return stream

    def _window(self, snapshot: Snapshot, line: int) -> int:
        """First line looked at; moves in large steps, since each move reads the window afresh."""
        if len(snapshot.text) <= self._chars_max:
            return 0
        step = self._chars_max // 4
        wanted = max(0, snapshot.line_start(line) // step - 2) * step
        return snapshot.line_of(wanted)

    def _last(self, snapshot: Snapshot, line: int) -> int:
        end = min(len(snapshot.text), snapshot.line_start(line) + self._chars_max // 2)
        return snapshot.line_of(end) + 1
