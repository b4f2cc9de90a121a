"""From levels of evidence to chances.

Jelinek and Mercer's interpolation, from little context to much: each level takes its weight of what is left, and the weight
depends on the source, the length of context, how often it was met, how many different lexemes followed, and how many levels
stand above. Weights were
fitted on commits of public repositories (`python -m foretype_lab.adaptive.fit`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.evidence import LENGTHS, SOURCES, Ints
from foretype_client.adaptive.levels import SPREADS, TIMES, Levels
from foretype_client.adaptive.network import Network
from foretype_client.adaptive.scoring import FEATURES
from foretype_client.adaptive.stream import Ids
from foretype_client.adaptive.templates import TemplateProposal

_RANKS: Final = 3
_CELLS_OF_RANK: Final = SOURCES * len(LENGTHS) * TIMES * SPREADS
CELLS: Final = _RANKS * _CELLS_OF_RANK
TOLD: Final = 5
TEMPLATE_WEIGHTS: Final = FEATURES + TOLD
_LEAST: Final = 1e-3


class Weights(NamedTuple):
    """What was fitted.

    Attributes:
        levels: (CELLS,), each between 0 and 1: how much of what is left a level takes.
        templates: (TEMPLATE_WEIGHTS,): log-odds that a proposal is right: of its features, then of what levels say to it.
        network: has the last word; None leaves chances as they are.
    """

    levels: npt.NDArray[np.float64]
    templates: npt.NDArray[np.float64]
    network: Network | None = None


def cells_in_order(cells: Ints) -> Ints:
    """Which weight belongs to each level, by how many levels stand above it (none, one or two, more).

    What is left for a level after many others missed is not what it could claim alone.
    """
    above = np.arange(len(cells) - 1, -1, -1)
    return cells + np.minimum((above + 1) // 2, _RANKS - 1) * _CELLS_OF_RANK


def level_shares(levels: Levels, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(L,): how much each level counts after the longer ones have taken their part. Sums to less than 1."""
    own = weights[cells_in_order(levels.cells)]
    left = np.cumprod((1 - own)[::-1])[::-1]
    own[:-1] *= left[1:]
    return own


def chances(levels: Levels, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(C,) chance of each candidate; what is missing to 1 belongs to lexemes that nobody has seen here."""
    return level_shares(levels, weights) @ levels.shares


def beside(
    told: tuple[Ids, npt.NDArray[np.float64]] | None, proposal: TemplateProposal, rank: int
) -> tuple[float, ...]:
    """(TOLD,) what levels say to a proposal that is the `rank`-th: log-odds of it, of the best other, whether it is the best."""
    own = other = 0.0
    if told is not None and len(told[0]):
        ids, chance = told
        is_own = ids == proposal.id
        own = float(chance[is_own].sum())
        other = float(np.where(is_own, 0.0, chance).max())
    return (_log_odds(own), _log_odds(other), float(own > other), float(rank == 1), float(rank > 1))


def with_proposals(
    told: tuple[Ids, npt.NDArray[np.float64]] | None,
    proposals: Sequence[TemplateProposal],
    weights: npt.NDArray[np.float64],
) -> tuple[Ids, npt.NDArray[np.float64]] | None:
    """Candidates and chances once templates have had their say, the surest first; what is left keeps its proportions."""
    if not proposals:
        return told
    ids, chance = told or (np.zeros(0, np.int32), np.zeros(0))
    left, claimed = 1.0, 0.0
    given: list[float] = []
    proposed = np.zeros(len(ids), np.bool_)
    for rank, proposal in enumerate(proposals):
        score = proposal.score + float(weights[FEATURES:] @ beside(told, proposal, rank))
        own = 1 / (1 + math.exp(-score))
        given.append(own * left)
        left *= 1 - own
        at = ids == proposal.id
        claimed += float(chance[at].sum())
        proposed |= at
    rest = ~proposed
    return (
        np.concatenate((ids[rest], np.array([proposal.id for proposal in proposals], np.int32))),
        np.concatenate((chance[rest] * (left / max(1 - claimed, _LEAST)), given)),
    )


def _log_odds(chance: float) -> float:
    kept = min(max(chance, _LEAST), 1 - _LEAST)
    return math.log(kept / (1 - kept))


def read_weights(text: str, name: str) -> Weights:
    """Weights as :mod:`foretype_lab.adaptive.fit` writes them.

    Raises:
        ValueError: of another shape than this model's; `name` is said.
    """
    data: dict[str, Any] = json.loads(text)
    levels = np.array(data["weights"], np.float64) / 1000
    templates = np.array(data["template_weights"], np.float64)
    network = Network(np.array(data["network"]["inner"], np.float64), np.array(data["network"]["outer"], np.float64))
    if levels.shape != (CELLS,) or templates.shape != (TEMPLATE_WEIGHTS,):
        raise ValueError(
            f"{name} holds {levels.shape} and {templates.shape} weights instead of {CELLS} and {TEMPLATE_WEIGHTS}; fit it again"
        )
    if not network.fits:
        raise ValueError(f"{name} holds a network of {network.inner.shape}; fit it again")
    return Weights(levels, templates, network)


@cache
def fitted_weights() -> Weights:
    """The weights that ship with the package."""
    return read_weights(files("foretype_client.adaptive").joinpath("weights.json").read_text("utf-8"), "weights.json")
