"""Who sees which variant on which day: a pure function of salt, user and day, so that every gateway decides alike.

Switchback (evals research, section 5.9): working days are taken in consecutive pairs, and within a user's pair a hash says
which variant comes first, so that every user sees both equally often. A weekend is a pair of its own.
"""

from __future__ import annotations

import datetime
import hashlib
from enum import StrEnum

__all__ = ["Design", "pair_of", "variant_of"]

_MONDAY = datetime.date(1970, 1, 5)


class Design(StrEnum):
    SWITCHBACK = "switchback"
    BETWEEN = "between"


def pair_of(day: datetime.date) -> tuple[str, int, int]:
    """(kind of day, number of the pair, 0 or 1 within it)."""
    weeks, weekday = divmod((day - _MONDAY).days, 7)
    if weekday >= 5:
        return "weekend", weeks, weekday - 5
    return "work", *divmod(weeks * 5 + weekday, 2)


def variant_of(
    user: str, day: datetime.date, *, salt: str, design: Design, variants: tuple[str, str] = ("control", "treatment")
) -> str:
    """The variant of `user` on `day` in the experiment named `salt`."""
    if design is Design.BETWEEN:
        return variants[_bit(salt, user)]
    kind, pair, place = pair_of(day)
    return variants[_bit(salt, user, kind, str(pair)) ^ place]


def _bit(*parts: str) -> int:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()[0] & 1
