"""Routing: the ring moves little, the router overloads nobody, and sticks to what is cached."""

import math
from collections import Counter

import pytest
from foretype_backend.errors import NoReplicaError
from foretype_backend.fleet.routing.ring import Ring
from foretype_backend.fleet.routing.router import ReplicaChoice, Route, Router, RoutingOptions
from hypothesis import given, settings
from hypothesis import strategies as st

names = st.sets(st.sampled_from([f"r{at}" for at in range(12)]), min_size=1)


def router(*replicas: str, **options: float) -> Router:
    made = Router(RoutingOptions(**options))  # pyright: ignore[reportArgumentType]
    made.set_replicas(replicas)
    return made


@pytest.mark.slow
@given(names, st.text(max_size=8))
def test_a_walk_visits_every_member_once(members: set[str], key: str) -> None:
    assert sorted(Ring(members).walk(key)) == sorted(members)


@given(names, st.sampled_from([f"r{at}" for at in range(12)]))
def test_who_leaves_takes_only_its_own_keys(members: set[str], gone: str) -> None:
    rest = members - {gone}
    if not rest:
        return
    before, after = Ring(members), Ring(rest)
    for key in map(str, range(50)):
        order = [member for member in before.walk(key) if member != gone]
        assert list(after.walk(key)) == order


def test_keys_are_spread() -> None:
    ring = Ring(f"r{at}" for at in range(16))
    shares = Counter(next(ring.walk(str(key))) for key in range(8_000))
    assert len(shares) == 16 and max(shares.values()) < 1.5 * 500


def test_sticks_to_the_cache_and_inside_the_sticky_set_to_the_quickest() -> None:
    ours = router("a", "b", "c")
    choice = ours.choose("t", "repo", "s", 1000, {"a": 900, "b": 800, "c": 100})
    assert choice == ReplicaChoice("a", Route.STICKY, 900)
    for _ in range(3):
        ours.begin(ReplicaChoice("a", Route.STICKY, 500), 1000, 0.0)  # 1,500 uncached tokens wait there
    assert ours.choose("t", "repo", "s", 1000, {"a": 900, "b": 800, "c": 100}) == ReplicaChoice("b", Route.STICKY, 800)
    for _ in range(3):
        ours.prefilled(ReplicaChoice("a", Route.STICKY, 500), 1000)
    assert ours.choose("t", "repo", "s", 1000, {"a": 900, "b": 800, "c": 100}).replica == "a"


def test_a_little_that_is_cached_decides_nothing_and_a_session_keeps_its_home() -> None:
    ours = router("a", "b", "c", "d")
    cached = dict.fromkeys("abcd", 32)
    homes = {ours.choose("t", "repo", f"s{at}", 1000, cached).replica for at in range(40)}
    assert len(homes) == 2  # replicas_per_repository
    assert ours.choose("t", "repo", "s1", 1000, cached) == ours.choose("t", "repo", "s1", 1000, cached)
    assert ours.choose("t", "repo", "s1", 1000, cached).route is Route.HOME


def test_cold_work_seeds_its_few_replicas_in_turn() -> None:
    ours = router(*"abcdef")
    seeded: list[str] = []
    for at in range(4):
        choice = ours.choose("t", "repo", f"s{at}", 100, {})
        assert choice.route is Route.SEED
        ours.begin(choice, 100, float(at))
        ours.end(choice)
        seeded.append(choice.replica)
    assert seeded[:2] == seeded[2:] and len(set(seeded)) == 2


def test_who_weighs_half_gets_half_and_no_more_than_its_share() -> None:
    weights = {"a": 1.0, "b": 1.0, "c": 0.5}
    ours = Router(RoutingOptions(free_in_flight=2, load_factor=1.0), weight=weights.__getitem__)
    ours.set_replicas(weights)
    for at in range(100):  # each of a repository of its own: nothing is cached anywhere
        ours.begin(ours.choose("t", f"repo {at}", "s", 100, {}), 100, float(at))
    assert ours.statistics().in_flight == {"a": 40, "b": 40, "c": 20}


def test_the_last_one_serves_whatever_it_weighs() -> None:
    ours = Router(weight=lambda _: 0.0)
    ours.set_replicas(["a"])
    assert ours.choose("t", "repo", "s", 100, {}).replica == "a"


def test_a_full_home_overflows_to_the_next_on_the_ring() -> None:
    ours = router(*"abcdef", free_in_flight=1, replicas_per_repository=1)
    home = ours.choose("t", "repo", "s", 100, {})
    ours.begin(home, 100, 0.0)
    second = ours.choose("t", "repo", "s", 100, {})
    assert second.route is Route.OVERFLOW and second.replica != home.replica
    ours.end(home)
    assert ours.choose("t", "repo", "s", 100, {}).replica == home.replica


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100))),
        max_size=60,
    ),
    st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_nobody_is_overloaded_and_nothing_leaks(
    requests: list[tuple[int, int, dict[str, int]]], ends: list[bool]
) -> None:
    """At every choice: at most ceil(1.25 · (in flight + 1) / replicas) on one of them."""
    ours = router(*"abcd", free_in_flight=0)
    flying: list[ReplicaChoice] = []
    for (repository, session, cached), end in zip(requests, ends, strict=False):
        choice = ours.choose("t", str(repository), str(session), 100, cached)
        flying.append(choice)
        ours.begin(choice, 100, 0.0)
        in_flight = ours.statistics().in_flight
        assert sum(in_flight.values()) == len(flying)
        assert in_flight[choice.replica] <= math.ceil(1.25 * len(flying) / 4)
        assert 0 <= choice.cached_tokens <= 100
        if end:
            over = flying.pop(0)
            ours.prefilled(over, 100)
            ours.end(over)
    for choice in flying:
        ours.prefilled(choice, 100)
        ours.end(choice)
    assert not any(ours.statistics().in_flight.values()) and not any(ours.statistics().queued_tokens.values())


def test_a_replica_that_left_gets_nothing_new_and_its_requests_still_end() -> None:
    ours = router("a", "b")
    choice = ReplicaChoice("a", Route.HOME, 0)
    ours.begin(choice, 10, 0.0)
    ours.set_replicas(["b"])
    assert all(ours.choose("t", "r", str(at), 10, {"a": 10}).replica == "b" for at in range(20))
    ours.end(choice)
    ours.end(choice)  # twice does no harm
    assert "a" not in ours.statistics().in_flight
    ours.set_replicas([])
    with pytest.raises(NoReplicaError):
        ours.choose("t", "r", "s", 10, {})


def test_a_measured_rate_moves_the_prediction() -> None:
    ours = router("a", prefill_tokens_per_s=1_000.0)
    assert ours.ttft_s("a", 1_000) == pytest.approx(1.0)
    for _ in range(100):
        ours.measured("a", 2_000, 0.5)
    assert ours.ttft_s("a", 1_000) == pytest.approx(0.25, rel=0.01)
    ours.measured("a", 0, 0.0)
    ours.measured("nobody", 1, 1.0)


@pytest.mark.parametrize(
    "bad", [{"load_factor": 0.5}, {"replicas_per_repository": 0}, {"prefill_tokens_per_s": 0.0}, {"free_in_flight": -1}]
)
def test_bad_options_are_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        router("a", **bad)


def test_above_the_high_water_mark_of_its_memory_a_replica_gets_no_new_prefixes_and_goes_on_with_its_own() -> None:
    ours = router("a", "b", replicas_per_repository=1)
    home = ours.choose("t", "repo", "s", 1000, {}).replica
    other = "b" if home == "a" else "a"
    ours.said(home, 0.95, 100_000)
    ours.said(other, 0.1, 100_000)
    assert ours.choose("t", "repo", "s", 1000, {}).replica == other
    assert ours.choose("t", "repo", "s", 1000, {home: 900}) == ReplicaChoice(home, Route.STICKY, 900)
    ours.said(home, 0.85, 100_000)
    assert ours.choose("t", "repo", "s", 1000, {}).replica == other  # not before it is well below
    ours.said(other, 0.95, 100_000)
    assert ours.choose("t", "repo", "s", 1000, {}).replica == home  # where all are full, somebody has to
    ours.said(other, 0.95, 100_000)
    ours.said(home, 0.79, 100_000)
    assert ours.choose("t", "repo", "s", 1000, {}).replica == home
    ours.said(home, None, 0)
    assert ours.can_admit(10**9)  # of one that does not say nothing is refused


def test_memory_counts_what_was_sent_since_it_was_told_and_frees_what_ended() -> None:
    ours = router("a")
    ours.said("a", 0.5, 10_000)
    assert ours.can_admit(5_000) and not ours.can_admit(5_001)
    choice = ReplicaChoice("a", Route.SEED, 500)
    ours.begin(choice, 2_500, 0.0, max_tokens=1_000)
    assert ours.can_admit(2_000) and not ours.can_admit(2_001)
    ours.begin(choice, 2_500, 0.0, max_tokens=1_000)
    assert ours.any_full
    cached = choice._replace(cached_tokens=2_500)
    ours.begin(cached, 2_500, 0.0)
    ours.end(cached, 2_500)
    assert not ours.can_admit(0)
    ours.end(choice, 2_500, max_tokens=1_000)
    assert ours.can_admit(2_000) and not ours.can_admit(2_001)
    ours.end(choice, 2_500, max_tokens=1_000)
    assert ours.can_admit(5_000) and not ours.any_full
    ours.set_replicas(["a", "b"])
    assert ours.can_admit(10**9)  # of a new one nothing is known yet
