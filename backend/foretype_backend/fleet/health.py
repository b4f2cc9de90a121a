"""Whether a replica is in service. Pure: time is passed in; the shell makes the checks that :meth:`HealthMonitor.due` asks for.

- A connection that breaks and an answer that is none take a replica out at once.
- A failure that the replica reports itself, and silence while requests wait, make it *suspect*: it is checked at once and
  stays in service meanwhile, since one bad prompt must not empty a fleet.
- Being busy is no fault.
- A replica that is out is checked again after half a second, then after twice that, up to what an idle one is checked by; a check
  that it passes brings it back. One that passes checks and fails requests stays out longer each time, up to half a minute: the pause
  starts from its beginning only when the replica has served somebody since.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from foretype_backend.errors import Fault

_OUT_AT_ONCE: Final = frozenset({Fault.LOST, Fault.GARBAGE})


class ReplicaStanding(StrEnum):
    """Also the metric's label."""

    IN_SERVICE = "in_service"
    SUSPECT = "suspect"
    OUT = "out"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """When to look, in seconds.

    Attributes:
        idle_s: a replica that nobody heard of for so long is checked.
        silence_s: a replica with requests in flight that says nothing for so long is suspect.
        first_pause_s, longest_pause_s: before a replica that was taken out is checked again.
    """

    idle_s: float = 5.0
    silence_s: float = 3.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("idle_s", "silence_s", "first_pause_s", "longest_pause_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above zero, not {getattr(self, name)}")


class ReplicaHealthStatistics(NamedTuple):
    standing: ReplicaStanding
    reason: str
    in_flight: int
    outages: int
    checks: int


class HealthMonitor:
    """One replica. It starts out of service; the first check it passes brings it in."""

    def __init__(self, options: HealthOptions, now: float) -> None:
        self._options = options
        self._standing = ReplicaStanding.OUT
        self._heard_s = now
        self._due_s = now
        self._pause_s = options.first_pause_s
        self.in_flight = 0
        self.outages = self._checks = 0
        self._checking = False
        self.reason = "not started"

    @property
    def in_service(self) -> bool:
        return self._standing is not ReplicaStanding.OUT

    def began(self, now: float) -> None:
        """A request was sent. Silence counts from the first one that waits."""
        if not self.in_flight:
            self._heard_s = max(self._heard_s, now)
        self.in_flight += 1

    def heard(self, now: float) -> None:
        """It said something of a request."""
        self._heard_s = now

    def ended(self, *, served: bool) -> None:
        """A request is over; `served` means that it was answered to the end."""
        self.in_flight = max(0, self.in_flight - 1)
        if served:
            self._pause_s = self._options.first_pause_s

    def fault(self, fault: Fault, reason: str, now: float) -> bool:
        """A request failed. True where that takes the replica out of service."""
        if fault in _OUT_AT_ONCE:
            return self._out(reason, now)
        if fault is not Fault.BUSY and self._standing is ReplicaStanding.IN_SERVICE:
            self._standing, self.reason, self._due_s = ReplicaStanding.SUSPECT, reason, now
        return False

    def due(self, now: float) -> bool:
        """Whether a check is to be made now. True is an order: tell the outcome with `passed` or `failed`."""
        if self._checking:
            return False
        quiet_s = now - self._heard_s
        if self._standing is ReplicaStanding.IN_SERVICE and self.in_flight and quiet_s >= self._options.silence_s:
            self._standing, self._due_s = ReplicaStanding.SUSPECT, now
            self.reason = f"says nothing for {quiet_s:.1f} s while requests wait"
        wanted = quiet_s >= self._options.idle_s if self._standing is ReplicaStanding.IN_SERVICE else now >= self._due_s
        self._checking = wanted
        self._checks += wanted
        return wanted

    def passed(self, now: float) -> bool:
        """A check went well. True where that brings the replica back into service."""
        came_back = self._standing is ReplicaStanding.OUT
        self._checking, self._standing, self.reason = False, ReplicaStanding.IN_SERVICE, ""
        self._heard_s = now
        return came_back

    def failed(self, reason: str, now: float) -> bool:
        """A check went wrong. True where that takes the replica out of service."""
        self._checking = False
        return self._out(reason, now)

    def statistics(self) -> ReplicaHealthStatistics:
        return ReplicaHealthStatistics(self._standing, self.reason, self.in_flight, self.outages, self._checks)

    def _out(self, reason: str, now: float) -> bool:
        was_in = self.in_service
        if was_in or now >= self._due_s:  # requests that fail together are one outage
            # A check costs what it costs an idle replica: one that starts for minutes is not missed for half of one more.
            self._due_s = now + (self._pause_s if was_in else min(self._pause_s, self._options.idle_s))
            self._pause_s = min(2 * self._pause_s, self._options.longest_pause_s)
        self._standing, self.reason = ReplicaStanding.OUT, reason
        self.outages += was_in
        return was_in
