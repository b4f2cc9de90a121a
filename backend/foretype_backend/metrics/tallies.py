"""Counters and histograms for what is counted several times a request, all of it on one thread.

prometheus_client takes a lock for every number, asks each time whether a metric may be counted, and looks for a bucket from the first
on. Here a count is an addition; it becomes the library's own when somebody asks for samples. That reaches into the library, whose minor version
is pinned for it; `tests/backend/test_tallies.py` compares what both say.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import prometheus_client


class Counter(prometheus_client.Counter):
    """The library's, for one thread. Nothing is checked: an amount is never negative."""

    _value: Any

    def _metric_init(self) -> None:
        super()._metric_init()
        self._more = 0.0

    def inc(self, amount: float = 1, exemplar: object = None) -> None:
        self._more += amount

    def _child_samples(self) -> Iterable[Any]:
        self._value.inc(self._more)
        self._more = 0.0
        return super()._child_samples()


class Histogram(prometheus_client.Histogram):
    """The library's, for one thread."""

    _buckets: Any
    _sum: Any

    def _metric_init(self) -> None:
        super()._metric_init()
        self._more = [0] * len(self._upper_bounds)
        self._more_sum = 0.0

    def observe(self, amount: float, exemplar: object = None) -> None:
        self._more[bisect_left(self._upper_bounds, amount)] += 1
        self._more_sum += amount

    def _child_samples(self) -> Iterable[Any]:
        for bucket, more in zip(self._buckets, self._more, strict=True):
            bucket.inc(more)
        self._sum.inc(self._more_sum)
        self._more, self._more_sum = [0] * len(self._upper_bounds), 0.0
        return super()._child_samples()
