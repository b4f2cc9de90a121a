"""A pool as people read it, in a terminal and on a page. Pure."""

from __future__ import annotations

from typing import Any

from foretype_backend.admission.outcomes import SHED


def figures(pool: dict[str, Any]) -> dict[str, str]:
    """Of a pool of `GET /admin/status`."""
    decisions: dict[str, dict[str, int]] = pool["decisions"]
    shed = {class_: sum(count for name, count in of.items() if name in SHED) for class_, of in decisions.items()}
    hit_rate = pool["hit_rate"]
    return {
        "model": str(pool["model"]),
        "replicas": str(pool["replicas"]),
        "running / slots": f"{pool['running']} / {pool['slots']}",
        "waiting": str(pool["waiting"]),
        "queued tokens": f"{pool['queued_uncached_tokens']:,}",
        "KV use": "–" if pool["engine"].get("kv_use") is None else f"{pool['engine']['kv_use']:.0%}",
        "cache hit rate": "–" if hit_rate is None else f"{hit_rate:.1%}",
        "p99 TTFT ms": ", ".join(f"{name} {ms:g}" for name, ms in pool["p99_ttft_ms"].items()) or "–",
        "shedding level": str(pool["shedding_level"]),
        "shed": ", ".join(f"{name} {count}" for name, count in shed.items() if count) or "0",
        "restarts": str(pool["engine"]["restarts"]),
    }
