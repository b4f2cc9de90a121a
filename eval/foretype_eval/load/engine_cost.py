"""What the scripted engine itself costs of the gateway's processor time: it runs in the gateway's process, and is none of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Final

from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_backend.engines.scripted import ScriptedEngine, fixed
from foretype_backend.prefix.origin import Origin

from foretype_eval.load.drive import drive, quiet_collector

_SECONDS: Final = 2.0


async def engine_cpu_ms(*, rate: float, prompt_tokens: int, frames: int, frame_ms: float, block_tokens: int) -> float:
    """Processor milliseconds per request of the engine alone, at this rate, in this process, on its present core.

    A lower bound: the gateway's engine also looks for the prompt's last line, and for what is new in it. What the arrivals themselves cost is taken off.
    """
    engine = ScriptedEngine(
        fixed(range(frames + 1)),
        decode_s_per_token=frame_ms / 1000,
        slots=8192,
        cache_blocks=65_536,
        block_tokens=block_tokens,
    )
    await engine.start()
    prompts = [list(range(start, start + prompt_tokens)) for start in range(64)]
    origins = [Origin(session=str(number)) for number in range(64)]
    running: set[asyncio.Task[None]] = set()

    async def serve(number: int, params: GenerationParams) -> None:
        async for _ in engine.generate(
            GenerationRequest(str(number), prompts[number % 64], params, origin=origins[number % 64])
        ):
            pass

    def ask(_due: float, number: int) -> None:
        task = asyncio.ensure_future(serve(number, GenerationParams(max_tokens=frames)))
        running.add(task)
        task.add_done_callback(running.discard)

    requests = max(1, round(rate * _SECONDS))
    busy_s = await _busy_s(requests, ask, running)
    idle_s = await _busy_s(requests, lambda _due, _number: None, running)
    await engine.close()
    return max(0.0, busy_s - idle_s) * 1000 / requests


async def _busy_s(requests: int, send: Callable[[float, int], None], running: set[asyncio.Task[None]]) -> float:
    rng = Random(0)
    plan = sorted((rng.random() * _SECONDS, number) for number in range(requests))
    began = time.process_time()
    with quiet_collector():
        await drive(plan, send, _SECONDS, lambda _done, _total: None)
        await asyncio.gather(*running)
    return time.process_time() - began
