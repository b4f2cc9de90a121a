"""When guesses are made: per language, per load, with a reason."""

from __future__ import annotations

import pytest
from foretype_backend.fleet.routing.speculation import SpeculationOptions, SpeculationPolicy, Verdict
from hypothesis import given
from hypothesis import strategies as st


def policy(**options: float) -> SpeculationPolicy:
    return SpeculationPolicy(4, SpeculationOptions(**({"steps_min": 10, "window_steps": 100} | options)))  # type: ignore[arg-type]


def feed(one: SpeculationPolicy, language: str, tokens: int, steps: int) -> None:
    for _ in range(steps):
        one.note(language, tokens)


def test_a_language_is_judged_by_itself_and_the_reason_is_counted() -> None:
    one = policy()
    assert one.decide("go", 0) is Verdict.UNMEASURED
    feed(one, "go", 2, 20)  # one guess of four accepted
    feed(one, "python", 4, 20)  # three of four
    assert one.decide("go", 0) is Verdict.ACCEPTANCE
    assert one.decide("python", 0) is Verdict.PAYS
    assert one.languages()["go"].accepted_share == 0.25
    assert one.languages()["python"].accepted_share == 0.75
    assert one.verdicts() == {
        Verdict.UNMEASURED: 1,
        Verdict.ACCEPTANCE: 1,
        Verdict.PAYS: 1,
        Verdict.PROBE: 0,
        Verdict.BATCH: 0,
    }
    assert [verdict.on for verdict in (Verdict.PAYS, Verdict.ACCEPTANCE, Verdict.BATCH)] == [True, False, False]


def test_a_full_batch_has_better_use_for_the_time() -> None:
    one = policy(batch_max=6)
    feed(one, "python", 4, 20)
    assert one.decide("python", 6) is Verdict.PAYS
    assert one.decide("python", 7) is Verdict.BATCH


def test_what_is_off_is_tried_now_and_then_and_comes_back_above_the_gap() -> None:
    one = policy(probe_every=4)
    feed(one, "c", 2, 50)
    assert repr(one) == "<SpeculationPolicy of 4.0: 1 languages, off for ['c']>"
    asked = [one.decide("c", 0) for _ in range(12)]
    assert [at for at, verdict in enumerate(asked, start=1) if verdict is Verdict.PROBE] == [4, 8, 12]
    while (one.languages()["c"].accepted_share or 0) < 0.5:
        one.note("c", 5)
    assert not one.languages()["c"].on  # 50 % is enough to stay on, not to come back
    while (one.languages()["c"].accepted_share or 0) < 0.55:
        one.note("c", 5)
    assert one.languages()["c"].on
    assert one.decide("c", 0) is Verdict.PAYS


def test_a_language_is_judged_from_its_least_number_of_steps_on() -> None:
    one = policy(steps_min=10)
    feed(one, "go", 2, 9)
    assert one.decide("go", 0) is Verdict.UNMEASURED
    one.note("go", 2)
    assert one.decide("go", 0) is Verdict.ACCEPTANCE


@given(st.lists(st.integers(1, 5), min_size=1, max_size=400))
def test_the_share_is_one_and_the_memory_is_bounded(steps: list[int]) -> None:
    one = policy()
    for tokens in steps:
        one.note("x", tokens)
        standing = one.languages()["x"]
        assert standing.steps <= 101
        assert standing.accepted_share is None or 0 <= standing.accepted_share <= 1


@pytest.mark.parametrize("options", [{"off_below": 0.6, "on_above": 0.5}, {"batch_max": 0}, {"probe_every": 0}])
def test_options_that_cannot_be_meant(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"off_below|must be at least 1"):
        policy(**options)


def test_what_is_forgotten_of_old_steps_leaves_the_share_as_it_was() -> None:
    one = policy(window_steps=100)
    feed(one, "go", 4, 101)
    assert one.languages()["go"].accepted_share == 0.75
    assert one.languages()["go"].steps <= 51
