import math

import pytest
from foretype_client.policy.machine import Spared
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import (
    EditorRequest,
    Now,
    Policy,
    PolicyOptions,
    PolicyState,
    Skip,
    SkipReason,
    Trigger,
    Wait,
    closers_only,
)
from foretype_context.syntax.lexis import Within
from hypothesis import given
from hypothesis import strategies as st


def ask(left: str = "x = ", right: str = "", **other: object) -> EditorRequest:
    values: dict[str, object] = {
        "trigger": Trigger.AUTOMATIC,
        "left": left,
        "right": right,
        "changed_s": 10.0,
        "characters": 100,
        **other,
    }
    return EditorRequest(**values)  # type: ignore[arg-type]


@pytest.fixture
def policy() -> Policy:
    return Policy()


def test_the_debounce_counts_from_the_change_not_from_the_request(policy: Policy) -> None:
    assert policy.decide(PolicyState(), ask(), 10.0) == Wait(10.075)
    assert policy.decide(PolicyState(), ask(), 10.05) == Wait(10.075)
    assert policy.decide(PolicyState(), ask(), 10.08) == Now()


@pytest.mark.parametrize("left", ["", "    ", "\t"])
def test_the_start_of_a_line_does_not_wait(left: str) -> None:
    assert Policy().decide(PolicyState(), ask(left), 10.0) == Now()


def test_an_invoked_request_and_an_untouched_document_do_not_wait() -> None:
    assert Policy().decide(PolicyState(), ask(trigger=Trigger.INVOKED), 10.0) == Now()
    assert Policy().decide(PolicyState(), ask(changed_s=None), 10.0) == Now()


@pytest.mark.parametrize("right", ["", "  ", ")", ")]}", '")', "):", " ) {", "';", "`,"])
def test_closers_right_of_the_cursor_are_no_middle(right: str) -> None:
    assert closers_only(right)
    assert not isinstance(Policy().decide(PolicyState(), ask(right=right), 10.0), Skip)


@pytest.mark.parametrize("right", ["a", ") + 1", "(", "::", ")" * 201, " " * 200_000 + "x"])
def test_the_middle_of_a_line_is_skipped_unless_invoked(right: str, policy: Policy) -> None:
    assert policy.decide(PolicyState(), ask(right=right), 10.0) == Skip(SkipReason.MID_LINE)
    assert policy.decide(PolicyState(), ask(right=right, trigger=Trigger.INVOKED), 10.0) == Now()


@pytest.mark.parametrize("trigger", list(Trigger))
def test_excluded_and_very_large_files_are_never_sent(trigger: Trigger, policy: Policy) -> None:
    assert policy.decide(PolicyState(), ask(excluded="secret", trigger=trigger), 10.0) == Skip(SkipReason.EXCLUDED)
    large = ask(characters=5_000_001, trigger=trigger)
    assert policy.decide(PolicyState(), large, 10.0) == Skip(SkipReason.TOO_LARGE)


def test_comments_and_strings_are_skipped_only_where_configured() -> None:
    inside = ask(within=Within.COMMENT)
    assert isinstance(Policy().decide(PolicyState(), inside, 10.0), Wait)
    off = Policy(PolicyOptions(in_comments={"*": False, "go": True}))
    assert off.decide(PolicyState(), inside, 10.0) == Skip(SkipReason.IN_COMMENT)
    assert isinstance(off.decide(PolicyState(), inside._replace(language="go"), 10.0), Wait)
    string = ask(within=Within.STRING, language="python")
    assert Policy().decide(PolicyState(), string, 10.0) == Skip(SkipReason.IN_STRING)
    assert isinstance(Policy(PolicyOptions(in_strings={"python": True})).decide(PolicyState(), string, 10.0), Wait)
    assert off.decide(PolicyState(), inside._replace(trigger=Trigger.INVOKED), 10.0) == Now()


def test_a_pause_ends_by_itself_and_is_never_shortened(policy: Policy) -> None:
    state = policy.pause(PolicyState(), retry_after_ms=2000, now=10.0)
    state = policy.pause(state, retry_after_ms=100, now=10.0)
    assert policy.decide(state, ask(), 11.9) == Skip(SkipReason.PAUSED)
    assert policy.decide(state, ask(), 12.0) == Now()


def test_rejections_lengthen_the_debounce_accepts_shorten_it_and_both_fade(policy: Policy) -> None:
    rejected = policy.reacted(PolicyState(), accepted=False, now=0.0)
    assert policy.debounce_ms(rejected, 0.0) == pytest.approx(82.5)
    assert policy.debounce_ms(rejected, 600.0) == pytest.approx(75 * (1 + 0.1 / math.e))
    assert policy.debounce_ms(policy.reacted(PolicyState(), accepted=True, now=0.0), 0.0) == pytest.approx(60)


@pytest.mark.parametrize(("taken", "expected"), [(0, 150), (3, 75), (10, 50)])
def test_whoever_takes_three_of_ten_waits_as_long_as_the_plain_debounce(taken: int, expected: float) -> None:
    policy, state = Policy(), PolicyState()
    for i in range(10):
        state = policy.reacted(state, accepted=i < taken, now=0.0)
    assert policy.debounce_ms(state, 0.0) == pytest.approx(expected, rel=0.01)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1e5)), max_size=30), st.floats(0, 1e6))
def test_the_debounce_stays_within_its_clamp(reactions: list[tuple[bool, float]], now: float) -> None:
    policy, state = Policy(), PolicyState()
    for accepted, at_s in reactions:
        state = policy.reacted(state, accepted=accepted, now=at_s)
    assert 50 <= policy.debounce_ms(state, now) <= 150
    assert len(state.reactions) <= 10


def test_no_debounce_stays_none() -> None:
    assert Policy(PolicyOptions(debounce_ms=0)).decide(PolicyState(), ask(), 10.0) == Now()


@pytest.mark.parametrize("options", [{"debounce_ms": -1}, {"debounce_min_ms": 160.0}])
def test_options_that_make_no_sense_name_their_field(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        PolicyOptions(**options)


def test_a_deletion_asks_nothing_unless_invoked_or_switched_off(policy: Policy) -> None:
    assert policy.decide(PolicyState(), ask(deleted=True), 10.0) == Skip(SkipReason.DELETION)
    assert policy.decide(PolicyState(), ask(deleted=True, trigger=Trigger.INVOKED), 10.0) == Now()
    without = Policy(PolicyOptions(switches=Switches(skip_deletions=False)))
    assert without.decide(PolicyState(), ask(deleted=True), 10.0) == Wait(10.075)


def test_without_the_adaptive_debounce_reactions_change_nothing() -> None:
    policy = Policy(PolicyOptions(switches=Switches(adaptive_debounce=False)))
    state = policy.reacted(PolicyState(), accepted=False, now=0.0)
    assert policy.debounce_ms(state, 0.0) == 75.0


def test_a_switch_that_does_not_exist_is_named_with_those_that_do() -> None:
    switched = Switches().switched(on=["speculative"], off=["skip_deletions"])
    assert switched.speculative and not switched.skip_deletions
    with pytest.raises(ValueError, match=r"hot_streak: the switches are .*skip_deletions"):
        Switches().switched(on=["hot-streak"])


def test_a_machine_that_is_spared_is_asked_by_hand_alone() -> None:
    policy = Policy(spared=lambda now: Spared.BATTERY if now < 20.0 else None)
    assert policy.decide(PolicyState(), ask(), 11.0) == Skip(SkipReason.SPARED)
    assert policy.decide(PolicyState(), ask(trigger=Trigger.INVOKED), 11.0) == Now()
    assert policy.decide(PolicyState(), ask(right="more of it"), 11.0) == Skip(SkipReason.MID_LINE)
    assert policy.decide(PolicyState(), ask(), 20.0) == Now()
    switched_off = Policy(PolicyOptions(switches=Switches(spare=False)), policy.spared)
    assert switched_off.decide(PolicyState(), ask(), 11.0) == Now()
