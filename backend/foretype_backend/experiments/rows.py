"""What an experiment is judged by: one row per user, block of time, variant and language, counts only.

The columns are those of docs/telemetry.md. A row with an empty variant lies before the experiment and feeds
the variance reduction alone. A count that is None is not known, which is not the same as none.
"""

from __future__ import annotations

import datetime
from typing import Final

import msgspec

from foretype_backend.experiments.assign import block_of_day


class UserDay(msgspec.Struct, frozen=True, kw_only=True):
    """What one user did on one day, or in one block of it.

    Attributes:
        day: calendar day, ISO 8601.
        block: number of the block (:mod:`.assign`); None where blocks are days.
        variant: empty before the experiment.
        opportunities: content changes and caret moves after which policy allowed a suggestion.
        displays: suggestion sessions read for at least T, of which `accepts` were accepted.
        chars_retained: accepted characters still there after five minutes; None while that is not known yet.
        awaited: results of requests that somebody waited for, of which `cancelled` were given up.
        first_tokens: requests that got a first token, `late` of them after the limit of the guardrail.
        judged: suggestions that were parsed in place, of which `broken` did not parse.
        computed_tokens: prompt tokens that no cache had, and generated ones.
    """

    user: str
    day: datetime.date
    variant: str = ""
    language: str = ""
    opportunities: int
    displays: int
    accepts: int
    chars_accepted: int
    chars_retained: int | None = None
    chars_typed: int = 0
    block: int | None = None
    awaited: int | None = None
    cancelled: int | None = None
    first_tokens: int | None = None
    late: int | None = None
    judged: int | None = None
    broken: int | None = None
    computed_tokens: int | None = None

    @property
    def at(self) -> int:
        """The block, also where it is a day."""
        return block_of_day(self.day) if self.block is None else self.block

    @property
    def chars_written(self) -> int:
        return self.chars_accepted + self.chars_typed


METRICS: Final = {
    "rcpo": ("chars_retained", "opportunities"),
    "cpo": ("chars_accepted", "opportunities"),
    "acceptance": ("accepts", "displays"),
    "retention": ("chars_retained", "chars_accepted"),
    "rocc": ("chars_accepted", "chars_written"),
}
"""Ratio metrics: numerator, denominator. `rcpo` is the headline, `acceptance` is one of displays read."""

RATIOS: Final = {
    **METRICS,
    "first_token": ("late", "first_tokens"),
    "cancel_rate": ("cancelled", "awaited"),
    "syntax_errors": ("broken", "judged"),
    "cost": ("computed_tokens", "opportunities"),
}
"""With those that only guard."""
