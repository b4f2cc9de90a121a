import asyncio

from foretype_backend.engines.port import Chunk, Engine, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.engines.scripted import ScriptedEngine, fixed, text_script


async def at_once(_seconds: float) -> None:
    await asyncio.sleep(0)


async def started(**options: object) -> ScriptedEngine:
    engine = ScriptedEngine(sleep=at_once, **options)  # pyright: ignore[reportArgumentType]
    await engine.start()
    return engine


async def collect(
    engine: Engine, request_id: str, ids: list[int], params: GenerationParams, **kw: object
) -> list[Chunk]:
    return [c async for c in engine.generate(GenerationRequest(request_id, ids, params, **kw))]  # pyright: ignore[reportArgumentType]


def ids_of(chunks: list[Chunk]) -> list[int]:
    return [i for c in chunks for i in c.token_ids]


async def test_text_script_speaks_text() -> None:
    engine = await started(script=text_script(lambda t: list(t.encode()), lambda i: bytes(i).decode(), str.upper))
    assert bytes(ids_of(await collect(engine, "a", list(b"abc"), GenerationParams(max_tokens=9)))) == b"ABC"


async def test_second_request_finds_the_whole_blocks_of_the_first() -> None:
    engine = await started(block_tokens=4)
    first = await collect(engine, "a", list(range(10)), GenerationParams(max_tokens=1))
    second = await collect(engine, "b", [*range(9), 77, 78], GenerationParams(max_tokens=1))
    salted = await collect(engine, "c", list(range(10)), GenerationParams(max_tokens=1), salt="other")
    assert [first[0].cached_tokens, second[0].cached_tokens, salted[0].cached_tokens] == [0, 8, 0]
    assert engine.statistics().cached_tokens == 8


async def test_waiting_requests_start_by_priority_and_an_aborted_waiter_ends_at_once() -> None:
    engine = await started(script=fixed([1] * 20), slots=1)
    order: list[str] = []

    async def run(name: str, priority: int) -> EngineFinish | None:
        chunks = await collect(engine, name, [1], GenerationParams(max_tokens=5), priority=priority)
        order.append(name)
        return chunks[-1].finish

    async with asyncio.TaskGroup() as group:
        group.create_task(run("running", 0))
        await asyncio.sleep(0)
        group.create_task(run("low", 3))
        gone = group.create_task(run("gone", 1))
        group.create_task(run("high", 0))
        await asyncio.sleep(0)
        engine.abort("gone")
    assert gone.result() is EngineFinish.ABORTED
    order.remove("gone")
    assert order == ["running", "high", "low"]
    assert engine.statistics()[:2] == (0, 0)


async def test_on_the_loops_own_clock_an_abort_ends_a_long_step_and_the_wait_for_a_slot() -> None:
    engine = ScriptedEngine(fixed([1] * 9), decode_s_per_token=3600.0, slots=1)
    await engine.start()
    tasks = [asyncio.create_task(collect(engine, name, [1], GenerationParams(max_tokens=5))) for name in ("a", "b")]
    await asyncio.sleep(0)
    assert engine.statistics()[:2] == (1, 1)
    engine.abort("b")
    engine.abort("a")
    ends = [chunks[-1].finish for chunks in await asyncio.gather(*tasks)]
    assert ends == [EngineFinish.ABORTED, EngineFinish.ABORTED]
    assert engine.statistics()[:2] == (0, 0)
