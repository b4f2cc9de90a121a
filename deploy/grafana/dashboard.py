"""Writes the dashboard beside this file: `make dashboard`. Panels stand in the order in which an operator asks.

A panel is a title, what it says, a unit, its lines (legend to query) and, where an alert or an objective has one, its threshold. `{I}` in
a query is the gateways that were chosen; `{R}` is Grafana's interval for rates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("foretype.json")
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ANSWERED = 'reason=~"overloaded|expired|engine_lost|fault|invalid|mismatch"'
_WITHDRAWN = 'reason=~"cancelled|superseded|document_limit|disconnected"'


class Panel(NamedTuple):
    """Of the dashboard.

    Attributes:
        above, below: the value from which a line is drawn red.
        right: legend of a line that has an axis of its own.
    """

    title: str
    says: str
    unit: str
    lines: dict[str, str]
    above: float | None = None
    below: float | None = None
    most: float | None = None
    right: str = ""


def _share(part: str, whole: str) -> str:
    return f"sum(rate({part}[{{R}}])) / sum(rate({whole}[{{R}}]))"


def _quantile(share: float, metric: str, by: str, more: str = "") -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{I{more}}}[{{R}}])))"


def _of_all(selector: str) -> str:
    requests = "sum(rate(foretype_requests_total{I}[{R}]))"
    return f"sum by (reason) (rate(foretype_requests_total{{I,{selector}}}[{{R}}])) / ignoring(reason) group_left {requests}"


PANELS = (
    Panel(
        "1 · First text, p99 by class",
        "Receipt of a request to its first text. Objective: 100 ms for interactive.",
        "s",
        {
            "p99 {{class}}": _quantile(0.99, "foretype_ttft_seconds", "class"),
            "p50 {{class}}": _quantile(0.5, "foretype_ttft_seconds", "class"),
        },
        above=0.1,
    ),
    Panel(
        "1b · Refused, expired, failed",
        "Share of requests by reason that got no answer though somebody waited.",
        "percentunit",
        {"{{reason}}": _of_all(_ANSWERED), "retries/s": "sum(rate(foretype_engine_retries_total{I}[{R}]))"},
    ),
    Panel(
        "1c · Promises kept in time",
        "Of the requests that were owed an answer, those whose first text came within the objective of their class. Below 99 % the budget "
        "is spent: ForetypeObjectiveBurnsFast, ForetypeObjectiveBurnsSlowly.",
        "percentunit",
        {
            "{{class}}": 'sum by (class) (rate(foretype_objective_total{I,outcome="met"}[{R}])) '
            "/ sum by (class) (rate(foretype_objective_total{I}[{R}]))"
        },
        below=0.99,
        most=1,
    ),
    Panel(
        "1d · Error budget of 99.9 %, times too fast",
        "1 spends the budget of 30 days in 30 days; 14.4 spends a fiftieth of it in an hour (ForetypeAvailabilityBurnsFast), 6 a twentieth in "
        "six hours (ForetypeAvailabilityBurnsSlowly).",
        "short",
        {
            "{{class}}, 1 h": "foretype:failed:ratio_rate1h / 0.001",
            "{{class}}, 6 h": "foretype:failed:ratio_rate6h / 0.001",
        },
        above=6,
    ),
    Panel(
        "1e · Where the time goes, p99 by stage",
        "Stages of interactive requests, one after the other; network as clients report it.",
        "s",
        {"{{stage}}": _quantile(0.99, "foretype_stage_seconds", "stage", ',class=~"interactive|",stage!="per_token"')},
    ),
    Panel(
        "1f · Time per token after the first",
        "By class.",
        "s",
        {
            "p99 {{class}}": _quantile(0.99, "foretype_stage_seconds", "class", ',stage="per_token"'),
            "p50 {{class}}": _quantile(0.5, "foretype_stage_seconds", "class", ',stage="per_token"'),
        },
    ),
    Panel(
        "2 · Cancelled",
        "Share of requests that nobody wanted any more before they ended. Alert above 50 %: ForetypeCancellationHigh.",
        "percentunit",
        {
            "{{reason}}": _of_all(_WITHDRAWN),
            "all": _share(f"foretype_requests_total{{I,{_WITHDRAWN}}}", "foretype_requests_total{I}"),
        },
        above=0.5,
        most=1,
    ),
    Panel(
        "2b · Wasted tokens",
        "Generated after a cancel, as a share of all that were generated.",
        "percentunit",
        {
            "gateway": _share("foretype_tokens_after_cancel_total{I}", "foretype_generated_tokens_total{I}"),
            "engine": _share(
                "foretype_engine_tokens_after_cancel_total{I}", "foretype_engine_generated_tokens_total{I}"
            ),
        },
        above=0.2,
    ),
    Panel(
        "3 · Cache hit rate",
        "Prompt tokens that were not computed. Alert below 50 %: ForetypeCacheHitRateLow.",
        "percentunit",
        {
            "requests": _share("foretype_cached_tokens_total{I}", "foretype_prompt_tokens_total{I}"),
            "engine's count": _share(
                "foretype_engine_cached_tokens_total{I}", "foretype_engine_prompt_tokens_total{I}"
            ),
        },
        below=0.5,
        most=1,
    ),
    Panel(
        "3b · Hit rate by scope",
        "Of the prompt tokens that are everybody's, a repository's, a file's and a session's, those that were cached.",
        "percentunit",
        {
            "{{scope}}": "sum by (scope) (rate(foretype_scope_cached_tokens_total{I}[{R}])) "
            "/ sum by (scope) (rate(foretype_scope_prompt_tokens_total{I}[{R}]))"
        },
        most=1,
    ),
    Panel(
        "3c · Hits by tier",
        "Prompt tokens by where they came from, as vLLM counts them: computed, or cached on the device, in the host's memory, in Redis.",
        "percentunit",
        {
            "{{tier}}": "sum by (tier) (max by (replica, tier) (rate(foretype_replica_prompt_tokens{I}[{R}]))) "
            "/ ignoring(tier) group_left sum(max by (replica, tier) (rate(foretype_replica_prompt_tokens{I}[{R}])))"
        },
        most=1,
    ),
    Panel(
        "4 · Acceptance (of suggestions read for 750 ms)",
        "Accepted by accepted + read, over a day; the denominator is the second line. Alert below 20 %: ForetypeAcceptanceLow. Acceptance "
        "rises when latency does: judge changes by an experiment.",
        "percentunit",
        {
            "accepted / read": 'sum(increase(foretype_suggestions_total{I,outcome="accepted"}[1d])) '
            '/ sum(increase(foretype_suggestions_total{I,outcome=~"accepted|read"}[1d]))',
            "suggestions read, 1 day": 'sum(increase(foretype_suggestions_total{I,outcome=~"accepted|read"}[1d]))',
        },
        below=0.2,
        right="suggestions read, 1 day",
    ),
    Panel(
        "5 · Utilisation",
        "Slots in use. Alert above 80 %: ForetypeSaturated.",
        "percentunit",
        {"slots in use": "sum(foretype_running{I}) / sum(foretype_slots{I})"},
        above=0.8,
        most=1,
    ),
    Panel(
        "5b · Running and waiting",
        "Requests in the engine, waiting for a slot, and inside the engine's own queue; prompt tokens that wait.",
        "short",
        {
            "running": "sum(foretype_running{I})",
            "waiting": "sum(foretype_waiting{I})",
            "engine running": "sum(foretype_engine_running{I})",
            "engine waiting": "sum(foretype_engine_waiting{I})",
            "queued tokens": "sum(foretype_queued_uncached_tokens{I})",
        },
        right="queued tokens",
    ),
    Panel(
        "6 · Requests and connections",
        "Requests per second by class, and open connections.",
        "short",
        {
            "{{class}}/s": "sum by (class) (rate(foretype_requests_total{I}[{R}]))",
            "connections": "sum(foretype_connections{I})",
        },
    ),
    Panel(
        "6b · Engine restarts and telemetry",
        "Restarts, and feedback events stored per second.",
        "short",
        {
            "restarts in 10 min": "sum(increase(foretype_engine_restarts_total{I}[10m]))",
            "events/s": "sum(rate(foretype_feedback_events_total{I}[{R}]))",
        },
        above=3,
    ),
    Panel(
        "7 · Event loop late, p99",
        "How long any input waits before anybody looks at it. Alert above 20 ms: ForetypeLoopLagHigh.",
        "s",
        {"{{instance}}": _quantile(0.99, "foretype_loop_lag_seconds", "instance")},
        above=0.02,
    ),
    Panel(
        "7b · Start, by phase",
        "What the last start of a gateway took.",
        "s",
        {"{{instance}} {{phase}}": "foretype_start_seconds{I}"},
    ),
    Panel(
        "8 · Replicas out of service",
        "Those of the fast pool that no gateway should ask, and outages. Alert: ForetypeReplicaOut.",
        "short",
        {
            "{{replica}} {{standing}}": 'max by (replica, standing) (foretype_replica_standing{I,standing!="in_service"})',
            "outages in 1 h": "sum(increase(foretype_replica_outages_total{I}[1h]))",
        },
    ),
    Panel(
        "8b · Load by replica",
        "Requests on each, and prompt tokens that wait to be computed there.",
        "short",
        {
            "{{replica}}": "sum by (replica) (foretype_replica_in_flight{I})",
            "{{replica}} tokens": "sum by (replica) (foretype_replica_queued_uncached_tokens{I})",
        },
    ),
    Panel(
        "8c · Key-value cache in use",
        "Share that running requests hold, by replica. Alert above 90 %: ForetypeKvFull.",
        "percentunit",
        {
            "{{replica}}": "max by (replica) (foretype_replica_kv_use_ratio{I})",
            "engine": "max(foretype_kv_use_ratio{I})",
        },
        above=0.9,
        most=1,
    ),
    Panel(
        "9 · Speculation: guesses accepted, by language",
        "Below 50 % it is switched off for a language.",
        "percentunit",
        {"{{language}}": "avg by (language) (foretype_speculation_accepted_share{I})"},
        below=0.5,
        most=1,
    ),
    Panel(
        "9b · Speculation: guesses accepted, by pattern",
        "By what stands at the cursor. Below 50 % it is switched off for the pattern, in the language.",
        "percentunit",
        {"{{pattern}}": "avg by (pattern) (foretype_speculation_pattern_share{I})"},
        below=0.5,
        most=1,
    ),
    Panel(
        "9c · Speculation: on or off, and why",
        "Requests per second by the verdict.",
        "short",
        {"{{verdict}}": "sum by (verdict) (rate(foretype_speculation_verdicts_total{I}[{R}]))"},
    ),
    Panel(
        "10 · Chat: first text, p99",
        "By tier.",
        "s",
        {"{{tier}}": _quantile(0.99, "foretype_chat_ttft_seconds", "tier")},
        above=0.7,
    ),
    Panel(
        "10b · Chat: time per token, p99",
        "By tier. Alert above 60 ms: ForetypeChatSlow.",
        "s",
        {"{{tier}}": _quantile(0.99, "foretype_chat_tpot_seconds", "tier")},
        above=0.06,
    ),
    Panel(
        "11 · GPUs: use, and memory read",
        "Of DCGM's exporter. Use says that a kernel ran, not that the card is full: scale on the queue and the key-value cache.",
        "percent",
        {
            "{{Hostname}} {{gpu}}": "DCGM_FI_DEV_GPU_UTIL",
            "{{Hostname}} {{gpu}} memory read": "100 * DCGM_FI_PROF_DRAM_ACTIVE",
        },
        most=100,
    ),
    Panel(
        "11b · GPUs: temperature",
        "Alert above 85 °C: ForetypeGpuHot.",
        "celsius",
        {"{{Hostname}} {{gpu}}": "DCGM_FI_DEV_GPU_TEMP"},
        above=85,
    ),
    Panel(
        "11c · GPUs: clocks",
        "A card that throttles answers late while its use looks well.",
        "hertz",
        {"{{Hostname}} {{gpu}}": "DCGM_FI_DEV_SM_CLOCK * 1000000"},
    ),
    Panel(
        "11d · GPUs: memory in use",
        "Weights, key-value cache, graphs.",
        "decmbytes",
        {"{{Hostname}} {{gpu}}": "DCGM_FI_DEV_FB_USED"},
    ),
)


def _drawn(number: int, panel: Panel) -> dict[str, Any]:
    limit = panel.above if panel.above is not None else panel.below
    colours = ("red", "green") if panel.below is not None else ("green", "red")
    steps: list[dict[str, Any]] = [{"color": colours[0], "value": None}]
    if limit is not None:
        steps.append({"color": colours[1], "value": limit})
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "custom": {"thresholdsStyle": {"mode": "line+area"}, "fillOpacity": 5, "lineWidth": 2},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.most is not None:
        defaults["max"] = panel.most
    own_axis = [
        {"id": "unit", "value": "short"},
        {"id": "custom.axisPlacement", "value": "right"},
        {"id": "custom.lineStyle", "value": {"dash": [8, 6], "fill": "dash"}},
    ]
    right = [{"matcher": {"id": "byName", "options": panel.right}, "properties": own_axis}] if panel.right else []
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": defaults, "overrides": right},
        "options": {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi"},
        },
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": _query(query), "legendFormat": legend}
            for at, (legend, query) in enumerate(panel.lines.items())
        ],
    }


def _query(text: str) -> str:
    return text.replace("{I", '{instance=~"$instance"').replace("{R}", "$__rate_interval")


def dashboard() -> dict[str, Any]:
    """As Grafana imports it."""
    instances = {
        "name": "instance",
        "type": "query",
        "label": "Gateway",
        "datasource": _SOURCE,
        "query": {"query": "label_values(foretype_connections, instance)", "refId": "i"},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": "foretype",
        "title": "Foretype",
        "tags": ["foretype"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
                instances,
            ]
        },
        "panels": [_drawn(number, panel) for number, panel in enumerate(PANELS)],
    }


def text() -> str:
    return json.dumps(dashboard(), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(f"{FILE}\n")
    FILE.write_text(text(), "utf-8")
