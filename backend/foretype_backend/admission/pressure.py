"""How near a gateway is to breaking its promises: rolling p99 by class, and the level of shedding that follows. Pure.

Shedding has levels: level n sheds the n lowest classes. It rises by one step while a class's p99 is above `refuse_share` of its
objective, and falls by one step when all are below `resume_share` (hysteresis). Classes above the one in trouble are never
touched, and interactive work of paying customers is never refused as a class: at the last level it is only hardly queued any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from foretype_wire.messages import RequestClass

LOWEST_FIRST: Final = tuple(reversed(RequestClass))
_STEP_S: Final = 0.5
_SMOOTHING: Final = 0.05
_BUCKETS: Final = 4
"""Of half a second each: the window is short, so that two seconds after the load is gone nothing remembers it."""
_MIN_SAMPLES: Final = 20
_BASE_MS: Final = 0.5
_GROWTH: Final = 1.1
_CELLS: Final = 128  # up to 0.5 ms x 1.1^127: 90 s, with 10 % of error


class RollingP99:
    """p99 of the last two seconds, within 10 %."""

    def __init__(self) -> None:
        self._buckets: deque[dict[int, int]] = deque([{}], maxlen=_BUCKETS)

    def add(self, value_s: float) -> None:
        cell, bound = 0, _BASE_MS / 1000
        while bound < value_s and cell < _CELLS - 1:
            cell, bound = cell + 1, bound * _GROWTH
        bucket = self._buckets[-1]
        bucket[cell] = bucket.get(cell, 0) + 1

    def turn(self) -> None:
        """Half a second has passed."""
        self._buckets.append({})

    def p99_s(self, least: int = _MIN_SAMPLES) -> float | None:
        """None with fewer samples than `least`; with 1 it is the slowest where they are few."""
        cells: dict[int, int] = {}
        for bucket in self._buckets:
            for cell, count in bucket.items():
                cells[cell] = cells.get(cell, 0) + count
        total = sum(cells.values())
        if total < least:
            return None
        above = total * 0.01
        for cell in sorted(cells, reverse=True):
            above -= cells[cell]
            if above < 0:
                return _BASE_MS / 1000 * _GROWTH**cell
        return None


class Rates:
    """What the engine was measured to do: prefill tokens per second, and how long a request holds its slot."""

    def __init__(self) -> None:
        self.prefill_tokens_per_s: float | None = None
        self.service_s: float | None = None

    def prefilled(self, uncached_tokens: int, seconds: float) -> None:
        if uncached_tokens > 0 and seconds > 0:
            self.prefill_tokens_per_s = self._blend(self.prefill_tokens_per_s, uncached_tokens / seconds)

    def served(self, seconds: float) -> None:
        if seconds >= 0:
            self.service_s = self._blend(self.service_s, seconds)

    def prefill_s(self, tokens: int) -> float:
        return 0.0 if self.prefill_tokens_per_s is None else tokens / self.prefill_tokens_per_s

    def wait_s(self, ahead: int, slots: int) -> float:
        """Until `ahead` requests have got a slot and one more is free."""
        return 0.0 if self.service_s is None else (ahead + 1) * self.service_s / slots

    def _blend(self, before: float | None, now: float) -> float:
        return now if before is None else before + _SMOOTHING * (now - before)


class PressureStatistics(NamedTuple):
    """`p99_ms` by class, where it is known."""

    level: int
    p99_ms: Mapping[str, float]


class Pressure:
    """Watches the objectives of every class.

    Args:
        objectives_s: p99 of the time to first token by class; a class without one is never in trouble.
    """

    def __init__(
        self, objectives_s: Mapping[RequestClass, float], *, refuse_share: float = 0.8, resume_share: float = 0.6
    ) -> None:
        self._objectives_s = dict(objectives_s)
        self._refuse_share, self._resume_share = refuse_share, resume_share
        self._windows = {class_: RollingP99() for class_ in self._objectives_s}
        self._turned: float | None = None
        self._busy = False
        self.level = 0

    @property
    def highest(self) -> int:
        return len(LOWEST_FIRST)

    def first_token(self, class_: RequestClass, ttft_s: float) -> None:
        if class_ in self._windows:
            self._windows[class_].add(ttft_s)

    def busy(self) -> None:
        """Requests wait, or nearly every slot is taken: only then is a slow answer a sign of load."""
        self._busy = True

    def spare_steps(self, class_: RequestClass, *, behind: bool = False) -> int:
        """0 where a class is not shed; else how far below the level it is: so much idle room must it leave to start at all.

        Args:
            behind: of a free customer beside paying ones: whatever it asks for is as low as the lowest class.
        """
        if behind:
            return self.level
        return 0 if class_ is RequestClass.INTERACTIVE else max(0, self.level - LOWEST_FIRST.index(class_))

    def queues_interactive(self, *, behind: bool = False) -> bool:
        """Whether such work may wait for long; `behind` as above, which is not to make others late."""
        return self.level < (1 if behind else self.highest)

    def turn(self, now: float) -> bool:
        """Look at the objectives, twice a second at most; True when the level changed."""
        if self._turned is not None and now - self._turned < _STEP_S:
            return False
        self._turned = now
        before, wanted, calm = self.level, 0, True
        for class_, window in self._windows.items():
            p99 = window.p99_s()
            if p99 is not None:
                objective = self._objectives_s[class_]
                if p99 > self._refuse_share * objective and self._busy:
                    wanted = max(wanted, LOWEST_FIRST.index(class_) + 1)
                calm &= p99 < self._resume_share * objective
            window.turn()
        if wanted > self.level:
            self.level += 1
        elif calm or not self._busy:
            self.level = max(0, self.level - 1)
        self._busy = False
        return self.level != before

    def recent_ms(self) -> dict[str, float]:
        """p99 by class of the last two seconds, for scaling: with few answers the slowest of them."""
        found = {class_.value: window.p99_s(1) for class_, window in self._windows.items()}
        return {name: p99 * 1000 for name, p99 in found.items() if p99 is not None}

    def statistics(self) -> PressureStatistics:
        found = {class_.value: window.p99_s() for class_, window in self._windows.items()}
        return PressureStatistics(self.level, {name: p99 * 1000 for name, p99 in found.items() if p99 is not None})
