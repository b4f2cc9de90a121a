"""What Prometheus hears of the directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from foretype_backend.fleet.ray.register import Register


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
