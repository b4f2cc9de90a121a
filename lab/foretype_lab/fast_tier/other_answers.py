"""What other engines say greedily, for who has none of them: vLLM's environment starts this in that of `make setup`.

python -m foretype_lab.fast_tier.other_answers MODEL TOKENS ENGINE [END …] < PROMPTS, a JSON list of lists of ids; it prints as many.
ENGINE is a library of the embedded engine, or `server`: llama.cpp's own, as its wheel brings it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any

from foretype_backend.engines.embedded.engine import EmbeddedEngine
from foretype_backend.engines.port import GenerationParams, GenerationRequest


async def embedded(model: str, prompts: Sequence[list[int]], params: GenerationParams, library: str) -> list[list[int]]:
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


def of_server(model: str, prompts: Sequence[list[int]], params: GenerationParams) -> list[list[int]]:
    """A server of its own in this process; what it writes behind an end is left out."""
    library: Any = import_module("xllamacpp")  # without types
    options = library.CommonParams()
    options.model.path, options.port = model, 0  # a free port of loopback
    options.n_ctx, options.n_parallel = 2048, 1
    server = library.Server(options)
    found: list[list[int]] = []
    for ids in prompts:
        asked = {"prompt": ids, "n_predict": params.max_tokens, "temperature": 0.0, "return_tokens": True}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{server.listening_address}/completion", json.dumps(asked).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            tokens = json.load(answer)["tokens"]
        found.append(list(takewhile(lambda token: token not in params.end_token_ids, tokens)))
    return found


if __name__ == "__main__":
    named, tokens, engine, *ends = sys.argv[1:]
    params = GenerationParams(max_tokens=int(tokens), end_token_ids=frozenset(map(int, ends)))
    prompts = json.load(sys.stdin)
    said = (
        of_server(named, prompts, params)
        if engine == "server"
        else asyncio.run(embedded(named, prompts, params, engine))
    )
    json.dump(said, sys.stdout)
