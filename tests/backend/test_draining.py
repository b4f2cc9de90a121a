"""How fast a pool may shrink, whatever a directory announces."""

from foretype_backend.fleet.members.rules import ShrinkBound, WantsOut
from hypothesis import given
from hypothesis import strategies as st

INTERVAL_S = 5.0


def wanting(*names: str, serves: bool = True, says_so: bool = False) -> list[WantsOut]:
    return [WantsOut(name, serves, says_so) for name in names]


def test_at_most_half_go_in_an_interval_and_the_others_in_the_next():
    bound = ShrinkBound()
    assert bound.drained(wanting("a", "b", "c", "d"), 4, interval_s=INTERVAL_S, now=0.0) == ["a", "b"]
    assert bound.drained(wanting("c", "d"), 2, interval_s=INTERVAL_S, now=INTERVAL_S - 0.1) == []
    assert bound.drained(wanting("c", "d"), 2, interval_s=INTERVAL_S, now=INTERVAL_S) == ["c"]


def test_who_says_that_it_goes_comes_before_who_is_only_missing():
    both = wanting("missing") + wanting("leaving", says_so=True)
    assert ShrinkBound().drained(both, 2, interval_s=INTERVAL_S, now=0.0) == ["leaving"]


def test_who_does_not_serve_goes_at_once_and_is_not_counted():
    bound = ShrinkBound()
    assert bound.drained(wanting("a", "b", "c", serves=False), 1, interval_s=INTERVAL_S, now=0.0) == ["a", "b", "c"]
    assert bound.drained(wanting("d"), 2, interval_s=INTERVAL_S, now=0.0) == ["d"]


@given(
    st.lists(
        st.tuples(st.floats(0, 4), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8), st.integers(0, 8)),
        max_size=8,
    )
)
def test_one_that_serves_is_always_left_and_no_interval_takes_more_than_half(
    turns: list[tuple[float, list[tuple[bool, bool]], int]],
):
    bound, now = ShrinkBound(), 0.0
    gone_s: list[float] = []
    for pause_s, wants, stay in turns:
        now += pause_s
        candidates = [WantsOut(str(at), *one) for at, one in enumerate(wants)]
        serving = stay + sum(one.serves for one in candidates)
        gone = bound.drained(candidates, serving, interval_s=INTERVAL_S, now=now)
        left = serving - sum(one.serves for one in candidates if one.name in gone)
        assert left >= min(1, serving)
        assert {one.name for one in candidates if not one.serves} <= set(gone)
        recent = [at for at in gone_s if at > now - INTERVAL_S]
        taken = serving - left
        gone_s += [now] * taken
        if taken:
            assert len(recent) + taken <= max(1, (serving + len(recent)) // 2)
