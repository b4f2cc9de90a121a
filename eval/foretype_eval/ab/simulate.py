"""Experiments with a known truth: how often the analysis errs, and how often it finds what is there.

Developers have 60 suggestion sessions a day, users' acceptance with a logit deviation of 0.5
around 30 %, days' of 0.15. Accepted lengths are skewed (log-normal, median 20 characters), opportunities and retention vary
by user and day, and the effect itself differs between users by half of its size. Every experiment is looked at after every
day, by the rule of `foretype eval ab`; a plain test at the end and at every look stand beside it for what peeking costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from foretype_backend.experiments.assign import Design
from foretype_backend.experiments.estimate import Panel, estimate
from numpy.typing import NDArray

from foretype_eval.statistics import wilson

_LENGTH_LOG: Final = (math.log(20.0), 0.8)


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The population that experiments are drawn from."""

    users: int = 40
    days: int = 10
    pre_days: int = 10
    sessions: float = 60.0
    acceptance: float = 0.30
    user_deviation: float = 0.5
    day_deviation: float = 0.15
    retained: float = 0.85
    opportunities: float = 900.0


def draw(world: World, design: Design, lift: float, rng: np.random.Generator) -> Panel:
    """One experiment on retained characters per opportunity, with a true relative `lift` of acceptance."""
    days = world.pre_days + world.days
    shape = (world.users, days)
    base = math.log(world.acceptance / (1 - world.acceptance))
    user = rng.normal(0, world.user_deviation, (world.users, 1))
    rate = 1 / (1 + np.exp(-(base + user + rng.normal(0, world.day_deviation, shape))))
    arm = np.full(shape, -1)
    arm[:, world.pre_days :] = _arms(world, design, rng)
    own = lift * (1 + rng.normal(0, 0.5, (world.users, 1))) if lift else np.zeros((world.users, 1))
    rate = np.clip(rate * np.where(arm == 1, 1 + own, 1.0), 0, 1)
    busy = rng.gamma(4.0, 0.25, shape)
    sessions = rng.poisson(world.sessions * busy)
    accepts = rng.binomial(sessions, rate)
    mean, deviation = _LENGTH_LOG
    # The sum of n log-normals, by its first two moments: exact enough, and one draw in place of n.
    length = math.exp(mean + deviation**2 / 2)
    spread = length * math.sqrt(math.exp(deviation**2) - 1)
    chars = np.maximum(0, rng.normal(accepts * length, np.sqrt(np.maximum(accepts, 1)) * spread)) * (accepts > 0)
    kept = chars * rng.beta(world.retained * 20, (1 - world.retained) * 20, shape)
    opportunities = rng.poisson(world.opportunities * busy).astype(float)
    trial = slice(None), slice(world.pre_days, None)
    before = slice(None), slice(world.pre_days)
    pair = np.arange(world.days) // 2
    prior = (kept[before].sum(axis=1), opportunities[before].sum(axis=1)) if world.pre_days else None
    return Panel(arm[trial], kept[trial], opportunities[trial], pair, prior)


def simulate(
    world: World,
    *,
    experiments: int = 1000,
    lifts: Sequence[float] = (0.0, 0.05, 0.10, 0.15, 0.20),
    alpha: float = 0.05,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
) -> dict[str, Any]:
    """Share of experiments that are called different, by design, true lift and rule; at lift 0 these are false."""
    table: list[dict[str, Any]] = []
    for design in Design:
        for lift in lifts:
            rng = np.random.default_rng([seed, list(Design).index(design), round(lift * 1e6)])
            called: dict[str, int] = dict.fromkeys(("verdict_daily", "plain_at_end", "plain_daily"), 0)
            for done in range(experiments):
                for rule, yes in _looks(draw(world, design, lift, rng), design, world.days, alpha).items():
                    called[rule] += yes
                progress(f"{design} {lift:+.0%}", done + 1, experiments)
            table.append(
                {
                    "design": design.value,
                    "lift": lift,
                    "experiments": experiments,
                    **{rule: count / experiments for rule, count in called.items()},
                    "ci": {rule: list(wilson(count, experiments)) for rule, count in called.items()},
                }
            )
    worst = max(row["verdict_daily"] for row in table if row["lift"] == 0) if 0 in lifts else None
    return {
        "world": msgspec.to_builtins(world),
        "alpha": alpha,
        "seed": seed,
        "metric": "rcpo",
        "false_positive_rate_daily_peeking": worst,
        "table": table,
    }


def _looks(panel: Panel, design: Design, days: int, alpha: float) -> dict[str, bool]:
    """What `foretype eval ab` would have said at any of the daily looks, and what plain tests would."""
    verdict = plain = plain_at_end = False
    for day in range(1, days + 1):
        effect = estimate(panel.until(day), design, alpha=alpha, planned_blocks=days)
        bounds = effect.fixed if day == days else effect.always
        verdict = verdict or (bounds is not None and bounds.excludes_zero)
        plain_at_end = effect.p_value is not None and effect.p_value < alpha
        plain = plain or plain_at_end
    return {"verdict_daily": verdict, "plain_at_end": plain_at_end, "plain_daily": plain}


def _arms(world: World, design: Design, rng: np.random.Generator) -> NDArray[Any]:
    if design is Design.BETWEEN:
        order = rng.permutation(world.users) % 2
        return np.repeat(order[:, None], world.days, axis=1)
    first = rng.integers(0, 2, (world.users, (world.days + 1) // 2))
    return np.stack([first, 1 - first], axis=2).reshape(world.users, -1)[:, : world.days]
