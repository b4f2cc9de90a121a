"""Budgets: nothing leaks, nothing is granted twice, and debts are waited for."""

import pytest
from foretype_backend.admission.limits import Budget, Budgets, Denied, Reservation
from hypothesis import given
from hypothesis import strategies as st

TEN = Budget(tokens_per_s=10, burst_tokens=100)


def reserved(budgets: Budgets, names: list[str], tokens: int, now: float = 0.0) -> Reservation:
    result = budgets.reserve(names, tokens, now)
    assert isinstance(result, Reservation)
    return result


def test_a_reservation_gives_back_what_was_not_used() -> None:
    budgets = Budgets({"tenant": TEN})
    claim = reserved(budgets, ["tenant"], 90)
    assert budgets.reserve(["tenant"], 20, 0.0) == Denied("tenant", 1.0, (("tenant", 20),))
    budgets.settle(claim, 40, 0.0)
    budgets.settle(claim, 40, 0.0)  # a second time changes nothing
    budgets.settle(claim, 0, 0.0)
    assert budgets.statistics(0.0)["tenant"] == (60.0, 0, 40, 1)


def test_all_budgets_or_none() -> None:
    budgets = Budgets({"tenant": TEN, "user": Budget(tokens_per_s=1, burst_tokens=10)})
    assert budgets.reserve(["tenant", "user", "other"], 50, 0.0) == Denied("user", float("inf"), (("user", 50),))
    assert budgets.statistics(0.0)["tenant"].level == 100
    claim = reserved(budgets, ["tenant", "user", "user"], 10)
    assert budgets.statistics(0.0)["user"].level == 0
    budgets.settle(claim, 0, 0.0)
    assert budgets.statistics(0.0)["user"].level == 10


def test_more_than_was_reserved_is_a_debt_that_time_pays() -> None:
    budgets = Budgets({"tenant": TEN})
    budgets.settle(reserved(budgets, ["tenant"], 10), 150, 0.0)
    assert budgets.reserve(["tenant"], 1, 0.0) == Denied("tenant", 5.1, (("tenant", 1),))
    reserved(budgets, ["tenant"], 1, 5.2)


def test_a_changed_budget_keeps_its_level_and_a_removed_one_limits_nothing() -> None:
    budgets = Budgets({"tenant": TEN})
    claim = reserved(budgets, ["tenant"], 100)
    budgets.set("tenant", Budget(tokens_per_s=10, burst_tokens=1000), 0.0)
    assert isinstance(budgets.reserve(["tenant"], 50, 0.0), Denied)
    budgets.set("tenant", None, 0.0)
    reserved(budgets, ["tenant"], 10**9)
    budgets.settle(claim, 5, 0.0)


def test_a_clock_that_jumps_back_grants_nothing() -> None:
    budgets = Budgets({"tenant": TEN}, now=100.0)
    reserved(budgets, ["tenant"], 100, 100.0)
    assert isinstance(budgets.reserve(["tenant"], 50, 0.0), Denied)
    assert isinstance(budgets.reserve(["tenant"], 50, 4.0), Denied)


def test_what_is_reserved_takes_room_below_the_burst_until_it_is_over() -> None:
    budgets = Budgets({"tenant": TEN})
    claim = reserved(budgets, ["tenant"], 60)
    assert budgets.statistics(20.0)["tenant"][:2] == (40.0, 60)
    assert budgets.reserve(["tenant"], 50, 20.0) == Denied("tenant", 1.0, (("tenant", 50),))
    budgets.settle(claim, 0, 20.0)
    assert budgets.statistics(20.0)["tenant"].level == 100


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "settle", "abandon"]),
            st.sampled_from([["t"], ["t", "u"], ["u"], ["x"]]),
            st.integers(0, 120),
            st.floats(0, 3),
        ),
        max_size=80,
    )
)
def test_what_is_granted_never_exceeds_burst_and_time(steps: list[tuple[str, list[str], int, float]]) -> None:
    budgets = Budgets({"t": TEN, "u": Budget(tokens_per_s=5, burst_tokens=60)})
    live: list[Reservation] = []
    granted = {"t": 0, "u": 0}
    now = 0.0
    for step, names, tokens, gap in steps:
        now += gap
        if step == "reserve":
            result = budgets.reserve(names, tokens, now)
            if isinstance(result, Reservation):
                live.append(result)
        elif live:
            claim = live.pop(0)
            used = 0 if step == "abandon" else min(tokens, claim.tokens)
            budgets.settle(claim, used, now)
            for name in claim.names:
                granted[name] += used
        state = budgets.statistics(now)
        for name, budget in (("t", TEN), ("u", Budget(tokens_per_s=5, burst_tokens=60))):
            claimed = sum(claim.tokens for claim in live if name in claim.names)
            assert state[name].reserved == claimed
            assert granted[name] + claimed <= budget.burst_tokens + now * budget.tokens_per_s + 1e-6
            assert state[name].level <= budget.burst_tokens
    for claim in live:
        budgets.settle(claim, 0, now)
    assert all(one.reserved == 0 for one in budgets.statistics(now).values())


@pytest.mark.parametrize("bad", [0, -1, float("inf"), float("nan")])
def test_a_budget_of_nothing_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="tokens_per_s"):
        Budget(tokens_per_s=bad, burst_tokens=1)
    with pytest.raises(ValueError, match="negative"):
        Budgets().reserve(["t"], -1, 0.0)


def test_who_looks_at_a_budget_sees_what_time_gave_it() -> None:
    budgets = Budgets({"tenant": TEN})
    budgets.settle(reserved(budgets, ["tenant"], 90), 90, 0.0)
    assert budgets.statistics(5.0)["tenant"].level == 60.0
