"""Futures on one timer."""

from __future__ import annotations

import asyncio

from foretype_backend.engines.alarms import Alarms


async def test_what_is_due_earlier_is_done_earlier_whatever_the_order_it_was_asked_in() -> None:
    alarms, rung = Alarms(asyncio.get_running_loop()), list[str]()
    waits = {name: alarms.after(seconds) for name, seconds in {"late": 0.03, "soon": 0.01, "middle": 0.02}.items()}
    for name, future in waits.items():
        future.add_done_callback(lambda _, name=name: rung.append(name))
    await asyncio.gather(*waits.values())
    assert rung == ["soon", "middle", "late"]


async def test_one_that_is_done_before_its_time_is_passed_over() -> None:
    alarms = Alarms(asyncio.get_running_loop())
    cancelled, told, last = (alarms.after(0.001 * at) for at in range(1, 4))
    cancelled.cancel()
    told.set_result(None)
    await last
    assert cancelled.cancelled() and told.done()


async def test_after_a_pause_without_any_it_rings_again() -> None:
    alarms = Alarms(asyncio.get_running_loop())
    for _ in range(3):
        await alarms.after(0.001)
