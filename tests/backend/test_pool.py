"""Replicas behind one port: over HTTP, against servers that misbehave on purpose."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from backend.replica import Replica
from backend.world import chunks_of, until
from foretype_backend.engines.openai.http_stream import StreamedResponse
from foretype_backend.engines.port import WARM_PRIORITY, Chunk, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.errors import EngineUnavailableError, PromptRefusedError
from foretype_backend.fleet.health import HealthOptions, ReplicaStanding
from foretype_backend.fleet.pool import PoolOptions, ReplicaPool
from foretype_backend.fleet.routing.router import Route
from foretype_backend.fleet.routing.speculation import SpeculationOptions
from foretype_backend.fleet.warmups import WarmOptions
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.retire_feed import PurgeNotice, RetireNotice
from foretype_backend.prefix.salt import tier_namespace
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from prometheus_client import CollectorRegistry, generate_latest

QUICK = HealthOptions(idle_s=0.5, silence_s=60.0, first_pause_s=0.1, longest_pause_s=0.2)
"""Looks often; only how long a replica was silent is the machine's doing."""


def origin(session: str = "a", repository: str = "shop", document: str = "cart.py", tokens: int = 160) -> Origin:
    source = Source(document=document, version=1, start=0, end=400)
    segment = Segment(kind=Kind.PREFIX, scope=Scope.FILE, source=source, text="")
    placed = (PlacedSegment(segment=segment, start=0, end=tokens),)
    return Origin(tenant="acme", repository=repository, session=session, document=document, placed=placed)


def patient(**changes: Any) -> PoolOptions:
    """A pool that looks often; how long a check takes is the machine's doing, and no test's but where it says so."""
    return PoolOptions(**{"health": QUICK, "check_timeout_s": 60.0} | changes)


@contextlib.asynccontextmanager
async def pool_of(
    *replicas: Replica, start: bool = True, options: PoolOptions | None = None, **engine: Any
) -> AsyncGenerator[ReplicaPool]:
    engine = {"idle_timeout_s": 60.0, "connect_timeout_s": 60.0} | engine
    engines = [VllmServerEngine.from_config(url=f"{one.url}/v1", **engine) for one in replicas]
    pool = ReplicaPool(engines, options or patient())
    try:
        for replica in replicas:
            await replica.start()
        if start:
            await pool.start()
        yield pool
    finally:
        await pool.close()
        for replica in replicas:
            await replica.stop()


class Told:
    def __init__(self, told: list[RetireNotice | PurgeNotice]) -> None:
        self.tell = told.extend

    async def close(self) -> None: ...


async def ask(
    pool: ReplicaPool, ids: list[int], name: str = "r", *, max_tokens: int = 3, takes: int = 0, **fields: Any
) -> list[Chunk]:
    params = GenerationParams(max_tokens=max_tokens)
    return await chunks_of(pool, GenerationRequest(name, ids, params, salt="s", origin=origin(**fields)), takes)


PROMPT = list(range(1, 161))


@pytest.mark.parametrize("takes", [0, 1, 99])
async def test_a_session_goes_where_its_prefix_is_and_the_prediction_is_the_engines_figure(takes: int) -> None:
    async with pool_of(Replica(), Replica(), Replica()) as pool:
        for turn in range(12):
            chunks = await ask(pool, [*PROMPT, *range(300, 300 + 9 * turn)], takes=takes)
            assert chunks[-1].finish is EngineFinish.LENGTH and len([id for one in chunks for id in one.token_ids]) == 3
        statistics = pool.pool_statistics()
        assert statistics.router.routes[Route.SEED] == 1
        assert statistics.router.routes[Route.STICKY] == 11
        agreement = statistics.agreement
        assert (agreement.requests, agreement.within_block) == (12, 12)
        assert agreement.cached_tokens == agreement.predicted_tokens > 11 * 144
        assert pool.capabilities().salt
        assert set(statistics.router.in_flight.values()) == {0}


async def test_a_request_is_on_its_way_before_the_books_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    async with pool_of(Replica()) as pool:
        leaves, keeps = VllmServerEngine._ask, pool.book.sent

        async def leaving(self: VllmServerEngine, *asked: Any) -> StreamedResponse:
            turns.append("left")
            return await leaves(self, *asked)

        def keeping(*arguments: Any) -> None:
            turns.append("noted")
            keeps(*arguments)

        monkeypatch.setattr(VllmServerEngine, "_ask", leaving)
        monkeypatch.setattr(pool.book, "sent", keeping)
        await ask(pool, PROMPT)
        assert turns == ["left", "noted"]
        assert (await ask(pool, PROMPT))[-1].cached_tokens == pool.pool_statistics().agreement.predicted_tokens > 0


async def test_nothing_is_kept_of_a_prompt_that_is_refused_in_its_turn() -> None:
    async with pool_of(Replica()) as pool:
        with pytest.raises(PromptRefusedError):
            await ask(pool, [1] * 5000, document="")
        await asyncio.sleep(0)
        assert pool.book.directory.statistics().sessions == 0


async def test_a_replica_that_dies_is_replaced_within_the_request_and_comes_back() -> None:
    one, two = Replica(), Replica()
    # No check finds it before the request does.
    async with pool_of(one, two, options=patient(health=replace(QUICK, idle_s=600.0))) as pool:
        await ask(pool, PROMPT)
        first, other = (one, two) if one.bodies else (two, one)
        await first.stop(keeps_port=True)
        chunks = await ask(pool, PROMPT)
        assert chunks[-1].finish is EngineFinish.LENGTH
        assert other.bodies
        assert pool.pool_statistics().retried == 1
        assert pool.statistics().restarts == 1
        assert pool.pool_statistics().replicas[first.url].standing is ReplicaStanding.OUT
        await first.start()
        await until(lambda: pool.pool_statistics().replicas[first.url].standing is ReplicaStanding.IN_SERVICE)
        assert first.url not in {name for held in pool.book.contents("acme", "shop") for name in held.replicas}


async def test_a_replica_that_hangs_is_found_by_its_silence() -> None:
    one, two = Replica(), Replica()
    health = replace(QUICK, silence_s=0.3, idle_s=600.0)
    async with pool_of(one, two, options=patient(health=health, check_timeout_s=1.5)) as pool:
        await ask(pool, PROMPT)
        stuck, other = (one, two) if one.bodies else (two, one)
        stuck.behaviour = "silent"
        waiting = asyncio.ensure_future(ask(pool, PROMPT, "stuck"))
        await until(lambda: pool.pool_statistics().replicas[stuck.url].standing is ReplicaStanding.OUT)
        assert (await ask(pool, PROMPT, "next"))[-1].finish is EngineFinish.LENGTH
        assert other.bodies
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        stuck.behaviour = "ok"
        await until(lambda: pool.pool_statistics().replicas[stuck.url].standing is ReplicaStanding.IN_SERVICE)


async def test_a_replica_that_is_slower_than_the_silence_allowed_stays_in_service() -> None:
    one = Replica()
    one.behaviour = "slow"  # it answers the check before a request is over
    async with pool_of(one, options=patient(health=replace(QUICK, silence_s=0.05))) as pool:
        assert len(await ask(pool, PROMPT, "slow", max_tokens=6)) > 1
        statistics = pool.pool_statistics().replicas[one.url]
        assert (statistics.outages, pool.statistics().restarts) == (0, 0) and statistics.checks > 1


@pytest.mark.parametrize("takes", [0, 99])
@pytest.mark.parametrize("behaviour", ["garbage", "dies", "error", "busy"])
async def test_a_fault_before_the_first_token_goes_to_another_replica(
    behaviour: str, takes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretype_backend.fleet.pool._TICK_S", 600.0)  # no check comes between the fault and the look
    one, two = Replica(), Replica()
    async with pool_of(one, two) as pool:
        await ask(pool, PROMPT)
        bad = one if one.bodies else two
        bad.behaviour = behaviour
        if behaviour == "dies":
            with pytest.raises(EngineUnavailableError):  # it spoke already: the gateway must not say its words twice
                await ask(pool, PROMPT, takes=takes)
            assert pool.pool_statistics().retried == 0
        else:
            assert (await ask(pool, PROMPT, takes=takes))[-1].finish is EngineFinish.LENGTH
            assert pool.pool_statistics().retried == 1
        standing = pool.pool_statistics().replicas[bad.url].standing
        assert standing is {"busy": ReplicaStanding.IN_SERVICE, "error": ReplicaStanding.SUSPECT}.get(
            behaviour, ReplicaStanding.OUT
        )
        assert set(pool.pool_statistics().router.in_flight.values()) == {0}


async def test_a_replica_that_restarts_while_nobody_looks_has_an_empty_cache() -> None:
    one = Replica()
    async with pool_of(one) as pool:
        await ask(pool, PROMPT)
        assert pool.book.contents("acme", "shop")
        await one.stop(keeps_port=True)
        await one.start()
        await until(lambda: not pool.book.contents("acme", "shop"))


async def test_an_abort_and_a_closed_iterator_leave_nothing_behind() -> None:
    one = Replica()
    async with pool_of(one) as pool:
        one.behaviour = "endless"
        params = GenerationParams(max_tokens=5)
        stream = pool.generate(GenerationRequest("gone", PROMPT, params, salt="s", origin=origin()))
        async for chunk in stream:
            if chunk.finish is not None:
                assert chunk.finish is EngineFinish.ABORTED
                break
            pool.abort("gone")
        pool.abort("early")  # a cancel that overtakes its request wins
        assert [chunk.finish for chunk in await ask(pool, PROMPT, "early")] == [EngineFinish.ABORTED]
        stream = pool.generate(GenerationRequest("closed", PROMPT, params, salt="s", origin=origin()))
        assert (await anext(stream)).token_ids
        await stream.aclose()  # type: ignore[attr-defined]
        await until(lambda: pool.statistics().running == 0)  # a health check may be under way
        assert set(pool.pool_statistics().router.in_flight.values()) == {0}
        await until(lambda: not one._live)  # pyright: ignore[reportPrivateUsage]


async def test_a_replica_that_does_not_let_go_does_not_count_as_busy_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool_of(Replica()) as pool:
        [engine] = pool.in_service()

        async def holds(_: GenerationRequest) -> AsyncGenerator[Chunk]:
            try:
                yield Chunk(token_ids=(1,))
            finally:
                await asyncio.sleep(3600)

        monkeypatch.setattr(engine, "generate", holds)
        stream = pool.generate(GenerationRequest("r", [1] * 32, GenerationParams(max_tokens=8), origin=origin()))
        assert isinstance(stream, AsyncGenerator)
        await anext(stream)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):  # as long as a gateway waits for it
                await stream.aclose()
        statistics = pool.pool_statistics()
        assert statistics.replicas[engine.name].in_flight == 0
        assert statistics.router.in_flight[engine.name] == 0


async def test_different_models_are_refused_and_one_that_comes_later_stays_out() -> None:
    with pytest.raises(EngineUnavailableError, match=r"different models.*'coder' \(4096 tokens.*'other'"):
        async with pool_of(Replica(), Replica(model="other")):
            pass
    late = Replica(context=2048)
    one = Replica()
    async with pool_of(one, late, start=False) as pool:
        await late.stop(keeps_port=True)
        await pool.start()
        assert len(pool.pool_statistics().router.in_flight) == 1
        await late.start()
        await until(lambda: "2048" in pool.pool_statistics().replicas[late.url].reason)
        assert pool.pool_statistics().replicas[late.url].standing is ReplicaStanding.OUT
    async with pool_of(Replica(), start=False) as pool:
        pass
    with pytest.raises(EngineUnavailableError, match="no replica answers"):
        await pool.start()


async def test_nobody_in_service_says_why() -> None:
    one = Replica()
    async with pool_of(one) as pool:
        await one.stop()
        with pytest.raises(EngineUnavailableError):
            await ask(pool, PROMPT)
        with pytest.raises(EngineUnavailableError, match="no replica is in service: http"):
            await ask(pool, PROMPT)


async def test_pass_through_chooses_nothing_and_believes_nothing() -> None:
    one = Replica()
    async with pool_of(one, options=patient(pass_through=True)) as pool:
        for _ in range(3):
            await ask(pool, PROMPT)
        assert pool.pool_statistics().router.routes[Route.PASS_THROUGH] == 3
        assert not pool.book.contents("acme")


async def test_warming_seeds_a_replica_and_waits_while_people_do(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Replica()
    options = patient(warm=WarmOptions(busy_from=1))
    async with pool_of(one, options=options) as pool:
        await pool.warm(PROMPT, salt="s", origin=origin())
        await until(lambda: bool(one.bodies) and not pool.warming)
        assert one.bodies[-1]["priority"] == WARM_PRIORITY
        assert (await ask(pool, PROMPT))[-1].cached_tokens == 144
        one.behaviour = "endless"
        stream = pool.generate(
            GenerationRequest("busy", PROMPT, GenerationParams(max_tokens=9), salt="s", origin=origin())
        )
        await anext(stream)
        await pool.warm([*range(500, 600)], salt="s", origin=origin("b", tokens=100))
        turns: list[float] = []
        monkeypatch.setattr(pool, "_turn", lambda now, turn=pool._turn: (turn(now), turns.append(now)))
        await until(lambda: len(turns) >= 2)
        assert (pool.pool_statistics().warm.begun, pool.pool_statistics().warm.waiting) == (1, 1)
        await stream.aclose()  # type: ignore[attr-defined]
        await until(lambda: pool.pool_statistics().warm.begun == 2)
        one.behaviour = "ok"


async def test_a_fault_in_one_turn_does_not_end_the_checks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with pool_of(Replica()) as pool:
        members = pool._members  # pyright: ignore[reportPrivateUsage]
        turns = 0

        def tick() -> None:
            nonlocal turns
            turns += 1
            raise RuntimeError("secret text")

        monkeypatch.setattr(members, "tick", tick)
        await until(lambda: turns > 2)
        assert "a turn of the replica pool failed: RuntimeError" in caplog.text
        assert "secret text" not in caplog.text


async def test_what_nobody_uses_is_told_to_the_tiers_and_a_purge_too() -> None:
    told: list[RetireNotice | PurgeNotice] = []
    one = Replica()
    async with pool_of(one, start=False) as quiet:
        engines = [member.engine for member in quiet._members]  # pyright: ignore[reportPrivateUsage]
        options = patient(expire_every_s=0.05)
        pool = ReplicaPool(engines, options, sender=Told(told))
        await pool.start()
        pool.book.directory._retire_after_s = 0.05  # pyright: ignore[reportPrivateUsage]
        await ask(pool, PROMPT)
        pool.book.left("a", pool._clock())  # pyright: ignore[reportPrivateUsage]
        await until(lambda: bool(told))
        assert told == [RetireNotice(tier_namespace("s"), "cart.py", 0)]
        assert pool.purge("acme", "shop") == 10
        assert told[-1] == PurgeNotice(tier_namespace("s"))
        assert not pool.book.contents("acme")
        await pool.close()


async def test_a_language_whose_guesses_are_refused_goes_where_nothing_is_guessed() -> None:
    guessing, plain = Replica(), Replica()
    guessing.guesses = 4
    speculation = SpeculationOptions(steps_min=10, probe_every=1000)
    async with pool_of(guessing, plain, options=patient(speculation=speculation)) as pool:
        go = msgspec.structs.replace(origin(document=""), language="go")
        for at in range(40):
            params = GenerationParams(max_tokens=8)  # the server answers one token a step: no guess was accepted
            stream = pool.generate(
                GenerationRequest(
                    f"go-{at}", [at + 1] * 160, params, salt="s", origin=msgspec.structs.replace(go, repository=f"{at}")
                )
            )
            assert [chunk async for chunk in stream][-1].finish is EngineFinish.LENGTH
        before = len(guessing.bodies)
        assert 2 <= before < 40
        for at in range(6):
            stream = pool.generate(GenerationRequest(f"more-{at}", [500 + at] * 160, params, salt="s", origin=go))
            assert [chunk async for chunk in stream][-1].finish is EngineFinish.LENGTH
        assert len(guessing.bodies) == before
        registry = CollectorRegistry()
        for collector in pool.collectors():
            registry.register(collector)
        text = generate_latest(registry).decode()
        assert 'foretype_speculation_accepted_share{language="go"} 0.0' in text
        assert f'foretype_replica_standing{{replica="{plain.url}",standing="in_service"}} 1.0' in text
        figures = {
            name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        }
        assert figures['foretype_speculation_verdicts_total{verdict="acceptance"}'] >= 6
        shares = {
            name: share for name, share in figures.items() if name.startswith("foretype_speculation_pattern_share{")
        }
        assert shares and set(shares.values()) == {0.0} and all('language="go",pattern="' in name for name in shares)
        assert sum(count for name, count in figures.items() if name.startswith("foretype_routes_total{")) == 46
        assert 0 <= figures["foretype_directory_agreed_total"] <= figures["foretype_directory_requests_total"] <= 46
        for never in ("warmed", "warm_merged", "warm_dropped"):
            assert figures[f"foretype_{never}_total"] == 0
