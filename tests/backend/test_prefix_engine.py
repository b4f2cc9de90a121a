"""The shadow of the prefix cache against the shipped model's own figures."""

import random

import pytest
from backend.exact_cache import exact_cached_tokens
from foretype_backend.engines.by_name import load_engine
from foretype_backend.engines.embedded.gguf_header import kv_block_bytes, read_header
from foretype_backend.engines.embedded.ipc import Ended, Output, Report, Submit
from foretype_backend.engines.embedded.jobs import StepLimits
from foretype_backend.engines.embedded.loop import WorkerLoop
from foretype_backend.engines.embedded.openvino_pipeline import BLOCK_TOKENS, OpenVinoPipeline
from foretype_backend.engines.embedded.pipeline import PipelineConfig
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_models.artifacts import locate

pytestmark = pytest.mark.engine


@pytest.mark.slow
def test_predicted_cached_tokens_agree_with_the_engine_over_a_typing_session() -> None:
    """A growing prompt, edits in the middle, another file and back: what completion does to the cache."""
    model = locate().path
    rng = random.Random(1)
    vocabulary_tokens = read_header(model).vocabulary_tokens
    opened: list[OpenVinoPipeline] = []
    reports: list[Report] = []

    def fresh(tokens: int) -> list[int]:
        return [rng.randrange(30, vocabulary_tokens) for _ in range(tokens)]

    def open_pipeline() -> OpenVinoPipeline:
        config = PipelineConfig(model=str(model), pool_blocks=600, chunk_tokens=128, max_sequences=8, threads=1)
        opened.append(OpenVinoPipeline(config))
        return opened[-1]

    loop = WorkerLoop(open_pipeline, StepLimits(pool_blocks=600), ShadowPrefixCache(450), reports.extend, lambda: 0.0)
    first, second = fresh(900), fresh(700)
    prompts = [first]
    for _ in range(4):
        prompts.append([*prompts[-1], *fresh(rng.randrange(1, 9))])
    prompts += [[*first[:450], *fresh(3), *first[450:]], second, [*second, 5], prompts[4], first[:640], fresh(32)]
    shadow = loop.scheduler.shadow
    for job_id, ids in enumerate(prompts):
        predicted = shadow.cached_tokens(shadow.keys(ids), len(ids))
        loop.command(Submit(id=job_id, token_ids=ids, max_tokens=4, end_token_ids=[]))
        while loop.busy:
            loop.turn()
        told = next(r.cached_tokens for r in reports if isinstance(r, Output) and r.id == job_id)
        assert told == predicted
    assert len([r for r in reports if isinstance(r, Ended)]) == len(prompts)
    for ids in ([*prompts[4], 9], [*second[:300], *fresh(80)], fresh(100)):
        predicted = shadow.cached_tokens(shadow.keys(ids), len(ids))
        assert predicted <= exact_cached_tokens(opened[-1], ids) < predicted + BLOCK_TOKENS


async def test_the_shipped_model_opens_and_answers_within_its_cache() -> None:
    model = locate().path
    cache_bytes = max(200 * kv_block_bytes(read_header(model)), 1 << 20)
    engine = load_engine("embedded", model=model, cache_bytes=cache_bytes)
    await engine.start()
    chunks = [c async for c in engine.generate(GenerationRequest("a", [5] * 300, GenerationParams(max_tokens=5)))]
    assert sum(len(c.token_ids) for c in chunks) == 5
    assert all(p < 0 for c in chunks for p in c.logprobs)
    await engine.close()
