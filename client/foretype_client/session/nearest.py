"""Which of several gateways to use: the nearest that is healthy, and no other one without a good reason. Pure: time is given.

A gateway that is lost is left at once. One that is nearer is gone to when it was clearly nearer for a while, and one that was lost has to
be healthy for a time first, which doubles each time that it is lost again soon: so nobody wanders to and fro.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

PROBE_S: Final = 15.0
_SETTLED_S: Final = 30.0
_PROVING_S: Final = 30.0
_MOST_PROVING_S: Final = 900.0
_SOON_S: Final = 600.0
_NEARER: Final = 0.8
_NEARER_MS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a gateway.

    Attributes:
        rtt_ms: median of the last measurements; None before the first.
        healthy: None while nobody has asked it.
        why: what is wrong with it.
    """

    url: str
    chosen: bool
    healthy: bool | None
    rtt_ms: float | None
    why: str


@dataclass(slots=True)
class _Gateway:
    url: str
    rtts_ms: deque[float] = field(default_factory=lambda: deque[float](maxlen=5))
    healthy: bool | None = None
    since_s: float = 0.0
    asked_s: float = float("-inf")
    joined_s: float = float("-inf")
    proving_s: float = 0.0
    nearer_since_s: float | None = None
    why: str = ""

    @property
    def rtt_ms(self) -> float:
        return statistics.median(self.rtts_ms) if self.rtts_ms else float("inf")

    def proven(self, now_s: float) -> bool:
        return bool(self.healthy) and now_s - self.since_s >= self.proving_s


class Nearest:
    """Chooses one of several gateways.

    Args:
        urls: in the order of preference where nothing is known.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("no gateway to choose from")
        self._each = {url: _Gateway(url) for url in urls}
        self.current: str | None = None

    def answered(self, url: str, rtt_ms: float, now_s: float) -> None:
        """A gateway is ready, and answered in this time."""
        one = self._each[url]
        if not one.healthy:
            one.healthy, one.since_s, one.why = True, now_s, ""
            one.rtts_ms.clear()
        one.rtts_ms.append(rtt_ms)
        one.asked_s = now_s

    def lost(self, url: str, why: str, now_s: float) -> None:
        """A gateway cannot be reached, or does not serve."""
        one = self._each[url]
        if one.healthy:
            soon = now_s - one.joined_s < _SOON_S and one.proving_s > 0
            one.proving_s = min(_MOST_PROVING_S, 2 * one.proving_s) if soon else _PROVING_S
        one.healthy, one.since_s, one.why, one.asked_s, one.nearer_since_s = False, now_s, why, now_s, None

    def choose(self, now_s: float) -> str:
        """Where to connect now."""
        current = None if self.current is None else self._each[self.current]
        better = self.better(now_s)
        if better is not None:
            chosen = self._each[better]
        elif current is not None and current.healthy:
            chosen = current
        else:
            untried = [one for one in self._each.values() if one.healthy is None]
            longest = sorted(self._each.values(), key=lambda one: one.since_s)
            chosen = (self._healthy(now_s) or untried or longest)[0]
        if chosen is not current:
            chosen.joined_s = now_s
            for one in self._each.values():
                one.nearer_since_s = None
        self.current = chosen.url
        return chosen.url

    def better(self, now_s: float) -> str | None:
        """A gateway to move to although there is a connection: the current one does not serve, or another is clearly nearer."""
        current = None if self.current is None else self._each[self.current]
        if current is None:
            return None
        if not current.healthy:
            healthy = self._healthy(now_s)
            return healthy[0].url if healthy else None
        found: list[_Gateway] = []
        for one in self._each.values():
            near = one.rtt_ms <= min(current.rtt_ms * _NEARER, current.rtt_ms - _NEARER_MS)
            if one is current or not near or not one.proven(now_s):
                one.nearer_since_s = None
                continue
            one.nearer_since_s = now_s if one.nearer_since_s is None else one.nearer_since_s
            if now_s - one.nearer_since_s >= _SETTLED_S:
                found.append(one)
        return min(found, key=lambda one: one.rtt_ms).url if found else None

    def _healthy(self, now_s: float) -> list[_Gateway]:
        """The nearest first; those that were lost a short time ago after the others."""
        healthy = [one for one in self._each.values() if one.healthy]
        return sorted(healthy, key=lambda one: (not one.proven(now_s), one.rtt_ms))

    def due(self, now_s: float) -> list[str]:
        """Gateways to ask now, how far they are."""
        return [url for url, one in self._each.items() if now_s - one.asked_s >= PROBE_S]

    @property
    def any_healthy(self) -> bool:
        return any(one.healthy for one in self._each.values())

    def standings(self) -> list[Standing]:
        """In the order that was given."""
        return [
            Standing(
                url=one.url,
                chosen=one.url == self.current,
                healthy=one.healthy,
                rtt_ms=one.rtt_ms if one.rtts_ms else None,
                why=one.why,
            )
            for one in self._each.values()
        ]
