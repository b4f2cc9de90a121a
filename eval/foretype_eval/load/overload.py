"""`--scenario overload`: more than the engine can do, for a while, and what becomes of it.

The capacity is measured first: as many requests as there are slots, each followed by the next as soon as it has ended. Then
`times` as much is asked, by people who wait for every answer, of three classes; then a quarter of the capacity, to see how soon
the gateway is as it was.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from foretype_wire.messages import RequestClass

from foretype_eval.load.crowd import Crowd
from foretype_eval.load.drive import Progress, Usage
from foretype_eval.load.gateway import GatewayUnderLoad
from foretype_eval.load.recorder import Recorder, percentiles_ms

MIX: Final = {RequestClass.INTERACTIVE: 0.25, RequestClass.BLOCK: 0.25, RequestClass.SPECULATIVE: 0.5}
"""Interactive work alone is below the capacity at three times of it, so that none of it need be shed."""
OBJECTIVES_MS: Final = {"interactive": 100.0, "block": 500.0, "speculative": 150.0}
"""The gateway's defaults."""


async def overload(
    crowd: Crowd,
    found: GatewayUnderLoad,
    *,
    slots: int,
    times: float,
    seconds: float,
    calibrate_s: float,
    calm_s: int,
    progress: Progress,
) -> dict[str, Any]:
    """Measure the capacity, go beyond it, and come back.

    Keys: `capacity_rate`, `offered_rate`, `goodput_rate` (whole answers whose first text was within its objective),
    `goodput_share` of the capacity, per class `asked`, `refused_share` and `ttft_ms` of what was admitted, `shed_in_order`
    (a higher class was never refused a larger share than a lower one), `recovered_s` (until nothing was refused any more; null
    where that never came).
    """
    capacity = await _capacity(crowd, slots, calibrate_s)
    books, usage = crowd.book(), Usage(found)
    await crowd.steady(times * capacity, seconds, f"{times:g} times {capacity:.0f}/s", progress)
    figures = usage.report(seconds, books.requests)
    classes = {name: _class(books, name) for name in OBJECTIVES_MS}
    good = sum(row["in_objective"] for row in classes.values())
    calm: list[int] = []
    for second in range(calm_s):
        later = crowd.book()
        await crowd.steady(capacity / 4, 1.0, f"calm, second {second + 1}", progress)
        calm.append(sum(later.refused.values()))
    await crowd.drain()
    shares = [classes[name]["refused_share"] or 0.0 for name in ("interactive", "block", "speculative")]
    return {
        "capacity_rate": round(capacity, 1),
        "offered_rate": round(books.requests / seconds, 1),
        "goodput_rate": round(good / seconds, 1),
        "goodput_share": round(good / seconds / capacity, 3),
        "classes": classes,
        "shed_in_order": shares == sorted(shares),
        "refused_when_calm": calm,
        "recovered_s": next((at for at in range(calm_s) if not any(calm[at:])), None),
        "generator_late_ms": percentiles_ms(books.late_s),
        **figures,
    }


async def _capacity(crowd: Crowd, slots: int, seconds: float) -> float:
    """Requests per second that the engine answers when it is never idle."""
    ended = 0
    working = crowd.developers[:slots]

    def again(number: int) -> None:
        nonlocal ended
        ended += 1
        working[number].ask(time.perf_counter(), False)

    for number, developer in enumerate(working):
        developer.ended = lambda number=number: again(number)
        developer.ask(time.perf_counter(), False)
    await asyncio.sleep(seconds / 4)
    before, began = ended, time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (ended - before) / (time.perf_counter() - began)
    for developer in working:
        developer.ended = lambda: None
    await crowd.drain()
    return rate


def _class(books: Recorder, name: str) -> dict[str, Any]:
    asked, times = books.asked_class[name], books.ttft_s.get(name, [])
    return {
        "asked": asked,
        "refused_share": round(books.refused_class[name] / asked, 4) if asked else None,
        "in_objective": sum(value * 1000 <= OBJECTIVES_MS[name] for value in times),
        "objective_ms": OBJECTIVES_MS[name],
        "ttft_ms": percentiles_ms(times),
    }
