"""The tiers inside the real engine: blocks leave the first tier, and what comes back gives the very same text."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
import redis
from backend.redis_server import RedisServer, redis_server
from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.engines.vllm.metrics import read_metrics
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.salt import SaltBook, tier_namespace
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from prometheus_client import REGISTRY, generate_latest
from vllm_world.model_folders import IDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

STABLE, ALL = 256, 300  # tokens: of the file part, and with what is typed
BOOK = SaltBook(b"k" * 32)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    options: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[VllmEngine, RedisServer]]:
    secret = tmp_path_factory.mktemp("secret") / "salt"
    secret.write_bytes(b"s" * 32)
    with redis_server() as server:
        engine = VllmEngine.from_config(
            **options,
            host_tier_gib=0.03,
            host_copies=True,
            redis_url=server.url,
            redis_secret_file=str(secret),
            redis_tenants=("opted",),
            shared=True,
        )
        await engine.start()
        yield engine, server
        await engine.close()


def prompt(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(*IDS) for _ in range(ALL)]


def origin(tenant: str, version: int = 1) -> Origin:
    def segment(kind: Kind, scope: Scope) -> Segment:
        return Segment(
            kind=kind, scope=scope, source=Source(document="a.py", version=version, start=0, end=1000), text=""
        )

    return Origin(
        tenant=tenant,
        document="a.py",
        language="python",
        placed=(
            PlacedSegment(segment=segment(Kind.PREFIX, Scope.FILE), start=0, end=STABLE),
            PlacedSegment(segment=segment(Kind.MIDDLE, Scope.SESSION), start=STABLE, end=ALL),
        ),
    )


async def ask(engine: VllmEngine, seed: int, tenant: str) -> tuple[int, list[int]]:
    """Cached prompt tokens, and the text."""
    stream = engine.generate(
        GenerationRequest(
            f"{tenant}-{seed}-{random.random()}",
            prompt(seed),
            GenerationParams(max_tokens=8),
            salt=BOOK.salt(BOOK.namespace(tenant)),
            origin=origin(tenant),
        )
    )
    async with asyncio.timeout(300):
        chunks = [chunk async for chunk in stream]
    return chunks[0].cached_tokens or 0, [token for chunk in chunks for token in chunk.token_ids]


async def forget(engine: VllmEngine, *, host: bool) -> None:
    """The first tier is emptied, and the host's too; what is under way to a tier arrives first."""
    await ask(engine, 999, "other")  # stores of the last step begin with the next
    llm, _ = engine.library()
    await until(lambda: llm.reset_prefix_cache(reset_connector=host), "the cache cannot be emptied")


def by_tier() -> dict[str, int]:
    """In process, vLLM counts in this process's own registry."""
    return dict(read_metrics(generate_latest(REGISTRY).decode()).prompt_tokens_by_tier)


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(300):
        while True:
            held = condition()
            if await held if isinstance(held, Awaitable) else held:
                return
            await asyncio.sleep(0.02)
    raise AssertionError(what)


def chunks_of(server: RedisServer, tenant: str) -> int:
    namespace = tier_namespace(BOOK.salt(BOOK.namespace(tenant)))
    return len(redis.Redis(unix_socket_path=str(server.socket)).keys(f"ftk2:{namespace}:*"))


async def test_the_stable_part_comes_back_from_the_host_and_from_redis(world: tuple[VllmEngine, RedisServer]) -> None:
    engine, server = world
    cached, text = await ask(engine, 1, "opted")
    assert cached == 0
    await ask(engine, 999, "other")
    await until(lambda: chunks_of(server, "opted") == STABLE // 32, "the stable part alone goes to Redis")
    await forget(engine, host=False)
    assert await ask(engine, 1, "opted") == (STABLE, text)  # from the host
    await forget(engine, host=True)
    before = by_tier()
    assert await ask(engine, 1, "opted") == (STABLE, text)  # from Redis
    assert {tier: count - before[tier] for tier, count in by_tier().items() if count > before[tier]} == {
        "redis": STABLE,
        "computed": ALL - STABLE,
    }
    await forget(engine, host=True)
    assert (await ask(engine, 1, "other"))[0] == 0  # nobody else's


async def test_who_did_not_opt_in_has_nothing_in_redis(world: tuple[VllmEngine, RedisServer]) -> None:
    engine, server = world
    _, text = await ask(engine, 2, "private")
    await forget(engine, host=False)
    assert await ask(engine, 2, "private") == (STABLE, text)
    await forget(engine, host=True)
    assert chunks_of(server, "private") == 0
    assert await ask(engine, 2, "private") == (0, text)


async def test_completions_go_on_while_redis_is_away(world: tuple[VllmEngine, RedisServer]) -> None:
    engine, server = world
    _, text = await ask(engine, 3, "opted")
    await forget(engine, host=True)
    server.kill()
    assert await ask(engine, 3, "opted") == (0, text)
    await forget(engine, host=False)
    assert await ask(engine, 3, "opted") == (STABLE, text)  # the host tier goes on
    server.start()
    numbers = iter(range(100, 1000))

    async def back() -> bool:
        await ask(engine, next(numbers), "opted")
        return chunks_of(server, "opted") > 0

    await until(back, "the tier does not come back")
