"""Dashboard and alerts: nothing they ask for is missing in /metrics, and their queries parse. Whether alarms ring: test_alerts.py."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from foretype_backend.admission.outcomes import Reason
from foretype_backend.admission.scheduler import Scheduler, SchedulerStatistics
from foretype_backend.engines.port import EngineStatistics
from foretype_backend.fleet.health import ReplicaStanding
from foretype_backend.fleet.metrics import PoolCollector, PoolStatistics
from foretype_backend.fleet.placement import Agreement
from foretype_backend.fleet.routing.router import Router
from foretype_backend.fleet.routing.speculation import SpeculationPolicy
from foretype_backend.fleet.warmups import WarmStatistics
from foretype_backend.metrics.metrics import Metrics
from foretype_backend.metrics.objectives import PromiseOutcome
from foretype_backend.metrics.stages import STAGES
from foretype_wire.messages import RequestClass
from loading import loaded
from promtool import needs_promtool, promtool

DEPLOY = Path(__file__).parents[2] / "deploy"
PANELS: list[dict[str, Any]] = json.loads((DEPLOY / "grafana/foretype.json").read_text())["panels"]
_ALL: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
RULES = [rule for rule in _ALL if "alert" in rule]
RECORDED = {rule["record"] for rule in _ALL if "record" in rule}
QUERIES: list[tuple[str, str]] = [
    *((p["title"], t["expr"]) for p in PANELS for t in p["targets"]),
    *((rule.get("alert") or rule["record"], rule["expr"]) for rule in _ALL),
]
OTHERS = {
    # NVIDIA's exporter: etc/default-counters.csv of dcgm-exporter.
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_PROF_DRAM_ACTIVE",
}
LABELS = {
    "class": {*RequestClass, "fim"},
    "reason": set(Reason),
    "outcome": {"accepted", "read", "glimpsed", *PromiseOutcome},
    "instance": None,
    "stage": set(STAGES),
    "standing": set(ReplicaStanding),
}


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    scheduler: SchedulerStatistics = Scheduler().statistics()
    metrics = Metrics(
        engine=lambda: EngineStatistics(0, 0, 0, 0, 0, 0, 0, kv_use=0.0),
        scheduler=lambda: scheduler,
        connections=lambda: 0,
        slots=4,
    )
    metrics.watch_loop()
    metrics.watch_start({})
    metrics.watch_identity(lambda: 0)
    metrics.watch_usage(lambda: 0)
    metrics.watch_leases(lambda: 0)
    metrics.watch_certificate(lambda: 0)
    metrics.watch_load(level=lambda: 0, rungs=tuple, queued_tokens=lambda: 0)
    pool = PoolStatistics(
        {}, Router().statistics(), Agreement(0, 0, 0, 0), 0, WarmStatistics(*[0] * len(WarmStatistics._fields)), {}, {}
    )
    metrics.registry.register(PoolCollector(lambda: pool, lambda: SpeculationPolicy(4)))
    return metrics


@pytest.mark.parametrize(("where", "query"), QUERIES)
def test_every_metric_and_label_exists_in_the_gateway(metrics: Metrics, where: str, query: str) -> None:
    types = dict(line.split()[2:4] for line in metrics.render().decode().splitlines() if line.startswith("# TYPE"))
    known = set(types) | {
        f"{n}{end}" for n, kind in types.items() if kind == "histogram" for end in ("_bucket", "_count", "_sum")
    }
    named = set(re.findall(r"(?<!\w)(?:foretype_|foretype:|DCGM_)[\w:]+", query))
    assert named and named <= known | RECORDED | OTHERS, f"{where}: {named - known}"
    for label, operator, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', query):
        values = LABELS[label]
        told = set(value.split("|") if operator == "=~" else [value]) - {""}
        assert values is None or told <= values, f"{where}: {label}"


def test_the_dashboard_is_what_its_program_writes() -> None:
    program = loaded(DEPLOY / "grafana" / "dashboard.py", "dashboard")
    assert program.text() == (DEPLOY / "grafana/foretype.json").read_text("utf-8"), "make dashboard"


def test_panels_stand_in_order_of_severity() -> None:
    main = [panel["title"] for panel in PANELS if panel["title"][1] == " "]
    words = ("First text", "Cancelled", "Cache hit rate", "Acceptance", "Utilisation")
    assert [title for title in main if any(word in title for word in words)] == main[: len(words)]
    assert all(word in title for word, title in zip(words, main, strict=False))
    places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in PANELS]
    assert places == sorted(places) and len({panel["id"] for panel in PANELS}) == len(PANELS)


UNDRAWN = {
    "ForetypeCertificateEnds",
    "ForetypeEngineLost",
    "ForetypeIdentityStoreAway",
    "ForetypeNoReplica",
    "ForetypeRedisAway",
    "ForetypeUsageUnstored",
}
"""Alerts that need no curve."""


def test_every_alert_stands_in_the_panel_that_shows_it_with_its_threshold() -> None:
    compared = set[str]()
    for panel in PANELS:
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        for rule in RULES:
            assert rule["labels"]["severity"] in ("page", "warn", "info")
            if rule["alert"] not in panel["description"]:
                continue
            compared.add(rule["alert"])
            found = re.search(r"Alert (above|below) ([\d.]+) (%|ms|°C)", panel["description"])
            if found is None:  # the panel's own line is the objective
                continue
            limit = re.search(rf" {'>' if found[1] == 'above' else '<'} ([\d.]+)", rule["expr"])
            assert limit is not None, rule["alert"]
            told = float(found[2]) / {"%": 100, "ms": 1000, "°C": 1}[found[3]]
            assert float(limit[1]) == told == steps[1]["value"], rule["alert"]
            assert [step["color"] for step in steps] == (["green", "red"] if found[1] == "above" else ["red", "green"])
    assert compared | UNDRAWN == {rule["alert"] for rule in RULES}


def test_a_display_that_nobody_can_have_read_is_no_refusal(metrics: Metrics) -> None:
    events: list[dict[str, object]] = [
        {"event": "display", "visible_ms": 100.0, "end": "typed"},
        {"event": "display", "visible_ms": 900, "end": "left"},
        {"event": "display", "visible_ms": 100, "end": "accepted"},
        {"event": "display", "visible_ms": "long", "end": "left"},
        {"event": "accept"},
    ]
    metrics.feedback(events)
    lines = set(metrics.render().decode().splitlines())
    assert 'foretype_suggestions_total{outcome="glimpsed"} 2.0' in lines
    assert 'foretype_suggestions_total{outcome="read"} 1.0' in lines
    assert 'foretype_suggestions_total{outcome="accepted"} 1.0' in lines
    assert "foretype_feedback_events_total 5.0" in lines


@needs_promtool
def test_promtool_reads_rules_queries_and_configuration(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{n}", "expr": query.replace("$__rate_interval", "5m").replace("$instance", ".*")}
        for n, (_, query) in enumerate(QUERIES)
    ]
    queries = tmp_path / "queries.yml"
    queries.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    folder = DEPLOY / "prometheus"
    promtool("check", "rules", queries)
    promtool("check", "rules", folder / "alerts.yml")
    promtool("check", "config", "--syntax-only", folder / "prometheus.yml")
