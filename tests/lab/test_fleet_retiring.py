"""Eviction order of a tier, beside a model that is obviously right."""

from __future__ import annotations

import pytest
from foretype_lab.fleet.retiring import RetiringLru
from hypothesis import given
from hypothesis import strategies as st

KEYS = [bytes([at]) for at in range(8)]


def test_retired_blocks_leave_first_and_a_used_one_is_ordinary_again() -> None:
    lru = RetiringLru(3)
    lru.use([b"a", b"b", b"c"])
    lru.retire([b"a", b"b"])
    assert lru.use([b"d"]) == [b"b"]  # the tail of what was retired
    assert lru.use([b"a"]) == []
    assert lru.use([b"e"]) == [b"c"]  # nothing is retired any more: the least recently used
    assert b"a" in lru and b"d" in lru
    assert lru.statistics() == (3, 0, 2, 1)


def test_the_head_of_a_chain_stays_longest_even_when_the_chain_does_not_fit() -> None:
    lru = RetiringLru(2)
    assert lru.use([b"a", b"b", b"c"]) == []
    assert b"a" in lru and b"b" in lru and b"c" not in lru
    assert lru.use([b"d"]) == [b"b"]


def test_plain_lru_does_not_heed_retirement() -> None:
    lru = RetiringLru(2, heeds=False)
    lru.use([b"a"])
    lru.use([b"b"])
    lru.retire([b"b"])
    assert lru.use([b"c"]) == [b"a"]


def test_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RetiringLru(0)


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from(["use", "retire"]), st.lists(st.sampled_from(KEYS), max_size=4, unique=True))),
)
def test_like_a_list_that_is_sorted_every_time(capacity: int, steps: list[tuple[str, list[bytes]]]) -> None:
    lru = RetiringLru(capacity)
    live: list[bytes] = []
    retired: list[bytes] = []
    for step, keys in steps:
        if step == "retire":
            lru.retire(keys)
            for key in reversed(keys):
                if key in live:
                    live.remove(key)
                    retired.append(key)
        else:
            evicted = lru.use(keys)
            for key in reversed(keys[:capacity]):
                live = [one for one in live if one != key] + [key]
                retired = [one for one in retired if one != key]
            gone: list[bytes] = []
            while len(live) + len(retired) > capacity:
                gone.append((retired or live).pop(0))
            assert evicted == gone
        assert len(lru) == len(live) + len(retired) <= capacity
        assert all(key in lru for key in (*live, *retired))
