"""A day of many developers: strata, weights, the swing, and the check against a day that leaves nothing out."""

import json

import pytest
from foretype_plan.scenario import Tier
from foretype_plan.simulation import world_day as module
from foretype_plan.simulation.runs import Rows
from foretype_plan.simulation.world_day import REGIONS, active, check, estimate, world_day
from plan.simulation.support import arrivals

TIER = Tier(model="qwen2.5-coder-1.5b", gpu="l4")


def quiet(*_):
    pass


def row(requests, good, bin_, cancelled=0):
    return {
        "requests": requests,
        "good": good,
        "cancelled": cancelled,
        "refused": 0,
        "prompt_tokens": requests,
        "cached_tokens": good,
        "bins": {str(bin_): requests},
    }


def test_a_region_swings_tenfold_and_is_busiest_in_its_own_afternoon():
    for region, (east, _) in REGIONS.items():
        day = [active(region, hour) for hour in range(24)]
        assert max(day) == 1 and min(day) == pytest.approx(0.1)
        assert day[int(16 - east) % 24] == 1
    assert sum(share for _, share in REGIONS.values()) == pytest.approx(1)


def test_an_hour_counts_by_its_requests_not_by_what_was_played_of_it():
    made = estimate([([row(10, 10, 20)], 9.0), ([row(1000, 500, 60)], 1.0)])
    assert made["goodput"] == pytest.approx(0.95)
    assert made["ttft_p50_ms"] == pytest.approx(1.0, rel=0.06) and made["ttft_p99_ms"] > 6


def test_the_interval_is_of_the_spread_within_hours():
    same = estimate([([row(10, 9, 20), row(10, 9, 20)], 1.0)])
    other = estimate([([row(10, 10, 20), row(10, 8, 20)], 1.0)])
    assert same["goodput_half_interval"] == 0 < other["goodput_half_interval"]


def test_times_are_told_within_five_percent():
    for value in (0.5, 7.0, 33.3, 100.0, 2500.0):
        told = estimate([([row(1, 1, module._bin(value))], 1.0)])["ttft_p50_ms"]
        assert told == pytest.approx(value, rel=0.05)


def test_a_day_has_the_same_figures_for_the_same_seed_and_goes_on_where_it_was(tmp_path):
    given = {"developers": 50_000.0, "tier": TIER, "arrivals": arrivals(), "replicas": 1, "windows": 1, "seconds": 2.0}
    first = world_day(**given, rows=Rows(tmp_path / "rows"), progress=quiet)
    seen = []
    again = world_day(**given, rows=Rows(tmp_path / "rows"), progress=lambda *step: seen.append(step))
    run, _ = first.pop("run"), again.pop("run")
    assert json.dumps(first, allow_nan=False) == json.dumps(again) and len(seen) == 72
    assert len(first["hours"]) == 72 and run["requests"] > first["sampled_requests"] > 500
    assert first["replica_hours"] <= first["replica_hours_fixed"]
    assert first["goodput"] > 0.95 and first["ttft_p50_ms"] < 60
    assert first["requests_day"] == pytest.approx(3600 * sum(one["rate"] for one in first["hours"]), rel=1e-4)


@pytest.mark.slow
def test_a_sample_of_a_day_says_what_the_whole_day_says(monkeypatch):
    """A day of 24 short hours would be another day: here the load is small instead."""
    monkeypatch.setattr(module, "_PEAK_LOAD", 0.02)
    made = check(tier=TIER, arrivals=arrivals(), windows=1, seconds=60.0, progress=quiet)
    assert made["ratio"]["ttft_p50_ms"] == pytest.approx(1, rel=0.1)
    assert made["ratio"]["goodput"] == pytest.approx(1, rel=0.02)
    assert made["share_played"] < 0.05 and made["run"]["requests"] > 10_000


def test_developers_of_a_day_come_and_go_on_the_hour():
    shifts = module._shifts([1.0, 3.0, 2.0])

    def there(at):
        return sum(one.developers for one in shifts if one.begin_s <= at < one.end_s)

    assert [there(3600 * hour + 1) for hour in range(4)] == [round(rate / module.RATE) for rate in (1.0, 3.0, 2.0)] + [
        0
    ]
