"""Who sees which variant in which block of time: a pure function of salt, user and block, so that every gateway decides alike.

Switchback: blocks are taken in consecutive pairs, and within a user's pair a keyed hash says which
variant comes first, so that every user sees both equally often. A block is so many hours of the gateway's clock, in UTC; where it is a
day, working days are paired with each other, and a weekend is a pair of its own. A client's clock has no part in it.
"""

from __future__ import annotations

import datetime
import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from foretype_context.prompt.profile import Profile

    from foretype_backend.experiments.variants import Knobs


class Person(NamedTuple):
    """Somebody who is connected. `user` is who telemetry is kept under; "" is nobody in particular."""

    tenant: str
    team: str
    user: str


class Arm(NamedTuple):
    """What somebody sees now."""

    experiment: str
    variant: str
    block: int
    knobs: Knobs


class LeftOut(NamedTuple):
    """Somebody who would be in an experiment, and what of it their client does not know."""

    experiment: str
    missing: tuple[str, ...]


class ToldArm(NamedTuple):
    """What a client is told, and why: its arm, or what keeps it out; `pool` answers it, where an experiment says which."""

    profile: Profile
    arm: Arm | LeftOut | None = None
    pool: str | None = None


BLOCK_HOURS: Final = (1, 2, 3, 4, 6, 12, 24)
"""What a block may last. An even number of them makes a day, or one does: no pair stands on both sides of midnight."""
_HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime.date(1970, 1, 1)
_MONDAY: Final = datetime.date(1970, 1, 5)


class Design(StrEnum):
    SWITCHBACK = "switchback"
    BETWEEN = "between"


def block_at(wall_ms: int, hours: int) -> int:
    """The number of the block that holds a moment (Unix milliseconds): blocks since 1970."""
    return wall_ms // (hours * _HOUR_MS)


def block_of_day(day: datetime.date) -> int:
    """The block that a day is, where blocks are days."""
    return (day - _EPOCH).days


def day_of(block: int, hours: int) -> datetime.date:
    """The day that a block is in."""
    return _EPOCH + datetime.timedelta(days=block * hours // 24)


def pair_of(block: int, hours: int = 24) -> tuple[str, int, int]:
    """(kind of pair, its number, 0 or 1 within it)."""
    if hours != 24:
        return "hours", *divmod(block, 2)
    weeks, weekday = divmod((day_of(block, hours) - _MONDAY).days, 7)
    if weekday >= 5:
        return "weekend", weeks, weekday - 5
    return "work", *divmod(weeks * 5 + weekday, 2)


def variant_of(
    user: str,
    block: int,
    *,
    salt: str,
    design: Design,
    variants: tuple[str, str] = ("control", "treatment"),
    hours: int = 24,
) -> str:
    """The variant of `user` in `block`, in the experiment whose salt this is."""
    if design is Design.BETWEEN:
        return variants[_bit(salt, user)]
    kind, pair, place = pair_of(block, hours)
    return variants[_bit(salt, user, kind, str(pair)) ^ place]


def _bit(salt: str, *parts: str) -> int:
    key = hashlib.blake2b(salt.encode(), digest_size=32).digest()
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()[0] & 1
