"""The replicas of a pool: started together, checked when :mod:`.health` says so, in service or not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from foretype_backend.engines.port import Capabilities, Engine
from foretype_backend.engines.vllm.server import ReplicaIdentity
from foretype_backend.errors import EngineUnavailableError, SaltIgnoredError
from foretype_backend.fleet.health import HealthMonitor, HealthOptions, ReplicaHealthStatistics

__all__ = ["Member", "Members", "Replica"]

_log = logging.getLogger("foretype.pool")


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
    def prompt_tokens_by_tier(self) -> Mapping[str, int]:
        """Since its start, as :meth:`scrape` last found them: `computed`, or the tier of the cache that had them."""
        ...

    async def scrape(self) -> object:
        """Read the engine's own figures. Raises nothing."""
        ...

    async def check(self) -> None:
        """Generate something and read the engine's figures. Raises EngineUnavailableError."""
        ...


@dataclass(slots=True)
class Member:
    engine: Replica
    health: HealthMonitor
    started: bool = False
    process: float | None = None
    check: asyncio.Task[None] | None = None


class Members:
    """See the module.

    Args:
        came: a replica came into service, with an empty cache as far as we know.
        went: it is out of service.
        clock: seconds.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        options: HealthOptions,
        *,
        check_timeout_s: float,
        came: Callable[[str], None],
        went: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._members = {one.name: Member(one, HealthMonitor(options, clock())) for one in replicas}
        self._check_timeout_s = check_timeout_s
        self._came = came
        self._went = went
        self._clock = clock
        self._identity: ReplicaIdentity | None = None
        self._looks: set[asyncio.Task[None]] = set()

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

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
        self._identity = first.identity
        each = [one.capabilities() for one in up]
        return replace(each[0], salt=all(one.salt for one in each), priority=all(one.priority for one in each))

    def enter(self) -> None:
        """Everything that was started comes into service."""
        for member in self:
            if member.started:
                self._comes(member)

    async def close(self) -> None:
        checks = [*self._looks, *(one.check for one in self if one.check is not None)]
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        await asyncio.gather(*(one.engine.close() for one in self))

    def tick(self) -> None:
        """Begin the checks that are due."""
        now = self._clock()
        for member in self:
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

    def kv_use(self) -> dict[str, float]:
        """By replica in service, of those that say."""
        return {name: use for name in self.serving() if (use := self[name].engine.kv_use) is not None}

    def prompt_tokens_by_tier(self) -> dict[str, Mapping[str, int]]:
        """By replica in service."""
        return {name: self[name].engine.prompt_tokens_by_tier for name in self.serving()}

    def fault(self, member: Member, error: EngineUnavailableError) -> None:
        """A request failed on a replica."""
        if member.health.fault(error.fault, str(error), self._clock()):
            self._goes(member)

    def serving(self) -> list[str]:
        return [name for name, one in self._members.items() if one.health.in_service]

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
        reason = ""
        try:
            async with asyncio.timeout(self._check_timeout_s):
                if not member.started:
                    await member.engine.start()
                    member.started = True
                await member.engine.check()
            if self._identity is not None and member.engine.identity != self._identity:
                reason = f"serves {_shown(member.engine.identity)}, the pool {_shown(self._identity)}"
        except TimeoutError:
            reason = f"a check took longer than {self._check_timeout_s:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a server answers, it has not passed
            reason = str(error) or type(error).__name__
        now = self._clock()
        if reason:
            if member.health.failed(reason, now):
                self._goes(member)
        elif member.health.passed(now) or member.process != member.engine.process:
            self._comes(member)

    def _comes(self, member: Member) -> None:
        member.health.passed(self._clock())
        member.process = member.engine.process
        _log.info("replica %s is in service", member.engine.name)
        self._came(member.engine.name)

    def _goes(self, member: Member) -> None:
        _log.warning("replica %s is out of service: %s", member.engine.name, member.health.reason)
        self._went(member.engine.name)


def _shown(identity: ReplicaIdentity) -> str:
    return f"{identity.model!r} ({identity.context_limit_tokens} tokens, blocks of {identity.block_tokens})"
