"""From rows to a verdict, or to the reasons why there is none."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from foretype_backend.errors import ExperimentInputError
from foretype_backend.experiments.assign import Design, pair_of, variant_of
from foretype_backend.experiments.estimate import MIN_PAIRS, MIN_USERS, Effect, Panel, estimate
from foretype_backend.experiments.guardrails import Guardrails, alpha_each, finding
from foretype_backend.experiments.rows import METRICS, RATIOS, UserDay
from foretype_backend.experiments.sequential import Bounds, chi_square_p

SRM_P: Final = 0.001
"""Sample-ratio mismatch: below this the assignment is broken, and nothing after it can be believed."""

MIXED_SHARE: Final = 0.02


class AbOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to analyse; to be fixed before the first row is seen.

    Attributes:
        control, treatment: names of the variants; None where the rows have two that sort in this order.
        planned_days: length that was planned; at its end the fixed interval counts, before it only the always-valid one;
            they share `alpha`.
        salt: where given, recorded variants are checked against the assignment that it makes.
        share: of units that were to be in control.
        block_hours: what a row's block lasts.
        complete: whether the planned length is over; None where as many days with rows say so.
        guardrails: margins of what must not get worse.
        unmeasured_share: of rows, at most, whose retained characters may stay unknown (a document was closed too soon); they are left
            out of what needs them.
    """

    design: Design = Design.SWITCHBACK
    metric: str = "rcpo"
    control: str | None = None
    treatment: str | None = None
    planned_days: int = 10
    alpha: float = 0.05
    salt: str | None = None
    share: float = 0.5
    language: str | None = None
    block_hours: int = 24
    complete: bool | None = None
    guardrails: Guardrails = Guardrails()
    unmeasured_share: float = 0.0

    @property
    def planned_blocks(self) -> int:
        return self.planned_days * 24 // self.block_hours


def analyse(rows: Sequence[UserDay], options: AbOptions) -> dict[str, Any]:
    """Checks, estimates and a verdict: `treatment_better`, `treatment_worse` or `none` with reasons.

    Raises:
        ExperimentInputError: unknown metric or variants, or nothing to compare.
    """
    if options.metric not in METRICS:
        raise ExperimentInputError(f"metric {options.metric!r} is none of {', '.join(METRICS)}")
    rows = [row for row in rows if options.language in (None, row.language)]
    control, treatment = _variants(rows, options)
    trial = [row for row in rows if row.variant]
    reasons = _checks(trial, control, treatment, options)
    panel, users, blocks = panel_of(rows, options.metric, control, treatment, options.block_hours)
    effect = estimate(panel, options.design, alpha=options.alpha, planned_blocks=options.planned_blocks)
    guards = guard_findings(rows, control, treatment, options)
    reasons += [f"guardrail {name}: {guard['breached']}" for name, guard in guards.items() if guard["breached"]]
    days = len({row.day for row in trial if row.variant in (control, treatment)})
    complete = days >= options.planned_days if options.complete is None else options.complete
    bounds = effect.fixed if complete else effect.always
    reasons += _too_little(effect, bounds, options, days, complete=complete)
    verdict = "none"
    if not reasons and bounds is not None:
        verdict = "treatment_better" if bounds.low > 0 else "treatment_worse"
    return {
        "design": options.design.value,
        "metric": options.metric,
        "definition": "sum of {} / sum of {}".format(*METRICS[options.metric]),
        "control": control,
        "treatment": treatment,
        "users": len(users),
        "days": days,
        "planned_days": options.planned_days,
        "blocks": len(blocks),
        "units": effect.units,
        "value": {"control": _number(effect.control), "treatment": _number(effect.treatment)},
        "sums": _sums(panel),
        "difference": _number(effect.difference),
        "relative": _number(effect.difference / effect.control) if effect.control else None,
        "ci_on_the_way": _interval(effect.always),
        "ci_at_end": _interval(effect.fixed) if complete else None,
        "p_value_at_end": _number(effect.p_value) if complete else None,
        "variance_reduction": _number(effect.variance_reduction),
        "srm": _srm(trial, control, treatment, options),
        "guardrails": guards,
        "verdict": verdict,
        "reasons": reasons,
    }


def panel_of(
    rows: Sequence[UserDay], metric: str, control: str, treatment: str, hours: int = 24
) -> tuple[Panel, list[str], list[int]]:
    """Rows as matrices, their users and blocks. A user's block with both variants belongs to neither."""
    over, under = RATIOS[metric]
    trial = [row for row in rows if row.variant in (control, treatment)]
    users = sorted({row.user for row in trial})
    blocks = sorted({row.at for row in trial})
    place_u, place_b = {user: i for i, user in enumerate(users)}, {block: i for i, block in enumerate(blocks)}
    shape = (len(users), len(blocks))
    arm, numerator, denominator = np.full(shape, -1), np.zeros(shape), np.zeros(shape)
    mixed = np.zeros(shape, dtype=bool)
    before = np.zeros((2, len(users)))
    for row in rows:
        if not row.variant and row.user in place_u:
            before[0, place_u[row.user]] += _value(row, over)
            before[1, place_u[row.user]] += _value(row, under)
    for row in trial:
        if getattr(row, over) is None or getattr(row, under) is None:
            continue
        at, which = (place_u[row.user], place_b[row.at]), int(row.variant == treatment)
        mixed[at] |= arm[at] not in (-1, which)
        arm[at] = which
        numerator[at] += _value(row, over)
        denominator[at] += _value(row, under)
    arm[mixed] = -1
    pairs: dict[tuple[str, int], int] = {}
    pair = np.array([pairs.setdefault(pair_of(block, hours)[:2], len(pairs)) for block in blocks])
    prior = (before[0], before[1]) if before[1].any() else None
    return Panel(arm, numerator, denominator, pair, prior), users, blocks


def _value(row: UserDay, name: str) -> float:
    return float(getattr(row, name) or 0)


def _sums(panel: Panel) -> dict[str, list[int]]:
    """Numerator and denominator of each variant."""
    return {
        name: [int(part[panel.arm == which].sum()) for part in (panel.numerator, panel.denominator)]
        for which, name in enumerate(("control", "treatment"))
    }


def _variants(rows: Sequence[UserDay], options: AbOptions) -> tuple[str, str]:
    found = sorted({row.variant for row in rows if row.variant})
    control, treatment = options.control, options.treatment
    if control is None and treatment is None and len(found) == 2:
        return (found[0], found[1]) if found[1] != "control" else (found[1], found[0])
    names = ", ".join(found) or "none"
    if control is None or treatment is None:
        raise ExperimentInputError(f"variants in the rows: {names}; name two of them with --control and --treatment")
    if missing := {control, treatment} - set(found):
        raise ExperimentInputError(f"variant {', '.join(sorted(missing))} has no rows; there are: {names}")
    return control, treatment


def _checks(trial: Sequence[UserDay], control: str, treatment: str, options: AbOptions) -> list[str]:
    reasons: list[str] = []
    srm = _srm(trial, control, treatment, options)
    if srm["p_value"] < SRM_P:
        reasons.append(
            f"sample ratio: {srm['counts'][0]} {srm['units']} in {control} and {srm['counts'][1]} in {treatment}, "
            f"p = {srm['p_value']:.2g}; find out which rows are lost before believing anything"
        )
    variants: dict[tuple[str, int], set[str]] = defaultdict(set)
    by_user: dict[str, set[str]] = defaultdict(set)
    for row in trial:
        variants[row.user, row.at].add(row.variant)
        by_user[row.user].add(row.variant)
    mixed = sum(len(names) > 1 for names in variants.values())
    if mixed > MIXED_SHARE * len(variants):
        unit, when = ("user-days", "at midnight") if options.block_hours == 24 else ("user-blocks", "between blocks")
        reasons.append(f"{mixed} of {len(variants)} {unit} saw both variants; a variant may change {when} only")
    if options.design is Design.BETWEEN:
        crossed = sum(len(names) > 1 for names in by_user.values())
        if crossed:
            reasons.append(f"{crossed} users saw both variants, in a design between users; use --design switchback")
    if options.salt is not None:
        names, salt = (control, treatment), options.salt
        wrong = sum(
            row.variant
            != variant_of(row.user, row.at, salt=salt, design=options.design, variants=names, hours=options.block_hours)
            for row in trial
        )
        if wrong > MIXED_SHARE * len(trial):
            reasons.append(f"{wrong} of {len(trial)} rows carry another variant than salt {salt!r} assigns")
    if "chars_retained" in METRICS[options.metric]:
        unknown = sum(row.chars_retained is None for row in trial)
        if unknown > options.unmeasured_share * len(trial):
            reasons.append(f"chars_retained is not known yet in {unknown} rows; wait for it, or use --metric cpo")
    return reasons


def _srm(trial: Sequence[UserDay], control: str, treatment: str, options: AbOptions) -> dict[str, Any]:
    """Counts of the units that were randomised: user-days in a switchback, else users."""
    between = options.design is Design.BETWEEN
    units = {(row.user, None if between else row.at, row.variant) for row in trial}
    counts = [sum(unit[2] == name for unit in units) for name in (control, treatment)]
    p_value = chi_square_p(counts[0], counts[1], share=options.share)
    return {
        "units": "users" if between else "user-days" if options.block_hours == 24 else "user-blocks",
        "counts": counts,
        "p_value": _number(p_value),
    }


def guard_findings(
    rows: Sequence[UserDay], control: str, treatment: str, options: AbOptions
) -> dict[str, dict[str, Any]]:
    """Each guardrail that is on, except the headline itself and what no row knows."""
    margins = options.guardrails.margins()
    alpha = alpha_each(list(margins))
    trial = [row for row in rows if row.variant in (control, treatment)]
    found: dict[str, dict[str, Any]] = {}
    for name, margin in margins.items():
        known = [row for row in trial if None not in (getattr(row, part) for part in RATIOS[name])]
        if name == options.metric or not known:
            continue
        panel, _, _ = panel_of(known, name, control, treatment, options.block_hours)
        effect = estimate(panel, options.design, alpha=alpha, planned_blocks=options.planned_blocks)
        found[name] = finding(name, margin, effect, [under for _, under in _sums(panel).values()])
    return found


def _too_little(effect: Effect, bounds: Bounds | None, options: AbOptions, days: int, *, complete: bool) -> list[str]:
    if effect.users < MIN_USERS:
        return [f"{effect.users} users with data in both variants; at least {MIN_USERS} are needed"]
    if bounds is None:
        least = f"{MIN_PAIRS} complete pairs of blocks" if options.design is Design.SWITCHBACK else f"{MIN_USERS} users"
        return [f"{effect.units} units so far; an interval needs {least} and some spread"]
    if bounds.excludes_zero:
        return []
    if complete:
        return ["the interval contains 0: no difference was shown in the planned time"]
    return [f"the always-valid interval contains 0 after {days} of {options.planned_days} planned days; go on"]


def _interval(bounds: Bounds | None) -> list[float | None] | None:
    return None if bounds is None else [_number(bounds.low), _number(bounds.high)]


def _number(value: float | None) -> Any:
    return None if value is None or not math.isfinite(value) else round(value, 6)
