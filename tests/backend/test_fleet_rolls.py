"""Roll-outs as the directory keeps them: begun when a replica is ready, gone on with by the next directory, taken away when nobody needs them."""

from typing import Any

import msgspec
import pytest
from foretype_backend.errors import RolloutError
from foretype_backend.fleet.ray.rolls import Order, Rolls
from foretype_backend.fleet.rollout.counters import Counts
from foretype_backend.fleet.rollout.machine import RolloutOptions

QUICK = RolloutOptions(step_s=0.0, requests_min=10, evidence_min=20, keep_s=60.0)


def order(number: int = 7, **changes: Any) -> dict[str, Any]:
    made = Order(number=number, stable="r1", canary="r2", share=0.05, without_gate="a test", options=QUICK)
    return {"stable": {"fast": "r1"}, "rolls": {"fast": msgspec.to_builtins(msgspec.structs.replace(made, **changes))}}


def rolls(number: int = 7, **changes: Any) -> Rolls:
    made = Rolls()
    made.order(order(number, **changes))
    return made


def ready(_pool: str, _revision: str) -> bool:
    return True


def of(made: Rolls) -> tuple[str | None, float]:
    now = made.announced()["fast"]
    return now["canary"], now["share"]


def told(requests: int, failed: int = 0) -> dict[str, dict[str, dict[str, Counts]]]:
    good = Counts(requests=requests, failed=0, cancelled=0, shown=requests, accepted=requests // 2, syntax_errors=0)
    return {"fast": {"gw": {"r1": good, "r2": msgspec.structs.replace(good, failed=failed)}}}


def test_a_canary_begins_when_a_replica_of_it_is_ready() -> None:
    made = rolls()
    made.tick({}, lambda _pool, _revision: False, 0.0)
    assert of(made) == (None, 0.0)
    made.tick({}, lambda _pool, revision: revision == "r2", 1.0)
    assert of(made) == ("r2", 0.05)


def test_a_new_directory_goes_on_where_the_one_before_stopped() -> None:
    first = rolls()
    for at in range(3):
        first.tick(told(200 * at), ready, float(at))
    canary, share = of(first)
    assert canary == "r2" and share > 0.05
    second = rolls()
    second.tick({}, ready, 10.0)
    assert of(second) == ("r2", 0.05)
    second.remember(first.memory())
    assert of(second) == (canary, share)
    second.remember(rolls(3).memory())  # of nobody, and older
    assert of(second) == (canary, share)


def test_an_order_to_go_back_is_heeded_at_the_next_look_and_by_the_next_directory() -> None:
    made = rolls()
    made.tick({}, ready, 0.0)
    memory = made.memory()
    made.order(order(back="by hand"))
    made.tick({}, ready, 1.0)
    assert of(made) == (None, 0.0)
    other = rolls(back="by hand")
    other.remember(memory)
    other.tick({}, ready, 2.0)
    assert of(other) == (None, 0.0)


def test_a_canary_that_was_never_ready_is_taken_away_when_it_is_taken_back() -> None:
    made = rolls()
    made.tick({}, lambda _pool, _revision: False, 0.0)
    made.order(order(back="it does not start"))
    made.tick({}, lambda _pool, _revision: False, 1.0)
    assert made.announced()["fast"] == {"stable": "r1", "canary": None, "share": 0.0, "number": 7}
    assert made.leaves("fast", "r2", 60.0)


def test_a_guardrail_takes_it_back_and_its_replicas_go_a_little_later() -> None:
    made = rolls()
    for at in range(8):
        made.tick(told(400 * at, failed=300 * at), ready, float(at))
    assert of(made) == (None, 0.0) and "failed" in made.told()["fast"]
    assert not made.leaves("fast", "r2", 8.0)
    assert made.leaves("fast", "r2", 60.0)
    assert not made.leaves("fast", "r1", 60.0)


def test_the_former_revision_stays_warm_and_goes_then() -> None:
    made = rolls()
    for at in range(12):
        made.tick(told(400 * at), ready, float(at))
    assert made.announced()["fast"]["stable"] == "r2"
    assert not made.leaves("fast", "r1", 50.0)
    assert made.leaves("fast", "r1", 100.0)
    made.order(order(number=8, stable="r2", canary="r1"))
    assert not made.leaves("fast", "r1", 100.0)


def test_a_roll_out_without_a_gate_needs_a_reason() -> None:
    with pytest.raises(RolloutError, match="verdict, or a reason"):
        Order(number=1, stable="r1", canary="r2").begun("fast", 0.0)


@pytest.mark.parametrize("apart_s", [-3_600.0, 3_600.0])
def test_the_next_directory_may_have_another_clock(apart_s: float) -> None:
    slow = msgspec.structs.replace(QUICK, step_s=100.0)
    first, second = rolls(options=slow), rolls(options=slow)
    for at in range(0, 60, 10):
        first.tick(told(200 * at), ready, 10_000.0 + at)
    second.remember(first.memory())
    for at in range(60, 100, 10):
        second.tick(told(200 * at), ready, 10_000.0 + apart_s + at)
        assert of(second) == ("r2", 0.05)  # a step lasts as long as it would have
    for at in range(100, 130, 10):
        second.tick(told(200 * at), ready, 10_000.0 + apart_s + at)
    assert of(second)[1] > 0.05

    over = rolls()
    for at in range(12):
        over.tick(told(400 * at), ready, 10_000.0 + at)
    assert over.announced()["fast"]["stable"] == "r2"
    second = rolls()
    second.remember(over.memory())
    second.tick({}, ready, 10_012.0 + apart_s)
    assert not second.leaves(
        "fast", "r1", 10_050.0 + apart_s
    )  # nor is the former revision gone too soon, or kept for ever
    assert second.leaves("fast", "r1", 10_100.0 + apart_s)


def test_an_order_counts_whatever_the_clock_of_who_gives_it() -> None:
    assert Order.number_after(0, 1_700.5) == 1_700
    assert Order.number_after(5_300, 1_700.5) == 5_301
