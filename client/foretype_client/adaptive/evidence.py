"""Where the text was like this before, and what followed there.

Sources are the corpus table, the other files, this file, and the part of this file around the cursor; for the latter three there is
one more, of places that agree back to the start of the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.stream import Ids
from foretype_client.adaptive.table import ContextRow

LENGTHS: Final = (1, 2, 3, 4, 5, 7, 10, 14, 20, 28)
"""Steps of context length, in lexemes: a copy of many lines is ever surer of itself."""
CONTEXT_MAX: Final = LENGTHS[-1]
SOURCES: Final = 9
"""0 table, 1 other files, 2 the same from the start of the line, 3 this file, 4 near, 5 and 6 these from the line's start, 7 latest,
8 written lately."""
LATEST: Final = 7
WRITTEN: Final = 8
_OCCURRENCES_MAX: Final = 256
_FOUND_MAX: Final = 1024
_RECENT_MAX: Final = 256
_NEAR_ABOVE: Final = 500
_NEAR_BELOW: Final = 125
_NOTHING: Final = (1 << 21) - 1
_FEW: Final = 256
"""Up to so many places are compared with all of a history at once."""
_DISTANCES: Final = (12, 40, 120, 400, 1600)

Ints = npt.NDArray[np.int64]

STEP: Final[Ints] = np.searchsorted(LENGTHS, np.arange(CONTEXT_MAX + 1), side="right").astype(np.int64)
"""How many of `LENGTHS` a context of so many lexemes has."""


class Followers(NamedTuple):
    """What followed at places like this one: the next lexeme there, and how many lexemes before it agree."""

    following: Ids
    lengths: Ints
    source: int


class MatchingPlaces(NamedTuple):
    """Places in a text, ascending, where the last lexeme of a history stands, and how many lexemes up to there agree with it."""

    at: Ints
    lengths: Ints


class Occurrences:
    """Text that seldom changes, sorted by lexeme and the one before, so that a search need not run over all of it."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        current = ids[:-1].astype(np.int64)
        keys = (current << 21) | np.concatenate((np.full(min(1, len(current)), _NOTHING, np.int64), current[:-1]))
        self._order: Ints = np.argsort(keys, kind="stable")
        self._keys: Ints = keys[self._order]

    @classmethod
    def merged(cls, parts: Sequence[Occurrences]) -> Occurrences:
        """Of texts one after another, none of which goes on in the next; sorted already, they are merged."""
        whole = cls(np.zeros(0, np.int32))
        if parts:
            starts = np.cumsum([0, *(len(part.ids) for part in parts[:-1])]).tolist()
            keys = np.concatenate([part._keys for part in parts])
            order = np.concatenate([part._order + start for part, start in zip(parts, starts, strict=True)])
            at = np.argsort(keys, kind="stable")
            whole.ids, whole._keys, whole._order = np.concatenate([part.ids for part in parts]), keys[at], order[at]
        return whole

    def with_tail(self, tail: Occurrences) -> Occurrences:
        """Like `merged` of the two, for a short `tail`: its keys are inserted, nothing is compared twice."""
        whole = Occurrences(np.zeros(0, np.int32))
        at = np.searchsorted(self._keys, tail._keys, side="right")
        whole.ids = np.concatenate((self.ids, tail.ids))
        whole._keys = np.insert(self._keys, at, tail._keys)
        whole._order = np.insert(self._order, at, tail._order + len(self.ids))
        return whole

    def find(self, history: Sequence[int]) -> Ints:
        """Places of the last lexeme of `history` after the one before it; after any, where that pair is new."""
        if not history or not len(self._keys):
            return self._order[:0]
        last = history[-1]
        low = high = 0
        if len(history) > 1:
            key = (last << 21) | history[-2]
            low, high = np.searchsorted(self._keys, (key, key + 1)).tolist()
        if low == high:
            low, high = np.searchsorted(self._keys, (last << 21, (last + 1) << 21)).tolist()
        return self._order[max(low, high - _FOUND_MAX) : high]


def agreement(ids: Ids, at: Ints, history: Sequence[int]) -> Ints:
    """How many lexemes up to each place agree with the end of `history`; at `at` itself they must."""
    lengths = np.ones(len(at), np.int64)
    alive = np.arange(len(at))
    reach = min(CONTEXT_MAX, len(history))
    for k in range(1, reach):
        if len(alive) <= _FEW:
            back = at[alive, None] - np.arange(k, reach)
            same = (back >= 0) & (ids[np.maximum(back, 0)] == np.array(history[-1 - k : -1 - reach : -1]))
            lengths[alive] += np.where(same.all(axis=1), reach - k, same.argmin(axis=1))
            break
        back = at[alive] - k
        alive = alive[(back >= 0) & (ids[back] == history[-1 - k])]
        lengths[alive] = k + 1
    return lengths


def standing(ids: Ids, begin: int, lexeme: int) -> Ints:
    """Where `lexeme` stands in this file, ascending. `ids[begin]` is no lexeme: it stands for the line that is written."""
    at = np.flatnonzero(ids[:-1] == lexeme)
    return at[at != begin - 1]


def alike_in_file(ids: Ids, at: Ints, history: Sequence[int]) -> MatchingPlaces:
    """Places `at` of this file, where the last lexeme of `history` stands."""
    return MatchingPlaces(at, agreement(ids, at, history))


def places_in_file(ids: Ids, begin: int, alike: MatchingPlaces) -> list[Followers]:
    """In this file, and again those near the cursor."""
    at, lengths = _longest(*alike)
    if not len(at):
        return []
    following = ids[at + 1]
    near = (at > begin - _NEAR_ABOVE) & (at < begin + _NEAR_BELOW)
    found = [Followers(following, lengths, 3)]
    if near.any():
        found.append(Followers(following[near], lengths[near], 4))
    return found


def latest_in_file(ids: Ids, begin: int, alike: MatchingPlaces) -> list[ContextRow]:
    """The last place above the cursor that is like this one, for each length of context that has its own.

    What was just written comes again more often than what was written as many times long ago. A row's `total` is how far back
    its place is, its `variety` whether the place before it says the same: 0 there is none, 1 no, 2 yes.
    """
    above = int(np.searchsorted(alike.at, begin))
    at = alike.at[max(0, above - _RECENT_MAX) : above]
    if not len(at):
        return []
    steps = STEP[alike.lengths[max(0, above - _RECENT_MAX) : above]]
    found: list[ContextRow] = []
    seen = -1
    for step in range(int(steps.max()), 0, -1):
        like = at[steps >= step]
        last = int(like[-1])
        if last == seen:
            continue
        seen = last
        says = int(ids[last + 1])
        variety = 0 if len(like) < 2 else 1 + int(ids[like[-2] + 1] == says)
        found.append(
            ContextRow(step, [says], [1.0], int(np.searchsorted(_DISTANCES, begin - last, side="right")), variety)
        )
    return found


def places_in_written(ids: Ids, history: Sequence[int]) -> list[Followers]:
    """In what was written lately."""
    at = np.flatnonzero(ids[:-1] == history[-1])
    if not len(at):
        return []
    at, lengths = _longest(at, agreement(ids, at, history))
    return [Followers(ids[at + 1], lengths, WRITTEN)]


def places_in_others(others: Occurrences, history: Sequence[int]) -> list[Followers]:
    """In the other files."""
    at = others.find(history)
    if not len(at):
        return []
    at, lengths = _longest(at, agreement(others.ids, at, history))
    return [Followers(others.ids[at + 1], lengths, 1)]


def _longest(at: Ints, lengths: Ints) -> MatchingPlaces:
    if len(at) <= _OCCURRENCES_MAX:
        return MatchingPlaces(at, lengths)
    # Bytes are sorted by counting, in a tenth of the time.
    best = np.argsort((CONTEXT_MAX - lengths).astype(np.uint8), kind="stable")[:_OCCURRENCES_MAX]
    return MatchingPlaces(at[best], lengths[best])
