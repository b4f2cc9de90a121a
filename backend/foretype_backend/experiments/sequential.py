"""Intervals that may be looked at every day, and the two distributions they need.

Both are a few lines, and scipy would be the largest thing that a gateway installs.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final, NamedTuple

_NORMAL: Final = NormalDist()


class Bounds(NamedTuple):
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def mixture_for(planned_units: int, alpha: float) -> float:
    """Mixture parameter r that makes the sequence narrowest at `planned_units` (Waudby-Smith et al. 2021)."""
    double_log = -2 * math.log(alpha)
    return math.sqrt((double_log + math.log(double_log) + 1) / planned_units)


def confidence_sequence(mean: float, deviation: float, n: int, *, r: float, alpha: float) -> Bounds:
    """Asymptotic confidence sequence: holds at all n at once with probability 1 - alpha (Waudby-Smith et al. 2021).

    Args:
        deviation: standard deviation of one unit.
        r: mixture parameter, fixed before the experiment.
    """
    scaled = n * r * r + 1
    half = deviation * math.sqrt(2 * scaled / (n * n * r * r) * math.log(math.sqrt(scaled) / alpha))
    return Bounds(mean - half, mean + half)


def spent_alpha(look: int, alpha: float) -> float:
    """Error to spend at look 1, 2, …: sums to `alpha` over for ever, whatever the looks have in common (union bound)."""
    return alpha / (look * (look + 1))


def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t by the Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5), for 4 degrees and more."""
    if degrees < 4:
        raise ValueError("the expansion needs at least 4 degrees of freedom")
    z = _NORMAL.inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / degrees**power for power, term in enumerate(terms, start=1))


def chi_square_p(first: int, second: int, *, share: float = 0.5) -> float:
    """p-value of the counts of two arms where `share` was to be in the first (chi-square, one degree of freedom)."""
    total = first + second
    if not total:
        return 1.0
    expected = (total * share, total * (1 - share))
    statistic = sum((seen - hoped) ** 2 / hoped for seen, hoped in zip((first, second), expected, strict=True))
    return math.erfc(math.sqrt(statistic / 2))
