"""From places where the text was like this to levels of evidence: what each source says at each length of context.

Counting does not depend on the word that is being typed: it is done once for the lexemes of a line, and every key of the next word
only picks the candidates that still continue it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.evidence import CONTEXT_MAX, LATEST, LENGTHS, SOURCES, STEP, Followers, Ints
from foretype_client.adaptive.stream import Ids
from foretype_client.adaptive.table import ContextRow

TIMES: Final = 6
SPREADS: Final = 4
_FROM_START: Final = {1: 2, 3: 5, 4: 6}
_IS_ANCHORED: Final = np.isin(np.arange(SOURCES), tuple(_FROM_START.values()))
_COUNT_MAX: Final = 64
_TIMES_STEP: Final[Ints] = np.searchsorted((2, 3, 5, 9, 33), np.arange(_COUNT_MAX + 1), side="right").astype(np.int64)
_SPREAD_STEP: Final[Ints] = np.searchsorted((2, 3, 5), np.arange(_COUNT_MAX + 1), side="right").astype(np.int64)


class Levels(NamedTuple):
    """Evidence for the next lexeme. Shapes: L levels in ascending order of what they count, C candidates.

    Attributes:
        ids: (C,) lexeme ids, ascending.
        shares: (L, C) what each level says.
        cells: (L,) which weight belongs to each, a flat index of (source, length, times, spread).
    """

    ids: Ids
    shares: npt.NDArray[np.float64]
    cells: Ints


class CountedFollowers:
    """What followed, counted. Shapes: C candidates, U pairs of source and length that were met, R rows that are told.

    Args:
        places: where the text was like this.
        rows: of the table.
        in_line: lexemes of history that stand on the cursor's line.
        latest: of `latest_in_file`.

    Attributes:
        ids: (C,) lexeme ids, ascending; none without any evidence.
    """

    def __init__(
        self, places: Sequence[Followers], rows: Sequence[ContextRow], in_line: int, latest: Sequence[ContextRow] = ()
    ) -> None:
        anchor = min(in_line + 1, CONTEXT_MAX)
        followers: list[Ids] = []
        steps: list[Ints] = []
        sources: list[int] = []
        for following, lengths, source in places:
            followers.append(following)
            steps.append(STEP[lengths])
            sources.append(source)
            if source in _FROM_START and len(from_start := np.flatnonzero(lengths >= anchor)):
                followers.append(following[from_start])
                steps.append(np.full(len(from_start), STEP[anchor], np.int64))
                sources.append(_FROM_START[source])
        counted = sum(map(len, followers))
        told = [*((0, row) for row in rows), *((LATEST, row) for row in latest)]
        followers += [np.array(row.ids, np.int32) for _, row in told]
        self.ids: Ids
        self.ids, inverse = _distinct(np.concatenate((*followers, np.zeros(0, np.int32))))
        self._count(steps, sources, inverse[:counted], anchor)
        self._tell(told, inverse[counted:])

    def _count(self, steps: Sequence[Ints], sources: Sequence[int], own: Ints, anchor: int) -> None:
        """(U, C) how often each candidate followed contexts of at least that length, and the length and source of each row."""
        size = len(self.ids)
        depth = max((int(step.max()) for step in steps if len(step)), default=0)
        if not depth:
            self._counts, self._step, self._source = np.zeros((0, size), np.int64), own[:0], own[:0]
            return
        # The longest context comes first, so that adding up gives a shorter one what longer ones have.
        rows = np.concatenate([(depth - step) * len(sources) + number for number, step in enumerate(steps)])
        counts = np.bincount(rows * size + own, minlength=depth * len(sources) * size)
        counts = counts.reshape(depth, len(sources), size)
        for longer in range(depth - 1):  # a few long sums; numpy's own runs across the rows
            counts[longer + 1] += counts[longer]
        counts = counts[::-1].reshape(-1, size)
        used = np.flatnonzero(counts.any(axis=1))
        step, source = used // len(sources), np.array(sources)[used % len(sources)]
        if anchor > 1:  # what agrees from the line's start has no shorter contexts
            whole = (step >= int(STEP[anchor]) - 1) | ~_IS_ANCHORED[source]
            used, step, source = used[whole], step[whole], source[whole]
        self._counts, self._step, self._source = counts[used], step, source

    def _tell(self, told: Sequence[tuple[int, ContextRow]], own: Ints) -> None:
        """(R, C) what is told of each candidate, and the cell and rank of each row."""
        size = len(self.ids)
        numbers = np.repeat(np.arange(len(told)), [len(row.ids) for _, row in told])
        shares = [share for _, row in told for share in row.shares]
        told_flat = np.bincount(numbers * size + own, shares, len(told) * size)
        self._told = told_flat.astype(np.float64).reshape(len(told), size)
        places = [(source * len(LENGTHS) + row.order - 1, row) for source, row in told]
        cells = [(place * TIMES + min(row.total, TIMES - 1)) * SPREADS + row.variety for place, row in places]
        order = [(row.order - 1) * SOURCES + source for source, row in told]
        self._told_cells, self._told_order = np.array(cells, np.int64), np.array(order, np.int64)

    def levels(self, keep: npt.NDArray[np.bool_] | None = None) -> Levels | None:
        """Levels of evidence, None without any.

        Args:
            keep: (C,) only these candidates (those that continue a half-typed word); what they share is all there is.
        """
        counts, told, ids = self._counts, self._told, self.ids
        told_cells, told_order = self._told_cells, self._told_order
        step, source = self._step, self._source
        if keep is not None:
            counts, told, ids = counts[:, keep], told[:, keep], ids[keep]
        times = counts.sum(axis=1)
        if keep is not None:
            met = times > 0
            counts, times, step, source = counts[met], times[met], step[met], source[met]
            total = told.sum(axis=1)
            says = total > 0
            told, told_cells, told_order = told[says] / total[says, None], told_cells[says], told_order[says]
        if not len(ids) or not len(counts) + len(told):
            return None
        spread = np.count_nonzero(counts, axis=1)
        bucket = _TIMES_STEP[np.minimum(times, _COUNT_MAX)] * SPREADS + _SPREAD_STEP[np.minimum(spread, _COUNT_MAX)]
        cells = (source * len(LENGTHS) + step) * TIMES * SPREADS + bucket
        ascending = np.argsort(np.concatenate((step * SOURCES + source, told_order)))
        shares = np.concatenate((counts / times[:, None], told))[ascending]
        return Levels(ids, shares, np.concatenate((cells, told_cells))[ascending])


def _distinct(lexemes: Ids) -> tuple[Ids, Ints]:
    """Each lexeme once, ascending, and the place of every lexeme among them: `numpy.unique` in half the time, for ids are small."""
    ordered = np.sort(lexemes)
    ids = ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
    place = np.empty(int(ids[-1]) + 1 if len(ids) else 0, np.int64)
    place[ids] = np.arange(len(ids))
    return ids, place[lexemes]
