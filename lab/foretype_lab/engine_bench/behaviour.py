"""What a cancel costs, and that tenants share nothing: on the adapter, by the engine's own counts."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_backend.prefix.salt import SaltBook

from foretype_lab.engine_bench.options import EngineBenchOptions
from foretype_lab.engine_bench.serving import WatchedEngine, row

__all__ = ["measure_cancel", "measure_isolation"]

_GIVE_UP_S = 10.0


async def measure_cancel(engine: WatchedEngine, options: EngineBenchOptions) -> dict[str, Any]:
    """From the cancel to the step after which the engine counts one running request less.

    Another request generates all the while: an engine without work makes no steps and says nothing. The time is therefore that of
    the cancel and of what was left of the step that ran.
    """
    rng = random.Random(options.seed)
    arrivals: list[float] = []
    background = asyncio.create_task(_generate_for_ever(engine, rng, lambda: arrivals.append(time.perf_counter())))
    cancel_ms: list[float] = []
    wasted_before = engine.statistics().tokens_after_cancel
    until = time.perf_counter() + options.seconds
    try:
        for number in range(options.samples):
            if time.perf_counter() > until:
                break
            name = f"victim-{number}"
            stream = engine.generate(GenerationRequest(name, _prompt(rng, 400), GenerationParams(max_tokens=1000)))
            for _ in range(rng.randint(1, 4)):
                await anext(stream)
            await asyncio.sleep(rng.random() * 0.02)  # anywhere in a step
            began = time.perf_counter()
            engine.abort(name)
            while engine.statistics().running > 1:
                if time.perf_counter() - began > _GIVE_UP_S:
                    raise RuntimeError("a cancelled request still runs after ten seconds")
                await asyncio.sleep(0.0002)
            cancel_ms.append((time.perf_counter() - began) * 1000)
            async for _ in stream:
                pass
    finally:
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
    steps = [(after - before) * 1000 for before, after in itertools.pairwise(arrivals)]
    return {
        "cancel_to_running_falls_ms": row(cancel_ms),
        "step_ms": row(steps),
        "tokens_after_cancel_per_cancel": round(
            (engine.statistics().tokens_after_cancel - wasted_before) / max(len(cancel_ms), 1), 3
        ),
    }


async def measure_isolation(engine: WatchedEngine, options: EngineBenchOptions) -> dict[str, Any]:
    """The same prompt from A, A again, B, and from A after a purge of A: cached tokens and time to the first token."""
    rng = random.Random(options.seed + 1)
    book = SaltBook(rng.randbytes(32))
    tokens = options.prompt_tokens[0]
    values: dict[str, list[float]] = {name: [] for name in ("a_first", "a_again", "b_after_a", "a_after_purge")}
    cached = dict.fromkeys(values, 0)
    until = time.perf_counter() + options.seconds
    for number in range(max(5, options.samples // 4)):
        if time.perf_counter() > until:
            break
        prompt = _prompt(rng, tokens)
        for name, ttft_ms in values.items():
            if name == "a_after_purge":
                book.purge("a")
            salt = book.salt(book.namespace("b" if name.startswith("b") else "a"))
            began = time.perf_counter()
            stream = engine.generate(
                GenerationRequest(f"{name}-{number}", prompt, GenerationParams(max_tokens=1), salt=salt)
            )
            first = await anext(stream)
            ttft_ms.append((time.perf_counter() - began) * 1000)
            cached[name] += first.cached_tokens or 0
            async for _ in stream:
                pass
    return {name: {"cached_tokens": cached[name], "ttft_ms": row(found)} for name, found in values.items()}


async def _generate_for_ever(engine: WatchedEngine, rng: random.Random, on_output: Callable[[], None]) -> None:
    for number in range(1000):
        stream = engine.generate(
            GenerationRequest(f"background-{number}", _prompt(rng, 64), GenerationParams(max_tokens=6000))
        )
        async for _ in stream:
            on_output()


def _prompt(rng: random.Random, tokens: int) -> list[int]:
    return [rng.randrange(300, 16_000) for _ in range(tokens)]
