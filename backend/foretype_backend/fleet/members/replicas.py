"""The replicas of a pool: checked when :mod:`..health` says so, in service or not; a list is started together, others come and go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from foretype_wire.tasks import end_tasks

from foretype_backend.engines.port import Capabilities, Engine, EngineStatistics, GenerationRequest
from foretype_backend.engines.vllm.server import ReplicaIdentity
from foretype_backend.errors import ConfigError, EngineUnavailableError, SaltIgnoredError
from foretype_backend.fleet.health import HealthMonitor, HealthOptions, ReplicaHealthStatistics
from foretype_backend.fleet.members.announced import Announced, RefusalReason, Role

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


@dataclass(slots=True)
class Member:
    """One replica.

    Attributes:
        announced: None of one that a list names.
        came: it has been in service.
        proven: it has passed the canary, and is the same process since.
        draining: it gets no new requests, whatever its health.
    """

    engine: Replica
    health: HealthMonitor
    announced: Announced | None = None
    started: bool = False
    came: bool = False
    proven: bool = False
    draining: bool = False
    process: float | None = None
    check: asyncio.Task[None] | None = None

    @property
    def revision(self) -> str:
        return "" if self.announced is None else self.announced.revision

    @property
    def role(self) -> Role:
        return Role.BOTH if self.announced is None else self.announced.role

    @property
    def region(self) -> str:
        return "" if self.announced is None else self.announced.region


class Members:
    """See the module.

    Args:
        came: a replica came into service, with an empty cache as far as we know.
        went: it is out of service.
        looked: its figures were read.
        refused: it was announced and does not pass its first check; it is not kept.
        clock: seconds.

    Attributes:
        canary: who comes has to pass it; None before it is known what a replica should say.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        options: HealthOptions,
        *,
        check_timeout_s: float,
        came: Callable[[str], None],
        went: Callable[[str], None],
        looked: Callable[[Member], None],
        refused: Callable[[str, RefusalReason, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._members = {one.name: Member(one, HealthMonitor(options, clock())) for one in replicas}
        self._options = options
        self._check_timeout_s = check_timeout_s
        self._came = came
        self._went = went
        self._looked = looked
        self._refused = refused
        self._clock = clock
        self._identities: dict[str, ReplicaIdentity] = {}  # by revision
        self._made_for: ReplicaIdentity | None = None
        self._looks: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._outages = 0
        self.left = EngineStatistics(0, 0, 0, 0, 0, 0, 0, kv_use=0.0)
        """What replicas had counted that are not here any more: a sum over a pool does not fall."""
        self.canary: Canary | None = None

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def items(self) -> ItemsView[str, Member]:
        return self._members.items()

    def __len__(self) -> int:
        return len(self._members)

    async def start(self) -> Capabilities:
        """Start all at once; those that do not answer are checked again while the others serve.

        Returns:
            what every replica that answered can do. None is in service yet: see :meth:`enter`.

        Raises:
            EngineUnavailableError: none answers, or they serve different models.
            SaltIgnoredError: none that answers keeps tenants apart, who reach it.
        """
        faults = await asyncio.gather(*(self._start(one) for one in self))
        up = [one.engine for one in self if one.started]
        if not up:
            told = "; ".join(str(fault) for fault in faults if fault)
            if any(isinstance(fault, SaltIgnoredError) for fault in faults):
                raise SaltIgnoredError(told)
            raise EngineUnavailableError(f"no replica answers: {told}")
        first = up[0]
        for other in up[1:]:
            if other.identity != first.identity:
                raise EngineUnavailableError(
                    f"the replicas serve different models: {first.name} {_shown(first.identity)}, {other.name} "
                    f"{_shown(other.identity)}; a pool holds replicas of one model"
                )
        self._identities[""] = self._made_for = first.identity
        each = [one.capabilities() for one in up]
        return replace(each[0], salt=all(one.salt for one in each), priority=all(one.priority for one in each))

    def enter(self) -> None:
        """Everything that was started comes into service."""
        for member in self:
            if member.started:
                self._comes(member)

    async def prove(self, canary: Canary) -> dict[str, Exception]:
        """Ask the replicas in service now, and later each one before it joins; returns those that failed, by name."""
        self.canary = canary
        asked = [one for one in self if one.health.in_service]
        faults = await asyncio.gather(*(canary(one.engine) for one in asked), return_exceptions=True)
        found: dict[str, Exception] = {}
        for one, fault in zip(asked, faults, strict=True):
            one.proven = fault is None
            if isinstance(fault, Exception):
                found[one.engine.name] = fault
            elif fault is not None:
                raise fault
        return found

    # Who comes and goes

    def add(self, engine: Replica, announced: Announced) -> None:
        """It comes into service when it passes its first check."""
        member = Member(engine, HealthMonitor(self._options, self._clock()), announced)
        self._members[engine.name] = member
        self._begin_check(member, self._clock())

    def announced(self, name: str, announced: Announced) -> None:
        """What a directory says of it now."""
        member = self._members.get(name)
        if member is not None and member.announced is not None:
            member.announced = announced

    def remove(self, name: str) -> None:
        """It is closed, with what it still computes."""
        member = self._members.pop(name)
        self._outages += member.health.statistics().outages
        before, own = self.left, member.engine.statistics()
        self.left = before._replace(
            restarts=before.restarts + own.restarts,
            prompt_tokens=before.prompt_tokens + own.prompt_tokens,
            cached_tokens=before.cached_tokens + own.cached_tokens,
            generated_tokens=before.generated_tokens + own.generated_tokens,
            tokens_after_cancel=before.tokens_after_cancel + own.tokens_after_cancel,
        )
        if member.check is not None and member.check is not asyncio.current_task():
            member.check.cancel()
        if all(one.revision != member.revision for one in self):
            self._identities.pop(member.revision, None)
        task = asyncio.create_task(member.engine.close(), name=f"close {name}")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        self._went(name)

    def weight(self, name: str) -> float:
        """Its share of requests beside the others."""
        member = self._members.get(name)
        return 1.0 if member is None or member.announced is None else member.announced.weight

    @property
    def outages(self) -> int:
        """Times that a replica was taken out of service, of those that have left, too."""
        return self._outages + sum(one.health.statistics().outages for one in self)

    async def close(self) -> None:
        checks = [*self._looks, *(one.check for one in self if one.check is not None)]
        await end_tasks(*checks)
        await asyncio.gather(*(one.engine.close() for one in self), *self._leaving)

    def tick(self) -> None:
        """Begin the checks that are due."""
        now = self._clock()
        for member in self:
            self._begin_check(member, now)

    def _begin_check(self, member: Member, now: float) -> None:
        if member.health.due(now):
            member.check = asyncio.create_task(self._check(member), name=f"check {member.engine.name}")

    def look(self) -> None:
        """Begin to read the figures of what is in service; a busy replica is not checked, and is what scaling asks for."""
        for member in self:
            if member.health.in_service:
                task = asyncio.create_task(self._look(member), name=f"look at {member.engine.name}")
                self._looks.add(task)
                task.add_done_callback(self._looks.discard)

    async def _look(self, member: Member) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._check_timeout_s):
                await member.engine.scrape()
                self._looked(member)

    def kv_use(self) -> dict[str, float]:
        """By replica in service, of those that say."""
        return {name: use for name in self._in_service() if (use := self[name].engine.kv_use) is not None}

    def prompt_tokens_by_tier(self) -> dict[str, Mapping[str, int]]:
        """By replica in service."""
        return {name: self[name].engine.prompt_tokens_by_tier for name in self._in_service()}

    def fault(self, member: Member, error: EngineUnavailableError) -> None:
        """A request failed on a replica, which may have left."""
        if self._members.get(member.engine.name) is member and member.health.fault(
            error.fault, str(error), self._clock()
        ):
            self._goes(member)

    def serving(self) -> list[str]:
        """Those that answer new requests."""
        return [name for name in self._in_service() if self[name].role is not Role.PREFILL]

    def prefilling(self) -> list[str]:
        """Those that compute prompts for others to answer."""
        return [name for name in self._in_service() if self[name].role is Role.PREFILL]

    def _in_service(self) -> list[str]:
        return [name for name, one in self._members.items() if one.health.in_service and not one.draining]

    def unavailable(self) -> EngineUnavailableError:
        """Why nothing can be served."""
        reasons = (f"{name} ({one.health.reason})" for name, one in self._members.items())
        return EngineUnavailableError("no replica is in service: " + ", ".join(reasons))

    def statistics(self) -> Mapping[str, ReplicaHealthStatistics]:
        return {name: one.health.statistics() for name, one in self._members.items()}

    async def _start(self, member: Member) -> EngineUnavailableError | None:
        try:
            await member.engine.start()
        except EngineUnavailableError as error:
            member.health.failed(str(error), self._clock())
            return error
        member.started = True
        return None

    async def _check(self, member: Member) -> None:
        reason, why = "", RefusalReason.SILENT
        limit_s = self._check_timeout_s * (1 if member.came else _FIRST_CHECK)
        try:
            async with asyncio.timeout(limit_s):
                if member.started:
                    await member.engine.check()
                else:  # which asks for more than a check does
                    await member.engine.start()
                    member.started = True
                reason = self._unlike(member)
                member.proven = member.proven and member.process == member.engine.process
                if not reason and not member.proven and self.canary is not None:
                    await self.canary(member.engine)
                    member.proven = True
            why = RefusalReason.MISFIT if reason else why
        except TimeoutError:
            reason = f"a check took longer than {limit_s:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a server answers, it has not passed
            reason = str(error) or type(error).__name__
            why = RefusalReason.MISFIT if isinstance(error, ConfigError | SaltIgnoredError) else why
        now, name = self._clock(), member.engine.name
        if self._members.get(name) is not member:
            return  # it has left meanwhile
        if reason:
            if member.health.failed(reason, now):
                self._goes(member)
            if not member.came and member.announced is not None:
                self._refused(name, why, reason)
            return
        if member.health.passed(now) or member.process != member.engine.process:
            self._comes(member)
        self._looked(member)

    def _unlike(self, member: Member) -> str:
        """How a replica differs from those of its revision, or from what the pool's prompts are made for; empty where it does not."""
        own, revision = member.engine.identity, member.revision
        expected = self._identities.get(revision)
        if expected is not None and own != expected:
            those = f"others of revision {revision!r}" if revision else "the pool"
            return f"serves {_shown(own)}, {those} {_shown(expected)}"
        made_for = self._made_for or own
        if own.block_tokens != made_for.block_tokens or own.context_limit_tokens < made_for.context_limit_tokens:
            return f"serves {_shown(own)}, and prompts are made for {_shown(made_for)}"
        return ""

    def _comes(self, member: Member) -> None:
        member.health.passed(self._clock())
        member.process, member.came = member.engine.process, True
        self._identities.setdefault(member.revision, member.engine.identity)
        self._made_for = self._made_for or member.engine.identity
        _log.info("replica %s is in service", member.engine.name)
        self._came(member.engine.name)

    def _goes(self, member: Member) -> None:
        _log.warning("replica %s is out of service: %s", member.engine.name, member.health.reason)
        self._went(member.engine.name)


def _shown(identity: ReplicaIdentity) -> str:
    return f"{identity.model!r} ({identity.context_limit_tokens} tokens, blocks of {identity.block_tokens})"
