"""The last word on what comes next: a small network that corrects the chances of the likeliest candidates.

Levels are interpolated, and templates speak after them, each with weights of its own kind. What neither sees is the whole: that the
latest place says one name and a template another, that a word stands on the line above, that a bracket is still open.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.views import VIEW_FEATURES, CandidateView

UNITS: Final = 24


class Network(NamedTuple):
    """One hidden layer of `UNITS` rectified units.

    Attributes:
        inner: (VIEW_FEATURES + 1, UNITS); the last row is what each unit begins with.
        outer: (UNITS,).
    """

    inner: npt.NDArray[np.float64]
    outer: npt.NDArray[np.float64]

    @property
    def fits(self) -> bool:
        """Whether its shapes are those of this version's features."""
        return self.inner.shape == (VIEW_FEATURES + 1, UNITS) and self.outer.shape == (UNITS,)

    def corrections(self, features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """(K,) nats to add to each log-chance; `features` is (K, VIEW_FEATURES)."""
        return np.maximum(features @ self.inner[:-1] + self.inner[-1], 0.0) @ self.outer


def reranked(view: CandidateView, network: Network) -> npt.NDArray[np.float64]:
    """(C,) chances of all candidates after the network's word; those it does not look at keep their proportions."""
    scores = view.log_chances.copy()
    scores[:-1] += view.trust * network.corrections(view.features)
    scores = np.exp(scores - scores.max())
    scores /= scores.sum()
    found = view.chance * (float(scores[-1]) / view.rest)
    found[view.at] = scores[:-1]
    return found
