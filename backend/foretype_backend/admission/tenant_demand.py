"""What each tenant asked of an engine in the last seconds, what of it was shed, and which of them ask more than their part. Pure.

Parts are max-min fair (Bertsekas and Gallager, Data Networks, section 6.5.2): what can be served is poured out over the tenants, each up
to what it asks, the rest by weight over those that ask for more. A tenant that gets all it asks for is within its part;
the others are *heavy*.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

_WINDOW_S: Final = 3
_EASE: Final = 0.25
"""Of what was asked: so much less would be a relief. Until as much is shed, parts are those of the rest: an engine that is slow serves all."""


class TenantLoad:
    """Of one tenant. Tokens are what the scheduler's turns count in; `asked` and `shed` are interactive requests."""

    __slots__ = ("asked", "free", "shed", "shed_tokens", "tokens", "weight")

    def __init__(self, weight: float = 1.0, *, free: bool = False) -> None:
        self.weight = weight
        self.free = free
        self.tokens = 0
        self.shed_tokens = 0
        self.asked = 0
        self.shed = 0

    def add(self, other: TenantLoad) -> None:
        self.tokens += other.tokens
        self.shed_tokens += other.shed_tokens
        self.asked += other.asked
        self.shed += other.shed


class Demand:
    """Counts of the last three seconds."""

    def __init__(self) -> None:
        self._seconds: deque[dict[str, TenantLoad]] = deque([{}], maxlen=_WINDOW_S)
        self._second = 0
        self._shed_in = -_WINDOW_S

    @property
    def any_shed(self) -> bool:
        """Whether an interactive request was shed lately."""
        return self._second - self._shed_in < _WINDOW_S

    def decided(
        self, tenant: str, *, weight: float, tokens: int, interactive: bool, shed: bool, free: bool = False
    ) -> None:
        """Admission let a request start, or refused it. What is shed of lower classes costs the engine nothing, and is not counted."""
        if shed and not interactive:
            return
        load = self._seconds[-1].get(tenant)
        if load is None:
            load = self._seconds[-1][tenant] = TenantLoad(max(weight, 1e-3), free=free)
        load.tokens += tokens
        load.asked += interactive
        if shed:
            load.shed += 1
            load.shed_tokens += tokens
            self._shed_in = self._second

    def turn(self, now: float) -> None:
        """Time passed; `now` in seconds."""
        for _ in range(min(_WINDOW_S, int(now) - self._second)):
            self._seconds.append({})
        self._second = int(now)

    def loads(self) -> dict[str, TenantLoad]:
        """Of everybody who asked lately."""
        found: dict[str, TenantLoad] = {}
        for second in self._seconds:
            for tenant, load in second.items():
                found.setdefault(tenant, TenantLoad(load.weight, free=load.free)).add(load)
        return found


def heavy(loads: Mapping[str, TenantLoad]) -> frozenset[str]:
    """Tenants that ask more than their part of what can be served; there always is one, unless nobody asked."""
    asked = sum(load.tokens for load in loads.values())
    rest = min(asked - _shed_tokens(loads.values()), (1 - _EASE) * asked)
    weights = sum(load.weight for load in loads.values())
    by_need = sorted(loads, key=lambda tenant: loads[tenant].tokens / loads[tenant].weight)
    for full, tenant in enumerate(by_need):
        load = loads[tenant]
        if load.tokens * weights > rest * load.weight:
            return frozenset(by_need[full:])
        rest, weights = rest - load.tokens, weights - load.weight
    return frozenset()


def _shed_tokens(loads: Iterable[TenantLoad]) -> int:
    return sum(load.shed_tokens for load in loads)
