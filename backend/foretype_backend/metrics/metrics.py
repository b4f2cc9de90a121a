"""Prometheus metrics on a registry of their own. Labels are enums, never text of a user."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from foretype_context.prompt.profile import Service
from foretype_wire.messages import RequestClass, Usage
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from foretype_backend.admission.degradation import RUNGS
from foretype_backend.admission.outcomes import Decision, Reason
from foretype_backend.admission.scheduler import SchedulerStatistics
from foretype_backend.engines.port import EngineStatistics
from foretype_backend.identity.directory import Denial
from foretype_backend.metrics.objectives import ObjectiveMetrics
from foretype_backend.metrics.stages import StageMetrics
from foretype_backend.metrics.tallies import Counter, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine that exports metrics of its own."""

    def collectors(self) -> Iterable[Collector]: ...


READ_MS = 750.0
"""A suggestion visible this long counts as read."""

_TTFT_BUCKETS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_LAG_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

_TPOT_BUCKETS_S = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5)


class Metrics:
    """What the gateway counts. Live figures (running, waiting, engine counters) are read at the time of a scrape.

    Args:
        objectives_s: promised from receipt to first text, by class and by the mode `fim`.
    """

    def __init__(
        self,
        *,
        engine: Callable[[], EngineStatistics],
        scheduler: Callable[[], SchedulerStatistics],
        connections: Callable[[], int],
        slots: int = 0,
        objectives_s: Mapping[str, float] | None = None,
        collectors: Iterable[Collector] = (),
    ) -> None:
        self.registry = CollectorRegistry()
        self.objectives = ObjectiveMetrics(self.registry, objectives_s or {})
        self.stages = StageMetrics(self.registry)
        self.ttft = Histogram(
            "foretype_ttft_seconds",
            "Receipt of a request to its first text.",
            ["class"],
            buckets=_TTFT_BUCKETS_S,
            registry=self.registry,
        )
        self.requests = Counter(
            "foretype_requests",
            "Requests by class and by how they ended; the reasons are those of `admission/outcomes.py`.",
            ["class", "reason"],
            registry=self.registry,
        )
        self.received = Counter(
            "foretype_requests_received",
            "Requests that came, by class; each is in `foretype_requests_total` once, as soon as it has ended.",
            ["class"],
            registry=self.registry,
        )
        self.admission = Counter(
            "foretype_admission",
            "What admission decided, by class: `started`, `started_after_wait`, `predicted_late`, `class_shed`, `queue_full`, …",
            ["class", "decision"],
            registry=self.registry,
        )
        self.prompt_tokens = Counter(
            "foretype_prompt_tokens", "Prompt tokens of requests that reached the engine.", registry=self.registry
        )
        self.cached_tokens = Counter(
            "foretype_cached_tokens", "Prompt tokens that the engine had cached.", registry=self.registry
        )
        self.generated_tokens = Counter(
            "foretype_generated_tokens", "Tokens received from the engine.", registry=self.registry
        )
        self.tokens_after_cancel = Counter(
            "foretype_tokens_after_cancel",
            "Tokens generated for requests nobody wanted any more.",
            registry=self.registry,
        )
        self.retries = Counter(
            "foretype_engine_retries", "Requests sent again because the engine was lost.", registry=self.registry
        )
        self.feedback_events = Counter(
            "foretype_feedback_events", "Feedback events handed to the store.", registry=self.registry
        )
        self.suggestions = Counter(
            "foretype_suggestions",
            "Suggestions that were visible: accepted, read (visible for 750 ms), or glimpsed.",
            ["outcome"],
            registry=self.registry,
        )
        self.chat_ttft = Histogram(
            "foretype_chat_ttft_seconds",
            "Chat: receipt to first text.",
            ["tier"],
            buckets=_TTFT_BUCKETS_S,
            registry=self.registry,
        )
        self.chat_tpot = Histogram(
            "foretype_chat_tpot_seconds",
            "Chat: time per token after the first.",
            ["tier"],
            buckets=_TPOT_BUCKETS_S,
            registry=self.registry,
        )
        self.denials = Counter(
            "foretype_denied", "Credentials that were not taken, by reason.", ["reason"], registry=self.registry
        )
        # Looking a child up by its labels costs more than counting.
        self._children: dict[tuple[object, ...], Any] = {}
        self.registry.register(_Live(engine, scheduler, connections, slots))
        for collector in collectors:
            self.registry.register(collector)

    def _child(self, metric: Counter | Histogram, *labels: str) -> Any:
        key = (metric, *labels)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = metric.labels(*labels)
        return found

    def came(self, class_: RequestClass) -> None:
        """Count one request, once, when the service takes it."""
        self._child(self.received, class_).inc()

    def finished(self, class_: RequestClass, reason: Reason, usage: Usage, ttft_s: float | None) -> None:
        """Count one request, once, when it is over."""
        self._child(self.requests, class_, reason).inc()
        if ttft_s is not None:
            self._child(self.ttft, class_).observe(ttft_s)
        for counter, tokens in (
            (self.prompt_tokens, usage.prompt_tokens),
            (self.cached_tokens, usage.cached_tokens),
            (self.generated_tokens, usage.generated_tokens),
            (self.tokens_after_cancel, usage.tokens_after_cancel),
        ):
            if tokens:
                counter.inc(tokens)

    def feedback(self, events: Sequence[Mapping[str, object]]) -> None:
        """Count a batch that was stored.

        Acceptance is accepted / (accepted + read): what nobody can have read was not refused.
        """
        self.feedback_events.inc(len(events))
        self.stages.told_by_clients(events)
        for event in events:
            if event.get("event") != "display":
                continue
            visible_ms = event.get("visible_ms")
            long = isinstance(visible_ms, int | float) and visible_ms >= READ_MS
            outcome = "accepted" if event.get("end") == "accepted" else "read" if long else "glimpsed"
            self.suggestions.labels(outcome).inc()

    def decided(self, class_: RequestClass, decision: Decision) -> None:
        """Count one decision of admission."""
        self._child(self.admission, class_, decision).inc()

    def decisions(self) -> dict[str, dict[str, int]]:
        """Decisions of admission since the start, by class."""
        found: dict[str, dict[str, int]] = {}
        for family in self.admission.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    found.setdefault(sample.labels["class"], {})[sample.labels["decision"]] = int(sample.value)
        return found

    def chat(self, tier: str, ttft_s: float, tpot_s: float | None) -> None:
        """Count the times of one chat answer."""
        self.chat_ttft.labels(tier).observe(ttft_s)
        if tpot_s is not None:
            self.chat_tpot.labels(tier).observe(tpot_s)

    def denied(self, denial: Denial) -> None:
        """Count a credential that was not taken."""
        self.denials.labels(denial.value).inc()

    def watch_identity(self, age_s: Callable[[], float]) -> None:
        """Show how old the snapshot of keys and tenants is: it grows while the store is away."""
        self._watch(
            "foretype_identity_age_seconds",
            "Since the store confirmed who may ask; it grows while the store is away.",
            age_s,
        )

    def watch_usage(self, unstored_rows: Callable[[], int]) -> None:
        """Show how much of the usage is not stored yet: it does not come back to zero while the store takes nothing."""
        self._watch("foretype_usage_unstored_rows", "Rows of usage that wait for the store.", unstored_rows)

    def watch_leases(self, away_s: Callable[[], float]) -> None:
        """Show since when the shared ledger of budgets has not answered; each gateway then counts on its last lease."""
        self._watch("foretype_leases_away_seconds", "Since the ledger of budgets answered, 0 while it does.", away_s)

    def watch_load(
        self, *, level: Callable[[], int], rungs: Callable[[], Collection[Service]], queued_tokens: Callable[[], int]
    ) -> None:
        """Show shedding, the rungs of the ladder, and what is queued: the signal to scale on.

        Args:
            rungs: of tenants that are not fully served. How many are on each is told, and never who: names have no bound.
        """
        self._watch("foretype_shedding_level", "Lowest classes that are refused as a whole.", level)
        self._watch(
            "foretype_service_rung",
            "Rung of the tenant that is served least; 0 is the full service.",
            lambda: max(map(RUNGS.index, rungs()), default=0),
        )
        self._watch("foretype_queued_uncached_tokens", "Prompt tokens that wait or are being computed.", queued_tokens)
        told = "Tenants on each rung of the degradation ladder below the full service."
        tenants = Gauge("foretype_service_tenants", told, ["rung"], registry=self.registry)
        for rung in RUNGS[1:]:
            tenants.labels(rung).set_function(lambda rung=rung: sum(one is rung for one in rungs()))

    def watch_certificate(self, expires_s: Callable[[], float]) -> None:
        """Show when clients begin to refuse the gateway's certificate, in seconds since 1970."""
        self._watch(
            "foretype_tls_certificate_expires_seconds", "End of the gateway's certificate, Unix time.", expires_s
        )

    def watch_start(self, seconds: Mapping[str, float]) -> None:
        """Show how long the start took, by phase."""
        started = Gauge(
            "foretype_start_seconds",
            "What this gateway's start took, by phase: `plan`, `stores`, `engine`, `canary`, `doors`.",
            ["phase"],
            registry=self.registry,
        )
        for phase, took in seconds.items():
            started.labels(phase).set(took)

    def watch_loop(self) -> Callable[[float], None]:
        """Show how late the event loop is; what is returned takes each sample, in seconds."""
        told = "How late a timer of the event loop came: what input waits before it is looked at."
        lag = Histogram("foretype_loop_lag_seconds", told, buckets=_LAG_BUCKETS_S, registry=self.registry)
        return lag.observe

    def watch_held(self, requests: Callable[[], int], segments_bytes: Callable[[], int]) -> None:
        """Show what is held for clients beside connections."""
        self._watch("foretype_http_requests", "HTTP requests that are being answered.", requests)
        self._watch("foretype_segments_bytes", "Texts that connections remember, as they are bounded.", segments_bytes)

    def _watch(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        Gauge(name, documentation, registry=self.registry).set_function(read)

    def refused(self, class_: RequestClass, reason: Reason) -> None:
        """Count a request that never reached the service."""
        self.came(class_)
        self._child(self.requests, class_, reason).inc()

    def families(self, others: Mapping[str, Metrics] | None = None) -> Iterable[Metric]:
        """As they are now; those of other pools are told by the label `pool`."""
        return _Merged({"": self} | dict(others or {})).collect()

    def render(self) -> bytes:
        """In the text format, of this pool alone."""
        return generate_latest(self.registry)


class _Live(Collector):
    def __init__(
        self,
        engine: Callable[[], EngineStatistics],
        scheduler: Callable[[], SchedulerStatistics],
        connections: Callable[[], int],
        slots: int,
    ) -> None:
        self._slots = slots
        self._engine = engine
        self._scheduler = scheduler
        self._connections = connections

    def collect(self) -> Iterable[Metric]:
        engine, scheduler = self._engine(), self._scheduler()
        yield GaugeMetricFamily("foretype_running", "Requests in the engine.", value=scheduler.running)
        yield GaugeMetricFamily("foretype_waiting", "Requests waiting for a slot.", value=scheduler.waiting)
        yield GaugeMetricFamily("foretype_slots", "Requests that may be in the engine at once.", value=self._slots)
        yield GaugeMetricFamily("foretype_connections", "Open stream connections.", value=self._connections())
        yield GaugeMetricFamily("foretype_engine_running", "Requests that the engine computes.", value=engine.running)
        yield GaugeMetricFamily("foretype_engine_waiting", "Requests queued in the engine.", value=engine.waiting)
        if engine.kv_use is not None:
            help_ = "Share of the key-value cache that running requests hold; of a pool, the mean over its replicas."
            yield GaugeMetricFamily("foretype_kv_use_ratio", help_, value=engine.kv_use)
        yield CounterMetricFamily("foretype_engine_restarts", "Times the engine was restarted.", value=engine.restarts)
        yield CounterMetricFamily(
            "foretype_engine_prompt_tokens", "Prompt tokens by the engine's own count.", value=engine.prompt_tokens
        )
        yield CounterMetricFamily(
            "foretype_engine_cached_tokens",
            "Cached prompt tokens by the engine's own count.",
            value=engine.cached_tokens,
        )
        yield CounterMetricFamily(
            "foretype_engine_generated_tokens",
            "Generated tokens by the engine's own count.",
            value=engine.generated_tokens,
        )
        yield CounterMetricFamily(
            "foretype_engine_tokens_after_cancel",
            "Tokens generated after an abort by the engine's own count.",
            value=engine.tokens_after_cancel,
        )


class _Merged:
    """Families of several registries, one after the other under one name, as the text format wants them."""

    def __init__(self, pools: Mapping[str, Metrics]) -> None:
        self._pools = pools

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for pool, metrics in self._pools.items():
            for family in metrics.registry.collect():
                for sample in family.samples:
                    if pool:
                        sample = sample._replace(labels={**sample.labels, "pool": pool})
                    known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                    known.samples.append(sample)
        return families.values()
