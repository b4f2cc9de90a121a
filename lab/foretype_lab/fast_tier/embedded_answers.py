"""What the embedded engine says greedily, for who has no such engine: vLLM's environment starts this in that of `make setup`.

python -m foretype_lab.fast_tier.embedded_answers MODEL TOKENS LIBRARY [END …] < PROMPTS, a JSON list of lists of ids; it prints as many.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from foretype_backend.engines.embedded.engine import EmbeddedEngine
from foretype_backend.engines.port import GenerationParams, GenerationRequest


async def answers(model: str, prompts: list[list[int]], params: GenerationParams, library: str) -> list[list[int]]:
    engine = EmbeddedEngine.from_config(model=model, library=library, threads=os.cpu_count(), start_timeout_s=600.0)
    await engine.start()
    try:
        found: list[list[int]] = []
        for at, ids in enumerate(prompts):
            stream = engine.generate(GenerationRequest(str(at), ids, params))
            found.append([token async for chunk in stream for token in chunk.token_ids])
        return found
    finally:
        await engine.close()


if __name__ == "__main__":
    named, tokens, library, *ends = sys.argv[1:]
    params = GenerationParams(max_tokens=int(tokens), end_token_ids=frozenset(map(int, ends)))
    json.dump(asyncio.run(answers(named, json.load(sys.stdin), params, library)), sys.stdout)
