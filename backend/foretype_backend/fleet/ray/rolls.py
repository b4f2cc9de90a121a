"""Roll-outs as the directory runs them: ordered by its `user_config`, moved by what gateways say, said again by replicas. Pure.

An order stands in Serve's own state, which outlives the directory. How far it came does not: each heartbeat's answer takes it along, and each
heartbeat brings it back, so a new directory goes on where the one before stopped: by the time of the roll-out, whatever the clock of its node says.
A roll-out begins when a replica of its canary is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from foretype_backend.fleet.rollout.counters import Counts
from foretype_backend.fleet.rollout.machine import Rollout, RolloutOptions, announced, back, begin, look, warm

_LEAVES_S: Final = 10.0
"""From the end of a roll-out until a revision that is not kept is taken away: every gateway has heard of it by then."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asked for in a pool.

    Attributes:
        number: greater than those before it.
        verdict, without_gate, share: as of :func:`begin`.
        back: why everybody is to be on the stable revision again; "" where nobody asked for that.
    """

    number: int
    stable: str
    canary: str
    share: float | None = None
    verdict: dict[str, Any] | None = None
    without_gate: str = ""
    options: RolloutOptions = RolloutOptions()
    back: str = ""

    @staticmethod
    def number_after(former: int, now_s: float) -> int:
        """For the next one: a directory heeds the greatest, also where who orders it has a clock that is behind another's."""
        return max(former + 1, int(now_s))

    def begun(self, pool: str, now_s: float) -> Rollout:
        """Raises RolloutError where it cannot begin."""
        return begin(
            pool,
            stable=self.stable,
            canary=self.canary,
            number=self.number,
            now_s=now_s,
            options=self.options,
            verdict=self.verdict,
            without_gate=self.without_gate,
            share=self.share,
        )


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A roll-out, and how often and when it was looked at last: of two memories the longer one counts."""

    looks: int
    rollout: Rollout
    at_s: float


class Rolls:
    """See the module. Times are Unix seconds."""

    def __init__(self) -> None:
        self._stable: dict[str, str] = {}
        self._orders: dict[str, Order] = {}
        self._kept: dict[str, _Kept] = {}
        self._ahead_s: dict[str, float] = {}  # of this node's clock, the roll-out's
        self._adopted: set[str] = set()

    def order(self, wanted: Mapping[str, Any]) -> None:
        """Of a `user_config`."""
        self._stable = dict(wanted.get("stable", {}))
        self._orders = msgspec.convert(wanted.get("rolls", {}), dict[str, Order])

    def memory(self) -> dict[str, Any]:
        """What replicas are to say again."""
        return {pool: msgspec.to_builtins(kept) for pool, kept in self._kept.items()}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """What a replica says again."""
        for pool, said in memory.items():
            kept = msgspec.convert(said, _Kept)
            own = self._kept.get(pool)
            if own is None or (kept.rollout.number, kept.looks) > (own.rollout.number, own.looks):
                self._kept[pool] = kept
                self._adopted.add(pool)

    def tick(
        self, told: Mapping[str, Mapping[str, Mapping[str, Counts]]], is_ready: Callable[[str, str], bool], now_s: float
    ) -> None:
        """Begin what is ordered and ready, go back where that is ordered, and look at what rolls.

        Args:
            told: by pool, gateway and revision.
            is_ready: of a pool and a revision.
        """
        for pool in self._adopted:  # by a directory whose clock may be another one
            self._ahead_s[pool] = self._kept[pool].at_s - now_s
        self._adopted.clear()
        self._kept = {
            pool: msgspec.structs.replace(kept, at_s=self._time_s(pool, now_s)) for pool, kept in self._kept.items()
        }
        for pool, order in self._orders.items():
            self._look(pool, order, told.get(pool, {}), is_ready, self._time_s(pool, now_s))

    def _time_s(self, pool: str, now_s: float) -> float:
        return now_s + self._ahead_s.get(pool, 0.0)

    def _look(
        self,
        pool: str,
        order: Order,
        told: Mapping[str, Mapping[str, Counts]],
        is_ready: Callable[[str, str], bool],
        now_s: float,
    ) -> None:
        kept = self._kept.get(pool)
        if kept is None or kept.rollout.number < order.number:
            if not order.back and not is_ready(pool, order.canary):
                return
            kept = _Kept(looks=0, rollout=order.begun(pool, now_s), at_s=now_s)
        rollout = kept.rollout
        if rollout.number == order.number and order.back and rollout.state != "back":
            if rollout.stable in warm(rollout, now_s):
                rollout = back(rollout, now_s, order.back)
        elif rollout.state == "rolling":
            rollout = look(rollout, told, now_s)
        if rollout is not kept.rollout or pool not in self._kept:
            self._kept[pool] = _Kept(looks=kept.looks + 1, rollout=rollout, at_s=now_s)

    def announced(self) -> dict[str, dict[str, Any]]:
        """Of every pool, as gateways read it."""
        found = {
            pool: {"stable": stable, "canary": None, "share": 0.0, "number": 0} for pool, stable in self._stable.items()
        }
        return found | {pool: announced(kept.rollout) for pool, kept in self._kept.items()}

    def told(self) -> dict[str, str]:
        """By pool, what happened last and why, and why it does not go on."""
        return {
            pool: f"{kept.rollout.last.what} ({kept.rollout.last.why})"
            + (f"; waits: {kept.rollout.waits}" if kept.rollout.waits else "")
            for pool, kept in self._kept.items()
        }

    def leaves(self, pool: str, revision: str, now_s: float) -> bool:
        """Whether a revision's replicas are to go: it was of a roll-out that has ended, and is not kept warm."""
        kept, now_s = self._kept.get(pool), self._time_s(pool, now_s)
        if kept is None or kept.rollout.ended_s is None or now_s - kept.rollout.ended_s < _LEAVES_S:
            return False
        order = self._orders.get(pool)
        if order is not None and order.number > kept.rollout.number:
            return False  # the next roll-out may need it
        rollout = kept.rollout
        return revision in (rollout.stable, rollout.canary) and revision not in warm(rollout, now_s)
