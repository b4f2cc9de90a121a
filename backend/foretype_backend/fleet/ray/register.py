"""Which replicas there are, by two sources: what each says of itself, and what Ray pushes of those that run. Pure.

A heartbeat tells at once that a replica starts or drains, and its silence counts only after a lease, since a busy machine is late. Ray's push
knows within half a second that an actor died, and does not know a replica that drains: Serve has stopped it already. So a replica that Ray
does not run any more is draining until it is heard again, and gone when it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

HEARTBEAT_S: Final = 1.0
GONE: Final = "gone"
"""Not a state that gateways hear: what a replica says last."""
_SILENT_S: Final = 2.5 * HEARTBEAT_S
_REMEMBERED_S: Final = 600.0


class ReplicaAnnouncement(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica says of itself.

    Attributes:
        replica: its id, unique over all applications.
        address: host:port of its engine.
        state: starting, ready, draining, or :data:`GONE`.
        labels: pool, model, revision and the rest; the directory's answer adds replica and state.
        phases: seconds of its start, once it is ready.
        pid, engine_pid: on its node.
    """

    replica: str
    application: str
    address: str
    state: str
    labels: dict[str, str]
    phases: dict[str, float] = {}
    pid: int = 0
    engine_pid: int = 0

    def target(self) -> dict[str, Any]:
        """As Prometheus' HTTP service discovery has it."""
        labels = {**self.labels, "replica": self.replica, "state": self.state, "application": self.application}
        return {"targets": [self.address], "labels": labels}


class _Heard(NamedTuple):
    said: ReplicaAnnouncement
    at_s: float


class Register:
    """See the module. Times are seconds of one clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._heard: dict[str, _Heard] = {}
        self._running: dict[str, Mapping[str, ReplicaAnnouncement]] = {}
        self._stopped: dict[str, float] = {}
        self._left: dict[str, float] = {}

    def announce(self, said: ReplicaAnnouncement, now_s: float) -> None:
        """A heartbeat."""
        if said.state == GONE:
            self._heard.pop(said.replica, None)
            self._left[said.replica] = now_s
        else:
            self._heard[said.replica] = _Heard(said, now_s)

    def push(self, application: str, running: Mapping[str, ReplicaAnnouncement], now_s: float) -> None:
        """All replicas of an application that Ray runs now."""
        for replica in self._running.get(application, {}).keys() - running.keys():
            self._stopped[replica] = now_s
        self._running[application] = running

    def entries(self, now_s: float) -> list[ReplicaAnnouncement]:
        """Those that there are, in the order of their ids."""
        self._forget(now_s)
        found = {replica: said for running in self._running.values() for replica, said in running.items()}
        for replica, heard in self._heard.items():
            stopped_s = self._stopped.get(replica)
            if stopped_s is None or heard.at_s > stopped_s:
                found[replica] = heard.said
            elif now_s - stopped_s < _SILENT_S:
                found[replica] = msgspec.structs.replace(heard.said, state="draining")
        return [found[replica] for replica in sorted(found.keys() - self._left.keys())]

    def applications(self) -> set[str]:
        """Those that somebody was heard of."""
        return {heard.said.application for heard in self._heard.values()}

    def silence_s(self, replica: str, now_s: float) -> float | None:
        """Since its last heartbeat; None where none came yet."""
        heard = self._heard.get(replica)
        return None if heard is None else now_s - heard.at_s

    def _forget(self, now_s: float) -> None:
        running = {replica for one in self._running.values() for replica in one}
        for replica, heard in list(self._heard.items()):
            if replica not in running and now_s - heard.at_s > self._lease_s:
                del self._heard[replica]
        for times in (self._stopped, self._left):
            for replica, at_s in list(times.items()):
                if now_s - at_s > _REMEMBERED_S and replica not in running:
                    del times[replica]


def exposition(register: Register, now_s: float) -> bytes:
    """A scrape's answer."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(register, now_s))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, register: Register, now_s: float) -> None:
        self._register, self._now_s = register, now_s

    def collect(self) -> Iterator[GaugeMetricFamily]:
        entries = self._register.entries(self._now_s)
        replicas = GaugeMetricFamily(
            "foretype_fleet_replicas", "Replicas that are announced.", labels=["pool", "region", "revision", "state"]
        )
        counts = Counter(
            (one.labels["pool"], one.labels["region"], one.labels["revision"], one.state) for one in entries
        )
        for labels, count in sorted(counts.items()):
            replicas.add_metric(labels, count)
        yield replicas
        start = GaugeMetricFamily(
            "foretype_fleet_start_seconds", "What a replica's start took.", labels=["pool", "replica", "phase"]
        )
        silence = GaugeMetricFamily(
            "foretype_fleet_heartbeat_age_seconds", "Since a replica's last heartbeat.", labels=["pool", "replica"]
        )
        for one in entries:
            for phase, seconds in one.phases.items():
                start.add_metric([one.labels["pool"], one.replica, phase], seconds)
            age_s = self._register.silence_s(one.replica, self._now_s)
            if age_s is not None:
                silence.add_metric([one.labels["pool"], one.replica], age_s)
        yield start
        yield silence
