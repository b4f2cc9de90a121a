"""`--scenario churn`: connections that come, ask, cancel and go in every way, again and again; nothing may be left."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from foretype_eval.load.connection import open_connection
from foretype_eval.load.developer import Developer, Habits
from foretype_eval.load.drive import Progress
from foretype_eval.load.gateway import GatewayUnderLoad
from foretype_eval.load.recorder import Recorder
from foretype_eval.load.scripts import ScriptedRequest

_AT_ONCE: Final = 32
_CANCELS: Final = Habits(supersede=0.3, cancel=0.4, early=0.5, early_ms=20.0, branch=0.01)
_PATIENCE_S: Final = 10.0


async def churn(
    found: GatewayUnderLoad,
    scripts: Sequence[tuple[ScriptedRequest, ...]],
    *,
    events: int,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """`events` connects, cancels and disconnects, at random moments of `requests`.

    Keys: `requests`, `events` by kind, `seconds`, `left` (connections and requests that the gateway holds afterwards, by its own count), and
    `resident_mib` before and after.
    """
    counts: Counter[str] = Counter()
    requests = 0
    before, began = found.resident_bytes(), time.perf_counter()

    async def live(number: int) -> None:
        nonlocal requests
        rng = Random(f"{seed}:{number}")
        while sum(counts.values()) < events:
            connection = await open_connection(found.endpoint)
            developer = Developer(
                number, connection, scripts, Recorder(), habits=_CANCELS, clock=time.perf_counter, rng=rng
            )
            counts["connects"] += 1
            if rng.random() < 0.95:  # some leave without a word
                developer.greet()
            for _ in range(rng.choice((0, 1, 1, 2, 3))):
                developer.ask(time.perf_counter(), True)
                requests += 1
                await asyncio.sleep(rng.random() * 0.04)
            counts["cancels"] += developer.cancels
            connection.on_lost = lambda _reason: None
            if rng.random() < 0.5:
                connection.abort()
                counts["aborted connections"] += 1
            else:
                connection.close()
                counts["closed connections"] += 1
            progress("events", min(events, sum(counts.values())), events)

    await asyncio.gather(*(live(number) for number in range(_AT_ONCE)))
    seconds = time.perf_counter() - began
    left = await found.left("connections", patience_s=_PATIENCE_S)
    after = found.resident_bytes()
    return {
        "requests": requests,
        "events": dict(counts),
        "seconds": round(seconds, 1),
        "left": left,
        "resident_mib": [None if size is None else round(size / (1 << 20), 1) for size in (before, after)],
    }
