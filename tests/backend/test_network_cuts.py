"""A real network between gateway and engine that is cut, slow, or loses packets, while developers ask."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Iterator

import pytest
from backend.loads import done, loaded
from backend.replica import Replica
from backend.scrape import total
from backend.wires import Wire, wire
from backend.world import TOKENIZER, World, gateway, until
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.port import Engine
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.fleet.health import HealthOptions, ReplicaStanding
from foretype_backend.fleet.pool import PoolOptions, ReplicaPool
from foretype_wire.messages import Done, Error, ErrorCode

LIMITS = LimitsConfig(max_deadline_ms=2_000, abort_grace_ms=100, retry_wait_ms=100)
LOST = {ErrorCode.ENGINE_UNAVAILABLE, ErrorCode.EXPIRED}


class FarReplica(Replica):
    """On the other side of the wire."""

    def __init__(self, across: Wire) -> None:
        super().__init__(vocabulary=TOKENIZER.vocabulary_tokens)
        self._across = across

    @property
    def url(self) -> str:
        return f"http://{self._across.there}:{self.port}"

    def _listener(self) -> socket.socket:
        return self._across.listen(self.port)


@pytest.fixture
def across() -> Iterator[Wire]:
    with wire() as one:
        yield one


def pool_of(*replicas: Replica, patience_s: float = 0.5) -> ReplicaPool:
    """Looks after its replicas ten times as often as it does by itself, or as patiently as told.

    TCP sends the first packet of a connection again after a second: who waits for less loses a replica with one packet.
    """
    options = PoolOptions(
        health=HealthOptions(idle_s=0.5, silence_s=patience_s, first_pause_s=0.1, longest_pause_s=0.2),
        check_timeout_s=patience_s,
    )
    return ReplicaPool([engine_of(one, connect_timeout_s=max(1.0, patience_s)) for one in replicas], options)


def engine_of(replica: Replica, **options: float) -> VllmServerEngine:
    return VllmServerEngine.from_config(
        url=f"{replica.url}/v1", vocabulary_tokens=TOKENIZER.vocabulary_tokens, **options
    )


@contextlib.asynccontextmanager
async def serving(engine: Engine, *replicas: Replica, limits: LimitsConfig = LIMITS) -> AsyncGenerator[World]:
    async with contextlib.AsyncExitStack() as stack:
        for one in replicas:
            await stack.enter_async_context(one)
        yield await stack.enter_async_context(gateway(engine, limits=limits))


def told(world: World, metric: str, **labels: str) -> float:
    """A sample of `/metrics`; zero where it was never counted."""
    return total(world.service.metrics.render(), metric, **labels)


def standing(world: World, replica: Replica, standing: ReplicaStanding) -> float:
    return told(world, "foretype_replica_standing", replica=replica.url, standing=standing)


@pytest.mark.parametrize("kind", ["vllm-server", pytest.param("openai", marks=pytest.mark.slow)])
async def test_a_cut_to_the_only_engine_holds_no_slot_and_heals_by_itself(across: Wire, kind: str) -> None:
    far = FarReplica(across)
    engine = (
        pool_of(far) if kind == "vllm-server" else OpenAIEngine.from_config(url=f"{far.url}/v1", connect_timeout_s=1)
    )
    async with serving(engine, far) as world:
        async with loaded(world) as load:
            await load.more(good=done)
            across.cut = True
            await load.more(6, good=lambda end: isinstance(end, Error))
        codes = {end.code for end in load.ends if isinstance(end, Error)}
        assert codes <= LOST
        await world.idle()  # and the wire is still cut: nobody waits for the other side's consent
        assert across.lost
        if kind == "vllm-server":
            await until(lambda: standing(world, far, ReplicaStanding.OUT) == 1)
            assert told(world, "foretype_replica_outages_total") >= 1
        for code in codes:
            ended = sum(isinstance(end, Error) and end.code is code for end in load.ends)
            # Each is counted as what its developer was told.
            reason = "engine_lost" if code is ErrorCode.ENGINE_UNAVAILABLE else "expired"
            assert told(world, "foretype_requests_total", reason=reason) >= ended > 0
        across.cut = False
        async with loaded(world) as load:
            await load.more(good=done)
        await world.idle()
        if kind == "vllm-server":
            await until(lambda: standing(world, far, ReplicaStanding.IN_SERVICE) == 1)


async def test_a_cut_to_one_of_two_replicas_costs_what_it_had_begun(
    across: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, near = FarReplica(across), Replica(vocabulary=TOKENIZER.vocabulary_tokens)
    beyond, here = engine_of(far, connect_timeout_s=1.0, idle_timeout_s=1.0), engine_of(near)
    health = HealthOptions(idle_s=0.5, silence_s=0.5, first_pause_s=0.1, longest_pause_s=0.2)
    pool = ReplicaPool([beyond, here], PoolOptions(health=health, check_timeout_s=0.5))
    async with serving(pool, far, near, limits=LimitsConfig(abort_grace_ms=100, retry_wait_ms=100)) as world:
        # A busy machine, which nobody is as patient with as the checks of the far side allow, is no fault of the near one.
        monkeypatch.setattr(here, "check", lambda: asyncio.sleep(0))
        async with loaded(world) as load:
            await load.more(good=done)
            across.cut = True
            await until(lambda: standing(world, far, ReplicaStanding.OUT) == 1)
            before = len(load.ends)
            await load.more(30, good=done)
            faults = [end for end in load.ends[before:] if isinstance(end, Error)]
            assert len(faults) <= 4, "only what each of four had on the far side"
            assert {end.code for end in faults} <= LOST
            across.cut = False
            await until(lambda: standing(world, far, ReplicaStanding.IN_SERVICE) == 1)
            served = len(far.bodies)
            await load.more(40, good=done)
        await world.idle()
        assert told(world, "foretype_replica_outages_total") >= 1
        assert served <= len(far.bodies)


async def test_two_hundred_milliseconds_more_are_seen_in_the_figures_and_break_nothing(across: Wire) -> None:
    far = FarReplica(across)
    limits = LimitsConfig(max_deadline_ms=60_000, abort_grace_ms=100)
    async with serving(pool_of(far, patience_s=60), far, limits=limits) as world:
        across.delay_s = 0.1  # each way
        async with loaded(world) as load:
            await load.more(16)
        assert all(isinstance(end, Done) for end in load.ends)
        await world.idle()
        count, total_s = told(world, "foretype_ttft_seconds_count"), told(world, "foretype_ttft_seconds_sum")
        assert count
        assert total_s / count >= 0.2
        assert told(world, "foretype_replica_outages_total") == 0


async def test_one_packet_in_twenty_may_be_lost(across: Wire) -> None:
    far = FarReplica(across)
    limits = LimitsConfig(max_deadline_ms=60_000, abort_grace_ms=100)
    async with serving(pool_of(far, patience_s=60), far, limits=limits) as world:
        across.loss = 0.05
        async with loaded(world) as load:
            await load.more(40)
        across.loss = 0.0
        await world.idle()
        assert all(isinstance(end, Done) for end in load.ends)
        assert across.lost > 5
        assert told(world, "foretype_replica_outages_total") == 0
