"""When vLLM's steps ended and how many requests ran then, as its own statistics tell."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from foretype_backend.engines.vllm.engine import VllmEngine


class Steps:
    """A listener beside vLLM's own; `ended` has (time, requests running) of each step since it was cleared."""

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
