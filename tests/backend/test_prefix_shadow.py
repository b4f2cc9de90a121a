import pytest
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.prefix.block_keys import block_keys, shared_tokens
from hypothesis import given, settings
from hypothesis import strategies as st

ids = st.lists(st.integers(0, 3), max_size=40)


def common_prefix(left: list[int], right: list[int]) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


@settings(deadline=None)
@given(ids, ids, st.integers(1, 9))
def test_cached_tokens_are_the_whole_blocks_of_the_common_prefix(
    first: list[int], second: list[int], block: int
) -> None:
    cache = ShadowPrefixCache(1000, block)
    cache.insert(cache.keys(first), len(first))
    expected = common_prefix(first, second) // block * block
    expected = max(min(expected, len(second) - 1), 0)
    assert cache.cached_tokens(cache.keys(second), len(second)) == expected


@settings(deadline=None)
@given(ids, ids, st.integers(1, 9))
def test_shared_tokens_by_bisection_equals_the_scan(first: list[int], second: list[int], block: int) -> None:
    got = shared_tokens(block_keys(first, block), block_keys(second, block), block)
    assert got == common_prefix(first, second) // block * block


@settings(deadline=None)
@given(st.lists(ids, max_size=12), st.integers(1, 6), st.integers(1, 9))
def test_never_more_blocks_than_capacity_and_never_more_hits_than_a_larger_cache(
    prompts: list[list[int]], capacity: int, block: int
) -> None:
    small, large = ShadowPrefixCache(capacity, block), ShadowPrefixCache(10_000, block)
    for prompt in prompts:
        assert small.insert(small.keys(prompt), len(prompt)) <= large.insert(large.keys(prompt), len(prompt))
        assert len(small) <= capacity


@settings(deadline=None)
@given(ids, ids, st.integers(1, 9))
def test_a_salt_isolates(first: list[int], second: list[int], block: int) -> None:
    cache = ShadowPrefixCache(1000, block)
    cache.insert(cache.keys(first, salt="a"), len(first))
    assert cache.cached_tokens(cache.keys(second, salt="b"), len(second)) == 0


def test_a_repeated_prompt_of_whole_blocks_still_computes_one_token() -> None:
    cache = ShadowPrefixCache(10, 4)
    prompt = list(range(8))
    assert cache.insert(cache.keys(prompt), 8) == 0
    assert cache.insert(cache.keys(prompt), 8) == 7


def test_a_prefill_cut_short_leaves_its_finished_blocks() -> None:
    cache = ShadowPrefixCache(10, 4)
    keys = cache.keys(list(range(20)))
    cache.touch(keys, computed_tokens=11)
    assert cache.cached_tokens(keys, 20) == 8


def test_eviction_takes_the_tail_of_the_oldest_prompt_first() -> None:
    cache = ShadowPrefixCache(5, 4)
    old, new = list(range(16)), list(range(100, 108))
    cache.insert(cache.keys(old), 16)
    cache.insert(cache.keys(new), 8)
    assert cache.cached_tokens(cache.keys(new), 9) == 8
    assert cache.cached_tokens(cache.keys(old), 16) == 12
    assert len(cache) == 5  # of six: one is gone


@pytest.mark.parametrize(("capacity", "block"), [(0, 32), (1, 0)])
def test_impossible_sizes_are_refused(capacity: int, block: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ShadowPrefixCache(capacity, block)
