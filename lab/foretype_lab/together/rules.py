"""Chances of a text from what the adaptive model and the network say, fitted by logistic regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_lab.together.network_says import Said

__all__ = ["RULES", "Place", "Rule", "fit_rule", "log_loss"]

_RIDGE: Final = 1.0
_STEPS: Final = 25
_EDGE: Final = 1e-4

Floats = npt.NDArray[np.float64]


class Place(NamedTuple):
    """A text that the adaptive model proposes somewhere.

    Attributes:
        chance: as the adaptive model has it.
        agreed: chance that the next key is its first character.
        said: by the network, when the text was first proposed on this line.
    """

    text: str
    chance: float
    agreed: float
    said: Said


def _log_odds(chance: float) -> float:
    kept = min(max(chance, _EDGE), 1 - _EDGE)
    return math.log(kept / (1 - kept))


def _own(place: Place) -> list[float]:
    return [1.0, _log_odds(place.chance), math.log(len(place.text))]


def _agreement(place: Place) -> list[float]:
    return [*_own(place), float(place.said.greedy)]


def _scored(place: Place) -> list[float]:
    said = place.said
    return [*_agreement(place), max(said.mean, -10.0), max(said.least, -15.0), max(said.end, -15.0)]


RULES: Final = {"adaptive_again": _own, "agreement": _agreement, "scored": _scored}
"""What a chance is made of. The first knows nothing of the network: what fitting anew gains without it."""


class Rule(NamedTuple):
    """A fitted chance: its name in `RULES`, and log-odds by what it looks at."""

    name: str
    weights: Floats

    def chance(self, place: Place) -> float:
        return float(1 / (1 + np.exp(-np.clip(np.array(RULES[self.name](place)) @ self.weights, -30, 30))))


def fit_rule(name: str, places: Sequence[Place], right: Sequence[bool]) -> Rule:
    """Logistic regression by Newton's method; the ridge pulls to the adaptive model's own chance."""
    table = np.array([RULES[name](place) for place in places])
    truth = np.array(right, np.float64)
    prior = np.zeros(table.shape[1])
    prior[1] = 1.0
    weights = prior.copy()
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(table @ weights, -30, 30)))
        slope = table.T @ (chance - truth) + _RIDGE * (weights - prior)
        curve = (table * (chance * (1 - chance))[:, None]).T @ table + _RIDGE * np.eye(len(weights))
        weights = weights - np.linalg.solve(curve, slope)
    return Rule(name, weights)


def log_loss(chances: Sequence[float], right: Sequence[bool]) -> float:
    """Mean, in nats."""
    kept = np.clip(np.array(chances), _EDGE, 1 - _EDGE)
    truth = np.array(right, np.float64)
    return float(-(truth * np.log(kept) + (1 - truth) * np.log(1 - kept)).mean())
