"""Which revision answers whom, and what is counted of it."""

import hashlib

from foretype_backend.fleet.members.announced import AnnouncedRollout
from foretype_backend.fleet.members.revisions import RevisionBook, names_of, on_canary
from hypothesis import given
from hypothesis import strategies as st

DEVELOPERS = [f"acme/dev{at}" for at in range(4000)]
REPLICAS = {"a": "r1", "b": "r1", "c": "r2"}


@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1), st.text(max_size=8))
def test_who_is_in_a_small_share_is_in_a_larger_one(number: int, one: float, other: float, developer: str) -> None:
    small, large = sorted((one, other))
    if on_canary(AnnouncedRollout("r1", "r2", small, number), developer):
        assert on_canary(AnnouncedRollout("r1", "r2", large, number), developer)
    assert on_canary(AnnouncedRollout("r1", "r2", 1.0, number), developer)
    assert not on_canary(AnnouncedRollout("r1", "r2", 0.0, number), developer)


def test_the_share_is_what_is_asked_for_and_another_rollout_draws_others() -> None:
    drawn = [
        {one for one in DEVELOPERS if on_canary(AnnouncedRollout("r1", "r2", 0.05, number), one)} for number in (7, 8)
    ]
    assert all(0.035 * len(DEVELOPERS) < len(one) < 0.065 * len(DEVELOPERS) for one in drawn)
    assert len(drawn[0] & drawn[1]) < 0.5 * len(drawn[0])
    # As every gateway and the directory reckon it: sha256 of number and developer as a fraction.
    assert on_canary(AnnouncedRollout("r1", "r2", 0.2, 7), "acme/ann") == (
        int(hashlib.sha256(b"7:acme/ann").hexdigest(), 16) / 2**256 < 0.2
    )


def test_a_revision_that_nobody_serves_is_never_chosen() -> None:
    everybody = AnnouncedRollout("r1", "r2", 1.0, 1)
    assert set(names_of(everybody, "ann", REPLICAS)) == {"c"}
    assert set(names_of(everybody, "ann", {"a": "r1"})) == {"a"}
    assert set(names_of(AnnouncedRollout("r1", None, 0.0, 1), "ann", REPLICAS)) == {"a", "b"}
    assert set(names_of(AnnouncedRollout("r1", "r2", 0.0, 1), "ann", {"c": "r2"})) == {"c"}  # the stable one is away
    assert set(names_of(AnnouncedRollout("r3", None, 0.0, 1), "ann", REPLICAS)) == {"a", "b", "c"}
    assert set(names_of(None, "ann", REPLICAS)) == {"a", "b", "c"}


def test_feedback_counts_for_the_revision_that_answered_its_developer() -> None:
    book = RevisionBook()
    book.asked("r2", "acme/ann")
    for ms in (10, 20, 30):
        book.first_token("r2", ms / 1000)
    shown = {"event": "display", "visible_ms": 900, "end": "left"}
    glimpsed = {"event": "display", "visible_ms": 9, "end": "left"}
    taken = {"event": "display", "visible_ms": 9, "end": "accepted"}
    broken, whole = {"event": "opportunity", "parses": False}, {"event": "opportunity", "parses": True}
    book.told("acme/ann", [shown, glimpsed, taken, broken, whole, {"event": "opportunity"}, {"visible_ms": "x"}])
    book.told("acme/bob", [shown])
    counts = book.statistics()
    assert set(counts) == {"r2"}
    assert counts["r2"]._asdict() == {
        "shown": 2,
        "accepted": 1,
        "cancelled": 0,
        "syntax_errors": 1,
        "requests": 1,
        "failed": 0,
        "ttft_ms": {"p50": 20.0, "p99": 20.0},
    }
