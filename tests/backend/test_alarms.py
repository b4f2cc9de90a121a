"""Futures and deadlines on one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from foretype_backend.timing_wheel import Alarms, Deadline
from hypothesis import given
from hypothesis import strategies as st


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


async def test_one_that_was_dropped_does_not_ring_and_the_others_of_its_moment_do() -> None:
    loop, rung = asyncio.get_running_loop(), list[str]()
    alarms, due_s = Alarms(loop), loop.time() + 0.002
    rings = {name: partial(rung.append, name) for name in ("first", "dropped", "last")}
    slots = {name: alarms.at(due_s, ring) for name, ring in rings.items()}
    alarms.drop(slots["dropped"], rings["dropped"])
    alarms.drop(slots["dropped"], rings["dropped"])
    await alarms.after(0.004)
    assert rung == ["first", "last"]
    assert not alarms._slots  # pyright: ignore[reportPrivateUsage]


@given(st.lists(st.tuples(st.floats(0, 0.02), st.booleans()), max_size=30))
def test_each_rings_once_within_a_grain_of_its_moment_and_what_is_dropped_never(
    wanted: list[tuple[float, bool]],
) -> None:
    loop, rung = Clock(), dict[int, float]()
    alarms = Alarms(loop, grain_s=0.003)  # pyright: ignore[reportArgumentType]
    for number, (due_s, dropped) in enumerate(wanted):
        ring = partial(loop.note, rung, number)
        slot = alarms.at(due_s, ring)
        if dropped:
            alarms.drop(slot, ring)
    loop.run()
    kept = {number: due_s for number, (due_s, dropped) in enumerate(wanted) if not dropped}
    assert set(rung) == set(kept)
    assert all(-1e-5 <= rung[number] - due_s <= 0.003 + 1e-5 for number, due_s in kept.items())


class Clock:
    """An event loop of timers alone, whose time is what the next timer says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, do: Callable[[], None]) -> Timer:
        self.timers.append(Timer(when, do))
        return self.timers[-1]

    def note(self, rung: dict[int, float], number: int) -> None:
        assert number not in rung
        rung[number] = self.now

    def run(self) -> None:
        while waiting := [timer for timer in self.timers if not timer.cancelled]:
            timer = min(waiting, key=lambda timer: timer.when)
            timer.cancel()
            self.now = max(self.now, timer.when)
            timer.do()


@dataclass
class Timer:
    when: float
    do: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


async def test_a_deadline_ends_its_block_and_is_no_cancel_of_the_task() -> None:
    loop = asyncio.get_running_loop()
    alarms = Alarms(loop)
    deadline = Deadline(alarms, loop.time() + 0.002)
    with pytest.raises(TimeoutError), deadline:
        await asyncio.sleep(10)
    task = asyncio.current_task()
    assert deadline.expired and task is not None and not task.cancelling()
    await alarms.after(0.001)


async def test_a_deadline_that_is_kept_moved_or_past_its_block_ends_nothing() -> None:
    loop = asyncio.get_running_loop()
    alarms = Alarms(loop)
    with Deadline(alarms, loop.time() + 0.002) as deadline:
        deadline.move(loop.time() + 10)
        await alarms.after(0.006)
    assert not deadline.expired and not alarms._slots  # pyright: ignore[reportPrivateUsage]
    deadline.move(loop.time())
    await alarms.after(0.003)
    with pytest.raises(TimeoutError), Deadline(alarms, loop.time() + 10) as deadline:
        deadline.move(loop.time())
        await asyncio.sleep(10)


async def test_a_cancel_from_elsewhere_stays_a_cancel_also_together_with_a_deadline() -> None:
    loop = asyncio.get_running_loop()
    alarms = Alarms(loop)

    async def wait(seconds: float) -> None:
        with Deadline(alarms, loop.time() + seconds):
            await asyncio.sleep(10)

    task = asyncio.create_task(wait(10))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async def both() -> None:
        with Deadline(alarms, loop.time() + 10) as deadline:
            deadline()
            asyncio.current_task().cancel()  # pyright: ignore[reportOptionalMemberAccess]
            await asyncio.sleep(10)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(both())
