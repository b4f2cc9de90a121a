"""An in-process vLLM engine, prompts for it, and one request timed: what the parts and the bench of speculation share."""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.prefix.origin import Origin
from foretype_context.tokens.tokenizer import Tokenizer

IDS: Final = range(1000, 40_000)
"""Of any vocabulary that is served here; controls lie outside."""


class ClaimOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        model: a folder as `foretype models export` writes it.
        gguf: the file that it was exported from.
        store: folder with a text store that the model was not trained on.
        samples: of each figure; a part takes more or fewer where it says so.
        batched_tokens: of a step, for `cancel`: each an engine of its own.
        blocks: tokens in a block, for `tiers` and `authors`: each an engine of its own.
        repositories: whose commits are typed, for `authors`.
        redis_url: of a Redis that nobody else uses, for `tiers`; "" leaves that tier out.
        python: of an environment that has the embedded engine's libraries.
    """

    model: Path
    gguf: Path
    store: Path
    samples: int
    batched_tokens: tuple[int, ...]
    blocks: tuple[int, ...]
    repositories: tuple[Path, ...]
    redis_url: str
    python: Path


class Answered(NamedTuple):
    """One request.

    Attributes:
        times_s: when each step's tokens came, after the request was made.
        step_tokens: how many came then.
    """

    ids: tuple[int, ...]
    times_s: tuple[float, ...]
    cached_tokens: int
    step_tokens: tuple[int, ...] = ()

    @property
    def first_ms(self) -> float:
        return 1000 * self.times_s[0]


@asynccontextmanager
async def started(model: Path, **options: Any) -> AsyncGenerator[VllmEngine]:
    """An engine in float32 unless told otherwise. Raises EngineUnavailableError."""
    # Read when vLLM is imported; what is printed by a bench is JSON.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    engine = VllmEngine.from_config(**{"model": model, "eager": True, "dtype": "float32", "cache_gib": 2.0} | options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def ask(
    engine: VllmEngine,
    name: str,
    ids: list[int],
    tokens: int = 1,
    *,
    priority: int = 0,
    salt: str | None = None,
    origin: Origin | None = None,
) -> Answered:
    """Greedy, to its end."""
    written: list[int] = []
    times: list[float] = []
    steps: list[int] = []
    cached = 0
    request = GenerationRequest(
        name, ids, GenerationParams(max_tokens=tokens), priority=priority, salt=salt, origin=origin
    )
    began = time.perf_counter()
    async for chunk in engine.generate(request):
        if chunk.token_ids:
            written += chunk.token_ids
            times.append(time.perf_counter() - began)
            steps.append(len(chunk.token_ids))
        cached += chunk.cached_tokens or 0
    return Answered(tuple(written), tuple(times), cached, tuple(steps))


def hole(tokenizer: Tokenizer, above: str, below: str, prefix_tokens: int, suffix_tokens: int) -> list[int]:
    """In the order that the shipped network has: suffix, then prefix."""
    prefix, suffix, middle = (tokenizer.control(f"<|fim_{name}|>") for name in ("prefix", "suffix", "middle"))
    before = tokenizer.encode(above[-8 * prefix_tokens :])[-prefix_tokens:]
    after = tokenizer.encode(below[: 8 * suffix_tokens])[:suffix_tokens]
    return [prefix, suffix, *after, middle, *before]


def drawn(draw: random.Random, tokens: int) -> list[int]:
    """A prompt that nobody has asked: what a token costs does not depend on which it is."""
    return draw.choices(IDS, k=tokens)
