"""What is due at a moment, all of it on one timer of the event loop.

A timer for each costs several microseconds to set and as many to cancel, and nearly every deadline is cancelled. Here both are an entry of
a dictionary: a timing wheel (Varghese and Lauck, 1987) whose slots are made when they are needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import ceil
from types import TracebackType
from typing import Any, Final, Self

_ROUNDING: Final = 1e-3
"""Of a grain: clocks are floats."""
_NEVER: Final = float("inf")


class Alarms:
    """Timers for callers that wait thousands of times a second: those due in the same `grain_s` seconds fire together, up to `grain_s` late.

    The loop of uvloop counts in milliseconds, so that a finer grain gains nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, grain_s: float = 0.001) -> None:
        self.loop = loop
        self._grain_s = grain_s
        self._slots: dict[int, dict[Callable[[], None], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at: float = _NEVER

    def at(self, due_s: float, ring: Callable[[], None]) -> int:
        """Have `ring` called at `due_s` of the loop's clock; returns what :meth:`drop` wants to know."""
        slot = ceil(due_s / self._grain_s - _ROUNDING)
        rings = self._slots.get(slot)
        if rings is None:
            rings = self._slots[slot] = {}
            if slot < self._rings_at:
                self._wind(slot)
        rings[ring] = None
        return slot

    def drop(self, slot: int, ring: Callable[[], None]) -> None:
        """Nobody waits for it any more; nothing happens where it has rung."""
        rings = self._slots.get(slot)
        if rings is not None:
            rings.pop(ring, None)
            if not rings:
                del self._slots[slot]

    def after(self, seconds: float) -> asyncio.Future[None]:
        """A future that is done in `seconds`; one that is done before, cancelled or set, is passed over."""
        future = self.loop.create_future()
        self.at(self.loop.time() + seconds, partial(_done, future))
        return future

    def _wind(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = self.loop.call_at(slot * self._grain_s, self._ring), slot

    def _ring(self) -> None:
        self._timer, self._rings_at = None, _NEVER
        now = int(self.loop.time() / self._grain_s + _ROUNDING)
        for slot in sorted(slot for slot in self._slots if slot <= now):
            for ring in self._slots.pop(slot, ()):
                ring()
        if self._slots:
            self._wind(min(self._slots))


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Deadline:
    """`asyncio.timeout_at` on alarms, and no coroutine: `with Deadline(alarms, due_s) as deadline`.

    The block is cancelled at `due_s` of the loop's clock, and raises TimeoutError then; :attr:`expired` tells it from another's.
    """

    __slots__ = ("_alarms", "_cancelling", "_due_s", "_slot", "_task", "expired")

    def __init__(self, alarms: Alarms, due_s: float) -> None:
        self.expired = False
        self._alarms = alarms
        self._due_s = due_s
        self._slot = 0
        self._cancelling = 0
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        """Raises RuntimeError outside a task."""
        self._task = asyncio.current_task(self._alarms.loop)
        if self._task is None:
            raise RuntimeError("a deadline is of a task")
        self._cancelling = self._task.cancelling()
        self._slot = self._alarms.at(self._due_s, self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        task, self._task = self._task, None
        self._alarms.drop(self._slot, self)
        if self.expired and task is not None and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def __call__(self) -> None:
        """The alarm."""
        if self._task is not None:
            self.expired = True
            self._task.cancel()

    def move(self, due_s: float) -> None:
        """To an earlier or a later moment; nothing happens where it has expired, or is over."""
        if self._task is not None and not self.expired:
            self._alarms.drop(self._slot, self)
            self._slot = self._alarms.at(due_s, self)
