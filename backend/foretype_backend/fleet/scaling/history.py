"""What a pool's load was: last week by the quarter of an hour, its steepest rises, and how long replicas took to start. Pure, and bounded."""

from __future__ import annotations

import datetime
import math
from typing import Final

import msgspec

SLOT_S: Final = 900
_SLOTS: Final = 7 * 86_400 // SLOT_S
_SMOOTH_S: Final = 60.0
"""Time constant of the mean that is remembered: one long prompt that waits is no load to be ready for next week."""
_NOTHING: Final = 0.01
"""What is left of a load that is over, in replicas, when it counts as none."""
_SAMPLES: Final = 9
_STARTS: Final = 5
_MOST_START_S: Final = 3_600.0


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Loads are in replicas' worth of work.

    Attributes:
        week: by slot of the local week, the greatest load, of the last time that slot was passed.
        passed: by slot, the number of the week that was.
        load: smoothed.
        at_s: when it was noted last, Unix seconds.
        recent: time and load, over about one cold start.
        rises: by day (number of the day, greatest rise within one cold start), the last seven.
        starts_s: how long the last starts took.
        waited_for: when more replicas were asked for, and how many that would make.
    """

    week: tuple[float, ...] = ()
    passed: tuple[int, ...] = ()
    load: float = 0.0
    at_s: float | None = None
    recent: tuple[tuple[float, float], ...] = ()
    rises: tuple[tuple[int, float], ...] = ()
    starts_s: tuple[float, ...] = ()
    waited_for: tuple[float, int] | None = None

    def __post_init__(self) -> None:
        if len(self.week) not in (0, _SLOTS) or len(self.passed) != len(self.week):
            raise ValueError(f"a week has {_SLOTS} slots, not {len(self.week)}")

    def noted(self, load: float, when: datetime.datetime, cold_start_s: float) -> History:
        """With the load of now. A clock that goes back notes nothing until it has come again."""
        now_s = when.timestamp()
        if self.at_s is not None and now_s < self.at_s:
            return self
        passed_s = math.inf if self.at_s is None else now_s - self.at_s
        smooth = load + (self.load - load) * math.exp(-passed_s / _SMOOTH_S)
        smooth = smooth if load or smooth > _NOTHING else 0.0
        recent = self.recent
        if not recent or now_s - recent[-1][0] >= cold_start_s / (_SAMPLES - 1):
            since = [one for one in recent if now_s - one[0] <= cold_start_s]
            recent = (*since[-(_SAMPLES - 1) :], (now_s, smooth))
        rise = smooth - min(one for _, one in recent)
        return msgspec.structs.replace(
            self._kept(smooth, when), load=smooth, at_s=now_s, recent=recent, rises=self._rises(rise, when)
        )

    def ahead(self, when: datetime.datetime, lead_s: float) -> float:
        """The greatest load that last week had from this time on, so long; 0 where nothing is known of it."""
        if not self.week:
            return 0.0
        found, now = 0.0, when
        for _ in range(int(lead_s // SLOT_S) + 2):
            week, slot = _slot(now)
            if self.passed[slot] == week - 1:
                found = max(found, self.week[slot])
            now = now + datetime.timedelta(seconds=min(SLOT_S, lead_s))
        return found

    @property
    def steepest(self) -> float:
        """Replicas' worth that came within one cold start, at most, in the last seven days."""
        return max((rise for _, rise in self.rises), default=0.0)

    @property
    def cold_start_s(self) -> float | None:
        """The slowest of the last starts; None before the first."""
        return max(self.starts_s, default=None)

    def started(self, target: int, serving: int | None, now_s: float) -> History:
        """With what this look says of starts: of the replicas that were asked for together the last one counts."""
        if self.waited_for is not None:
            began_s, count = self.waited_for
            if serving is not None and serving >= count:
                took_s = min(max(0.0, now_s - began_s), _MOST_START_S)
                return msgspec.structs.replace(self, waited_for=None, starts_s=(*self.starts_s, took_s)[-_STARTS:])
            if target < count or now_s - began_s > _MOST_START_S:
                return msgspec.structs.replace(self, waited_for=None)
        elif serving is not None and target > serving:
            return msgspec.structs.replace(self, waited_for=(now_s, target))
        return self

    def _kept(self, load: float, when: datetime.datetime) -> History:
        week, slot = _slot(when)
        if self.week and self.passed[slot] == week and load <= self.week[slot]:
            return self
        loads, passed = list(self.week or [0.0] * _SLOTS), list(self.passed or [-1] * _SLOTS)
        loads[slot] = max(load, loads[slot]) if passed[slot] == week else load
        passed[slot] = week
        return msgspec.structs.replace(self, week=tuple(loads), passed=tuple(passed))

    def _rises(self, rise: float, when: datetime.datetime) -> tuple[tuple[int, float], ...]:
        day = when.date().toordinal()
        if self.rises and self.rises[-1][0] == day and rise <= self.rises[-1][1]:
            return self.rises
        by_day = {one: most for one, most in self.rises if day - 7 < one}
        by_day[day] = max(rise, by_day.get(day, 0.0))
        return tuple(sorted(by_day.items()))


def _slot(when: datetime.datetime) -> tuple[int, int]:
    """Number of the week, and of the slot in it, by local time."""
    week, weekday = divmod(when.date().toordinal() - 1, 7)
    return week, (weekday * 86_400 + when.hour * 3_600 + when.minute * 60 + when.second) // SLOT_S
