"""Futures that are done at a moment, all of them on one timer of the event loop."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Final

__all__ = ["Alarms"]

_ROUNDING_S: Final = 1e-6


class Alarms:
    """For whoever sleeps thousands of times a second: what is due together wakes together, and a timer is more than an entry here.

    A future that is done before its time, cancelled or set, is passed over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = float("inf")

    def after(self, seconds: float) -> asyncio.Future[None]:
        """A future that is done in `seconds`."""
        due, future = self._loop.time() + seconds, self._loop.create_future()
        heapq.heappush(self._due, (due, next(self._order), future))
        if due < self._rings_at:
            self._wind(due)
        return future

    def _wind(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = self._loop.call_at(due, self._ring), due

    def _ring(self) -> None:
        due, now = self._due, self._loop.time() + _ROUNDING_S
        while due and due[0][0] <= now:
            future = heapq.heappop(due)[2]
            if not future.done():
                future.set_result(None)
        self._timer, self._rings_at = None, float("inf")
        if due:
            self._wind(due[0][0])
