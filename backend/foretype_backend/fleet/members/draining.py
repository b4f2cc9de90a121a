"""How fast a pool may shrink: which of the replicas that want out are drained now. Pure; time is passed in.

In an interval at most half of those that serve are drained, and never the last one that serves, whatever is announced. A replica that
does not serve is not counted: there health agrees. What a drained replica waits for is :mod:`foretype_backend.fleet.members.membership`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class WantsOut(NamedTuple):
    """A member that is to leave: whether it answers completions now, and whether it says itself that it goes."""

    name: str
    serves: bool
    says_so: bool


class ShrinkBound:
    """Remembers who was drained in the interval."""

    def __init__(self) -> None:
        self._drained_s: deque[float] = deque()

    def drained(self, wanting: Iterable[WantsOut], serving: int, *, interval_s: float, now: float) -> list[str]:
        """Who goes now, in this order: those that say so themselves come before those that are only missing.

        Args:
            serving: members that serve, those that want out among them.
        """
        drained = self._drained_s
        while drained and drained[0] <= now - interval_s:
            drained.popleft()
        allowed = max(1, (serving + len(drained)) // 2) - len(drained)
        gone: list[str] = []
        for one in sorted(wanting, key=lambda one: not one.says_so):
            if one.serves:
                if serving <= 1 or allowed <= 0:
                    continue
                serving, allowed = serving - 1, allowed - 1
                drained.append(now)
            gone.append(one.name)
        return gone
