"""What somebody sees of an experiment. Light: every gateway loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
