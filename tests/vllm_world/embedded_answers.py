"""What the embedded engine says greedily, for who has no such engine: vLLM's environment starts this in that of `make setup`.

python -m vllm_world.embedded_answers MODEL TOKENS < PROMPTS, a JSON list of lists of ids; it prints as many lists of ids.
"""

from __future__ import annotations

import asyncio
import json
import sys

from foretype_backend.engines.embedded.engine import EmbeddedEngine
from foretype_backend.engines.port import GenerationParams, GenerationRequest


async def answers(model: str, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    engine = EmbeddedEngine.from_config(model=model, start_timeout_s=600.0)
    await engine.start()
    try:
        found: list[list[int]] = []
        for at, ids in enumerate(prompts):
            stream = engine.generate(GenerationRequest(str(at), ids, GenerationParams(max_tokens=max_tokens)))
            found.append([token async for chunk in stream for token in chunk.token_ids])
        return found
    finally:
        await engine.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(answers(sys.argv[1], json.load(sys.stdin), int(sys.argv[2])))))
