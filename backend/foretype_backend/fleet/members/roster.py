"""A pool's replicas follow what is announced: the directory is asked every half second, and what :mod:`.membership` says is done."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from foretype_wire.redaction import log_fault
from foretype_wire.tasks import end_tasks

from foretype_backend.errors import DirectoryError, EngineUnavailableError
from foretype_backend.fleet.members.announced import Announced, AnnouncedRollout, RefusalReason
from foretype_backend.fleet.members.membership import (
    Fact,
    Membership,
    MembershipAct,
    MembershipStatistics,
    MembershipStep,
    Phase,
)
from foretype_backend.fleet.members.replicas import Members, Replica
from foretype_backend.fleet.members.sources import Source

_log = logging.getLogger("foretype.pool")
_LOOK_S: Final = 0.02
_TOLD_AT_ONCE: Final = 8


class OpensReplica(Protocol):
    def __call__(self, name: str, announced: Announced) -> Replica:
        """An engine of that name for a replica, not started."""
        ...


class Roster:
    """See the module.

    Args:
        opens: makes the engine of a replica that joins.
        changed: called when somebody may be asked, or not any more.
        clock: seconds, the pool's.
    """

    def __init__(
        self,
        source: Source,
        membership: Membership,
        members: Members,
        *,
        opens: OpensReplica,
        changed: Callable[[], None],
        poll_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.membership = membership
        self.rollout: AnnouncedRollout | None = None
        self.takes: Callable[[str], bool] = lambda _: True
        """Which revisions are this pool's; those of another pool of the same name are not."""
        self._source = source
        self._members = members
        self._opens = opens
        self._changed = changed
        self._poll_s = poll_s
        self._clock = clock
        self._asking: asyncio.Task[None] | None = None
        self._told_failure = self._told_rollout = ""
        self._told_refused = set[tuple[str, RefusalReason]]()

    def made_for(self, block_tokens: int) -> None:
        """Prompts are made for caches of such blocks: who has others is not asked."""
        self.membership.rules = replace(self.membership.rules, block_tokens=block_tokens)

    async def first(self, wait_s: float) -> None:
        """Returns when a replica is in service. Raises EngineUnavailableError: none is within so many seconds."""
        self.begin()
        try:
            async with asyncio.timeout(wait_s):
                while not self._members.serving():
                    self.turn()
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

    def turn(self) -> None:
        """Do what is due."""
        now = self._clock()
        facts = {
            name: Fact(one.health.in_service, one.health.statistics().in_flight) for name, one in self._members.items()
        }
        for step in self.membership.turn(facts, now):
            self._do(step)

    def statistics(self) -> MembershipStatistics:
        return self.membership.statistics(self._clock())

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
            self.membership.unheard(str(error))
            if not self._told_failure:
                _log.warning("the directory of replicas is not believed, those that serve go on: %s", error)
            self._told_failure = str(error)
            return
        ours = tuple(one for one in answer.replicas if self.takes(one.revision))
        self.membership.heard(answer._replace(replicas=ours), self._clock())
        if self._told_failure:
            _log.info("the directory of replicas answers again")
        self._told_failure = ""
        for name, announced in self.membership.statistics(self._clock()).announced.items():
            self._members.announced(name, announced)
        self._tell_refused()
        self.turn()
        try:
            self.rollout = await self._source.rollout()
            self._told_rollout = ""
        except DirectoryError as error:
            if not self._told_rollout:
                _log.warning("the roll-out stays as it was: %s", error)
            self._told_rollout = str(error)

    def _do(self, step: MembershipStep) -> None:
        name = step.name
        match step.act:
            case MembershipAct.JOIN:
                announced = self.membership.announced(name)
                _log.debug("replica %s at %s is checked", name, announced.address)
                self._members.add(self._opens(name, announced), announced)
            case MembershipAct.DRAIN:
                _log.info("replica %s gets no new requests: %s", name, step.reason)
                self._members[name].draining = True
            case MembershipAct.RESUME:
                _log.info("replica %s is announced again", name)
                self._members[name].draining = False
            case MembershipAct.LEAVE:
                _log.info("replica %s has left: %s", name, step.reason)
                self._members.remove(name)
        self._changed()

    def refused(self, name: str, why: RefusalReason, reason: str) -> None:
        """A replica that was to join did not pass its check."""
        self._members.remove(name)
        self.membership.refuse(name, why, reason, self._clock())
        self._tell_refused()

    def _tell_refused(self) -> None:
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
