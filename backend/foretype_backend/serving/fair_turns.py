"""Turns on the event loop: a tenant that has used up its turn waits behind the input of all others.

One loop serves everybody, so the time that a tenant's input takes of it is time that others wait. In each round of the loop a tenant's
input is looked at for :data:`TURN_S`; what is left then waits here, and is worked off one tenant after the other in later rounds, between
which the loop hears everybody. Nothing is lost, and nobody is held back while nobody else asks: the next round begins at once.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict, deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, NamedTuple

TURN_S: Final = 0.0005


class TurnsStatistics(NamedTuple):
    """Now waiting: tenants, and pieces of work of theirs."""

    tenants: int
    waiting: int


class Turns:
    """Of one event loop."""

    def __init__(self, *, turn_s: float = TURN_S, clock: Callable[[], float] = perf_counter) -> None:
        self._turn_s = turn_s
        self._clock = clock
        self._used: dict[str, float] = {}  # in this round, seconds by tenant
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()  # whose turn is next comes first
        self._round = False

    def statistics(self) -> TurnsStatistics:
        return TurnsStatistics(len(self._waiting), sum(map(len, self._waiting.values())))

    def of(self, tenant: str) -> Turn:
        return Turn(self, tenant)

    def left_s(self, tenant: str) -> float:
        """Of this round's turn; zero or less where it is used up."""
        return self._turn_s - self._used.get(tenant, 0.0)

    def spend(self, tenant: str, seconds: float) -> None:
        self._used[tenant] = self._used.get(tenant, 0.0) + seconds
        self._begin()

    def again(self, tenant: str, work: Callable[[], None]) -> None:
        """Call `work` in a later round. It does at least a little each time it is called, and spends what it takes."""
        self._waiting.setdefault(tenant, deque()).append(work)
        self._begin()

    async def come(self, tenant: str, cost_s: float) -> None:
        """Wait until the tenant has a turn, and spend `cost_s` of it."""
        if self.left_s(tenant) <= 0 or tenant in self._waiting:
            mine: asyncio.Future[None] = self._loop.create_future()
            self.again(tenant, lambda: self._called(tenant, mine, cost_s))
            await mine
            return
        self.spend(tenant, cost_s)

    def _called(self, tenant: str, waiting: asyncio.Future[None], cost_s: float) -> None:
        if not waiting.done():  # a request that was cancelled meanwhile needs no turn
            waiting.set_result(None)
            self.spend(tenant, cost_s)

    def _begin(self) -> None:
        if not self._round:
            self._round = True
            self._loop.call_soon(self._next)

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _next(self) -> None:
        self._round = False
        self._used.clear()
        if not self._waiting:
            return
        until = self._clock() + self._turn_s
        for _ in range(self.statistics().waiting):
            tenant, works = self._waiting.popitem(last=False)
            work = works.popleft()
            if works:
                self._waiting[tenant] = works  # behind all others
            work()
            if self._clock() >= until or sum(self._used.values()) >= self._turn_s:
                break
        if self._waiting:
            self._begin()


class Turn:
    """One tenant's."""

    __slots__ = ("_tenant", "_turns")

    def __init__(self, turns: Turns, tenant: str) -> None:
        self._turns = turns
        self._tenant = tenant

    def left_s(self) -> float:
        return self._turns.left_s(self._tenant)

    def spend(self, seconds: float) -> None:
        self._turns.spend(self._tenant, seconds)

    def again(self, work: Callable[[], None]) -> None:
        self._turns.again(self._tenant, work)
