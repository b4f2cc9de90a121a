"""When a tier is used at all: only where it is cheaper than computing, and only while it answers. Pure; time is passed in."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

_SMOOTHING: Final = 0.2
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0


class CostGate:
    """Says whether loading a chunk beats computing it: bytes / measured bandwidth against tokens / measured prefill rate.

    Until both have been measured, it is open.

    Args:
        probe_every: one in so many questions passes a closed gate, so that a network that got faster is noticed.
    """

    def __init__(self, *, probe_every: int = 256) -> None:
        self._probe_every = probe_every
        self._questions = 0
        self.bytes_per_s: float | None = None
        self.tokens_per_s: float | None = None

    def loaded(self, size_bytes: int, seconds: float) -> None:
        """A load of so many bytes took so long, the round trip included."""
        if size_bytes > 0 and seconds > 0:
            self.bytes_per_s = _blend(self.bytes_per_s, size_bytes / seconds)

    def computed(self, tokens: int, seconds: float) -> None:
        """A prefill of so many tokens took so long."""
        if tokens > 0 and seconds > 0:
            self.tokens_per_s = _blend(self.tokens_per_s, tokens / seconds)

    def pays(self, size_bytes: int, tokens: int) -> bool:
        """Whether to load a chunk of so many bytes that stands for so many tokens. Pure: asking changes nothing."""
        if self.bytes_per_s is None or self.tokens_per_s is None:
            return True
        return size_bytes / self.bytes_per_s <= tokens / self.tokens_per_s

    def lets_through(self, size_bytes: int, tokens: int) -> bool:
        """:meth:`pays`, or the turn of a probe."""
        self._questions += 1
        return self.pays(size_bytes, tokens) or self._questions % self._probe_every == 0


def _blend(before: float | None, now: float) -> float:
    return now if before is None else before + _SMOOTHING * (now - before)


class TierStanding(StrEnum):
    UP = "up"
    PROBING = "probing"  # was down; one question may find out whether it is back
    DOWN = "down"
    REFUSED = "refused"  # it is there, and must not be used: persistence is on, or another format lies in it


class TierHealthStatistics(NamedTuple):
    standing: TierStanding
    reason: str
    failures: int
    retry_s: float


class TierHealth:
    """Whether a store is asked. Down after a failure, for half a second at first and up to 30 s; one success brings it back.

    Args:
        now: seconds on the clock of all other calls.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._retry_s = now
        self._failures = 0
        self._probe_out = False
        self._refused = False
        self.reason = ""

    def standing(self, now: float) -> TierStanding:
        if self._refused and now < self._retry_s:
            return TierStanding.REFUSED
        if not self.reason:
            return TierStanding.UP
        return TierStanding.DOWN if now < self._retry_s or self._probe_out else TierStanding.PROBING

    def may_ask(self, now: float) -> bool:
        """True while up, and once when the pause is over; the answer must come back as :meth:`succeeded` or :meth:`failed`."""
        standing = self.standing(now)
        if standing is TierStanding.PROBING:
            self._probe_out = True
            return True
        return standing is TierStanding.UP

    def succeeded(self) -> None:
        self.reason, self._pause_s, self._probe_out, self._refused = "", _FIRST_PAUSE_S, False, False

    def failed(self, reason: str, now: float) -> None:
        self._failures += 1
        self.reason, self._probe_out = reason, False
        self._retry_s = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def refused(self, reason: str, now: float) -> None:
        """It answers, but must not be used; looked at again after the longest pause."""
        self.reason, self._refused, self._probe_out = reason, True, False
        self._retry_s = now + _LONGEST_PAUSE_S

    def statistics(self, now: float) -> TierHealthStatistics:
        return TierHealthStatistics(self.standing(now), self.reason, self._failures, max(0.0, self._retry_s - now))
