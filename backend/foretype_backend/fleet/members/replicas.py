"""The replicas of a pool as they are reached: opened, checked and closed as :mod:`.membership` says, which hears how that ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from foretype_wire.tasks import end_tasks

from foretype_backend.engines.port import Capabilities, Engine, EngineStatistics, GenerationRequest
from foretype_backend.engines.vllm.server import ReplicaIdentity
from foretype_backend.errors import ConfigError, EngineUnavailableError, SaltIgnoredError
from foretype_backend.fleet.health import ReplicaHealthStatistics
from foretype_backend.fleet.members.announced import Announced, RefusalReason
from foretype_backend.fleet.members.member import Member
from foretype_backend.fleet.members.membership import Membership, MembershipAct, MembershipStep

_log = logging.getLogger("foretype.pool")
_FIRST_CHECK: Final = 3
"""So many times longer than any other a first check may take: much is asked, of a server that has computed nothing yet."""


class Replica(Engine, Protocol):
    """An engine that is one of several."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> ReplicaIdentity: ...

    @property
    def process(self) -> float | None:
        """Changes when the engine's process is another one, whose cache is empty; None where it is not known."""
        ...

    @property
    def guesses(self) -> float:
        """Tokens guessed per step in the mean; 0 where the replica does not speculate, or has not yet."""
        ...

    @property
    def kv_use(self) -> float | None:
        """Share of its cache that running requests hold, as :meth:`scrape` last found it; None where it does not say."""
        ...

    @property
    def kv_tokens(self) -> int:
        """Tokens that its cache holds; 0 where it does not say."""
        ...

    @property
    def prompt_tokens_by_tier(self) -> Mapping[str, int]:
        """Since its start, as :meth:`scrape` last found them: `computed`, or the tier of the cache that had them."""
        ...

    async def prefill(
        self, request: GenerationRequest, parameters: Mapping[str, Any], *, max_tokens: int
    ) -> Mapping[str, Any]:
        """Compute a prompt that another replica answers, see :meth:`VllmServerEngine.prefill`."""
        ...

    async def scrape(self) -> object:
        """Read the engine's own figures. Raises nothing."""
        ...

    async def check(self) -> None:
        """Generate something and read the engine's figures. Raises EngineUnavailableError."""
        ...


Canary = Callable[[Engine], Awaitable[None]]
"""Asks a replica for what any that fits can say; raises ConfigError where it does not, EngineUnavailableError."""


class OpensReplica(Protocol):
    def __call__(self, name: str, announced: Announced) -> Replica:
        """An engine of that name for a replica, not started."""
        ...


class OpenReplica(NamedTuple):
    """A replica that is asked or checked: its engine, and what is known of it."""

    engine: Replica
    member: Member


class Members:
    """See the module.

    Args:
        replicas: of a list.
        opens: makes the engine of one that is announced; None where nobody is.
        changed: told each step when it is done.
        looked: told the name, the use and the size of the cache when the figures of a replica were read.
        clock: seconds.
    """

    def __init__(
        self,
        membership: Membership,
        replicas: Sequence[Replica],
        *,
        opens: OpensReplica | None,
        check_timeout_s: float,
        changed: Callable[[MembershipStep], None],
        looked: Callable[[str, float | None, int], None],
        clock: Callable[[], float],
    ) -> None:
        self._membership = membership
        self._open = {one.name: OpenReplica(one, membership[one.name]) for one in replicas}
        self._opens = opens
        self._check_timeout_s = check_timeout_s
        self._changed = changed
        self._looked = looked
        self._clock = clock
        self._canary: Canary | None = None
        """Who comes has to pass it; None before it is known what a replica should say."""
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._looks: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._left = EngineStatistics(0, 0, 0, 0, 0, 0, 0, kv_use=0.0)
        """What replicas had counted that are not here any more: a sum over a pool does not fall."""

    def __getitem__(self, name: str) -> OpenReplica:
        return self._open[name]

    def __iter__(self) -> Iterator[OpenReplica]:
        return iter(list(self._open.values()))

    def __contains__(self, one: OpenReplica) -> bool:
        return self._open.get(one.engine.name) is one

    def __len__(self) -> int:
        return len(self._open)

    async def start(self) -> Capabilities:
        """Start all at once; those that do not answer are checked again while the others serve.

        Returns:
            what every replica that answered can do. None is in service yet: see :meth:`enter`.

        Raises:
            EngineUnavailableError: none answers, or they serve different models.
            SaltIgnoredError: none that answers keeps tenants apart, who reach it.
        """
        faults = await asyncio.gather(*(self._start(one) for one in self))
        up = [one.engine for one in self if one.member.started]
        if not up:
            told = "; ".join(str(fault) for fault in faults if fault)
            if any(isinstance(fault, SaltIgnoredError) for fault in faults):
                raise SaltIgnoredError(told)
            raise EngineUnavailableError(f"no replica answers: {told}")
        first = up[0]
        for other in up[1:]:
            if other.identity != first.identity:
                raise EngineUnavailableError(
                    f"the replicas serve different models: {first.name} {first.identity}, {other.name} "
                    f"{other.identity}; a pool holds replicas of one model"
                )
        each = [one.capabilities() for one in up]
        return replace(each[0], salt=all(one.salt for one in each), priority=all(one.priority for one in each))

    def enter(self) -> None:
        """Everything that was started comes into service."""
        for one in self:
            if one.member.started:
                self._passed(one)

    async def prove(self, canary: Canary) -> dict[str, Exception]:
        """Ask the replicas in service now, and later each one before it joins; returns those that failed, by name."""
        self._canary = canary
        asked = [one for one in self if one.member.health.in_service]
        faults = await asyncio.gather(*(canary(one.engine) for one in asked), return_exceptions=True)
        found: dict[str, Exception] = {}
        for one, fault in zip(asked, faults, strict=True):
            self._membership.asked_canary(one.member, passed=fault is None)
            if isinstance(fault, Exception):
                found[one.engine.name] = fault
            elif fault is not None:
                raise fault
        return found

    # Who comes and goes

    def turn(self) -> None:
        """Do what is due of who comes and goes."""
        self._do(self._membership.turn(self._clock()))

    def tick(self) -> None:
        """The same, and begin the checks that are due."""
        self.turn()
        for one in self:
            self._begin_check(one)

    def _do(self, steps: Iterable[MembershipStep]) -> None:
        for step in steps:
            act, name, reason = step
            match act:
                case MembershipAct.JOIN:
                    self._join(name)
                case MembershipAct.ENTER:
                    _log.info("replica %s is in service", name)
                case MembershipAct.EXIT:
                    _log.warning("replica %s is out of service: %s", name, reason)
                case MembershipAct.DRAIN:
                    _log.info("replica %s gets no new requests: %s", name, reason)
                case MembershipAct.RESUME:
                    _log.info("replica %s is announced again", name)
                case MembershipAct.LEAVE:
                    _log.info("replica %s has left: %s", name, reason)
                    self._close(name)
                case MembershipAct.REFUSE:
                    self._close(name)
            self._changed(step)

    def _join(self, name: str) -> None:
        """It comes into service when it passes its first check."""
        assert self._opens is not None, "a list announces nobody"
        member = self._membership[name]
        _log.debug("replica %s at %s is checked", name, member.announced.address)
        one = self._open[name] = OpenReplica(self._opens(name, member.announced), member)
        self._begin_check(one)

    def _close(self, name: str) -> None:
        """With what it still computes."""
        engine = self._open.pop(name).engine
        self._left = _sum(self._left, engine.statistics()._replace(running=0, waiting=0, kv_use=0.0))
        check = self._checks.pop(name, None)
        if check is not None and check is not asyncio.current_task():
            check.cancel()
        _kept(self._leaving, engine.close(), f"close {name}")

    async def close(self) -> None:
        await end_tasks(*self._looks, *self._checks.values())
        await asyncio.gather(*(one.engine.close() for one in self), *self._leaving)

    def fault(self, one: OpenReplica, error: EngineUnavailableError) -> None:
        """A request failed on a replica, which may have left."""
        self._do(self._membership.fault(one.member, error.fault, str(error), self._clock()))

    def look(self) -> None:
        """Begin to read the figures of what is in service; a busy replica is not checked, and is what scaling asks for."""
        for one in self:
            if one.member.health.in_service:
                _kept(self._looks, self._look(one.engine), f"look at {one.engine.name}")

    async def _look(self, engine: Replica) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._check_timeout_s):
                await engine.scrape()
                self._looked(engine.name, engine.kv_use, engine.kv_tokens)

    # Questions

    def serving(self) -> list[OpenReplica]:
        """Those that answer new requests."""
        return [one for one in self if one.member.asked and not one.member.computes_for_others]

    def prefilling(self) -> list[OpenReplica]:
        """Those that compute prompts for others to answer."""
        return [one for one in self if one.member.asked and one.member.computes_for_others]

    def kv_use(self) -> dict[str, float]:
        """By replica that is asked, of those that say."""
        return {name: one.kv_use for name, one in self._asked() if one.kv_use is not None}

    def prompt_tokens_by_tier(self) -> dict[str, Mapping[str, int]]:
        """By replica that is asked."""
        return {name: one.prompt_tokens_by_tier for name, one in self._asked()}

    def _asked(self) -> Iterator[tuple[str, Replica]]:
        return ((name, one.engine) for name, one in self._open.items() if one.member.asked)

    def counted(self) -> EngineStatistics:
        """Of all together."""
        uses = self.kv_use().values()
        totals = _sum(self._left, *(one.engine.statistics()._replace(kv_use=0.0) for one in self))
        return totals._replace(kv_use=sum(uses) / len(uses) if uses else None)

    def unavailable(self) -> EngineUnavailableError:
        """Why nothing can be served."""
        reasons = (f"{name} ({one.member.health.reason})" for name, one in self._open.items())
        return EngineUnavailableError("no replica is in service: " + ", ".join(reasons))

    def statistics(self) -> Mapping[str, ReplicaHealthStatistics]:
        return {name: one.member.health.statistics() for name, one in self._open.items()}

    # Checks

    async def _start(self, one: OpenReplica) -> EngineUnavailableError | None:
        try:
            await one.engine.start()
        except EngineUnavailableError as error:
            self._failed(one, RefusalReason.SILENT, str(error))
            return error
        self._membership.answered(one.member, one.engine.identity, one.engine.process)
        return None

    def _begin_check(self, one: OpenReplica) -> None:
        if one.member.health.due(self._clock()):
            name = one.engine.name
            self._checks[name] = asyncio.create_task(self._check(one), name=f"check {name}")

    async def _check(self, one: OpenReplica) -> None:
        engine, member = one
        reason, why = "", RefusalReason.SILENT
        limit_s = self._check_timeout_s * (1 if member.came else _FIRST_CHECK)
        try:
            async with asyncio.timeout(limit_s):
                await (engine.check() if member.started else engine.start())  # which asks for more than a check does
                reason = self._membership.answered(member, engine.identity, engine.process)
                if not reason and not member.proven and self._canary is not None:
                    await self._canary(engine)
                    self._membership.asked_canary(member, passed=True)
            why = RefusalReason.MISFIT if reason else why
        except TimeoutError:
            reason = f"a check took longer than {limit_s:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a server answers, it has not passed
            reason = str(error) or type(error).__name__
            why = RefusalReason.MISFIT if isinstance(error, ConfigError | SaltIgnoredError) else why
        if reason:
            self._failed(one, why, reason)
        elif one in self:  # it may have left meanwhile
            self._passed(one)
            self._looked(engine.name, engine.kv_use, engine.kv_tokens)

    def _passed(self, one: OpenReplica) -> None:
        engine, member = one
        self._do(self._membership.passed(member, engine.identity, engine.process, self._clock()))

    def _failed(self, one: OpenReplica, why: RefusalReason, reason: str) -> None:
        self._do(self._membership.failed(one.member, why, reason, self._clock()))


def _sum(*each: EngineStatistics) -> EngineStatistics:
    return EngineStatistics(*(sum(column) for column in zip(*each, strict=True)))


def _kept(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None], name: str) -> None:
    """Begun, and held until it is over."""
    task = asyncio.create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
