"""The search for the highest rate that holds."""

import asyncio
from typing import Any

from foretype_eval.load.search import highest_rate
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(deadline=None)
@given(st.floats(60, 5000), st.sets(st.integers(0, 13), max_size=3))
def test_the_search_ends_within_a_tenth_of_the_truth_and_forgives_a_single_pause(
    limit: float, pauses: set[int]
) -> None:
    pauses = {one for one in pauses if one - 1 not in pauses}
    calls = 0

    async def measure(rate: float) -> dict[str, Any]:
        nonlocal calls
        paused, calls = calls in pauses, calls + 1
        p99 = 50.0 if rate > limit or paused else 1.0
        return {"added_ms": {"p50": 1.0, "p99": p99}, "availability": 1.0, "generator_late_ms": {"p99": 0.1}}

    found = asyncio.run(highest_rate(measure, start=50.0, limit_ms=10.0))
    assert found["highest_rate"] <= limit and len(found["tried"]) == calls
    if calls < 14:
        assert found["highest_rate"] > 0.85 * limit


def slow(p99_ms: float, **more: Any) -> dict[str, Any]:
    return {"added_ms": {"p99": p99_ms}, "availability": 1.0, "generator_late_ms": {"p99": 0.1}} | more


def test_where_no_rate_holds_the_search_says_so_with_the_lowest_it_tried() -> None:
    asked: list[float] = []

    async def measure(rate: float) -> dict[str, Any]:
        asked.append(rate)
        return slow(rate + 20, requests=7)

    found = asyncio.run(highest_rate(measure, start=50.0, limit_ms=10.0))
    assert asked == [50, 50, 25, 25, 12.5, 12.5, 6.2, 6.2, 5, 5]
    assert found["highest_rate"] is None and not found["cut_off"] and found["requests"] == 7
    assert found["verdict"] == "none: p99 25, 25 ms at 5/s, the lowest rate tried; 100.0% answered in time"


def test_the_search_ends_when_its_time_is_up_with_what_it_has() -> None:
    now = 0.0

    async def measure(rate: float) -> dict[str, Any]:
        nonlocal now
        now += 10
        return slow(1.0)

    found = asyncio.run(highest_rate(measure, start=5.0, limit_ms=10.0, budget_s=25, clock=lambda: now))
    assert (found["highest_rate"], found["cut_off"], len(found["tried"])) == (20.0, True, 3)
    assert found["verdict"] == "20 requests/s with a p99 of 10 ms or less"
    nothing = asyncio.run(highest_rate(measure, start=5.0, limit_ms=10.0, budget_s=0, clock=lambda: now))
    assert nothing["verdict"] == "none: nothing was tried" and nothing["highest_rate"] is None
