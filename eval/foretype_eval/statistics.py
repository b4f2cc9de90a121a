"""Percentiles, clustered intervals and paired tests.

Items that come from one problem, file or commit are not independent, so every interval resamples clusters, never items. All
randomness comes from the seed that is passed in; equal input and seed give equal output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_CHUNK_CELLS: Final = 4_000_000
_NORMAL: Final = NormalDist()


class Percentiles(NamedTuple):
    """Nearest-rank percentiles: each is a value that was observed. With few values p99 is the largest; `n` tells."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


class Interval(NamedTuple):
    """An estimate with its confidence interval, and what it was made from.

    Both bounds are None where the data tell no spread: one cluster, or clusters that are all alike. An interval without a width
    would claim certainty.
    """

    estimate: float
    low: float | None
    high: float | None
    n_items: int
    n_clusters: int

    def ends(self, digits: int = 4) -> list[float] | None:
        """Both bounds, rounded, as reports hold them."""
        return None if self.low is None or self.high is None else [round(self.low, digits), round(self.high, digits)]

    def rounded(self, digits: int = 4) -> dict[str, float | None]:
        """Estimate and bounds, rounded, as reports hold them."""
        low, high = self.ends(digits) or (None, None)
        return {"estimate": round(self.estimate, digits), "low": low, "high": high}


class McNemar(NamedTuple):
    """Discordant pairs and the exact two-sided p-value."""

    only_first: int
    only_second: int
    p_value: float


def percentiles(values: Sequence[float]) -> Percentiles:
    """p50, p95 and p99 by nearest rank, rounded to a microsecond if the values are milliseconds; None without values."""
    if not values:
        return Percentiles(0, None, None, None)
    if not all(math.isfinite(value) for value in values):
        raise ValueError("percentiles of values that are not finite; drop or explain them first")
    points = np.quantile(np.asarray(values, dtype=np.float64), [0.5, 0.95, 0.99], method="inverted_cdf")
    return Percentiles(len(values), *(round(float(point), 3) for point in points))


def cluster_bootstrap(
    values: ArrayLike,
    clusters: Sequence[object],
    *,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
    proportion: bool = False,
) -> Interval:
    """Mean over items with a BCa interval over clusters (Efron 1987; whole clusters are drawn with replacement).

    Args:
        values: one number per item.
        clusters: the cluster of each item.
        proportion: values are 0 or 1. Where all are equal the interval is the exact binomial one (Clopper-Pearson) with one
            observation per cluster; one cluster of both says nothing, and gets the interval from 0 to 1.

    Raises:
        ValueError: no items, or lengths differ, or a value that is not finite.
    """
    items = np.asarray(values, dtype=np.float64)
    if items.ndim != 1 or len(items) != len(clusters) or not len(items):
        raise ValueError(f"one cluster per item and at least one item: got {items.shape} and {len(clusters)}")
    if not np.isfinite(items).all():
        raise ValueError("values that are not finite")
    numbers: dict[object, int] = {}
    index = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters])
    count = len(numbers)
    sums = np.bincount(index, weights=items, minlength=count)
    sizes = np.bincount(index, minlength=count).astype(np.float64)
    estimate = float(sums.sum() / sizes.sum())
    if proportion and np.ptp(items) == 0:
        return Interval(estimate, *_exact_bounds(estimate, count, level), len(items), count)
    if count == 1:
        return Interval(estimate, *((0.0, 1.0) if proportion else (None, None)), len(items), 1)
    draws = _resampled_means(sums, sizes, np.random.default_rng(seed), resamples)
    bounds = _bca(draws, estimate, _jackknife(sums, sizes), level) if has_spread(draws) else (None, None)
    return Interval(estimate, *bounds, len(items), count)


def clustered_ratio(
    over: Sequence[float], under: Sequence[float], *, seed: int = 0, resamples: int = 2000, digits: int = 6
) -> tuple[float | None, list[float] | None]:
    """Sum of `over` by sum of `under`, one of each per cluster, with a 95 % percentile interval; none where clusters are all alike."""
    top, bottom = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    if not bottom.sum():
        return None, None
    picks = np.random.default_rng(seed).integers(0, len(top), size=(resamples, len(top)))
    below = bottom[picks].sum(axis=1)
    ratios = top[picks].sum(axis=1)[below > 0] / below[below > 0]
    found = round(float(top.sum() / bottom.sum()), digits)
    if not has_spread(ratios):
        return found, None
    low, high = np.percentile(ratios, [2.5, 97.5])
    return found, [round(float(low), digits), round(float(high), digits)]


def has_spread(draws: NDArray[np.float64]) -> bool:
    """Whether resampled figures differ by more than rounding; if not, they know no interval."""
    return bool(np.ptp(draws) > 1e-12 * max(1.0, float(np.abs(draws).max())))


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    clusters: Sequence[object],
    *,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Mean of `first - second` over the same items in the same order, with its clustered interval.

    There is none where all differences are equal, also where all are zero: equal answers to few questions are no proof that
    two systems are the same.
    """
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return cluster_bootstrap(difference, clusters, seed=seed, resamples=resamples, level=level)


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """Exact McNemar test: a two-sided sign test over the items where exactly one of both passed."""
    if len(first) != len(second):
        raise ValueError(f"the same items in both: got {len(first)} and {len(second)}")
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    total = only_first + only_second
    # Integers keep this exact for any number of pairs; dividing them does not overflow.
    tail = ways = 1  # how many of `total` coins fall on one side, at most so many times
    for k in range(min(only_first, only_second)):
        ways = ways * (total - k) // (k + 1)
        tail += ways
    return McNemar(only_first, only_second, min(1.0, 2 * tail / (1 << total)) if total else 1.0)


def wilson(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share of independent trials."""
    if not 0 <= successes <= n or not n:
        raise ValueError(f"{successes} of {n} is no share")
    z, share = _NORMAL.inv_cdf(0.5 + level / 2), successes / n
    middle = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment for several tests; adjusted p-values in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def _resampled_means(
    sums: NDArray[Any], sizes: NDArray[Any], rng: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    count = len(sums)
    means: list[NDArray[np.float64]] = []
    rows = max(1, _CHUNK_CELLS // count)
    for start in range(0, resamples, rows):
        drawn = rng.integers(0, count, size=(min(rows, resamples - start), count))
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    return np.concatenate(means)


def _jackknife(sums: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.float64]:
    return (sums.sum() - sums) / (sizes.sum() - sizes)


def _bca(
    draws: NDArray[np.float64], estimate: float, jackknife: NDArray[np.float64], level: float
) -> tuple[float, float]:
    below = (np.count_nonzero(draws < estimate) + 0.5 * np.count_nonzero(draws == estimate)) / len(draws)
    edge = 1 / (2 * len(draws))
    bias = _NORMAL.inv_cdf(min(1 - edge, max(edge, float(below))))
    deviation = jackknife.mean() - jackknife
    spread = float((deviation**2).sum())
    acceleration = float((deviation**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0

    def adjusted(probability: float) -> float:
        z = bias + _NORMAL.inv_cdf(probability)
        return _NORMAL.cdf(bias + z / max(1e-9, 1 - acceleration * z))

    tail = (1 - level) / 2
    low, high = np.quantile(draws, [adjusted(tail), adjusted(1 - tail)])
    return float(low), float(high)


def _exact_bounds(share: float, n: int, level: float) -> tuple[float, float]:
    """Clopper-Pearson bounds where all `n` outcomes are equal."""
    reach = 1 - ((1 - level) / 2) ** (1 / n)
    return (0.0, reach) if share == 0 else (1 - reach, 1.0)
