"""What a template's proposal is worth: a logistic regression over classes of what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt


class Classes(NamedTuple):
    """What a fitted weight may depend on; each is a small number, below `_SIZES`."""

    source: int
    depth: int
    right: int
    wrong: int
    what: int
    half: int
    step: int
    renames: int
    near: int
    votes: int = 0
    rivals: int = 0


_SIZES: Final = Classes(
    source=2, depth=5, right=6, wrong=3, what=6, half=3, step=2, renames=3, near=4, votes=3, rivals=4
)
_PAIRS: Final = (
    ("depth", "right"),
    ("right", "wrong"),
    ("what", "renames"),
    ("what", "half"),
    ("depth", "step"),
    ("source", "depth"),
    ("what", "right"),
    ("votes", "depth"),
    ("votes", "rivals"),
    ("depth", "rivals"),
)
"""Pairs are what the fit found worth having."""
RIVALS_STEP: Final = (0, 1, 2, 2, 3)
RIGHT_STEP: Final = (0, 1, 2, 3, 3, 4, 4, 4, 5)
_KNOWN_MAX: Final = 65_536


def _plan() -> tuple[list[int], list[tuple[int, int, int, int]], int]:
    """Where the weights of each class begin; (first, second, size of the second, where) of each pair; how many weights."""
    at = 1
    singles: list[int] = []
    for size in _SIZES:
        singles.append(at)
        at += size
    pairs: list[tuple[int, int, int, int]] = []
    for one, other in _PAIRS:
        first, second = Classes._fields.index(one), Classes._fields.index(other)
        pairs.append((first, second, _SIZES[second], at))
        at += _SIZES[first] * _SIZES[second]
    return singles, pairs, at


_SINGLES, _PLAN, FEATURES = _plan()


@lru_cache(_KNOWN_MAX)
def features_of(classes: Classes) -> tuple[int, ...]:
    """Indices below `FEATURES` of the weights that count."""
    return (
        0,
        *(offset + value for offset, value in zip(_SINGLES, classes, strict=True)),
        *(where + classes[first] * size + classes[second] for first, second, size, where in _PLAN),
    )


class Scorer:
    """Log-odds of proposals before anything else is known. Few combinations of classes occur; each is added up once.

    Args:
        weights: `FEATURES` or more of them.
    """

    def __init__(self, weights: Sequence[float] | npt.NDArray[np.float64]) -> None:
        self._weights = [float(weight) for weight in weights]
        self._known: dict[Classes, float] = {}

    def __call__(self, classes: Classes) -> float:
        found = self._known.get(classes)
        if found is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            found = self._known[classes] = sum(self._weights[at] for at in features_of(classes))
        return found
