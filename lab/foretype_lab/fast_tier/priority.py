"""How long a short request waits behind long ones: with a higher priority, and with theirs. The policy is on in both."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from foretype_backend.admission.scheduler import PRIORITY
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_eval.statistics import percentiles
from foretype_wire.messages import RequestClass

from foretype_lab.fast_tier.asking import ClaimOptions, ask, drawn, started

_RUNNING: Final = 4
_LONG: Final = 10
_LONG_TOKENS: Final = 400
_WRITTEN_TOKENS: Final = 32
_SHORT_TOKENS: Final = 128
_SIDES: Final = {
    "alone": None,
    "behind long ones of its own priority": PRIORITY[RequestClass.CHAT],
    "ahead of them by its priority": PRIORITY[RequestClass.INTERACTIVE],
}


async def measure(options: ClaimOptions) -> dict[str, Any]:
    """Rows by side. Raises EngineUnavailableError."""
    draw = random.Random(4)
    first: dict[str, list[float]] = {side: [] for side in _SIDES}
    async with started(options.model, max_sequences=_RUNNING, batched_tokens=256) as engine:
        for number in range(max(4, options.samples // 6)):
            for side, priority in _SIDES.items():
                first[side].append(await _waited(engine, f"{number}-{side}", draw, priority))
    return {
        "running": _RUNNING,
        "long": _LONG,
        "rows": [{"short one": side, **percentiles(times)._asdict()} for side, times in first.items()],
    }


async def _waited(engine: VllmEngine, name: str, draw: random.Random, priority: int | None) -> float:
    names = [f"{name}-{at}" for at in range(_LONG)] if priority is not None else []
    chat = PRIORITY[RequestClass.CHAT]
    load = [
        asyncio.create_task(ask(engine, one, drawn(draw, _LONG_TOKENS), _WRITTEN_TOKENS, priority=chat))
        for one in names
    ]
    if load:
        await asyncio.sleep(1.0)
    answer = await ask(engine, name, drawn(draw, _SHORT_TOKENS), priority=priority or 0)
    for one in names:
        engine.abort(one)
    await asyncio.gather(*load)
    await ask(engine, f"{name}-idle", drawn(draw, 8))  # answered behind the step that was under way
    return answer.first_ms
