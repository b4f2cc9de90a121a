"""Warming: everybody arrives at nine, on cold caches."""

import asyncio
import heapq
import random
from collections import Counter

from backend.replica import Replica
from backend.test_pool import patient, pool_of  # type: ignore[attr-defined]
from backend.world import until
from foretype_backend.engines.port import WARM_PRIORITY, GenerationParams, GenerationRequest
from foretype_backend.fleet.warmups import PromptBeginning, WarmOptions, WarmQueue, stable_parts
from foretype_backend.prefix.block_keys import block_keys
from foretype_backend.prefix.chain import blocks_of
from foretype_backend.prefix.origin import Origin
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from hypothesis import given
from hypothesis import strategies as st


def part(key: str, rank: int = 0, tokens: int = 100) -> PromptBeginning:
    return PromptBeginning(key.encode(), rank, range(tokens), "s", Origin())


def test_a_part_is_computed_once_and_the_repository_before_files() -> None:
    queue = WarmQueue()
    for at in range(100):
        queue.offer(part(f"file-{at}", 1), 0.0)
        queue.offer(part("repository"), 0.0)
    loads = {"a": 0, "b": 0}
    begun = queue.take(loads, lambda one: "a" if one.rank == 0 else "b", 1.0)
    assert [(name, one.key) for name, one in begun] == [("a", b"repository"), ("b", b"file-0")]
    assert queue.take(loads, lambda _: "a", 1.0) == []  # one at a time on a replica
    queue.offer(part("repository"), 1.5)  # it runs
    queue.done("a", 2.0, computed=True)
    queue.offer(part("repository"), 2.5)  # it is fresh
    assert [one.key for _, one in queue.take(loads, lambda _: "a", 3.0)] == [b"file-1"]
    statistics = queue.statistics()
    assert (statistics.begun, statistics.merged) == (3, 101)


def test_nothing_is_warmed_where_people_wait_and_what_waits_too_long_is_dropped() -> None:
    queue = WarmQueue(WarmOptions(busy_from=2, expire_s=30.0, capacity=2))
    queue.offer(part("x"), 0.0)
    assert queue.take({"a": 2}, lambda _: "a", 1.0) == []
    assert queue.take({}, lambda _: "a", 1.0) == []
    queue.offer(part("file", 1), 1.0)
    queue.offer(part("y"), 2.0)
    assert queue.statistics().dropped == 1  # the file: it is wanted least
    assert queue.take({"a": 2}, lambda _: "a", 30.0) == []
    assert [one.key for _, one in queue.take({"a": 1}, lambda _: "a", 31.0)] == [b"y"]
    queue.done("a", 31.5, computed=False)
    queue.offer(part("z"), 31.6)
    assert queue.take({"a": 0}, lambda _: None, 32.0) == []  # it is held already
    assert queue.statistics().waiting == 0


def test_a_replica_that_lost_its_cache_is_warmed_again() -> None:
    queue = WarmQueue()
    for now in (0.0, 1.0):
        queue.offer(part("x"), now)
        queue.take({"a": 0}, lambda _: "a", now)
        queue.done("a", now, computed=True)
    assert queue.statistics().begun == 1
    queue.lost("a")
    queue.offer(part("x"), 2.0)
    assert queue.take({"a": 0}, lambda _: "a", 2.0)


@given(st.lists(st.tuples(st.sampled_from("otdl"), st.integers(0, 5), st.integers(0, 3)), max_size=80))
def test_whatever_happens_a_replica_runs_one_and_every_offer_is_accounted_for(
    events: list[tuple[str, int, int]],
) -> None:
    queue, now, running = WarmQueue(WarmOptions(capacity=3, expire_s=4.0)), 0.0, set[str]()
    for kind, at, load in events:
        now += 1.0
        if kind == "o":
            queue.offer(part(f"k{at}", at % 2), now)
        elif kind == "t":
            for name, _ in queue.take({"a": load, "b": 0}, lambda one: "a" if one.key < b"k3" else "b", now):
                assert name not in running
                running.add(name)
        elif kind == "d" and running:
            queue.done(running.pop(), now, computed=bool(at % 2))
        else:
            queue.lost("a")
        statistics = queue.statistics()
        assert statistics.offered == statistics.merged + statistics.begun + statistics.dropped + statistics.waiting


def prompt(repository: int, session: int) -> tuple[list[int], Origin]:
    """512 tokens that a repository shares, 160 of a file, 20 that are typed."""
    seeded = random.Random(repository)
    shared = [seeded.randrange(2, 900) for _ in range(512)]
    own = random.Random(f"{repository}/{session}")
    ids = [*shared, *(own.randrange(2, 900) for _ in range(180))]
    spans = ((0, 512, Scope.REPOSITORY), (512, 672, Scope.FILE), (672, 692, Scope.SESSION))
    placed = tuple(
        PlacedSegment(
            segment=Segment(kind=Kind.FILE, scope=scope, source=Source(document=f"{session}.py", end=9), text=""),
            start=start,
            end=end,
        )
        for start, end, scope in spans
    )
    name = f"r{repository}"
    return ids, Origin(
        tenant="t", repository=name, session=f"{name}/{session}", document=f"{session}.py", placed=placed
    )


def test_parts_end_where_their_scope_ends() -> None:
    ids, origin = prompt(0, 0)
    chain = blocks_of(block_keys(ids, 16, salt="s"), origin.placed, 16)
    assert [(one.rank, len(one.token_ids)) for one in stable_parts(chain, ids, "s", origin)] == [(0, 512), (1, 672)]
    assert stable_parts(chain[:3], ids, "s", origin)[0].key == chain[2].key
    assert len(stable_parts(chain[:3], ids, "s", origin)) == 1
    assert stable_parts((), ids, "s", origin) == []


def test_a_miss_storm_in_virtual_time_is_one_computation_for_each_part() -> None:
    """240 people of four repositories within twenty seconds on four replicas; warm-ups take 100 ms, requests 150."""
    clock, queue, order = 0.0, WarmQueue(), random.Random(3)
    replicas = [f"replica-{at}" for at in range(4)]
    people = [(order.uniform(0, 20), at % 4, at) for at in range(240)]
    arrivals = sorted(people)
    loads = dict.fromkeys(replicas, 0)
    ends: list[tuple[float, str, str]] = []
    computed: Counter[bytes] = Counter()
    together = Counter[str]()
    while arrivals or ends:
        clock = (
            min([arrivals[0][0]] if arrivals else [], default=1e9)
            if not ends
            else min(ends[0][0], arrivals[0][0] if arrivals else 1e9)
        )
        if ends and ends[0][0] <= clock:
            _, kind, name = heapq.heappop(ends)
            if kind == "warm":
                together[name] -= 1
                queue.done(name, clock, computed=True)
            else:
                loads[name] -= 1
        else:
            _, repository, session = arrivals.pop(0)
            queue.offer(part(f"repository-{repository}", 0), clock)
            queue.offer(part(f"file-{repository}-{session % 30}", 1), clock)
            name = replicas[repository]
            loads[name] += 1
            heapq.heappush(ends, (clock + 0.15, "request", name))
        for name, one in queue.take(loads, lambda one: replicas[int(one.key.split(b"-")[1])], clock):
            computed[one.key] += 1
            together[name] += 1
            assert together[name] == 1
            assert loads[name] < queue.options.busy_from
            heapq.heappush(ends, (clock + 0.1, "warm", name))
    assert [computed[f"repository-{at}".encode()] for at in range(4)] == [1, 1, 1, 1]
    assert max(computed.values()) == 1
    statistics = queue.statistics()
    assert statistics.offered == 480 == statistics.merged + statistics.begun + statistics.dropped + statistics.waiting


async def test_a_storm_on_real_replicas_computes_a_repository_at_most_once_on_each_and_everybody_is_warm() -> None:
    replicas = [Replica(), Replica()]
    async with pool_of(*replicas, options=patient()) as pool:
        everybody = [prompt(at % 2, at) for at in range(24)]
        await asyncio.gather(*(pool.warm(ids, salt="s", origin=origin) for ids, origin in everybody))
        await until(lambda: pool.pool_statistics().warm.waiting == 0 and not pool.warming)
        warmed = sum(one.computed_tokens for one in replicas)
        repositories, rest = divmod(warmed - 24 * 160, 512)  # each file once
        assert rest == 0
        assert 2 <= repositories <= 4  # a loaded replica sends a part of a repository to the other one
        assert {body["priority"] for one in replicas for body in one.bodies} == {WARM_PRIORITY}

        async def first_key(at: int) -> int:
            ids, origin = everybody[at]
            stream = pool.generate(
                GenerationRequest(f"k{at}", ids, GenerationParams(max_tokens=1), salt="s", origin=origin)
            )
            return [chunk async for chunk in stream][-1].cached_tokens or 0

        # One after another: what a full replica hands to the other one is computed there.
        assert [await first_key(at) for at in range(24)] == [672] * 24
