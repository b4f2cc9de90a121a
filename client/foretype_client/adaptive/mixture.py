"""From levels of evidence to chances.

Jelinek and Mercer's interpolation, from little context to much: each level takes its weight of what is left, and the weight
depends on the source, the length of context, how often it was met, how many different lexemes followed, and how many levels
stand above. Weights were
fitted on commits of public repositories (`python -m foretype_eval.adaptive.fit`).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.evidence import LENGTHS, SOURCES, SPREADS, TIMES, Ints, Levels

__all__ = ["CELLS", "Weights", "cells_in_order", "chances", "fitted_weights", "level_shares"]

_RANKS: Final = 3
_CELLS_OF_RANK: Final = SOURCES * len(LENGTHS) * TIMES * SPREADS
CELLS: Final = _RANKS * _CELLS_OF_RANK

Weights = npt.NDArray[np.float64]
"""(CELLS,), each between 0 and 1."""


def cells_in_order(cells: Ints) -> Ints:
    """Which weight belongs to each level, by how many levels stand above it (none, one or two, more).

    What is left for a level after many others missed is not what it could claim alone.
    """
    above = np.arange(len(cells) - 1, -1, -1)
    return cells + np.minimum((above + 1) // 2, _RANKS - 1) * _CELLS_OF_RANK


def level_shares(levels: Levels, weights: Weights) -> npt.NDArray[np.float64]:
    """(L,): how much each level counts after the longer ones have taken their part. Sums to less than 1."""
    own = weights[cells_in_order(levels.cells)]
    left = np.cumprod((1 - own)[::-1])[::-1]
    own[:-1] *= left[1:]
    return own


def chances(levels: Levels, weights: Weights) -> npt.NDArray[np.float64]:
    """(C,) chance of each candidate; what is missing to 1 belongs to lexemes that nobody has seen here."""
    return level_shares(levels, weights) @ levels.shares


@cache
def fitted_weights() -> Weights:
    """The weights that ship with the package."""
    data: dict[str, Any] = json.loads(files("foretype_client.adaptive").joinpath("weights.json").read_text("utf-8"))
    weights = np.array(data["weights"], np.float64) / 1000
    if weights.shape != (CELLS,):
        raise ValueError(f"weights.json holds {weights.shape} weights instead of {CELLS}; fit it again")
    return weights
