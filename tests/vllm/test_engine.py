"""The in-process adapter on the real engine: output, cache, salts, cancels, refusals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio
from foretype_backend.engines.port import Chunk, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.errors import EngineUnavailableError, PromptRefusedError
from foretype_backend.prefix.salt import Namespace, SaltBook
from msgspec.structs import replace
from vllm_world.model_folders import IDS

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the engine lives on one loop

GREEDY = GenerationParams(max_tokens=12)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(options: dict[str, object]) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine.from_config(**options)
    await engine.start()
    yield engine
    await engine.close()


def prompt(seed: int, tokens: int = 300) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(*IDS) for _ in range(tokens)]


async def collect(
    engine: VllmEngine,
    name: str,
    ids: list[int],
    params: GenerationParams = GREEDY,
    *,
    salt: str | None = None,
    priority: int = 0,
    deadline: float | None = None,
) -> list[Chunk]:
    stream = engine.generate(GenerationRequest(name, ids, params, salt=salt, priority=priority, deadline=deadline))
    return [chunk async for chunk in stream]


def tokens_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


async def settled(engine: VllmEngine, running: int = 0) -> None:
    """Until the engine itself says that so many requests run; it speaks after each step, so one is made."""
    for attempt in range(500):
        if engine.statistics().running <= running:
            return
        await collect(engine, f"tick-{attempt}", prompt(1, 40), GenerationParams(max_tokens=2))
    raise AssertionError(f"{engine!r} after 500 steps")


async def test_tokens_come_one_by_one_with_logprobs_and_cached_tokens(engine: VllmEngine) -> None:
    cold = await collect(engine, "cold", prompt(0))
    warm = await collect(engine, "warm", prompt(0))
    assert tokens_of(cold) == tokens_of(warm) and len(tokens_of(cold)) == GREEDY.max_tokens
    assert [chunk.cached_tokens for chunk in cold] == [0, *[None] * (len(cold) - 1)]
    assert warm[0].cached_tokens == 288  # whole blocks of 32
    assert len(cold) > 4 and cold[-1].finish is EngineFinish.LENGTH
    for chunk in cold:
        assert len(chunk.logprobs) == len(chunk.token_ids) and all(value <= 0 for value in chunk.logprobs)
    assert cold[0].prefill_ms is not None and cold[0].prefill_ms > 0 and cold[0].queue_ms is not None


async def test_an_end_token_ends_and_is_not_delivered(engine: VllmEngine) -> None:
    free = tokens_of(await collect(engine, "free", prompt(3)))
    end = next(token for at, token in enumerate(free) if at >= 2 and token not in free[:at])
    chunks = await collect(engine, "ended", prompt(3), replace(GREEDY, end_token_ids=frozenset({end})))
    assert tokens_of(chunks) == free[: free.index(end)] and chunks[-1].finish is EngineFinish.END_TOKEN


async def test_a_token_is_one_of_those_that_are_named(engine: VllmEngine) -> None:
    named = (40, 50, 60)
    chunks = await collect(engine, "named", prompt(3), GenerationParams(max_tokens=1, first_of=named))
    assert len(tokens_of(chunks)) == 1 and tokens_of(chunks)[0] in named


async def test_tenants_share_no_block_and_a_purge_makes_cold(engine: VllmEngine) -> None:
    book = SaltBook(b"s" * 32)
    salts = {name: book.salt(book.namespace(name)) for name in ("a", "b")}
    cached: list[int | None] = []
    for name, salt in (("a", salts["a"]), ("a", salts["a"]), ("b", salts["b"]), ("b", salts["b"])):
        cached.append((await collect(engine, f"{name}-{len(cached)}", prompt(5), salt=salt))[0].cached_tokens)
    assert cached == [0, 288, 0, 288]
    purged = book.salt(book.purge("a"))
    assert purged != salts["a"] and book.namespace("a") == Namespace("a", "", 1)
    assert (await collect(engine, "purged", prompt(5), salt=purged))[0].cached_tokens == 0
    assert (await collect(engine, "other", prompt(5), salt=salts["b"]))[0].cached_tokens == 288
    assert (await collect(engine, "none", prompt(5)))[0].cached_tokens == 0


async def test_one_session_edits_and_the_other_and_undo_stay_warm(engine: VllmEngine) -> None:
    shared = prompt(30)
    edited = [*shared[:200], 19, *shared[201:]]
    cached: list[int | None] = []
    for name, ids in (("mine", shared), ("theirs", shared), ("edit", edited), ("theirs", shared), ("undo", shared)):
        cached.append((await collect(engine, f"{name}-{len(cached)}", ids, salt="team"))[0].cached_tokens)
    assert cached == [0, 288, 192, 288, 288]  # an edit costs what stands behind it, and nobody else anything


async def test_warm_fills_the_cache_for_its_salt(engine: VllmEngine) -> None:
    await engine.warm(prompt(6), salt="w")
    assert (await collect(engine, "after-warm", prompt(6), salt="w"))[0].cached_tokens == 288
    assert (await collect(engine, "after-warm-2", prompt(6)))[0].cached_tokens == 0


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_a_cancel_frees_the_engine(engine: VllmEngine, how: str) -> None:
    stream = engine.generate(GenerationRequest(f"cancel-{how}", prompt(7), GenerationParams(max_tokens=2000)))
    chunks = [await anext(stream), await anext(stream)]
    assert engine.statistics().running == 1
    if how == "abort":
        engine.abort(f"cancel-{how}")
        engine.abort(f"cancel-{how}")  # idempotent
        chunks += [chunk async for chunk in stream]
        assert chunks[-1].finish is EngineFinish.ABORTED
    else:
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]
    await settled(engine)


async def test_an_abort_that_overtakes_its_request_wins(engine: VllmEngine) -> None:
    engine.abort("early")
    assert [chunk.finish for chunk in await collect(engine, "early", prompt(8))] == [EngineFinish.ABORTED]
    engine.abort("early")  # a late one hits nobody
    assert tokens_of(await collect(engine, "early", prompt(8)))


async def test_a_task_that_is_cancelled_leaves_nothing_behind(engine: VllmEngine) -> None:
    task = asyncio.create_task(collect(engine, "gone", prompt(9), GenerationParams(max_tokens=4000)))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settled(engine)


async def test_what_is_late_is_dropped(engine: VllmEngine) -> None:
    loop = asyncio.get_running_loop()
    chunks = await collect(engine, "late", prompt(10), deadline=loop.time() - 1)
    assert [chunk.finish for chunk in chunks] == [EngineFinish.ABORTED]
    chunks = await collect(engine, "late2", prompt(11, 6000), GREEDY, deadline=loop.time() + 0.005)
    assert chunks[-1].finish is EngineFinish.ABORTED and not tokens_of(chunks)
    await settled(engine)


async def test_interactive_work_overtakes_warm_ups(engine: VllmEngine) -> None:
    """Eight run at once; of those that wait, the most urgent class is first, whatever came before."""
    order: list[str] = []

    async def one(name: str, priority: int) -> None:
        await collect(engine, name, prompt(len(name), 64), GenerationParams(max_tokens=40), priority=priority)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        for at in range(16):
            group.create_task(one(f"warm-{at}", 4))
        group.create_task(one("interactive", 0))  # the last one that comes, however busy the engine is
    assert order.index("interactive") < 12


async def test_a_long_prompt_that_has_begun_does_not_hold_up_who_comes_later(engine: VllmEngine) -> None:
    one = GenerationParams(max_tokens=1)
    long = asyncio.create_task(collect(engine, "long", prompt(70, 8_000), one))  # four steps, were it alone
    while not engine.statistics().running:  # noqa: ASYNC110 - the engine counts, and tells nobody
        await asyncio.sleep(0.001)
    await collect(engine, "short", prompt(71, 40), one)
    assert not long.done()
    await long


@pytest.mark.parametrize(
    ("ids", "max_tokens", "message"),
    [
        ([], 1, "empty"),
        ([1] * 8192, 1, "context 8192"),
        ([1, 16_384], 1, "outside the vocabulary"),
        ([-1], 1, "outside the vocabulary"),
        ([1], 0, "max_tokens"),
    ],
)
async def test_prompts_that_can_never_run_are_refused(
    engine: VllmEngine, ids: list[int], max_tokens: int, message: str
) -> None:
    with pytest.raises(PromptRefusedError, match=message):
        await collect(engine, "refused", ids, GenerationParams(max_tokens=max_tokens))
    assert tokens_of(await collect(engine, "after", prompt(12)))


async def test_the_context_cuts_what_is_generated(engine: VllmEngine) -> None:
    chunks = await collect(engine, "edge", prompt(13, 8190), GREEDY)
    assert len(tokens_of(chunks)) == 2 and chunks[-1].finish is EngineFinish.LENGTH


async def test_a_hundred_at_once_with_cancels_end_all(engine: VllmEngine) -> None:
    rng = random.Random(0)

    async def one(at: int) -> None:
        stream = engine.generate(
            GenerationRequest(f"many-{at}", prompt(at % 7, rng.randrange(1, 400)), GenerationParams(max_tokens=20))
        )
        taken = 0
        async for _ in stream:
            taken += 1
            if at % 3 == 0 and taken == 2:
                break
            if at % 3 == 1 and taken == 1:
                engine.abort(f"many-{at}")
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]

    async with asyncio.timeout(300):
        await asyncio.gather(*(one(at) for at in range(100)))
    await settled(engine)
    assert engine.statistics().waiting == 0


async def test_an_engine_that_dies_fails_its_requests_at_once(engine: VllmEngine) -> None:
    """The last test of this module: nothing runs on this engine afterwards."""
    stream = engine.generate(GenerationRequest("dies", prompt(20), GenerationParams(max_tokens=4000)))
    await anext(stream)
    await engine.ready()
    cores = [one for one in psutil.Process().children(recursive=True) if "EngineCore" in " ".join(one.cmdline())]
    assert cores
    for core in cores:
        core.kill()
    async with asyncio.timeout(300):
        with pytest.raises(EngineUnavailableError, match=r"died|failed"):
            async for _ in stream:
                pass
        with pytest.raises(EngineUnavailableError, match="died"):
            await collect(engine, "after", prompt(21))
        with pytest.raises(EngineUnavailableError, match="died"):
            await engine.ready()
