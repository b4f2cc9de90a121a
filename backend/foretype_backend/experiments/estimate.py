"""The effect of a variant on a ratio metric, within users by day or between users.

A ratio metric is summed per unit of randomisation and linearised (delta method): `y = (numerator - R denominator) / mean
denominator`, whose mean differs between the arms by as much as the ratios do. Displays are
never treated as independent. All arrays are [users, days]; `arm` is 0 for control, 1 for treatment, -1 where a user was not
seen that day.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretype_backend.experiments.assign import Design
from foretype_backend.experiments.sequential import (
    Bounds,
    confidence_sequence,
    mixture_for,
    spent_alpha,
    student_quantile,
)

MIN_USERS: Final = 10
"""Fewer users, and the spread between them is not known well enough for any interval here."""
MIN_PAIRS: Final = 40
"""The confidence sequence is asymptotic: below this many day pairs it is not offered."""

WAY_SHARE: Final = 0.2
"""Share of the error that looks on the way may spend; the rest is for the look at the planned end, so that the sum holds."""

Matrix = NDArray[Any]


class Panel(NamedTuple):
    """One metric of one experiment.

    Attributes:
        arm, numerator, denominator: [users, days].
        pair: [days], the switchback pair of a day.
        before: [users], numerator and denominator summed before the experiment; None without a pre-period.
    """

    arm: Matrix
    numerator: Matrix
    denominator: Matrix
    pair: Matrix
    before: tuple[Matrix, Matrix] | None = None

    def until(self, days: int) -> Panel:
        """What was known after so many days."""
        cut = slice(None), slice(days)
        return Panel(self.arm[cut], self.numerator[cut], self.denominator[cut], self.pair[:days], self.before)


class Effect(NamedTuple):
    """A difference of ratios, treatment - control.

    Attributes:
        fixed: interval for the one look at the planned end, at level 1 - (1 - WAY_SHARE) alpha.
        always: interval for any number of looks before, at level 1 - WAY_SHARE alpha; None where there is too little.
        p_value: of the fixed look, two-sided.
        units: day pairs, or users.
        variance_reduction: share of the variance that the pre-period explains.
    """

    control: float
    treatment: float
    difference: float
    fixed: Bounds | None
    always: Bounds | None
    p_value: float | None
    units: int
    users: int
    variance_reduction: float = 0.0


def estimate(panel: Panel, design: Design, *, alpha: float, planned_blocks: int) -> Effect:
    """The effect so far; see :func:`switchback` and :func:`between`."""
    if design is Design.SWITCHBACK:
        return switchback(panel, alpha=alpha, planned_blocks=planned_blocks)
    return between(panel, alpha=alpha)


def switchback(panel: Panel, *, alpha: float, planned_blocks: int) -> Effect:
    """Paired differences of days within users.

    What is constant in a user cancels. The fixed interval takes users as independent (Student); the always-valid one is a
    confidence sequence over day pairs whose deviation is the larger of the plain and the user-clustered one.
    """
    control, treatment = _ratios(panel)
    values = _linearised(panel.numerator, panel.denominator, panel.arm >= 0)
    differences = [
        np.where(_complete(panel.arm[:, days]), (panel.arm[:, days] * 2 - 1) * values[:, days], 0.0).sum(axis=1)
        for days in _pairs(panel.pair)
    ]
    complete = [_complete(panel.arm[:, days])[:, 0] for days in _pairs(panel.pair)]
    users_all = len(panel.arm)
    grid = np.stack(differences, axis=1) if differences else np.zeros((users_all, 0))
    mask = np.stack(complete, axis=1) if complete else np.zeros((users_all, 0), dtype=bool)
    count = int(mask.sum())
    users = int(mask.any(axis=1).sum())
    if users < MIN_USERS:
        return Effect(control, treatment, treatment - control, None, None, None, count, users)
    mean = float(grid[mask].sum() / count)
    centred = np.where(mask, grid - mean, 0.0)
    by_user = float((centred.sum(axis=1) ** 2).sum())
    error = math.sqrt(by_user * users / (users - 1)) / count
    plain = float((centred**2).sum()) / max(1, count - 1)
    # Units that are all alike (every first token late, or none) are no proof that the next one is: one more could have shown nothing.
    deviation = max(math.sqrt(max(plain, error * error * count)), abs(mean) / math.sqrt(count) if count else 0.0)
    always = None
    if count >= MIN_PAIRS and deviation > 0:
        way = alpha * WAY_SHARE
        r = mixture_for(max(MIN_PAIRS, users_all * max(1, planned_blocks // 2)), way)
        always = confidence_sequence(mean, deviation, count, r=r, alpha=way)
    fixed, p_value = _student(mean, error, users - 1, alpha * (1 - WAY_SHARE))
    return Effect(control, treatment, mean, fixed, always, p_value, count, users)


def between(panel: Panel, *, alpha: float) -> Effect:
    """Users in two arms: delta method over users, adjusted by what they did before (CUPED, Deng et al. 2013).

    The days' estimates share their users, so no martingale helps; daily looks spend the error by a union bound instead.
    """
    control, treatment = _ratios(panel)
    seen = panel.arm >= 0
    arm = np.where(seen.any(axis=1), np.where(seen, panel.arm, 0).max(axis=1), -1)
    numerator = np.where(seen, panel.numerator, 0).sum(axis=1)
    denominator = np.where(seen, panel.denominator, 0).sum(axis=1)
    present = (arm >= 0) & (denominator > 0)
    values = _linearised(numerator, denominator, present)
    adjusted, reduction = _cuped(values, panel.before, present)
    first, second = adjusted[present & (arm == 0)], adjusted[present & (arm == 1)]
    users = len(first) + len(second)
    if min(len(first), len(second)) < MIN_USERS // 2 or users < MIN_USERS:
        return Effect(control, treatment, treatment - control, None, None, None, users, users)
    difference = float(second.mean() - first.mean())
    error = math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    degrees = min(len(first), len(second)) - 1  # the careful choice; Welch's would be larger
    fixed, p_value = _student(difference, error, degrees, alpha * (1 - WAY_SHARE))
    always, _ = _student(difference, error, degrees, spent_alpha(panel.arm.shape[1], alpha * WAY_SHARE))
    return Effect(control, treatment, difference, fixed, always, p_value, users, users, reduction)


def _ratios(panel: Panel) -> tuple[float, float]:
    def ratio(which: int) -> float:
        under = float(panel.denominator[panel.arm == which].sum())
        return float(panel.numerator[panel.arm == which].sum()) / under if under else math.nan

    return ratio(0), ratio(1)


def _linearised(numerator: Matrix, denominator: Matrix, present: Matrix) -> Matrix:
    under = float(denominator[present].sum())
    if not under:
        return np.zeros(numerator.shape)
    ratio = float(numerator[present].sum()) / under
    return np.where(present, (numerator - ratio * denominator) / (under / present.sum()), 0.0)


def _pairs(pair: Matrix) -> list[list[int]]:
    days: dict[int, list[int]] = {}
    for day, number in enumerate(pair.tolist()):
        days.setdefault(number, []).append(day)
    return [found for found in days.values() if len(found) == 2]


def _complete(arm: Matrix) -> Matrix:
    """Whether a user saw one variant on one day of the pair and the other one on the other; as wide as `arm`."""
    whole = (arm.min(axis=1) == 0) & (arm.max(axis=1) == 1)
    return np.repeat(whole[:, None], arm.shape[1], axis=1)


def _cuped(values: Matrix, before: tuple[Matrix, Matrix] | None, present: Matrix) -> tuple[Matrix, float]:
    """Values less what the pre-period predicts of them; users without one get its mean."""
    if before is None:
        return values, 0.0
    known = present & (before[1] > 0)
    if known.sum() < MIN_USERS:
        return values, 0.0
    covariate = _linearised(before[0], before[1], known)
    centred = np.where(known, covariate - covariate[known].mean(), 0.0)
    spread = float((centred[known] ** 2).sum())
    if not spread:
        return values, 0.0
    slope = float((centred[known] * values[known]).sum()) / spread
    adjusted = values - slope * centred
    variance = float(values[present].var())
    return adjusted, max(0.0, 1 - float(adjusted[present].var()) / variance) if variance else 0.0


def _student(mean: float, error: float, degrees: int, alpha: float) -> tuple[Bounds, float]:
    if not error:
        return Bounds(mean, mean), 1.0 if not mean else 0.0
    half = student_quantile(1 - alpha / 2, degrees) * error
    return Bounds(mean - half, mean + half), _two_sided_p(abs(mean) / error, degrees)


def _two_sided_p(statistic: float, degrees: int) -> float:
    """p-value by inverting the quantile: exact enough to print, and never outside [0, 1]."""
    low, high = 1e-12, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if student_quantile(1 - middle / 2, degrees) > statistic else (low, middle)
    return min(1.0, (low + high) / 2)
