"""Shares of events that come from users, with their intervals. Pure.

A developer's events resemble each other, so that a thousand of ten people's say less than a thousand people's would. Wilson's
interval is taken of so many independent trials as say as much: their number divided by the design effect (Kish), which is the
variance between users (of a ratio, by linearisation) over what it would be without them; and Student's t stands for the normal's
quantile (Korn and Graubard 1998).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from foretype_backend.experiments.sequential import student_quantile

METHOD: Final = "95 %: Wilson's, of the trials divided by the design effect of users, with Student's t"
_LEVEL: Final = 0.975
_FEWEST: Final = 5
"""Users below whom a variance between them says too little to be told."""


class Share(NamedTuple):
    """`part` of `whole`; without `low` and `high` where there are too few users, or no trial."""

    part: float
    whole: float
    value: float | None
    low: float | None
    high: float | None


def clustered(users: Iterable[tuple[float, float]]) -> Share:
    """The share of all (part, whole) of users together. A part may be negative: a share of keys saved can be."""
    n, part, whole, parts2, both, wholes2 = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for x, y in users:
        if x or y:  # who has a part of no whole counts: what they cost was paid
            n, part, whole = n + 1, part + x, whole + y
            parts2, both, wholes2 = parts2 + x * x, both + x * y, wholes2 + y * y
    if not whole:
        return Share(part, whole, None, None, None)
    share = part / whole
    if n < _FEWEST:
        return Share(part, whole, share, None, None)
    # Sum over users of (x - share y)², without keeping them.
    spread = max(0.0, parts2 - 2 * share * both + share * share * wholes2)
    variance = n / (n - 1) * spread / whole**2
    t = student_quantile(_LEVEL, n - 1)
    if not 0 <= share <= 1:
        half = t * math.sqrt(variance)
        return Share(part, whole, share, share - half, share + half)
    alone = share * (1 - share) / whole
    trials = whole / max(1.0, variance / alone) if alone else min(whole, float(n))
    return Share(part, whole, share, *_wilson(share, trials, t))


def _wilson(share: float, trials: float, z: float) -> tuple[float, float]:
    middle = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
