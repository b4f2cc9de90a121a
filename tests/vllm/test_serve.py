"""A real `vllm serve` behind the pool: streams, cached tokens, aborts, its own events, and what the directory makes of them."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from foretype_backend.config.fleet import FastConfig
from foretype_backend.engines.port import Chunk, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.metrics import read_metrics
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.errors import EngineUnavailableError, PromptRefusedError
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.prefix.chain import ChainMaker
from foretype_backend.prefix.origin import Origin
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models.artifacts import locate
from vllm_world.serving import BLOCK, VllmServe

pytestmark = pytest.mark.asyncio(loop_scope="module")


TOKENIZER = load_tokenizer(locate().tokenizer_path)
SOURCE = Path(sys.modules["foretype_context.tokens.tokenizer"].__file__ or "").read_text("utf-8")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(served: VllmServe) -> AsyncIterator[VllmServerEngine]:
    engine = VllmServerEngine.from_config(url=f"{served.url}/v1", vocabulary_tokens=TOKENIZER.vocabulary_tokens)
    await engine.start()
    yield engine
    await engine.close()


async def collect(engine: VllmServerEngine, name: str, ids: list[int], **options: Any) -> list[Chunk]:
    params = GenerationParams(
        max_tokens=options.pop("max_tokens", 8),
        end_token_ids=options.pop("ends", frozenset()),
        first_of=options.pop("first_of", ()),
    )
    return [chunk async for chunk in engine.generate(GenerationRequest(name, ids, params, **options))]


def tokens_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


async def running(served: VllmServe) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return read_metrics((await client.get(f"{served.url}/metrics")).text).running


async def test_what_the_server_says_of_itself(engine: VllmServerEngine) -> None:
    capabilities = engine.capabilities()
    assert (capabilities.model, capabilities.block_tokens) == ("shipped", BLOCK)
    assert capabilities.priority
    assert capabilities.notes == ("aborts by endpoint",)
    assert engine.metrics.cache_blocks > 100
    assert engine.process is not None
    await engine.check()


async def test_the_server_tells_where_prompt_tokens_came_from(engine: VllmServerEngine) -> None:
    ids = TOKENIZER.encode("def f():\n    return 1\n" * 20)
    await engine.scrape()
    before = dict(engine.prompt_tokens_by_tier)
    for name in ("tiers-1", "tiers-2"):
        await collect(engine, name, ids)
    await engine.scrape()
    told = {tier: tokens - before.get(tier, 0) for tier, tokens in engine.prompt_tokens_by_tier.items()}
    assert {"computed", "device", "host", "redis"} <= set(told)
    assert told["computed"] + told["device"] == 2 * len(ids)
    assert told["device"] >= len(ids) - BLOCK


async def test_ids_stream_with_log_probabilities_and_the_end_token_stays_behind(engine: VllmServerEngine) -> None:
    ids = TOKENIZER.encode(SOURCE[:2000])
    chunks = await collect(engine, "a", ids, salt="stream")
    tokens = tokens_of(chunks)
    assert len(tokens) == 8
    assert len([chunk for chunk in chunks if chunk.token_ids]) > 4  # streamed, not at once
    assert all(len(one.logprobs) == len(one.token_ids) and all(value <= 0 for value in one.logprobs) for one in chunks)
    assert chunks[-1].finish is EngineFinish.LENGTH
    at = (
        next(at for at, token in enumerate(tokens) if token not in tokens[:at] and at >= 1)
        if len(set(tokens)) > 1
        else 0
    )
    ended = await collect(engine, "b", ids, salt="stream", ends=frozenset({tokens[at]}))
    assert tokens_of(ended) == tokens[:at]
    assert ended[-1].finish is EngineFinish.END_TOKEN


async def test_a_token_is_one_of_those_that_are_named(engine: VllmServerEngine) -> None:
    named = (40, 50, 60)
    chunks = await collect(engine, "named", TOKENIZER.encode("x = 1\n" * 8), max_tokens=1, first_of=named)
    assert len(tokens_of(chunks)) == 1 and tokens_of(chunks)[0] in named


async def test_a_salt_is_a_cache_of_its_own(engine: VllmServerEngine) -> None:
    ids = TOKENIZER.encode(SOURCE[2000:5000])
    whole = (len(ids) - 1) // BLOCK * BLOCK
    figures = [(await collect(engine, f"s{at}", ids, salt=salt))[-1].cached_tokens for at, salt in enumerate("aabab")]
    assert figures == [0, whole, 0, whole, whole]


@pytest.mark.parametrize("endpoint", [True, False])
async def test_an_abort_frees_the_engine(served: VllmServe, engine: VllmServerEngine, endpoint: bool) -> None:
    engine._abort_endpoint = endpoint  # pyright: ignore[reportPrivateUsage]
    seen = 0
    async for chunk in engine.generate(
        GenerationRequest("gone", TOKENIZER.encode(SOURCE[:1500]), GenerationParams(max_tokens=1000))
    ):
        seen += len(chunk.token_ids)
        if chunk.finish is not None:
            assert chunk.finish is EngineFinish.ABORTED
            break
        engine.abort("gone")
    assert 0 < seen < 100
    async with asyncio.timeout(300):
        while await running(served):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)
    engine._abort_endpoint = True  # pyright: ignore[reportPrivateUsage]


async def test_prompts_it_cannot_take_are_refused(engine: VllmServerEngine) -> None:
    limit = engine.capabilities().context_limit_tokens
    for ids in ([], [TOKENIZER.vocabulary_tokens], [5] * limit):
        with pytest.raises(PromptRefusedError):
            await collect(engine, "x", ids)


async def test_a_tokenizer_of_another_model_is_refused_at_start(served: VllmServe) -> None:
    other = VllmServerEngine.from_config(url=f"{served.url}/v1", vocabulary_tokens=TOKENIZER.vocabulary_tokens + 5000)
    with pytest.raises(EngineUnavailableError, match="tokenizer do not match"):
        await other.start()


def session() -> Iterator[tuple[str, list[int], Origin]]:
    """Two colleagues in one file: typing, an edit in the middle, its undo, another file. Session, ids, origin."""

    def asked(who: str, document: str, text: str) -> tuple[str, list[int], Origin]:
        ids = TOKENIZER.encode(text)
        source = Source(document=document, version=1, start=0, end=len(text))
        segment = Segment(kind=Kind.PREFIX, scope=Scope.FILE, source=source, text="")
        placed = (PlacedSegment(segment=segment, start=0, end=len(ids)),)
        return who, ids, Origin(tenant="t", repository="r", session=who, document=document, placed=placed)

    cursor = 2400
    for at in range(12):
        yield asked("ann", "tokens.py", SOURCE[: cursor + 40 * at])
    for at in range(6):
        yield asked("bob", "tokens.py", SOURCE[: cursor + 40 * at])
    edited = SOURCE[:1200] + "# a line between\n" + SOURCE[1200 : cursor + 300]
    for at in range(4):
        yield asked("ann", "tokens.py", edited + SOURCE[cursor + 300 : cursor + 300 + 30 * at])
    for at in range(3):
        yield asked("bob", "tokens.py", SOURCE[: cursor + 240 + 40 * at])
    yield asked("ann", "tokens.py", SOURCE[: cursor + 480])  # undo
    for at in range(4):
        yield asked("ann", "other.py", SOURCE[4000 : 5500 + 50 * at])


@pytest.mark.parametrize("events", [False, True])
async def test_the_directory_predicts_the_engines_figure_on_a_replayed_session(
    served: VllmServe, engine: VllmServerEngine, events: bool
) -> None:
    fast = FastConfig(replicas=(f"{served.url}/v1",), kv_events=(served.events,) if events else ())
    pool: ReplicaPool = make_pool(fast, vocabulary_tokens=TOKENIZER.vocabulary_tokens)
    await pool.start()
    replicas = pool.book.directory._replicas  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(300):
        for at in itertools.count():  # a subscriber of ZMQ hears what is published after it has joined
            if not events or (served.url in replicas and replicas[served.url].tells):
                break
            await collect(engine, f"joins-{at}", TOKENIZER.encode(SOURCE[:500]), salt=f"joins-{at}")
    salt = f"session-{events}"
    requests = 0
    for requests, (_, ids, origin) in enumerate(session(), 1):
        stream = pool.generate(
            GenerationRequest(f"{salt}-{requests}", ids, GenerationParams(max_tokens=6), salt=salt, origin=origin)
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].finish is EngineFinish.LENGTH
        # Events come behind answers. What was generated is held too, but for its last token, which was never computed.
        held = ChainMaker(BLOCK).keys(salt, [*ids, *tokens_of(chunks)[:-1]], salt)
        async with asyncio.timeout(300):
            while events and not replicas[served.url].keys.keys() >= set(held):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    agreement = pool.pool_statistics().agreement
    assert agreement.requests == agreement.within_block == requests == 30
    assert agreement.cached_tokens > 0.8 * sum(len(ids) for _, ids, _ in session())
    if events:
        assert agreement.predicted_tokens == agreement.cached_tokens
    print(f"{events=} {agreement}")
    await pool.close()
