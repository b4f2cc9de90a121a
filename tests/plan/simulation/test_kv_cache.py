"""Blocks of keys and values: found from the beginning, pinned while used, kept while there is room."""

from random import Random

from foretype_plan.simulation.kv_cache import Found, KvCache

A, B, C, D = (name.encode() for name in "abcd")


def ran(cache, keys, more=0):
    found = cache.find(keys)
    assert cache.take(keys[: found.near], len(keys) - found.near + more)
    cache.publish(keys[found.near :])
    return found


def test_a_prompt_is_found_from_its_beginning_on():
    cache = KvCache(8)
    ran(cache, (A, B, C))
    assert cache.find((A, B, D)) == Found(2, 0)
    assert cache.find((B, C)) == Found(2, 0)
    assert cache.find((D, A)) == Found(0, 0)


def test_what_is_used_is_never_evicted_and_what_does_not_fit_changes_nothing():
    cache = KvCache(4)
    ran(cache, (A, B, C))
    assert not cache.take((), 2)
    assert cache.pinned == 3 and cache.find((A, B, C)).near == 3
    cache.give((A, B, C), 0)
    assert cache.pinned == 0 and cache.take((), 2)
    assert cache.find((A, B, C)).near == 2  # the end went first


def test_two_who_compute_the_same_block_keep_one():
    cache = KvCache(8)
    assert cache.take((), 2) and cache.take((), 2)
    cache.publish((A, B))
    cache.publish((A, B))
    assert cache.pinned == 2
    cache.give((A, B), 0)
    cache.give((A, B), 0)
    assert cache.pinned == 0 and cache.find((A, B)).near == 2


def test_what_leaves_the_gpu_is_found_on_the_host_as_long_as_it_has_room():
    cache = KvCache(2, host_blocks=1)
    ran(cache, (A, B))
    cache.give((A, B), 0)
    ran(cache, (C,))
    assert cache.find((A, B)) == Found(1, 1)
    cache.give((C,), 0)
    ran(cache, (C, D))
    assert cache.find((A, B)) == Found(0, 1)


def test_nothing_is_lost_or_counted_twice():
    rng, cache, held = Random(5), KvCache(40, host_blocks=10), []
    for _ in range(5_000):
        if held and rng.random() < 0.5:
            keys, private = held.pop(rng.randrange(len(held)))
            cache.give(keys, private)
        else:
            keys = tuple(f"{rng.randrange(6)}:{at}".encode() for at in range(rng.randint(1, 12)))
            near, more = cache.find(keys).near, rng.randint(0, 2)
            if cache.take(keys[:near], len(keys) - near + more):
                cache.publish(keys[near:])
                held.append((keys, more))
        assert cache.pinned <= 40
    for keys, private in held:
        cache.give(keys, private)
    assert cache.pinned == 0 and cache.take((), 40)
