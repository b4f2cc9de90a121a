"""The adapter for one replica, against a server that speaks vLLM's wire and misbehaves on purpose."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from backend.model_servers import wait_for_answers
from backend.replica import VOCABULARY, Replica
from backend.world import closing, until
from foretype_backend.engines.openai.http_stream import HttpStreams, StreamedResponse
from foretype_backend.engines.port import WARM_PRIORITY, Chunk, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.metrics import VllmMetrics, read_metrics
from foretype_backend.engines.vllm.server import ReplicaIdentity, VllmServerEngine
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError
from foretype_backend.prefix.origin import Origin

PROMPT = list(range(1, 50))


@pytest_asyncio.fixture
async def replica() -> AsyncIterator[Replica]:
    async with Replica() as one:
        yield one


async def started(replica: Replica, **options: Any) -> VllmServerEngine:
    engine = VllmServerEngine.from_config(url=f"{replica.url}/v1", **options)
    await engine.start()
    return engine


@pytest_asyncio.fixture
async def engine(replica: Replica) -> AsyncIterator[VllmServerEngine]:
    engine = await started(replica)
    async with closing(engine):
        yield engine


async def collect(engine: VllmServerEngine, ids: list[int] = PROMPT, name: str = "a", **kw: Any) -> list[Chunk]:
    params = GenerationParams(max_tokens=kw.pop("max_tokens", 3), end_token_ids=kw.pop("ends", frozenset[int]()))
    return [chunk async for chunk in engine.generate(GenerationRequest(name, ids, params, **kw))]


async def test_ids_go_in_and_come_out_with_salt_priority_and_what_the_tiers_need(replica: Replica) -> None:
    engine = await started(
        replica,
        vocabulary_tokens=VOCABULARY,
        transfer_parameters=lambda origin, salt: {"for": origin.repository, "salt": salt},
    )
    chunks = await collect(engine, salt="s", priority=2, origin=Origin(repository="shop"))
    total = sum(PROMPT)
    assert [one.token_ids for one in chunks[:-1]] == [(total % VOCABULARY + at,) for at in range(3)]
    assert all(one.logprobs == (-0.5,) and one.text is None for one in chunks[:-1])
    assert chunks[-1].finish is EngineFinish.LENGTH
    assert chunks[-1].cached_tokens == 0
    assert (await collect(engine, salt="s"))[-1].cached_tokens == 48
    assert (await collect(engine, salt="other"))[-1].cached_tokens == 0  # isolation is the engine's
    sent, headers = replica.bodies[0], replica.headers[0]
    assert (sent["prompt"], sent["cache_salt"], sent["priority"], sent["stream"]) == (PROMPT, "s", 2, True)
    assert sent["kv_transfer_params"] == {"for": "shop", "salt": "s"}
    assert headers["x-request-id"].endswith("-a")
    assert engine.identity == ReplicaIdentity("coder", 4096, 16)
    assert engine.capabilities().salt
    assert engine.capabilities().priority
    await engine.close()


async def test_the_id_that_ends_a_generation_is_not_delivered(replica: Replica, engine: VllmServerEngine) -> None:
    end = (sum(PROMPT) + 2) % VOCABULARY
    chunks = await collect(engine, max_tokens=9, ends=frozenset({end}))
    assert [one.token_ids for one in chunks] == [(end - 2,), (end - 1,), ()]
    assert chunks[-1].finish is EngineFinish.END_TOKEN


@pytest.mark.parametrize("endpoint", [True, False])
async def test_an_abort_frees_the_server_by_endpoint_or_by_closing_the_stream(endpoint: bool) -> None:
    async with Replica(aborts=endpoint) as replica:
        engine = await started(replica)
        replica.behaviour = "endless"
        stream = engine.generate(GenerationRequest("gone", PROMPT, GenerationParams(max_tokens=5)))
        finishes: list[EngineFinish | None] = []
        async for chunk in stream:
            finishes.append(chunk.finish)
            if len(finishes) == 2:
                engine.abort("gone")
                engine.abort("gone")
        assert finishes[-1] is EngineFinish.ABORTED
        await until(lambda: not replica._live)  # pyright: ignore[reportPrivateUsage]
        assert any(name.endswith("-gone-0") for name in replica.aborted) is endpoint
        assert replica.disconnects == (0 if endpoint else 1)
        assert engine.statistics().running == 0
        engine.abort("never seen")
        await engine.close()


async def test_an_abort_ends_no_request_of_another_gateway_that_counts_as_this_one_does() -> None:
    """A server ends all requests of an id; those of HTTP are counted in each process, from 1."""
    async with Replica(aborts=True) as replica:
        first, second = await started(replica), await started(replica)
        replica.behaviour = "endless"
        async with closing(first), closing(second):
            params = GenerationParams(max_tokens=40)
            ours = first.generate(GenerationRequest("h1", PROMPT, params))
            theirs = second.generate(GenerationRequest("h1", PROMPT, params))
            await anext(ours)
            await anext(theirs)
            first.abort("h1")
            assert [one async for one in ours][-1].finish is EngineFinish.ABORTED
            assert [(await anext(theirs)).finish for _ in range(3)] == [None] * 3
            second.abort("h1")
            assert [one async for one in theirs][-1].finish is EngineFinish.ABORTED


async def test_an_abort_endpoint_that_does_nothing_is_not_trusted(replica: Replica, engine: VllmServerEngine) -> None:
    replica.behaviour = "silent"
    stream = asyncio.ensure_future(collect(engine, name="stuck"))
    await until(lambda: bool(replica._live))  # pyright: ignore[reportPrivateUsage]
    engine.abort("stuck")
    assert [one.finish for one in await stream] == [EngineFinish.ABORTED]
    await until(lambda: not replica._live)  # pyright: ignore[reportPrivateUsage]
    assert replica.disconnects == 1


@pytest.mark.parametrize(
    ("behaviour", "fault"),
    [
        ("garbage", Fault.GARBAGE),
        ("dies", Fault.LOST),
        ("error", Fault.ERROR),
        ("busy", Fault.BUSY),
        ("silent", Fault.SILENT),
    ],
)
async def test_what_is_wrong_is_said_and_a_check_finds_it(
    replica: Replica, engine: VllmServerEngine, behaviour: str, fault: Fault
) -> None:
    replica.behaviour = behaviour
    if behaviour == "silent":
        wait_for_answers(engine, 1.0)
    with pytest.raises(EngineUnavailableError) as caught:
        await collect(engine)
    assert caught.value.fault is fault
    assert engine.statistics().running == 0
    with pytest.raises(EngineUnavailableError):
        await engine.check()
    replica.behaviour = "ok"
    wait_for_answers(engine, 60.0)
    await engine.check()
    assert len(await collect(engine)) == 4


async def test_a_check_notices_another_process_and_another_model(replica: Replica, engine: VllmServerEngine) -> None:
    first = engine.metrics.started_s
    await replica.stop(keeps_port=True)
    with pytest.raises(EngineUnavailableError):
        await engine.check()
    await replica.start()
    await engine.check()
    assert engine.metrics.started_s != first
    replica.model = "other"
    with pytest.raises(EngineUnavailableError, match="has no model 'coder'"):
        await engine.check()


async def test_servers_that_cannot_be_a_replica_are_refused_at_start() -> None:
    async with Replica(ids=False) as plain, Replica() as small, Replica() as web:
        web.behaviour = "html"
        with pytest.raises(EngineUnavailableError, match="returns no token ids"):
            await started(plain)
        with pytest.raises(EngineUnavailableError, match="tokenizer do not match"):
            await started(small, vocabulary_tokens=VOCABULARY + 1)
        with pytest.raises(EngineUnavailableError, match="JSON"):
            await started(web)
    with pytest.raises(EngineUnavailableError, match="cannot connect"):
        await started(plain)


@pytest.mark.parametrize("ids", [[], [VOCABULARY], [-1], [1] * 4096])
async def test_prompts_that_no_replica_takes_are_refused_here(replica: Replica, ids: list[int]) -> None:
    engine = await started(replica, vocabulary_tokens=VOCABULARY)
    with pytest.raises(PromptRefusedError):
        await collect(engine, ids)
    assert not replica.bodies
    await engine.close()


async def test_warming_computes_and_generates_one_token(replica: Replica, engine: VllmServerEngine) -> None:
    await engine.warm(PROMPT, salt="s")
    assert (replica.bodies[0]["max_tokens"], replica.bodies[0]["priority"]) == (1, WARM_PRIORITY)
    assert (await collect(engine, salt="s"))[-1].cached_tokens == 48
    await engine.warm([VOCABULARY + 5])  # refused there; nothing to tell anybody


def test_metrics_are_read_and_nonsense_is_refused() -> None:
    text = (
        'vllm:cache_config_info{block_size="32",num_gpu_blocks="100"} 1.0\n'
        'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_running{engine="1"} 1.0\n'
        'vllm:spec_decode_num_drafts_total{engine="0"} 10.0\n'
        'vllm:spec_decode_num_draft_tokens_total{engine="0"} 40.0\n'
        'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 25.0\n'
    )
    assert read_metrics(text) == VllmMetrics(32, 100, None, 10, 40, 25, running=3, prompt_tokens_by_tier={})
    assert read_metrics(text).guesses == 4
    text += "vllm:generation_tokens_total 130.0\nvllm:time_to_first_token_seconds_count 25.0\n"
    assert read_metrics(text).guesses == 0.5  # 80 decode steps
    text = (
        'vllm:prompt_tokens_by_source_total{source="local_compute"} 70.0\n'
        'vllm:prompt_tokens_by_source_total{source="local_cache_hit"} 30.0\n'
        'vllm:prompt_tokens_cached_by_source_total{engine="0",source="device"} 20.0\n'
        'vllm:prompt_tokens_cached_by_source_total{engine="1",source="device"} 6.0\n'
        'vllm:prompt_tokens_cached_by_source_total{source="external_unspecified"} 4.0\n'
    )
    assert read_metrics(text).prompt_tokens_by_tier == {"computed": 70, "device": 26, "redis": 4}
    assert read_metrics("") == VllmMetrics(prompt_tokens_by_tier={})
    assert read_metrics('vllm:cache_config_info{block_size="None"} 1\n').block_tokens == 0
    with pytest.raises(ValueError):
        read_metrics("{{{")


async def test_who_is_cancelled_while_an_aborted_request_still_connects_is_cancelled(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, connecting = await started(replica), asyncio.Event()

    async def never(_: HttpStreams) -> StreamedResponse:
        connecting.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(HttpStreams, "connect", never)
    monkeypatch.setattr(HttpStreams, "kept", lambda _: None)
    for both in (False, True):
        connecting.clear()
        stream = engine.generate(GenerationRequest(f"{both}", PROMPT, GenerationParams(max_tokens=4)))
        asking = asyncio.ensure_future(anext(stream))
        async with asyncio.timeout(60):
            await connecting.wait()
            engine.abort(f"{both}")
            if both:
                asking.cancel()
            await asyncio.wait([asking])
        assert asking.cancelled() is both
        assert both or asking.result().finish is EngineFinish.ABORTED
        await stream.aclose()
    await engine.close()


async def test_an_abort_in_the_moment_of_the_connection_keeps_the_server_from_being_asked(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, connect = await started(replica), HttpStreams.connect

    async def aborted(streams: HttpStreams) -> StreamedResponse:
        answer = await connect(streams)
        asyncio.get_running_loop().call_soon(engine.abort, "a")
        return answer

    monkeypatch.setattr(HttpStreams, "connect", aborted)
    monkeypatch.setattr(HttpStreams, "kept", lambda _: None)
    asked = len(replica.bodies)
    assert [one.finish for one in await collect(engine)] == [EngineFinish.ABORTED]
    assert len(replica.bodies) == asked
    await engine.close()
