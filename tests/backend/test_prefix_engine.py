"""The shadow of the prefix cache against the shipped model's own figures."""

import pytest
from foretype_backend.engines.by_name import load_engine
from foretype_backend.engines.embedded.gguf_header import kv_block_bytes, read_header
from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_models.artifacts import locate

pytestmark = pytest.mark.engine


async def test_the_shipped_model_opens_and_answers_within_its_cache() -> None:
    model = locate().path
    cache_bytes = max(200 * kv_block_bytes(read_header(model)), 1 << 20)
    engine = load_engine("embedded", model=model, cache_bytes=cache_bytes)
    await engine.start()
    chunks = [c async for c in engine.generate(GenerationRequest("a", [5] * 300, GenerationParams(max_tokens=5)))]
    assert sum(len(c.token_ids) for c in chunks) == 5
    assert all(p < 0 for c in chunks for p in c.logprobs)
    await engine.close()
