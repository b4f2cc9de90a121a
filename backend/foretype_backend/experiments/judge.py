"""What is said of an experiment: its report, around the verdict, and whether it has to stop. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from foretype_backend.errors import ExperimentInputError
from foretype_backend.experiments.assign import block_at, day_of
from foretype_backend.experiments.experiment import Experiment, State
from foretype_backend.experiments.results import SETTLES_MS, FirstTokens
from foretype_backend.experiments.rows import METRICS, UserDay
from foretype_backend.experiments.store import Seen
from foretype_backend.experiments.verdict import analyse, guard_findings

FRESH_MS: Final = 60_000
"""A gateway that has said nothing for longer is not heard on what it sees."""
ALONE_MS: Final = 600_000
"""So long clients may be connected of which none can follow."""
GUARDRAIL: Final = "guardrail"
PLAN: Final = "plan"
GATEWAY: Final = "gateway"


class StopReason(NamedTuple):
    """An experiment stops itself: why, and what decided."""

    reason: str
    by: str


def followed_by(seen: Sequence[Seen], now_ms: int) -> dict[str, Any]:
    """Clients that follow now, of all that are connected and concerned."""
    fresh = [one for one in seen if now_ms - one.seen_ms <= FRESH_MS]
    missing: dict[str, int] = {}
    for one in fresh:
        for knob, clients in one.missing.items():
            missing[knob] = missing.get(knob, 0) + clients
    followed = sum(one.followed for one in fresh)
    left_out = sum(one.left_out for one in fresh)
    return {
        "gateways": len(fresh),
        "connected": followed + left_out,
        "followed": followed,
        "left_out": left_out,
        "missing": missing,
    }


def problem(experiment: Experiment, tenants: Collection[str], seen: Sequence[Seen], now_ms: int) -> StopReason | None:
    """Why it cannot go on, whatever is measured."""
    if experiment.tenant and experiment.tenant not in tenants:
        return StopReason(f"tenant {experiment.tenant!r} is gone", GATEWAY)
    fresh = [one for one in seen if now_ms - one.seen_ms <= FRESH_MS]
    for one in fresh:
        if one.error:
            return StopReason(f"{one.gateway} cannot apply it: {one.error}", GATEWAY)
    alone = [one for one in fresh if one.since_ms and now_ms - one.since_ms >= ALONE_MS]
    if alone and not any(one.followed for one in fresh):
        told = followed_by(seen, now_ms)
        knobs = ", ".join(f"{knob} ({clients})" for knob, clients in sorted(told["missing"].items()))
        return StopReason(
            f"no client can apply it: of {told['connected']} connected none knows all of it; missing: {knobs}", GATEWAY
        )
    return None


def judge_guardrails(experiment: Experiment, rows: Sequence[UserDay]) -> dict[str, dict[str, Any]]:
    """Every guardrail of which something is known."""
    control, treatment = experiment.spec.names
    if not {control, treatment} <= {row.variant for row in rows}:
        return {}
    return guard_findings(rows, control, treatment, experiment.spec.options())


def to_stop(
    experiment: Experiment, rows: Sequence[UserDay], findings: Mapping[str, Any], now_ms: int
) -> StopReason | None:
    """Whether what was measured ends it: a guardrail, or its plan."""
    for name, found in findings.items():
        if found["breached"]:
            return StopReason(f"{name} {found['breached']}; n = {found['n'][0]} and {found['n'][1]}", GUARDRAIL)
    if _over(experiment, rows, now_ms):
        return StopReason(f"{experiment.spec.planned_days} days with work in them are over, as planned", PLAN)
    return None


def report(
    experiment: Experiment,
    rows: Sequence[UserDay],
    tokens: Mapping[str, FirstTokens],
    now_ms: int,
    *,
    why_none: str = "",
) -> dict[str, Any]:
    """What the experiment says, each number with what it is a number of.

    Args:
        why_none: what is known to be wrong with it beside its rows.
    """
    spec = experiment.spec
    over, under = METRICS[spec.metric]
    told: dict[str, Any] = {
        "name": experiment.name,
        "state": experiment.state.value,
        "design": spec.design.value,
        "block_hours": spec.block_hours,
        "metric": spec.metric,
        "definition": f"sum of {over} / sum of {under}",
    }
    try:
        found = analyse(rows, spec.options(complete=_over(experiment, rows, now_ms)))
    except ExperimentInputError as error:
        reason = "; ".join(part for part in (why_none, _stopped(experiment), f"nothing to compare: {error}") if part)
        names = {one.name: _variant(one.knobs, None, None, 0) for one in spec.variants}
        n = {"users": 0, "units": 0, "blocks": 0, "days": 0, "planned_days": spec.planned_days}
        nothing = {"effect": None, "low": None, "high": None}
        return told | {"variants": names, "n": n} | nothing | {"verdict": "none", "reason": reason, "guardrails": {}}
    interval = found["ci_at_end"] or found["ci_on_the_way"]
    variants: dict[str, Any] = {}
    for arm, one in zip(("control", "treatment"), spec.variants, strict=True):
        users = len({row.user for row in rows if row.variant == one.name})
        variants[one.name] = _variant(one.knobs, found["value"][arm], found["sums"][arm], users)
    guards: dict[str, Any] = found["guardrails"]
    if "first_token" in guards:
        guards["first_token"]["p99_ms"] = [tokens[name].p99_ms for name in spec.names if name in tokens]
        guards["first_token"]["limit_ms"] = spec.guardrails.first_token_ms
    reasons: list[str] = found["reasons"]
    said = found["verdict"]
    if experiment.by == GUARDRAIL:
        said = "stopped"
        reasons = [_stopped(experiment)]
    elif why_none:
        reasons = [why_none, *reasons]
    if spec.aa and said in ("treatment_better", "treatment_worse"):
        reasons = ["both variants are the same: assignment, telemetry or clients treat them differently; look there"]
    elif not reasons:
        kind = "at the planned end" if found["ci_at_end"] else "that holds at every look"
        side = "above" if said == "treatment_better" else "below"
        reasons = [f"the interval of the difference {kind} is {side} 0"]
    return told | {
        "variants": variants,
        "n": {
            "users": found["users"],
            "units": found["units"],
            "unit": "pairs of blocks within users" if spec.design == "switchback" else "users",
            "blocks": found["blocks"],
            "days": found["days"],
            "planned_days": found["planned_days"],
            "unmeasured": sum(row.chars_retained is None for row in rows),
            "rows": len(rows),
        },
        "effect": found["difference"],
        "relative": found["relative"],
        "low": None if interval is None else interval[0],
        "high": None if interval is None else interval[1],
        "srm": found["srm"],
        "verdict": said,
        "reason": "; ".join(reasons),
        "guardrails": guards,
    }


def _variant(knobs: Any, value: float | None, sums: Sequence[int] | None, users: int) -> dict[str, Any]:
    over, under = sums or (0, 0)
    return {
        "value": value,
        "numerator": over,
        "denominator": under,
        "users": users,
        "changes": msgspec.to_builtins(knobs),
    }


def _stopped(experiment: Experiment) -> str:
    return f"stopped by {experiment.by}: {experiment.reason}" if experiment.state is State.STOPPED else ""


def _over(experiment: Experiment, rows: Sequence[UserDay], now_ms: int) -> bool:
    """Whether all planned days are over: only then the fixed interval counts, once."""
    days = sorted({row.day for row in rows})
    if len(days) < experiment.spec.planned_days:
        return False
    if experiment.state is State.STOPPED:
        return experiment.by == PLAN
    hours = experiment.spec.block_hours
    return day_of(block_at(now_ms - SETTLES_MS, hours), hours) > days[experiment.spec.planned_days - 1]
