"""Quantiles, intervals, and shares of what was asked: never a number that is none."""

import pytest
from foretype_plan.simulation.figures import Tally, interval, quantile


def test_a_quantile_is_a_value_that_was_seen():
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.99) == 4.0
    assert quantile([], 0.5) is None


def test_an_interval_is_students():
    assert interval([3.0]) == {"mean": 3.0, "low": 3.0, "high": 3.0}
    made = interval([1.0, 2.0, 3.0])
    assert made["mean"] == 2.0 and made["high"] == pytest.approx(2 + 4.303 / 3**0.5)


def test_who_gave_up_does_not_count_against_the_goodput():
    tally = Tally(0.0, {"block": 0.1})
    for ttft_s in (0.05, 0.2):
        tally.ask("team", "block", 1.0)
        tally.first("team", "block", 1.0, ttft_s, prompt_tokens=100, cached_tokens=60)
    tally.ask("team", "block", 70.0)
    tally.cancelled += 1
    tally.by_tenant["team"]["cancelled"] += 1
    report = tally.report(10.0)
    assert report["goodput"] == tally.tenants()["team"]["goodput"] == 0.5
    assert report["cached_share"] == 0.6 and report["rate"] == 0.3
    assert tally.asked_by_minute == {0: 2, 1: 1} and tally.late_by_minute == {0: 1}
    assert tally.classes()["block"]["ttft_p99_ms"] == 200


def test_of_nothing_all_is_nothing():
    assert set(Tally(0.0, {}).report(1.0).values()) == {0.0}
