"""When developers write code: which share of them does so in each hour of a day, over time zones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, exp, floor, isfinite, log, pi
from typing import Final

from foretype_plan.errors import PlanError

COMMITS: Final = (
    0.0320, 0.0204, 0.0208, 0.0186, 0.0128, 0.0109, 0.0149, 0.0216, 0.0349, 0.0453, 0.0541, 0.0561,
    0.0477, 0.0494, 0.0574, 0.0606, 0.0631, 0.0596, 0.0542, 0.0479, 0.0536, 0.0578, 0.0583, 0.0479,
)  # fmt: skip
"""Share of a day's commits by their author's hour: 71,952 weekday commits of 20 public repositories, merges left out."""

OFFICE: Final = tuple(share if 8 <= hour < 19 else 0.0 for hour, share in enumerate(COMMITS))
"""The same between 8 and 19 alone: an office, whose greatest hour is 2.6 times the day's mean (three, in the case study)."""


def active_by_hour(curve: Sequence[float], zones: Mapping[float, float], active_hours: float) -> list[float]:
    """Share of all developers who write code in each hour UTC.

    Args:
        curve: 24 shares by local hour, of any sum.
        zones: hours east of UTC to the share of developers there.
        active_hours: of one developer's working day.

    Raises:
        PlanError: shares that are no shares.
    """
    if len(curve) != 24 or not all(map(isfinite, curve)) or min(curve) < 0 or not 0 < sum(curve) < float("inf"):
        raise PlanError("curve", "24 shares of a day, none below 0, not all 0")
    shares = list(zones.values())
    if not shares or not all(map(isfinite, shares)) or min(shares) < 0 or not 0 < sum(shares) < float("inf"):
        raise PlanError("zones", "hours east of UTC and shares of developers, as in {0 = 0.4, -5 = 0.35, 8 = 0.25}")
    if any(not -12 <= zone <= 14 for zone in zones):
        raise PlanError("zones", "hours east of UTC are -12 to 14")
    if not 0 < active_hours <= 24:
        raise PlanError("active_hours", "0 to 24 hours of writing code in a working day")
    all_zones, all_hours = sum(zones.values()), sum(curve)
    made = [
        sum(share / all_zones * curve[floor(hour + zone) % 24] for zone, share in zones.items())
        / all_hours
        * active_hours
        for hour in range(24)
    ]
    if max(made) > 1:
        raise PlanError(
            "active_hours", "more than everybody would write code in the busiest hour: fewer hours, or a flatter curve"
        )
    return made


def swing(times: float) -> list[float]:
    """A day that goes from its least to `times` as much and back, smoothly in proportion, for cases that say no more than that."""
    return [exp(-log(times) * (1 + cos(2 * pi * hour / 24)) / 2) for hour in range(24)]
