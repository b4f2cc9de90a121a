"""Finding the most probable rest of a line: best first, over at most so many steps."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.lexemes import LINE_END
from foretype_client.adaptive.stream import Ids

LEXEMES_MAX: Final = 40
_BRANCHES: Final = 3
_CHANCE_MIN: Final = 0.02
_CHANCE_MAX: Final = 0.9999
_BONUS: Final = 0.3
"""Nats a path is lent for each lexeme that it has: about what one costs, so that long paths are not put off for ever."""

Next = Callable[[list[int]], "tuple[Ids, npt.NDArray[np.float64]] | None"]
"""Candidates for what follows a path, and their chances."""


class FoundLine(NamedTuple):
    """A rest of a line, without the line end, and its chance."""

    ids: list[int]
    chance: float


def best_line(
    following: Next, *, least: float, steps_max: int, may_go_on: Callable[[], bool] = lambda: True
) -> FoundLine | None:
    """The most probable path to a line end, if its chance is `least` or more and it is found in `steps_max` steps.

    Args:
        may_go_on: asked before each step; the search ends without an answer where it says no.
    """
    heap: list[tuple[float, int, float, list[int]]] = [(0.0, 0, 0.0, [])]
    floor = math.log(least)
    pushed = steps = 0
    while heap and steps < steps_max:
        _, _, logprob, path = heapq.heappop(heap)
        if path and path[-1] == LINE_END:
            return FoundLine(path[:-1], math.exp(logprob))
        if len(path) > LEXEMES_MAX:
            continue
        if not may_go_on():
            return None
        if (found := following(path)) is None:
            continue
        steps += 1
        ids, chance = found
        count = min(_BRANCHES, len(ids))
        best = np.argpartition(-chance, count - 1)[:count] if len(ids) > count else range(len(ids))
        for i in sorted(map(int, best)):
            share = min(float(chance[i]), _CHANCE_MAX)
            if share < _CHANCE_MIN or (sum_ := logprob + math.log(share)) < floor:
                continue
            pushed += 1
            heapq.heappush(heap, (-sum_ - _BONUS * (len(path) + 1), pushed, sum_, [*path, int(ids[i])]))
    return None
