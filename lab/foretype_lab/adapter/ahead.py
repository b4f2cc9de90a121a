"""Rows drawn by processes beside the training, which would else wait for them: a GPU takes tokens faster than one process draws them.

The rows are those that a run without this draws, in the same order: a row is a function of seed, length and number.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Mapping
from multiprocessing.pool import AsyncResult

from foretype_lab.adapter.rows import Row, Sampler

STEPS = 6
"""Drawn ahead of the step that is computed."""
_CHUNK = 8
"""Rows that a process draws at a time."""

_sampler: Sampler | None = None


def next_length(shares: Mapping[int, float], drawn: Mapping[int, int]) -> int:
    """Length of the next step's rows: each length gets its share of the tokens in turn, by what it lacks most.

    Args:
        drawn: rows so far, by length.
    """
    total = sum(drawn.get(length, 0) * length for length in shares) + 1
    return max(shares, key=lambda length: shares[length] - drawn.get(length, 0) * length / total)


class Drawer:
    """Rows of one step after the other.

    Args:
        drawn: rows that were drawn before, by length.
        processes: that draw; 0 draws when asked. They are forked here, and use nothing of the GPU.
    """

    def __init__(
        self, sampler: Sampler, shares: Mapping[int, float], batch_tokens: int, drawn: Mapping[int, int], processes: int
    ) -> None:
        self._sampler, self._shares, self._batch_tokens = sampler, shares, batch_tokens
        self._drawn = dict(drawn)
        self._ahead: deque[tuple[int, AsyncResult[list[Row]]]] = deque()
        self._pool = multiprocessing.get_context("fork").Pool(processes, _begin, (sampler,)) if processes else None

    def step(self) -> tuple[int, list[Row]]:
        """Length and rows of the next step."""
        if self._pool is None:
            length, numbers = self._next()
            return length, [self._sampler.row(number, length) for number in numbers]
        while len(self._ahead) < STEPS:
            length, numbers = self._next()
            wanted = [(number, length) for number in numbers]
            self._ahead.append((length, self._pool.starmap_async(_row, wanted, chunksize=_CHUNK)))
        length, rows = self._ahead.popleft()
        return length, rows.get()

    def close(self) -> None:
        """Ends the processes."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def _next(self) -> tuple[int, range]:
        length = next_length(self._shares, self._drawn)
        first = self._drawn.get(length, 0)
        self._drawn[length] = first + self._batch_tokens // length
        return length, range(first, self._drawn[length])


def _begin(sampler: Sampler) -> None:
    global _sampler
    _sampler = sampler


def _row(number: int, length: int) -> Row:
    assert _sampler is not None
    return _sampler.row(number, length)
