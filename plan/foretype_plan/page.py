"""A plan as one HTML file that needs nothing else: the formulas as JavaScript, and what the first tier was planned with."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import msgspec

from foretype_plan.catalogue import catalogue, model
from foretype_plan.day import active_by_hour
from foretype_plan.measured import measured
from foretype_plan.plan import WALLS, plan
from foretype_plan.reference import reference
from foretype_plan.scenario import Scenario, values


def page(scenario: Scenario) -> str:
    """Of the scenario's first tier.

    Raises:
        PlanError: it cannot be planned.
    """
    name, tier = next(iter(scenario.tier.items()))
    told = plan(scenario)["tiers"][name]["inputs"]
    given = values(scenario, tier, name)
    known = catalogue()
    facts: dict[str, Any] = {
        "of": f"{scenario.developers * tier.share:,.0f} developers, tier {name}: move what you like.",
        "values": given,
        "choice": {key: getattr(tier, key) for key in ("model", "gpus_per_replica", "weight_bits", "kv_bits")}
        | {"gpu": tier.gpu.lower()},
        "active": active_by_hour(scenario.hours(), scenario.zones, given["active_hours"]),
        "models": {key: msgspec.to_builtins(one) for key, one in known.model.items()}
        | {tier.model: msgspec.to_builtins(model(tier.model))},
        "hardware": {key: msgspec.to_builtins(one) for key, one in known.hardware.items()},
        "sources": {key: one["source"] for key, one in told.items() if key in known.input},
        "walls": list(WALLS),
        "cases": reference(),
        "measured": measured(),
    }
    if tier.price is not None:
        facts["hardware"][tier.gpu.lower()]["price"] = tier.price
    made = static("page.html")
    parts = {
        "/*UPLOT_CSS*/": static("uPlot.min.css"),
        "/*UPLOT*/": static("uPlot.iife.min.js"),
        "/*FORMULAS*/": static("formulas.js"),
        "/*GIVEN*/": json.dumps(facts, ensure_ascii=False, allow_nan=False),
        "/*APP*/": static("app.js"),
    }
    for mark, part in parts.items():
        made = made.replace(mark, part.replace("</", "<\\/") if mark != "/*UPLOT_CSS*/" else part, 1)
    return made


def static(name: str) -> str:
    return (files("foretype_plan") / "static" / name).read_text("utf-8")
