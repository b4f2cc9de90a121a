"""Our policy and Redis tier inside vLLM's own tiering manager, with a real Redis."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from backend.redis_server import RedisServer, redis_server

pytest.importorskip("vllm.v1.kv_offload.tiering.manager", reason="vLLM is not in this environment: `make test-vllm`")

from foretype_backend.errors import TierRefusedError
from foretype_backend.prefix.retire_feed import STREAM, PurgeNotice, RetireNotice, encode
from foretype_backend.prefix.tier_policy import TierStanding
from foretype_backend.vllm_plugin import FEED
from vllm.v1.kv_offload.base import LookupResult, OffloadKey
from vllm_world.tiers import PATIENCE_S, SECRET, Tiers, content_of, key_of, tiers

KEYS = [key_of(at) for at in range(40)]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def raw(server: RedisServer) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(server.socket))


def wait(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.002)


def listening(world: Tiers, client: redis.Redis) -> None:
    """Until the tier reads the stream: what is said before that is not heard."""

    def heard() -> bool:
        return any(one["cmd"] == "xread" for one in client.client_list())

    wait(heard, "the tier does not listen")


def stored(world: Tiers, keys: list[OffloadKey], **about: object) -> None:
    context = world.request(keys, **about)  # pyright: ignore[reportArgumentType]
    assert world.store(context, keys)
    world.settle()
    world.finish(context)


def test_a_chunk_goes_down_and_comes_back(server: RedisServer) -> None:
    with tiers(server.url) as world:
        stored(world, KEYS[:4])
        assert raw(server).exists(b"ftk2:ns:" + KEYS[0]) == 1
        world.forget_host()
        context = world.request(KEYS[:5])
        first = world.manager.lookup(KEYS[0], context)
        assert first in (LookupResult.RETRY, LookupResult.HIT_PENDING)  # it never waits for Redis
        found = [world.find(context, key) for key in KEYS[:5]]
        assert found == [*map(content_of, KEYS[:4]), None]
        assert all(world.on_host(key) for key in KEYS[:4])  # promoted
        world.finish(context)


def test_what_is_not_shared_stays_on_the_host(server: RedisServer) -> None:
    with tiers(server.url) as world:
        stored(world, KEYS[:2], shared=False)
        assert raw(server).keys("ftk2:*") == []
        context = world.request(KEYS[:2], shared=False)
        assert world.find(context, KEYS[0]) == content_of(KEYS[0])
        world.finish(context)
        stored(world, KEYS[2:4])
        world.forget_host()
        for about in ({"shared": False}, {"namespace": "other"}):
            context = world.request(KEYS[2:4], **about)  # pyright: ignore[reportArgumentType]
            assert world.find(context, KEYS[2]) is None
            world.finish(context)


def test_a_chunk_whose_time_is_over_is_a_miss(server: RedisServer) -> None:
    with tiers(server.url, ttl_s=1) as world:
        stored(world, KEYS[:2])
        assert raw(server).pttl(b"ftk2:ns:" + KEYS[0]) in range(-2, 1001)  # -2: it is over already
        world.forget_host()
        wait(lambda: not raw(server).exists(b"ftk2:ns:" + KEYS[0]), "it does not expire")
        time.sleep(2.1)  # what is known of a key is believed for two seconds
        context = world.request(KEYS[:2])
        assert world.find(context, KEYS[0]) is None
        world.finish(context)


def test_a_chunk_that_went_away_after_it_was_seen_is_a_miss(server: RedisServer) -> None:
    with tiers(server.url) as world:
        stored(world, KEYS[:3])
        world.forget_host()
        raw(server).delete(b"ftk2:ns:" + KEYS[1])
        raw(server).setrange(b"ftk2:ns:" + KEYS[2], 100, b"damage")
        context = world.request(KEYS[:3])
        assert [world.find(context, key) for key in KEYS[:3]] == [content_of(KEYS[0]), None, None]
        world.finish(context)
        assert world.redis.statistics().damaged == 1


def test_retired_chunks_leave_the_host_first_and_redis_soon(server: RedisServer) -> None:
    with tiers(server.url, chunks=8) as world:
        listening(world, raw(server))
        stored(world, KEYS[:4], document="kept.py")
        stored(world, KEYS[4:8], document="edited.py")
        raw(server).xadd(STREAM, encode(RetireNotice("ns", "edited.py", 200), SECRET))  # pyright: ignore[reportArgumentType]
        wait(lambda: (world.step(), raw(server).ttl(b"ftk2:ns:" + KEYS[6]) <= 60)[1], "not retired in Redis")
        assert raw(server).ttl(b"ftk2:ns:" + KEYS[5]) > 60
        stored(world, KEYS[20:22], document="new.py")
        # The oldest are kept.py's; those behind the edit went instead.
        assert [world.on_host(key) for key in KEYS[:8]] == [True] * 6 + [False] * 2


def test_a_retired_chunk_that_is_used_again_stays(server: RedisServer) -> None:
    with tiers(None, chunks=4) as world:
        stored(world, KEYS[:2], document="old.py")
        stored(world, KEYS[2:4], document="undone.py")
        FEED.publish([RetireNotice("ns", "undone.py", 0)])
        stored(world, KEYS[10:11], document="new.py")  # one of the two retired goes
        [left] = [key for key in KEYS[2:4] if world.on_host(key)]
        context = world.request([left], document="undone.py")
        world.manager.touch([left], context)
        assert world.find(context, left) == content_of(left)
        world.finish(context)
        stored(world, KEYS[11:13], document="new.py")
        assert world.on_host(left) and not any(world.on_host(key) for key in KEYS[:2])


def test_an_edit_of_one_session_leaves_the_other_warm_and_undo_is_warm() -> None:
    """Two sessions on one repository: the first edits, the second goes on; then the first takes its edit back."""
    with tiers(None, chunks=12) as world:
        repository, mine, edited = KEYS[:4], KEYS[4:7], KEYS[7:10]
        stored(world, repository, document="lib.py")
        stored(world, mine, document="mine.py")
        FEED.publish([RetireNotice("ns", "mine.py", 100)])  # an edit: what stands behind character 100 is old
        stored(world, edited, document="mine.py", version=2)
        other = world.request(repository, document="lib.py")
        assert [world.find(other, key) for key in repository] == list(map(content_of, repository))
        undo = world.request(mine, document="mine.py")
        assert [world.find(undo, key) for key in mine] == list(map(content_of, mine))


def test_a_purge_reaches_every_chunk_of_its_namespace_alone(server: RedisServer) -> None:
    with tiers(server.url, chunks=8) as world:
        listening(world, raw(server))
        stored(world, KEYS[:3], namespace="left")
        stored(world, KEYS[3:6], namespace="stays")
        raw(server).xadd(STREAM, encode(PurgeNotice("left"), SECRET))  # pyright: ignore[reportArgumentType]
        wait(lambda: (world.step(), not raw(server).keys("ftk2:left:*"))[1], "not purged")
        assert len(raw(server).keys("ftk2:stays:*")) == 3
        stored(world, KEYS[10:15], namespace="stays")
        assert [world.on_host(key) for key in KEYS[:6]] == [False] * 3 + [True] * 3


def test_a_redis_that_dies_costs_misses_and_comes_back_by_itself(server: RedisServer) -> None:
    with tiers(server.url) as world:
        stored(world, KEYS[:4])
        world.forget_host()
        server.kill()
        context = world.request(KEYS[:4])
        assert [world.find(context, key) for key in KEYS[:4]] == [None] * 4
        assert world.store(context, KEYS[:4])  # the host goes on
        world.settle()
        world.finish(context)
        assert world.redis.statistics().health.standing in (TierStanding.DOWN, TierStanding.PROBING)
        server.start()

        numbers = itertools.count(1000)

        def back() -> bool:
            stored(world, [key_of(next(numbers))])  # any work is a probe
            return world.redis.statistics().health.standing is TierStanding.UP

        wait(back, "the tier does not come back")
        stored(world, KEYS[12:14])
        assert raw(server).exists(b"ftk2:ns:" + KEYS[12]) == 1


def test_a_redis_that_begins_to_persist_is_left_alone(server: RedisServer) -> None:
    with tiers(server.url) as world:
        stored(world, KEYS[:2])
        server.kill()
        stored(world, KEYS[2:4])
        server.start("--appendonly", "yes")
        numbers = itertools.count(1000)

        def refused() -> bool:
            stored(world, [key_of(next(numbers))])  # any work is a probe
            return world.redis.statistics().health.standing is TierStanding.REFUSED

        wait(refused, "it is taken back")
        for at in range(4, 20, 2):
            stored(world, KEYS[at : at + 2])
        assert world.redis.statistics().health.standing is TierStanding.REFUSED
        assert raw(server).keys("ftk2:*") == []


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--appendonly", "yes"], "disk"), (["--save", "60 1"], "disk"), ([], "format 99")]
)
def test_a_redis_that_persists_or_holds_another_format_is_refused_at_start(arguments: list[str], message: str) -> None:
    with redis_server(*arguments) as server:
        if not arguments:
            raw(server).set("ftk:format", "99")
        with pytest.raises(TierRefusedError, match=message), tiers(server.url):
            pass


def test_ten_thousand_operations_give_no_wrong_byte_and_no_hang(server: RedisServer) -> None:
    """Chunks come, go, are retired and purged while Redis dies and comes back; what is found is right, the rest is a miss."""
    rng = random.Random(5)
    found = missed = refused = 0
    up = True
    with tiers(server.url, chunks=12, timeout_s=0.2) as world:
        for number in range(10_000):
            namespace = f"ns{rng.randrange(3)}"
            start = rng.randrange(20)
            keys = [key_of(at, namespace) for at in range(start, start + rng.randrange(1, 6))]
            about = {"namespace": namespace, "document": f"{start % 4}.py", "shared": rng.random() < 0.9}
            match rng.choices(("store", "find", "retire", "purge", "step", "redis"), (30, 50, 8, 2, 10, 0.15))[0]:
                case "store":
                    context = world.request(keys, **about)  # pyright: ignore[reportArgumentType]
                    refused += not world.store(context, keys)
                    world.finish(context)
                case "find":
                    context = world.request(keys, **about)  # pyright: ignore[reportArgumentType]
                    world.manager.touch(keys, context)
                    for key in keys:
                        content = world.find(context, key)
                        assert content is None or content == content_of(key), f"operation {number}: a wrong byte"
                        found, missed = found + (content is not None), missed + (content is None)
                    world.finish(context)
                case "retire":
                    FEED.publish([RetireNotice(namespace, about["document"], rng.randrange(500))])  # pyright: ignore[reportArgumentType]
                case "purge":
                    FEED.publish([PurgeNotice(namespace)])
                case "step":
                    world.step()
                case _:
                    if up:
                        server.kill()
                    else:
                        server.start()
                    up = not up
        if not up:
            server.start()
        world.settle()
        statistics = world.redis.statistics()
    assert found > 1_000 and missed > 1_000
    assert statistics.in_flight == 0 and statistics.health.failures > 0
