"""Fitting the network that has the last word on the adaptive model's candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from foretype_client.adaptive.network import UNITS, Network
from foretype_client.adaptive.views import CANDIDATES, VIEW_FEATURES, CandidateView

_ROUNDS: Final = 30
_BATCH: Final = 256
_RATE: Final = 3e-3
_DECAY: Final = 1e-2
_SEED: Final = 5

Floats = npt.NDArray[np.float64]


class Viewed(NamedTuple):
    """One place: what was known of its candidates, and the row of the lexeme that was written; K where it was none of them."""

    view: CandidateView
    right: int


class _Table(NamedTuple):
    features: npt.NDArray[np.float32]
    log_chances: npt.NDArray[np.float32]
    used: npt.NDArray[np.bool_]
    right: npt.NDArray[np.int64]

    def pick(self, rows: npt.NDArray[np.int64]) -> _Table:
        return _Table(self.features[rows], self.log_chances[rows], self.used[rows], self.right[rows])


def fit_network(places: Sequence[Viewed], begin: Network | None = None) -> Network:
    """Least negative log-likelihood of what was written, by AdamW; every run on one machine gives the same.

    Goes on from `begin` where there is one, a third as long: what many places taught is not lost over few. The last of `CANDIDATES + 1` outcomes is that it is none of the candidates; its log-chance is never corrected.
    """
    table = _padded(places)
    rng = np.random.default_rng(_SEED)
    flat = table.features[table.used]
    scale = flat.std(axis=0) + 1e-3
    middle = flat.mean(axis=0)
    inner = rng.normal(0, 1, (VIEW_FEATURES + 1, UNITS)).astype(np.float32) / np.sqrt(VIEW_FEATURES)
    inner[-1] = 0
    outer = np.zeros(UNITS, np.float32)
    rounds = _ROUNDS
    if begin is not None:
        inner[:-1] = begin.inner[:-1] * scale[:, None]
        inner[-1] = begin.inner[-1] + middle @ begin.inner[:-1]
        outer[:] = begin.outer
        rounds = _ROUNDS // 3
    table = table._replace(features=(table.features - middle) / scale)
    parameters: list[npt.NDArray[np.float32]] = [inner, outer]
    first = [np.zeros_like(one) for one in parameters]
    second = [np.zeros_like(one) for one in parameters]
    steps = rounds * -(-len(places) // _BATCH)
    step = 0
    for _ in range(rounds):
        order = rng.permutation(len(places))
        for at in range(0, len(order), _BATCH):
            step += 1
            slopes = _slopes(table.pick(order[at : at + _BATCH]), inner, outer)
            rate = _RATE * (1 - step / (steps + 1)) * min(1.0, step / 50)
            for one, slope, mean, square in zip(parameters, slopes, first, second, strict=True):
                mean += 0.1 * (slope - mean)
                square += 0.001 * (slope**2 - square)
                moved = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
                one -= (rate * (moved + _DECAY * one)).astype(np.float32)
    weights = inner[:-1] / scale[:, None]
    begins = inner[-1] - middle @ weights
    return Network(np.vstack((weights, begins)).astype(np.float64), outer.astype(np.float64))


def mean_logprob(places: Sequence[Viewed], network: Network | None) -> float:
    """Of what was written, in nats; None corrects nothing."""
    total = 0.0
    for view, right in places:
        scores = view.log_chances.copy()
        if network is not None:
            scores[:-1] += network.corrections(view.features)
        total += float(scores[right] - np.logaddexp.reduce(scores))
    return total / len(places)


def _padded(places: Sequence[Viewed]) -> _Table:
    shape = (len(places), CANDIDATES)
    features = np.zeros((*shape, VIEW_FEATURES), np.float32)
    log_chances = np.full((len(places), CANDIDATES + 1), -np.inf, np.float32)
    used = np.zeros(shape, np.bool_)
    right = np.full(len(places), CANDIDATES, np.int64)
    for row, (view, true) in enumerate(places):
        count = len(view.at)
        features[row, :count] = view.features
        log_chances[row, :count], log_chances[row, -1] = view.log_chances[:-1], view.log_chances[-1]
        used[row, :count] = True
        if true < count:
            right[row] = true
    return _Table(features, log_chances, used, right)


def _slopes(
    batch: _Table, inner: npt.NDArray[np.float32], outer: npt.NDArray[np.float32]
) -> list[npt.NDArray[np.float32]]:
    size = len(batch.right)
    flat = batch.features.reshape(-1, VIEW_FEATURES)
    hidden = np.maximum(flat @ inner[:-1] + inner[-1], 0)
    scores = batch.log_chances.copy()
    scores[:, :-1] += (hidden @ outer).reshape(size, -1)
    scores -= scores.max(axis=1, keepdims=True)
    wrong = np.exp(scores)
    wrong /= wrong.sum(axis=1, keepdims=True)
    wrong[np.arange(size), batch.right] -= 1
    error = (wrong[:, :-1] * batch.used).reshape(-1) / size
    back = np.outer(error, outer) * (hidden > 0)
    return [np.vstack((flat.T @ back, back.sum(axis=0))), hidden.T @ error]
