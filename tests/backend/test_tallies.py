"""Counts of one thread read as the library's own do."""

from typing import Any

import prometheus_client
from foretype_backend.metrics import tallies
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

BUCKETS = (0.5, 1.0, 2.5)


def text(of: Any, amounts: list[float], reads: int) -> list[bytes]:
    registry = CollectorRegistry()
    counter = of.Counter("a", "A.", ["x"], registry=registry)
    plain = of.Counter("b", "B.", registry=registry)
    histogram = of.Histogram("c", "C.", ["x"], buckets=BUCKETS, registry=registry)
    for at, amount in enumerate(amounts):
        counter.labels(str(at % 2)).inc(amount)
        plain.inc()
        histogram.labels(str(at % 2)).observe(amount)
        if at < reads:
            generate_latest(registry)
    return [line for line in generate_latest(registry).splitlines() if b"_created" not in line]


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 2.5, 4.0, float("inf")]), max_size=8), st.integers(0, 3))
def test_a_scrape_shows_what_the_librarys_own_counters_would_show(amounts: list[float], reads: int) -> None:
    assert text(tallies, amounts, reads) == text(prometheus_client, amounts, reads)
