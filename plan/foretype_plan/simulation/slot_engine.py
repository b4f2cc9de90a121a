"""The scripted engine in virtual time: slots that do not disturb each other, a fixed time for each token. Pure; used as :class:`.engine.Engine` is."""

from __future__ import annotations

import heapq
import itertools
from collections import deque

import msgspec

from foretype_plan.simulation.engine import Ended, First, Happening, Work


class SlotSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of an uncached prompt token and of a generated one; the rest is what a cell asks of every engine."""

    batch: int
    token_s: float = 1e-9
    decode_s: float
    blocks: int = 1
    guesses: int = 0


class SlotEngine:
    """See the module. No prompt is found in its cache."""

    def __init__(self, spec: SlotSpec) -> None:
        self.spec = spec
        self._free = self.slots = spec.batch
        self._events: list[tuple[float, int, Work, bool]] = []
        self._order = itertools.count()
        self._waiting: deque[Work] = deque()
        self.busy_s = 0.0

    @property
    def due(self) -> float | None:
        return self._events[0][0] if self._events else None

    @property
    def running(self) -> int:
        return self.slots - self._free

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, work: Work, now: float) -> None:
        if self._free:
            self._start(work, now)
        else:
            self._waiting.append(work)

    def cancel(self, key: str, now: float) -> bool:
        """True where it had not begun."""
        for work in self._waiting:
            if work.key == key:
                self._waiting.remove(work)
                return True
        for at, (_, order, work, _) in enumerate(self._events):
            if work.key == key:
                self._events[at] = (now, order, work, True)
                heapq.heapify(self._events)
                return False
        return False

    def advance(self, now: float) -> list[Happening]:
        happened: list[Happening] = []
        while self._events and self._events[0][0] <= now:
            at, _, work, last = heapq.heappop(self._events)
            if last or work.steps <= 0:
                if not last:
                    happened.append(First(work.key, work.cached_tokens))
                happened.append(Ended(work.key))
                self._free += 1
                if self._waiting:
                    self._start(self._waiting.popleft(), now)
            else:
                happened.append(First(work.key, work.cached_tokens))
                heapq.heappush(self._events, (at + work.steps * self.spec.decode_s, next(self._order), work, True))
        return happened

    def lose(self) -> list[str]:
        lost = [work.key for _, _, work, _ in self._events] + [work.key for work in self._waiting]
        self._events.clear()
        self._waiting.clear()
        self._free = self.slots
        return lost

    def _start(self, work: Work, now: float) -> None:
        self._free -= 1
        first_s = work.prompt_tokens * self.spec.token_s + self.spec.decode_s
        heapq.heappush(self._events, (now + first_s, next(self._order), work, False))
