"""What is known of one replica. Only :mod:`.membership` changes it; requests tell its health how they go. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from foretype_backend.fleet.health import HealthMonitor
from foretype_backend.fleet.members.announced import Announced, RefusalReason, ReplicaState, Role

_ABSENT_ANSWERS = 2


class Phase(StrEnum):
    """Where a replica stands; also the metric's label."""

    STARTING = "starting"  # announced, and not ready by its own word
    WAITING = "waiting"  # for its turn to be checked
    JOINING = "joining"  # being checked for the first time
    MEMBER = "member"  # asked, as long as its health allows
    DRAINING = "draining"  # gets nothing new
    QUARANTINED = "quarantined"


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    """One process of a replica. The next one in its place has an object of its own, so that late news cannot reach it.

    Attributes:
        announced: what a directory said of it last; of a listed one, what the list says.
        listed: a list names it, and no directory.
        absent: answers running that did not name it.
        tried_s, retry_s, left_s: when it joined last, may join again, and was drained.
        why, reason: of its last refusal, or of its leaving.
        held: it wants out, and the pool would shrink too fast.
        started: its engine was.
        came: it has been in service.
        proven: it has passed the canary, and is the same process since.
    """

    name: str
    announced: Announced
    health: HealthMonitor
    phase: Phase = Phase.STARTING
    listed: bool = False
    absent: int = 0
    tried_s: float = -math.inf
    retry_s: float = -math.inf
    left_s: float = 0.0
    why: RefusalReason = RefusalReason.SILENT
    reason: str = ""
    held: bool = False
    started: bool = False
    came: bool = False
    proven: bool = False
    process: float | None = None

    @property
    def opened(self) -> bool:
        """Whether the shell has an engine for it."""
        return self.phase in (Phase.JOINING, Phase.MEMBER, Phase.DRAINING)

    @property
    def asked(self) -> bool:
        """Whether it gets new requests."""
        return self.health.in_service and self.phase is not Phase.DRAINING

    @property
    def computes_for_others(self) -> bool:
        return self.announced.role is Role.PREFILL

    @property
    def is_gone(self) -> bool:
        """It is missed in more than one answer."""
        return self.absent >= _ABSENT_ANSWERS

    @property
    def wants_out(self) -> bool:
        return self.announced.state is ReplicaState.DRAINING or not self.announced.weight or self.is_gone

    @property
    def revision(self) -> str:
        return self.announced.revision
