"""Dashboard and alerts: nothing they ask for is missing in /metrics, their queries parse, and the alarms ring when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from foretype_backend.admission.outcomes import Reason
from foretype_backend.admission.scheduler import Scheduler, SchedulerStatistics
from foretype_backend.engines.port import EngineStatistics
from foretype_backend.operations.metrics import Metrics
from foretype_wire.messages import RequestClass

DEPLOY = Path(__file__).parents[2] / "deploy"
PANELS: list[dict[str, Any]] = json.loads((DEPLOY / "grafana/foretype.json").read_text())["panels"]
RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
QUERIES = [(p["title"], t["expr"]) for p in PANELS for t in p["targets"]] + [(r["alert"], r["expr"]) for r in RULES]
LABELS = {
    "class": set(RequestClass),
    "reason": set(Reason),
    "outcome": {"accepted", "read", "glimpsed"},
    "instance": None,
}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian package prometheus)")


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    scheduler: SchedulerStatistics = Scheduler().statistics()
    metrics = Metrics(
        engine=lambda: EngineStatistics(0, 0, 0, 0, 0, 0, 0),
        scheduler=lambda: scheduler,
        connections=lambda: 0,
        slots=4,
    )
    metrics.watch_loop()
    return metrics


@pytest.mark.parametrize(("where", "query"), QUERIES)
def test_every_metric_and_label_exists_in_the_gateway(metrics: Metrics, where: str, query: str) -> None:
    types = dict(line.split()[2:4] for line in metrics.render().decode().splitlines() if line.startswith("# TYPE"))
    known = set(types) | {
        f"{n}{end}" for n, kind in types.items() if kind == "histogram" for end in ("_bucket", "_count", "_sum")
    }
    named = set(re.findall(r"foretype_\w+", query))
    assert named and named <= known, f"{where}: {named - known}"
    for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', query):
        values = LABELS[label]
        assert values is None or set(value.split("|") if operator == "=~" else [value]) <= values, f"{where}: {label}"


def test_panels_stand_in_order_of_severity() -> None:
    main = [panel["title"] for panel in PANELS if panel["title"][1] == " "]
    words = ("First text", "Cancelled", "Cache hit rate", "Acceptance", "Utilisation")
    assert [title for title in main if any(word in title for word in words)] == main[: len(words)]
    assert all(word in title for word, title in zip(words, main, strict=False))
    places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in PANELS]
    assert places == sorted(places) and len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_every_alert_stands_in_the_panel_that_shows_it_with_its_threshold() -> None:
    told = " ".join(panel["description"] for panel in PANELS)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "warn", "info")
        if rule["alert"] != "ForetypeEngineLost":
            assert rule["alert"] in told
    compared = 0
    for panel in PANELS:
        for rule in RULES:
            if rule["alert"] in panel["description"]:
                compared += 1
                found = re.search(r" ([<>]) ([\d.]+)", rule["expr"])
                assert found is not None, rule["alert"]
                limit, colours = float(found[2]), ["green", "red"] if found[1] == ">" else ["red", "green"]
                steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
                assert [(step["color"], step["value"]) for step in steps] == [(colours[0], None), (colours[1], limit)]
                way = {">": "above", "<": "below"}[found[1]]
                said = {f"Alert {way} {limit:.0%}".replace("%", " %"), f"Objective: {limit * 1000:g} ms"}
                assert any(words in panel["description"] for words in said), said
    assert compared == len(RULES) - 1


def test_a_display_that_nobody_can_have_read_is_no_refusal(metrics: Metrics) -> None:
    events: list[dict[str, object]] = [
        {"event": "display", "visible_ms": 100.0, "end": "typed"},
        {"event": "display", "visible_ms": 900, "end": "left"},
        {"event": "display", "visible_ms": 100, "end": "accepted"},
        {"event": "display", "visible_ms": "long", "end": "left"},
        {"event": "accept"},
    ]
    metrics.feedback(events, refused=1)
    lines = set(metrics.render().decode().splitlines())
    assert 'foretype_suggestions_total{outcome="glimpsed"} 2.0' in lines
    assert 'foretype_suggestions_total{outcome="read"} 1.0' in lines
    assert 'foretype_suggestions_total{outcome="accepted"} 1.0' in lines
    assert "foretype_feedback_events_total 4.0" in lines


@needs_promtool
def test_promtool_reads_rules_queries_and_configuration_and_the_alarms_ring(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{n}", "expr": query.replace("$__rate_interval", "5m").replace("$instance", ".*")}
        for n, (_, query) in enumerate(QUERIES)
    ]
    queries = tmp_path / "queries.yml"
    queries.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    folder = DEPLOY / "prometheus"
    for arguments in (
        ["check", "rules", str(queries)],
        ["check", "rules", str(folder / "alerts.yml")],
        ["check", "config", "--syntax-only", str(folder / "prometheus.yml")],
        ["test", "rules", str(folder / "alerts_test.yml")],
    ):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
