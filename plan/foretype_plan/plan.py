"""A plan: what each tier needs through the day, what that costs, which wall binds, and what the next lever would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from foretype_plan.catalogue import catalogue
from foretype_plan.day import active_by_hour
from foretype_plan.errors import PlanError
from foretype_plan.formulas import replicas_of_hour
from foretype_plan.scenario import Scenario, Tier, values
from foretype_plan.sheet import evaluate, inputs, quantities

WALLS: Final = {
    "compute": "prompts are computed: a better hit rate, 8-bit weights, or more FLOP/s",
    "bandwidth": "weights are read for each token: fewer bits, speculation, or a larger batch",
    "memory": "prefixes of those who type must stay cached: 8-bit keys and values, host memory, or a smaller model",
    "queue": "replicas wait idle so that the slowest prompts come in time: a better hit rate, or a faster replica",
    "network": "the way takes most of the objective: a region nearer to the developers",
    "money": "the budget is less than this fleet: a smaller model, fewer bits, or a longer objective",
}
"""What binds, and what moves it."""

_PERCENTILES: Final = ("p50", "p95", "p99")


def _input(name: str, value: Callable[[float], float]) -> Callable[[Tier], Tier]:
    def change(tier: Tier) -> Tier:
        now = tier.inputs.get(name, catalogue().input[name].value)
        return msgspec.structs.replace(tier, inputs=tier.inputs | {name: value(now)})

    return change


def _speculate(tier: Tier) -> Tier:
    return msgspec.structs.replace(
        tier, inputs=tier.inputs | {"draft_tokens": 4.0, "draft_acceptance": 0.6, "draft_step_share": 0.1}
    )


def _with(tier: Tier, **changed: int) -> Tier:
    return msgspec.structs.replace(tier, **changed)


_LEVERS: Final[tuple[tuple[str, Callable[[Tier], Tier]], ...]] = (
    ("a tenth more requests find their prefix", _input("warm_share", lambda now: min(1.0, now + 0.1))),
    ("weights in 8 bits", lambda tier: _with(tier, weight_bits=min(tier.weight_bits, 8))),
    ("keys and values in 8 bits", lambda tier: _with(tier, kv_bits=8)),
    ("64 GiB of host memory for each GPU's cache", _input("host_bytes_per_gpu", lambda now: max(now, 64 * 2.0**30))),
    ("a batch twice as large", _input("batch", lambda now: 2 * now)),
    ("a draft model, 4 tokens, 60 % taken", _speculate),
    ("twice the GPUs in a replica", lambda tier: _with(tier, gpus_per_replica=2 * tier.gpus_per_replica)),
    ("half the way", _input("network_s", lambda now: now / 2)),
)


def plan(scenario: Scenario) -> dict[str, Any]:
    """What `foretype plan --json` prints.

    Raises:
        PlanError: it cannot be.
    """
    if not scenario.tier:
        raise PlanError("tier", "at least one, as in [tier.fast]")
    tiers = {name: _tier(scenario, tier, name) for name, tier in scenario.tier.items()}
    first = next(iter(tiers.values()))
    month = sum(one["cost"]["month"] for one in tiers.values())
    return {
        "developers": scenario.developers,
        "ttft_ms": first["ttft_ms"],
        "gpus": {key: sum(one["gpus"][key] for one in tiers.values()) for key in first["gpus"]},
        "cost": {
            "month": month,
            "month_fixed": sum(one["cost"]["month_fixed"] for one in tiers.values()),
            "per_1k_accepted": first["cost"]["per_1k_accepted"],
        },
        "binding": "money" if scenario.budget_month is not None and month > scenario.budget_month else first["binding"],
        "meets_objective": all(one["meets_objective"] for one in tiers.values()),
        "tiers": tiers,
    }


def _tier(scenario: Scenario, tier: Tier, name: str) -> dict[str, Any]:
    given = values(scenario, tier, name)
    known = _worked_out(scenario, given)
    kind, unkind = (_worked_out(scenario, given | _band(given, tier, kind=kind)) for kind in (True, False))
    wall = _wall(known)
    return {
        "model": tier.model,
        "gpu": tier.gpu,
        "gpus_per_replica": tier.gpus_per_replica,
        "ttft_ms": {one: 1000 * known[f"{one}_s"] for one in ("cold", "warm")}
        | {one: 1000 * known[f"ttft_{one}_s"] for one in _PERCENTILES},
        "gpus": {one: known[f"gpus_{one}"] for one in ("mean", "peak", "with_failure")},
        "cost": {
            "month": known["cost_month"],
            "month_fixed": known["cost_month_fixed"],
            "per_1k_accepted": known["cost_per_1k_accepted"],
        },
        "binding": wall,
        "why": WALLS[wall],
        "meets_objective": known["reachable"] >= 1,
        "prefill": {
            "split_could_pay": known["split_could_pay"] >= 1,
            "chunk_tokens_most": known["chunk_tokens_most"],
            "ridge_tokens": known["ridge_tokens"],
            "hand_over_ms": 1000 * known["hand_over_s"],
        },
        "levers": _levers(scenario, tier, name, known),
        "cliff": _cliff(known),
        "hours": _hours(scenario, given, known),
        "figures": _figures(known, kind, unkind),
        "inputs": {key: {"value": value, **_source(key, tier)} for key, value in given.items()},
    }


def _worked_out(scenario: Scenario, given: Mapping[str, float]) -> dict[str, float]:
    active = active_by_hour(scenario.hours(), scenario.zones, given["active_hours"])
    day = {"peak_active_share": max(active), "mean_active_share": sum(active) / 24}
    known = evaluate({**given, **day}, only="most_per_replica")
    known |= evaluate({**given, **day}, only="requests_per_developer_s")
    fleet = [_replicas(share, known) for share in active]
    return evaluate({**given, **day, "billed_share": sum(fleet) / 24 / max(fleet)})


def _replicas(active_share: float, known: Mapping[str, float]) -> float:
    names = ("developers", "requests_per_developer_s", "headroom", "most_per_replica", "regions")
    try:
        return replicas_of_hour(active_share, *(known[name] for name in names))
    except (OverflowError, ZeroDivisionError) as error:
        raise PlanError(
            "developers", "need more replicas than can be counted: fewer of them, or smaller requests"
        ) from error


def _wall(known: Mapping[str, float]) -> str:
    return tuple(WALLS)[int(known["wall"])]


def _hours(scenario: Scenario, given: Mapping[str, float], known: Mapping[str, float]) -> list[dict[str, float]]:
    active = active_by_hour(scenario.hours(), scenario.zones, given["active_hours"])
    return [
        {
            "hour": hour,
            "rate": given["developers"] * share * known["requests_per_developer_s"],
            "gpus": _replicas(share, known) * known["gpus_per_replica"],
        }
        for hour, share in enumerate(active)
    ]


def _cliff(known: Mapping[str, float]) -> list[dict[str, float]]:
    """First tokens against the share of requests that find their prefix, in the fleet that is planned: one that falls meets queues."""
    given = {name: known[name] for name in (*inputs(), "replicas_peak")}
    made: list[dict[str, float]] = []
    for percent in range(0, 101, 5):
        at = evaluate(given | {"warm_share": percent / 100})
        made.append({"warm_share": percent / 100} | {f"{one}_ms": 1000 * at[f"ttft_{one}_s"] for one in _PERCENTILES})
    return made


def _band(given: Mapping[str, float], tier: Tier, *, kind: bool) -> dict[str, float]:
    made: dict[str, float] = {}
    for key, one in catalogue().input.items():
        if one.low is not None and one.high is not None and key not in tier.inputs:
            made[key] = one.high if (one.better == "high") == kind else one.low
    if made.get("network_s", given["network_s"]) + made.get("overhead_s", given["overhead_s"]) >= given["objective_s"]:
        for name in ("network_s", "overhead_s"):  # as given, which the objective allows
            made.pop(name, None)
    return made


def _figures(known: Mapping[str, float], kind: Mapping[str, float], unkind: Mapping[str, float]) -> dict[str, Any]:
    return {
        one.name: {
            "value": known[one.name],
            "low": min(known[one.name], kind[one.name], unkind[one.name]),
            "high": max(known[one.name], kind[one.name], unkind[one.name]),
            "unit": one.unit,
            "formula": one.text,
            "says": one.says,
        }
        for one in quantities()
    }


def _source(key: str, tier: Tier) -> dict[str, str]:
    known = catalogue()
    if key in tier.inputs:
        return {"source": "given"}
    if key == "tokens_per_step":
        return {"source": f"by language: {', '.join(tier.languages)}"}
    if key in known.input:
        return {"source": known.input[key].source}
    if key.startswith("gpu_") or key == "gpus_per_node":
        return {"source": known.hardware[tier.gpu.lower()].source}
    return {
        "source": "given" if key in {"developers", "regions", "gpus_per_replica"} else f"{tier.model}: its config.json"
    }


def _levers(scenario: Scenario, tier: Tier, name: str, known: Mapping[str, float]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for says, change in _LEVERS:
        changed = change(tier)
        if changed == tier:
            continue
        try:
            after = _worked_out(scenario, values(scenario, changed, name))
        except PlanError:
            continue
        made.append(
            {
                "lever": says,
                "gpus_peak": after["gpus_peak"],
                "gpus_by_now": after["gpus_peak"] / known["gpus_peak"],
                "p99_ms": 1000 * after["ttft_p99_s"],
                "binding": _wall(after),
            }
        )
    return sorted(made, key=lambda one: (one["gpus_by_now"], one["p99_ms"]))
