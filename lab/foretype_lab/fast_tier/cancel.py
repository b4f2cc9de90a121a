"""How long a cancelled request keeps its slot, while decoding and in its prefill, and how long a stranger waits behind a long prefill.

By the tokens of a step (`batched_tokens`), each an engine of its own; smaller steps end sooner, and cost prefill rate.
"""

from __future__ import annotations

import asyncio
import random
import time
from itertools import pairwise
from typing import Any, Final

from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_eval.statistics import percentiles

from foretype_lab.fast_tier.asking import ClaimOptions, ask, drawn, started

SLACK_MS: Final = 5.0
STRANGER_MS: Final = 50.0
_LONG_TOKENS: Final = 2000
_CONTEXT_TOKENS: Final = 8192
_KEEPS_TOKENS: Final = 4000
_SHORT_TOKENS: Final = 520
_NEW_TOKENS: Final = 8
_RATE_SAMPLES: Final = 1


async def measure(options: ClaimOptions) -> dict[str, Any]:
    """Rows by tokens of a step. Raises EngineUnavailableError."""
    rows: list[dict[str, Any]] = []
    for tokens in options.batched_tokens:
        async with started(options.model, batched_tokens=tokens, block_tokens=32) as engine:
            one = _Engine(engine, tokens)
            rows.append(
                {
                    "batched_tokens": tokens,
                    "prefill_tokens_per_s": round(await one.prefill_rate(), 1),
                    "decode": verdict(*await one.cancels(options.samples, prefill=False)),
                    "prefill": verdict(*await one.cancels(max(10, options.samples // 2), prefill=True)),
                    "stranger": await one.stranger(options.samples),
                }
            )
    return {"rows": rows}


def verdict(waits_ms: list[float], steps_ms: list[float]) -> dict[str, Any]:
    """Waits and steps, and whether the waits' p99 is within a step and some milliseconds."""
    waits, steps = percentiles(waits_ms), percentiles(steps_ms)
    return {
        "wait_ms": waits._asdict(),
        "step_ms": steps._asdict(),
        "met": waits.p99 is not None and steps.p50 is not None and waits.p99 <= steps.p50 + SLACK_MS,
    }


class _Steps:
    """When steps ended, by vLLM's own statistics: a listener beside its own; `ended` has (time, requests running) of each step since it was cleared."""

    def __init__(self, engine: VllmEngine) -> None:
        self.ended: list[tuple[float, int]] = []
        llm, _ = engine.library()
        llm.logger_manager.stat_loggers.append(self)

    def record(self, scheduler_stats: Any, iteration_stats: Any, **_: Any) -> None:
        """What vLLM calls after a step."""
        if scheduler_stats is not None:
            self.ended.append((time.perf_counter(), scheduler_stats.num_running_reqs))

    async def until(self, running: int, *, at_most: bool) -> float:
        """The end of the first step after now that leaves at most (else at least) so many running."""
        seen = len(self.ended)
        while True:
            for when, count in self.ended[seen:]:
                if count <= running if at_most else count >= running:
                    return when
            seen = len(self.ended)
            await asyncio.sleep(0.0005)


class _Engine:
    def __init__(self, engine: VllmEngine, batched_tokens: int) -> None:
        self._engine = engine
        self._steps = _Steps(engine)
        self._draw = random.Random(3)
        # A prompt of several steps, so that some of it is seen to run.
        self._long = min(_CONTEXT_TOKENS - 64, max(_LONG_TOKENS, 3 * batched_tokens))
        self._names = iter(range(1 << 30))

    async def _ask(self, tokens: int, most: int = 1) -> float:
        return (await ask(self._engine, f"r{next(self._names)}", drawn(self._draw, tokens), most)).first_ms

    async def prefill_rate(self) -> float:
        """Tokens a second of prompts that are alone."""
        taken = [await self._ask(_LONG_TOKENS) for _ in range(_RATE_SAMPLES)]
        return 1000 * _LONG_TOKENS * len(taken) / sum(taken)

    async def cancels(self, count: int, *, prefill: bool) -> tuple[list[float], list[float]]:
        """From a cancel until a step ends without the request, in ms, and the steps in which both ran."""
        waits: list[float] = []
        steps: list[float] = []
        keeper = asyncio.create_task(self._ask(32, _KEEPS_TOKENS))  # keeps the engine stepping
        await self._steps.until(1, at_most=False)
        for _ in range(count):
            name, began = f"gone-{next(self._names)}", len(self._steps.ended)
            prompt = drawn(self._draw, self._long if prefill else 32)
            gone = asyncio.create_task(ask(self._engine, name, prompt, 1 if prefill else 400))
            await self._steps.until(2, at_most=False)
            for _ in range(1 if prefill else 3):
                await self._steps.until(2, at_most=False)
            await asyncio.sleep(self._draw.random() * 0.05)
            cancelled = time.perf_counter()
            self._engine.abort(name)
            waits.append(1000 * (await self._steps.until(1, at_most=True) - cancelled))
            steps += [
                1000 * (end - begin)
                for (begin, _), (end, running) in pairwise(self._steps.ended[began:])
                if running == 2
            ]
            await gone
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        return waits, steps

    async def stranger(self, count: int) -> dict[str, Any]:
        """First tokens of a warm short prompt with the engine idle, and behind a long prompt that is being computed."""
        warm = drawn(self._draw, _SHORT_TOKENS)
        await ask(self._engine, f"r{next(self._names)}", warm)
        alone: list[float] = []
        behind: list[float] = []
        for number in range(2 * count):
            later = [*warm, *drawn(self._draw, _NEW_TOKENS)]
            name = f"long-{number}"
            long = asyncio.create_task(ask(self._engine, name, drawn(self._draw, self._long))) if number % 2 else None
            if long is not None:
                await asyncio.sleep(0.02 + self._draw.random() * 0.1)
            told = alone if long is None else behind
            told.append((await ask(self._engine, f"r{next(self._names)}", later)).first_ms)
            if long is not None:
                self._engine.abort(name)
                await long
                await self._ask(8)  # answered behind the step that was under way: the next one finds the engine idle
        first, later_ = percentiles(alone), percentiles(behind)
        assert first.p50 is not None and later_.p50 is not None
        return {
            "alone_ms": first._asdict(),
            "behind_ms": later_._asdict(),
            "more_ms": round(later_.p50 - first.p50, 1),
            "met": later_.p50 - first.p50 <= STRANGER_MS,
        }
