"""What several worker processes say, as one gateway would say it. Pure.

Counters and histograms add up. A gauge adds up, or one of them is told, by its name: `SUMMED`, `LARGEST` and `SMALLEST` hold every gauge that
the gateway exports. Scrapes must never see a counter fall, or a rate over them jumps; so what a worker told of its counters outlives it
(:func:`counters`), and its successor goes on from there.

Not prometheus_client's multiprocess mode: it knows no collectors of one's own, and every live gauge of the gateway is one, and no status
and no purge, which the same sockets carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from prometheus_client.core import Metric

from foretype_backend.admission.degradation import RUNGS

SUMMED: Final = frozenset(
    {
        "foretype_connections",
        "foretype_engine_running",
        "foretype_engine_waiting",
        "foretype_http_requests",
        "foretype_queued_uncached_tokens",
        "foretype_replica_in_flight",
        "foretype_replica_queued_uncached_tokens",
        "foretype_running",
        "foretype_segments_bytes",
        "foretype_slots",
        "foretype_usage_unstored_rows",
        "foretype_waiting",
        "foretype_workers",
    }
)
LARGEST: Final = frozenset(
    {
        "foretype_identity_age_seconds",
        "foretype_kv_use_ratio",
        "foretype_leases_away_seconds",
        "foretype_membership_age_seconds",
        "foretype_membership_refused",
        "foretype_membership_replicas",
        "foretype_objective_seconds",
        "foretype_replica_kv_use_ratio",
        "foretype_replica_prompt_tokens",
        "foretype_replica_standing",
        "foretype_service_rung",
        "foretype_service_tenants",
        "foretype_shedding_level",
        "foretype_speculation_accepted_share",
        "foretype_speculation_pattern_share",
        "foretype_speculation_pays",
        "foretype_start_seconds",
    }
)
"""Every worker looks at the same thing; the one that sees it worst is believed."""

SMALLEST: Final = frozenset({"foretype_tls_certificate_expires_seconds"})

_CREATED: Final = "_created"


class Sample(msgspec.Struct, array_like=True, frozen=True):
    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, array_like=True, frozen=True):
    """One metric, in a form that another process can be sent."""

    name: str
    documentation: str
    type: str
    samples: list[Sample]


def taken(metrics: Iterable[Metric]) -> list[Family]:
    """What a registry collected."""
    return [
        Family(
            one.name,
            one.documentation,
            one.type,
            [Sample(sample.name, dict(sample.labels), sample.value) for sample in one.samples],
        )
        for one in metrics
    ]


def counters(families: Iterable[Family]) -> list[Family]:
    """Those that must not fall when the process that counted is gone."""
    return [one for one in families if one.type in ("counter", "histogram")]


def merged(parts: Iterable[Iterable[Family]]) -> list[Family]:
    """Several processes as one; families and samples keep the order in which they first appear."""
    found: dict[str, tuple[Family, dict[tuple[str, frozenset[tuple[str, str]]], Sample]]] = {}
    for family in (family for part in parts for family in part):
        _, samples = found.setdefault(family.name, (family, {}))
        together = max if family.name in LARGEST else min if family.name in SMALLEST else _plus
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            former = samples.get(key)
            if former is not None:
                both: Callable[[float, float], float] = min if sample.name.endswith(_CREATED) else together
                sample = Sample(sample.name, sample.labels, both(former.value, sample.value))
            samples[key] = sample
    return [Family(one.name, one.documentation, one.type, list(by.values())) for one, by in found.values()]


def metrics_of(families: Iterable[Family]) -> list[Metric]:
    """As prometheus_client writes them."""
    found: list[Metric] = []
    for family in families:
        metric = Metric(family.name, family.documentation, family.type)
        for sample in family.samples:
            metric.add_sample(sample.name, sample.labels, sample.value)
        found.append(metric)
    return found


def merged_reports(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reports of `/admin/status` as one: counts add up; times, levels and ages are the worst one's; a hit rate is counted again."""
    report = _together("", list(reports))
    report["workers"] = len(reports)
    report["retention"] = max(
        (one.get("retention", []) for one in reports), key=len
    )  # of workers that looked, one store's
    report["service"] = RUNGS[max(report["rungs"].values(), default=0)].value
    for pool in report["pools"].values():
        engine = pool["engine"]
        pool["hit_rate"] = engine["cached_tokens"] / engine["prompt_tokens"] if engine["prompt_tokens"] else None
    return report


_WORST: Final = frozenset(
    {"uptime_s", "shedding_level", "chat_tpot_p99_ms", "p99_ttft_ms", "identity", "replicas", "kv_use", "rungs"}
)
_OF_ONE: Final = frozenset({"membership", "version", "model", "service", "chat_templates"})


def _together(name: str, values: list[Any]) -> Any:
    """By the name of the field; `_WORST` counts for all below it."""
    given = [one for one in values if one is not None]
    if not given or name in _OF_ONE:
        return given[0] if given else None
    first = given[0]
    if isinstance(first, bool):
        return any(given)
    if isinstance(first, int | float):
        return max(given) if name in _WORST else sum(given)
    if isinstance(first, dict):
        keys = dict.fromkeys(key for one in given for key in one)
        below = name in _WORST
        return {key: _together(name if below else key, [one.get(key) for one in given]) for key in keys}
    return first


def _plus(a: float, b: float) -> float:
    return a + b
