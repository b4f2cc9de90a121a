"""How late the event loop is: what any input waits before anybody looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, NamedTuple

_BUSY_S: Final = 0.02
CALM_S: Final = 0.25
"""Between samples while nobody asks."""


class LoopWatch(NamedTuple):
    """`late` takes by how many seconds the loop was late; `working` says whether something is generated."""

    late: Callable[[float], None]
    working: Callable[[], bool]


async def watch_loop(late: Callable[[float], None], busy: Callable[[], bool], calm_s: float = CALM_S) -> None:
    """Tell `late` by how many seconds a timer of this loop came late, again and again, until cancelled.

    Samples are spread over time evenly, so that the share of them above a bound is the share of time in which somebody waits longer.

    Args:
        busy: somebody waits for this loop; fifty samples a second are taken then.
        calm_s: between samples while nobody does.
    """
    while True:
        interval_s = _BUSY_S if busy() else calm_s
        due = perf_counter() + interval_s
        await asyncio.sleep(interval_s)
        late(max(0.0, perf_counter() - due))
