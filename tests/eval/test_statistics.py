import math

import numpy as np
import pytest
from foretype_eval.statistics import cluster_bootstrap, holm, mcnemar, paired_difference, percentiles
from hypothesis import given
from hypothesis import strategies as st


def test_percentiles_are_values_that_were_observed() -> None:
    assert percentiles(list(range(1, 201))) == (200, 100, 190, 198)
    assert percentiles([7.0]) == (1, 7.0, 7.0, 7.0)


def test_percentiles_of_nothing_are_none() -> None:
    assert percentiles([]) == (0, None, None, None)


def test_percentiles_refuse_what_is_not_a_number() -> None:
    with pytest.raises(ValueError, match="not finite"):
        percentiles([1.0, math.nan])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_percentiles_are_ordered_and_within_the_values(values: list[float]) -> None:
    _, p50, p95, p99 = percentiles(values)
    assert p50 is not None
    assert p95 is not None
    assert p99 is not None
    assert min(values) - 1e-3 <= p50 <= p95 <= p99 <= max(values) + 1e-3


def _clustered(rng: np.random.Generator, n_clusters: int, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Pass/fail items in clusters of very different sizes, strongly alike inside a cluster."""
    sizes = rng.integers(1, 40, n_clusters)
    chance = rng.beta(mean * 1.5, (1 - mean) * 1.5, n_clusters)
    clusters = np.repeat(np.arange(n_clusters), sizes)
    return (rng.random(len(clusters)) < chance[clusters]).astype(float), clusters


@pytest.mark.slow
@pytest.mark.parametrize(("n_clusters", "mean"), [(164, 0.5), (164, 0.1), (40, 0.3)])
def test_intervals_cover_the_truth_as_often_as_they_say(n_clusters: int, mean: float) -> None:
    rng = np.random.default_rng(n_clusters)
    runs, covered, item_wise = 400, 0, 0
    for run in range(runs):
        values, clusters = _clustered(rng, n_clusters, mean)
        interval = cluster_bootstrap(values, clusters.tolist(), seed=run, resamples=1_000)
        covered += interval.low <= mean <= interval.high
        half = 1.96 * math.sqrt(values.mean() * (1 - values.mean()) / len(values))
        item_wise += abs(values.mean() - mean) <= half
    # 95 % nominal; three standard errors of 400 runs are 3.3 points, and 40 skewed clusters lose a point or two
    assert 0.905 <= covered / runs <= 0.985
    assert item_wise / runs < 0.75, (
        "an interval over items would be far too narrow here, which is why clusters are drawn"
    )


def test_the_difference_of_equal_systems_is_significant_as_rarely_as_it_says() -> None:
    rng = np.random.default_rng(5)
    runs, significant = 400, 0
    for run in range(runs):
        clusters = np.repeat(np.arange(100), rng.integers(1, 40, 100))
        # Both are better or worse on whole clusters by chance, and equal over many clusters.
        chances = rng.beta(1, 1, (2, 100))
        first, second = (rng.random((2, len(clusters))) < chances[:, clusters]).astype(float)
        interval = paired_difference(first, second, clusters.tolist(), seed=run, resamples=600)
        significant += not interval.low <= 0 <= interval.high
    assert 0.02 <= significant / runs <= 0.09


def test_intervals_depend_on_the_seed_alone() -> None:
    values, clusters = _clustered(np.random.default_rng(1), 60, 0.4)
    first = cluster_bootstrap(values, clusters.tolist(), seed=3)
    assert first == cluster_bootstrap(values, clusters.tolist(), seed=3)
    assert first != cluster_bootstrap(values, clusters.tolist(), seed=4)
    assert first == cluster_bootstrap(values, [f"c{c}" for c in clusters], seed=3), "names of clusters do not matter"


def test_an_interval_says_how_many_items_and_clusters_it_has() -> None:
    interval = cluster_bootstrap([0, 1, 1, 0], ["a", "a", "b", "c"])
    assert (interval.estimate, interval.n_items, interval.n_clusters) == (0.5, 4, 3)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_outcomes_do_not_give_a_certain_proportion(value: float) -> None:
    interval = cluster_bootstrap([value] * 30, list(range(30)), proportion=True)
    assert interval.high - interval.low == pytest.approx(1 - 0.025 ** (1 / 30))
    assert interval.estimate == value


def test_one_cluster_says_nothing_about_others() -> None:
    assert cluster_bootstrap([0.0, 1.0], ["a", "a"], proportion=True)[:3] == (0.5, 0.0, 1.0)
    assert cluster_bootstrap([0.0, 1.0], ["a", "a"])[:3] == (0.5, None, None)


@pytest.mark.parametrize(
    ("first", "second", "clusters"),
    [
        ([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], ["a", "b", "c"]),  # two systems that answer alike
        ([0.3, 0.4, 0.6], [0.1, 0.2, 0.4], ["a", "b", "c"]),  # equal but for rounding
        ([1.0, 0.0, 1.0], [0.0, 0.0, 0.0], ["a", "a", "a"]),
        ([1.0, 0.0, 1.0, 0.0], [0.0] * 4, ["a", "a", "b", "b"]),  # clusters that are all alike
    ],
)
def test_a_difference_without_spread_has_no_interval(
    first: list[float], second: list[float], clusters: list[str]
) -> None:
    found = paired_difference(first, second, clusters)
    assert found.estimate == pytest.approx(sum(first) / len(first) - sum(second) / len(second))
    assert (found.low, found.high, found.ends()) == (None, None, None)
    assert found.rounded() == {"estimate": round(found.estimate, 4), "low": None, "high": None}


@pytest.mark.parametrize(("values", "clusters"), [([], []), ([1.0], ["a", "b"]), ([math.inf], ["a"])])
def test_what_cannot_be_resampled_is_refused(values: list[float], clusters: list[str]) -> None:
    with pytest.raises(ValueError):
        cluster_bootstrap(values, clusters)


def test_mcnemar_agrees_with_the_binomial_by_hand() -> None:
    first = [True] * 9 + [False] * 2 + [True] * 50
    second = [False] * 9 + [True] * 2 + [True] * 50
    result = mcnemar(first, second)
    assert (result.only_first, result.only_second) == (9, 2)
    assert result.p_value == pytest.approx(2 * (1 + 11 + 55) / 2**11)


def test_mcnemar_without_a_difference_is_one_and_large_tables_stay_exact() -> None:
    assert mcnemar([True, False], [True, False]).p_value == 1.0
    assert 0 < mcnemar([True] * 3000 + [False] * 3300, [False] * 3000 + [True] * 3300).p_value < 0.001
    with pytest.raises(ValueError, match="same items"):
        mcnemar([True], [])


def test_holm_adjusts_in_order_and_never_below_the_raw_value() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
