"""A pool's replicas follow what is announced: the directory is asked every half second, and :mod:`.membership` told what it says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from foretype_wire.redaction import log_fault
from foretype_wire.tasks import end_tasks

from foretype_backend.errors import DirectoryError, EngineUnavailableError
from foretype_backend.fleet.members.announced import AnnouncedRollout, RefusalReason
from foretype_backend.fleet.members.member import Phase
from foretype_backend.fleet.members.membership import Membership, MembershipStatistics
from foretype_backend.fleet.members.replicas import Members, OpensReplica
from foretype_backend.fleet.members.rules import MembershipRules
from foretype_backend.fleet.members.sources import Source

_log = logging.getLogger("foretype.pool")
_LOOK_S: Final = 0.02
_TOLD_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Where replicas are announced, and what is let in.

    Attributes:
        opens: makes the engine of one that joins.
        first_wait_s: how long the start waits for the first one.
    """

    source: Source
    opens: OpensReplica
    rules: MembershipRules = field(default_factory=MembershipRules)
    poll_s: float = 0.5
    first_wait_s: float = 120.0


class Roster:
    """See the module.

    Args:
        clock: seconds, the pool's.
    """

    def __init__(
        self, discovery: Discovery, membership: Membership, members: Members, *, clock: Callable[[], float]
    ) -> None:
        self.rollout: AnnouncedRollout | None = None
        self._source = discovery.source
        self._poll_s = discovery.poll_s
        self._membership = membership
        self._members = members
        self._clock = clock
        self._asking: asyncio.Task[None] | None = None
        self._told_failure = self._told_rollout = ""
        self._told_refused = set[tuple[str, RefusalReason]]()

    async def first(self, wait_s: float) -> None:
        """Returns when a replica is in service. Raises EngineUnavailableError: none is within so many seconds."""
        self.begin()
        try:
            async with asyncio.timeout(wait_s):
                while not self._members.serving():
                    self._members.tick()
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise EngineUnavailableError(f"no replica came within {wait_s:g} s: {self._why_nobody()}") from None

    async def settled(self, wait_s: float) -> MembershipStatistics:
        """When everybody who is announced was asked, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while {Phase.WAITING, Phase.JOINING} & set(self.statistics().phases.values()):  # noqa: ASYNC110 - of replicas
                    await asyncio.sleep(_LOOK_S)
        return self.statistics()

    def begin(self) -> None:
        """Ask from now on; nobody is waited for."""
        self._asking = asyncio.create_task(self._ask_on(), name="the directory of replicas")

    async def close(self) -> None:
        task, self._asking = self._asking, None
        await end_tasks(task)
        await self._source.close()

    def statistics(self) -> MembershipStatistics:
        return self._membership.statistics(self._clock())

    async def _ask_on(self) -> None:
        while True:
            began = self._clock()
            try:
                await self._ask()
            except Exception as error:  # noqa: BLE001 - whatever a directory says, it is asked again
                log_fault(_log, "asking the directory of replicas failed", error)
            await asyncio.sleep(max(0.0, self._poll_s - (self._clock() - began)))

    async def _ask(self) -> None:
        try:
            answer = await self._source.ask()
        except DirectoryError as error:
            self._membership.directory_failed(str(error))
            if not self._told_failure:
                _log.warning("the directory of replicas is not believed, those that serve go on: %s", error)
            self._told_failure = str(error)
            return
        self._membership.directory_answered(answer, self._clock())
        if self._told_failure:
            _log.info("the directory of replicas answers again")
        self._told_failure = ""
        self.tell_refused()
        self._members.turn()
        try:
            self.rollout = await self._source.rollout()
            self._told_rollout = ""
        except DirectoryError as error:
            if not self._told_rollout:
                _log.warning("the roll-out stays as it was: %s", error)
            self._told_rollout = str(error)

    def tell_refused(self) -> None:
        """Each once, as long as it is announced; a directory that makes up hundreds fills no log."""
        found = self.statistics()
        new = [one for one in found.refused if (one.name, one.why) not in self._told_refused]
        for one in new[:_TOLD_AT_ONCE]:
            _log.warning("replica %s is not asked (%s): %s", one.name, one.why.value, one.reason)
        if len(new) > _TOLD_AT_ONCE:
            _log.warning("%d more replicas are not asked; see `foretype status`", len(new) - _TOLD_AT_ONCE)
        known = found.phases.keys() | {one.name for one in found.refused}
        self._told_refused = {one for one in self._told_refused if one[0] in known}
        self._told_refused |= {(one.name, one.why) for one in new}

    def _why_nobody(self) -> str:
        found = self.statistics()
        waits = [f"{name} is {phase.value}" for name, phase in found.phases.items()]
        told = [found.failure, *(f"{one.name}: {one.reason}" for one in found.refused), *waits]
        return "; ".join([one for one in told if one][:8]) or "nobody is announced"
