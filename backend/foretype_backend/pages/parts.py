"""Parts of the pages as HTML, of what the gateway has in memory."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from foretype_backend.fleet.health import ReplicaHealthStatistics
from foretype_backend.operations.pool_figures import figures
from foretype_backend.reports.page import table

Fleet = Mapping[str, Mapping[str, ReplicaHealthStatistics]]
"""Replicas by pool and address."""


def status(report: Mapping[str, Any]) -> str:
    state = escape("draining" if report["draining"] else report["service"])
    up = f"up {report['uptime_s']:,.0f} s, {report['connections']:,} connections, {state}"
    made = ["<h1>Status</h1>", f"<p>Foretype {escape(report['version'])}, {up}.</p>"]
    pools = {name: figures(pool) for name, pool in report["pools"].items()}
    names = list(dict.fromkeys(name for shown in pools.values() for name in shown))
    rows = [(name, *(shown.get(name, "") for shown in pools.values())) for name in names]
    made.append(table("Pools", ("figure", *pools), rows))
    for name, pool in report["pools"].items():
        made += _members(name, pool.get("membership"))
    if report["retention"]:
        heads = ("tenant", "oldest event", "days", "oldest text", "days")
        kept = [tuple("none" if cell is None else cell for cell in one.values()) for one in report["retention"]]
        made.append(table("What is kept of events and texts", heads, kept, text=True))
    return "\n".join(made)


def _members(pool: str, found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    heads = ("replica", "phase", "standing", "revision", "region", "in flight", "reason")
    rows = [tuple(one.values()) for one in found["members"]]
    made = [table(f"Members of {pool}", heads, rows, text=True)]
    if found["refused"]:
        refused = [tuple(one.values()) for one in found["refused"]]
        made.append(table("Announced and not asked", ("replica", "why", "reason"), refused, text=True))
    if found["failure"]:
        made.append(f"<p>The directory is not believed: {escape(found['failure'])}</p>")
    return made


def fleet(pools: Fleet, *, addresses: bool) -> str:
    rows: list[tuple[object, ...]] = []
    for pool, replicas in pools.items():
        for number, (name, health) in enumerate(replicas.items(), 1):
            shown = name if addresses else f"replica {number}"
            rows.append((pool, shown, str(health.standing), health.reason, health.in_flight, health.outages))
    heads = ("pool", "replica", "standing", "reason", "in flight", "outages")
    body = (
        table("Replicas", heads, rows, text=True) if rows else "<p>The engine is this gateway's own: one replica.</p>"
    )
    return f"<h1>Fleet</h1>\n{body}"


def report_form(period: str, team: str, tenant: str, *, owner: bool) -> str:
    fields = [("of", "Week or month", period), ("team", "Team", team)]
    if owner:
        fields.append(("tenant", "Tenant", tenant))
    inputs = " ".join(
        f'<label for="{name}">{label}</label> <input id="{name}" name="{name}" value="{escape(value)}">'
        for name, label, value in fields
    )
    return f'<form data-part="reports">{inputs} <button>Show</button></form>\n'
