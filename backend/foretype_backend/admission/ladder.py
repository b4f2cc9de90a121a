"""The degradation ladder: how much less is served while a gateway is loaded, one rung at a time, and up again. Pure.

| rung | what clients do |
|---|---|
| `full` | everything |
| `no_retrieval` | prompts without other files |
| `short_context` | besides, half of the prompt |
| `own_engine` | ask the developer's own engine, not this gateway, for what is typed |
| `cache_only` | ask nobody: what is cached and what the local candidate knows |

A rung down takes two seconds of trouble, a rung up five seconds of calm, so that profiles do not flutter.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec
from foretype_context.profile import Profile, Service

__all__ = ["Ladder", "profile_at"]

_DOWN_S: Final = 2.0
_UP_S: Final = 5.0
_WINDOW_S: Final = 3
_MIN_ASKED: Final = 20
_RUNGS: Final = tuple(Service)
_MANY_REFUSED: Final = 0.1
_MOST_REFUSED: Final = 0.5


class Ladder:
    """Which rung a gateway is on."""

    def __init__(self) -> None:
        self.rung = Service.FULL
        self._toward: Service = Service.FULL
        self._since_s: float | None = None
        self._seconds: deque[list[int]] = deque([[0, 0]], maxlen=_WINDOW_S)
        self._second = 0

    def __repr__(self) -> str:
        return f"<Ladder: {self.rung}>"

    def decided(self, *, shed: bool) -> None:
        """Admission decided about an interactive request."""
        self._seconds[-1][0] += 1
        self._seconds[-1][1] += shed

    @property
    def refused_share(self) -> float:
        """Of interactive requests in the last seconds, those that were shed."""
        asked = sum(second[0] for second in self._seconds)
        return sum(second[1] for second in self._seconds) / asked if asked >= _MIN_ASKED else 0.0

    def turn(self, *, level: int, highest: int, now: float) -> bool:
        """Look at the load; True when the rung changed. `level` and `highest` are those of shedding (`pressure`)."""
        if int(now) != self._second:
            self._second = int(now)
            self._seconds.append([0, 0])
        wanted = _wanted(level, highest, self.refused_share)
        here, there = _RUNGS.index(self.rung), _RUNGS.index(wanted)
        if here == there:
            self._since_s = None
            return False
        toward = _RUNGS[here + (1 if there > here else -1)]
        if self._since_s is None or toward is not self._toward:
            self._toward, self._since_s = toward, now
            return False
        if now - self._since_s < (_DOWN_S if there > here else _UP_S):
            return False
        self.rung, self._since_s = toward, now
        return True


def _wanted(level: int, highest: int, refused_share: float) -> Service:
    """Interactive work suffers only when everything below it is shed already."""
    if refused_share >= _MOST_REFUSED:
        return Service.CACHE_ONLY
    if refused_share >= _MANY_REFUSED:
        return Service.OWN_ENGINE
    if level >= highest:
        return Service.SHORT_CONTEXT
    return Service.NO_RETRIEVAL if level >= highest - 1 else Service.FULL


def profile_at(profile: Profile, rung: Service) -> Profile:
    """The profile that clients get on a rung; `profile` is that of the full service."""
    if rung is Service.FULL:
        return profile
    budgets = msgspec.structs.replace(profile.budgets, context_tokens=0)
    if rung is not Service.NO_RETRIEVAL:
        budgets = msgspec.structs.replace(
            budgets, prompt_tokens=budgets.prompt_tokens // 2, suffix_tokens=budgets.suffix_tokens // 2
        )
    return msgspec.structs.replace(profile, budgets=budgets, service=rung)
