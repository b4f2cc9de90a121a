"""Replicas behind one engine port: each request goes where most of its prompt is cached and there is room.

This is the shell: it holds the replicas (:mod:`.members.replicas`), the router (:mod:`.routing.router`) and the book of caches
(:mod:`foretype_backend.prefix.cache_book`), and hands on what replicas say; :mod:`.placement` chooses and keeps the books.
A request whose replica fails before its first token goes to another one, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from foretype_wire.redaction import log_fault
from foretype_wire.tasks import end_tasks
from prometheus_client.registry import Collector

from foretype_backend.engines.aborted_ids import AbortLedger
from foretype_backend.engines.port import Capabilities, Chunk, EngineFinish, EngineStatistics, GenerationRequest
from foretype_backend.engines.vllm.metrics import LOOK_EVERY_S
from foretype_backend.errors import EngineUnavailableError, Fault
from foretype_backend.fleet.health import HealthOptions
from foretype_backend.fleet.kv_events import follow_events
from foretype_backend.fleet.members.announced import AnnouncedRollout
from foretype_backend.fleet.members.membership import Membership, MembershipAct, MembershipStatistics, MembershipStep
from foretype_backend.fleet.members.replicas import Canary, Members, OpenReplica, Replica
from foretype_backend.fleet.members.revisions import RevisionBook
from foretype_backend.fleet.members.roster import Discovery, Roster
from foretype_backend.fleet.metrics import PoolCollector, PoolStatistics
from foretype_backend.fleet.placement import Placement
from foretype_backend.fleet.prefill_apart import ApartOptions, PrefillApart
from foretype_backend.fleet.routing.router import Router, RoutingOptions
from foretype_backend.fleet.routing.speculation import SpeculationOptions
from foretype_backend.fleet.warmup_requests import WarmUps
from foretype_backend.fleet.warmups import WarmOptions
from foretype_backend.prefix.cache_book import CacheBook
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.retire_feed import PurgeNotice, RetireNotice

_log = logging.getLogger("foretype.gateway")
_TICK_S = 0.1
_LOOK_FULL_S = 1.0
"""How old the figure may be that keeps new work from a replica."""


class NoticeSender(Protocol):
    """Takes messages to the tiers; must not block."""

    def tell(self, messages: Iterable[RetireNotice | PurgeNotice]) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How a pool works.

    Attributes:
        pass_through: the one replica is a router of its own: nothing is chosen here and no cache is believed.
        check_timeout_s: a health check that takes longer has failed.
        expire_every_s: how often what nobody uses any more is retired.
        apart: which prompts are computed on replicas of their own; None for none.
    """

    routing: RoutingOptions = field(default_factory=RoutingOptions)
    speculation: SpeculationOptions = field(default_factory=SpeculationOptions)
    health: HealthOptions = field(default_factory=HealthOptions)
    pass_through: bool = False
    check_timeout_s: float = 5.0
    warm: WarmOptions = field(default_factory=WarmOptions)
    expire_every_s: float = 5.0
    apart: ApartOptions | None = None


class ReplicaPool:
    """See the module.

    Args:
        sender: takes what was retired or purged to the tiers of the replicas; closed with the pool.
        events: by replica, the ZMQ address of its cache events, on this host.
        located: by name of a listed replica, its region; what is announced says its own.
        regions: by tenant that is bound to some.
        discovery: where replicas are announced, in place of a list.
        clock: seconds, for all decisions.

    Raises:
        EngineUnavailableError: by :meth:`start`: no replica answers, or they serve different models.
    """

    remote = True

    def __init__(
        self,
        replicas: Sequence[Replica],
        options: PoolOptions | None = None,
        *,
        sender: NoticeSender | None = None,
        events: Mapping[str, str] | None = None,
        located: Mapping[str, str] | None = None,
        regions: Mapping[str, frozenset[str]] | None = None,
        discovery: Discovery | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not replicas and discovery is None:
            raise ValueError("a pool needs at least one replica; list them in `[pool.fast] replicas`")
        self.options = options or PoolOptions()
        self._sender = sender
        self._events = dict(events or {})
        self._clock = clock
        self._membership = Membership(
            None if discovery is None else discovery.rules,
            self.options.health,
            listed={one.name: (located or {}).get(one.name, "") for one in replicas},
            now=clock(),
        )
        self._router = Router(self.options.routing, weight=self._membership.weight)
        self.book = CacheBook()
        self._members = Members(
            self._membership,
            replicas,
            opens=None if discovery is None else discovery.opens,
            check_timeout_s=self.options.check_timeout_s,
            changed=self._follow,
            looked=self._router.said,
            clock=clock,
        )
        self._roster = None if discovery is None else Roster(discovery, self._membership, self._members, clock=clock)
        self._first_wait_s = 0.0 if discovery is None else discovery.first_wait_s
        self._awaited = True
        self._regions = dict(regions or {})
        self.revisions = RevisionBook()
        self._placed_at: dict[str, OpenReplica] = {}
        self._ledger = AbortLedger()
        self._tasks: list[asyncio.Task[None]] = []
        self._expired_s = self._looked_s = clock()
        self._capabilities: Capabilities | None = None
        self._retried = 0
        self._placement = Placement(
            self.options.speculation,
            self._members,
            self._router,
            pass_through=self.options.pass_through,
            book=self.book,
            clock=clock,
            within=self._within_of,
            rollout=lambda: self.rollout,
        )
        apart = self.options.apart
        self._apart = None
        if apart is not None:
            self._apart = PrefillApart(
                apart,
                self._members,
                routing=self.options.routing,
                book=self.book,
                allowed=self._placement.allowed,
                fault=self._fault,
                clock=clock,
            )
        self._warm = WarmUps(
            self.options.warm,
            self._members,
            self._router,
            book=self.book,
            choose=lambda found: self._placement.choose(found, frozenset()),
            clock=clock,
        )

    # Life

    async def start(self) -> None:
        """Start every replica at once; those that do not answer are checked again while the others serve."""
        if self._tasks:
            return
        try:
            if self._roster is None:
                self._knows(await self._members.start())
                self._members.enter()
            elif self._awaited:
                await self._roster.first(self._first_wait_s)
            else:
                self._roster.begin()
        except EngineUnavailableError:
            await self.close()
            raise
        self._tasks = [asyncio.create_task(self._tick(), name="replica pool")]
        for name, endpoint in self._events.items():
            events = follow_events(endpoint, self.book.block_tokens, functools.partial(self.book.apply_events, name))
            self._tasks.append(asyncio.create_task(events, name=f"cache events of {name}"))

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        await end_tasks(*tasks)
        if self._roster is not None:
            await self._roster.close()
        await self._warm.close()
        await self._members.close()
        if self._sender is not None:
            await self._sender.close()

    def _knows(self, capabilities: Capabilities) -> None:
        """Of the first replicas, to which those that come later must be alike."""
        self._capabilities = capabilities
        self.book.begin(capabilities.block_tokens)
        self._membership.require_block_tokens(capabilities.block_tokens)

    def narrow(self, takes: Callable[[str], bool], *, awaited: bool = True, counts: RevisionBook | None = None) -> None:
        """Before the start: of what is announced, only these revisions are this pool's.

        Args:
            awaited: the start waits for the first replica; else they come when they come.
            counts: of the pools that share a name.
        """
        assert self._roster is not None, "a list announces no revisions"
        self._membership.narrow(takes)
        self._awaited = awaited
        if counts is not None:
            self.revisions = counts

    async def expect(self, canary: Canary) -> None:
        """From now on a replica that joins has to pass `canary`; those in service are asked at once.

        Raises:
            ConfigError: a replica of the configuration does not pass, or no announced one does.
        """
        faults = await self._members.prove(canary)
        # One that is away is left to the checks of its health.
        wrong = {name: fault for name, fault in faults.items() if not isinstance(fault, EngineUnavailableError)}
        if wrong and (self._roster is None or len(wrong) >= len(self._members.serving())):
            raise next(iter(wrong.values()))
        for name, fault in wrong.items():
            self._members.fault(self._members[name], EngineUnavailableError(str(fault)))

    async def examine(self, wait_s: float) -> MembershipStatistics | None:
        """Start, and ask everybody who is announced once; None of a list. Raises as `start` does."""
        self._first_wait_s = min(self._first_wait_s, wait_s)
        await self.start()
        return None if self._roster is None else await self._roster.settled(wait_s)

    async def ready(self) -> None:
        if not self._members.serving():
            raise self._members.unavailable()

    # Requests

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        request_id = request.id
        if self._ledger.begin(request_id):
            self._ledger.end(request_id)
            yield Chunk(finish=EngineFinish.ABORTED)
            return
        origin = request.origin or Origin(session=request_id)
        found = self.book.look_up(origin, request.token_ids, request.salt, self._clock())
        if self._apart is not None:
            handed = await self._apart.compute(request, found, self._router.replicas)
            request = msgspec.structs.replace(request, handed=handed)
            if self._ledger.begin(request_id):  # aborted meanwhile
                self._ledger.end(request_id)
                yield Chunk(finish=EngineFinish.ABORTED)
                return
        avoid: frozenset[str] = frozenset()
        plain = self._placement.guessing(found.origin)
        while True:
            choice = self._placement.choose(found, avoid | plain)
            one = self._members[choice.replica]
            self._placed_at[request_id] = one
            attempt = self._placement.attempt(one, choice, found, self.revisions)
            asked = request if not avoid else msgspec.structs.replace(request, id=f"{request_id}.{len(avoid)}")
            try:
                async with contextlib.aclosing(attempt.chunks(asked)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except EngineUnavailableError as error:
                self._fault(one, error)
                others = len(self._router.replicas) - (choice.replica in self._router.replicas)
                if attempt.spoke or avoid or (others < 1 and not self.options.pass_through):
                    raise
                avoid = frozenset({choice.replica})  # a fleet's own router is asked again: it has others to choose from
                self._retried += 1
            finally:
                self._placed_at.pop(request_id, None)
                self._ledger.end(request_id)

    def _fault(self, one: OpenReplica, error: EngineUnavailableError) -> None:
        """A request failed. Behind a fleet's own router it was one replica of many: the router is checked, and not given up for it."""
        if self.options.pass_through and error.fault in (Fault.LOST, Fault.GARBAGE):
            error = EngineUnavailableError(str(error), fault=Fault.ERROR)
        self._members.fault(one, error)

    def abort(self, request_id: str) -> None:
        """By the id that was given to `generate`; a second attempt of a request is found under it, too."""
        one = self._placed_at.get(request_id)
        if one is None:
            self._ledger.aborted(request_id)
            if self._apart is not None:
                self._apart.abort(request_id)
        else:
            if one in self._members:
                self.revisions.cancelled(one.member.revision)
            one.engine.abort(request_id)
            one.engine.abort(f"{request_id}.1")

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        """Returns at once: the stable parts of the prompt are computed when a replica has nothing better to do."""
        if not self.options.pass_through:
            self._warm.offer(token_ids, salt, origin)

    @property
    def warming(self) -> int:
        """Warm-ups under way."""
        return self._warm.under_way

    # Time

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self._turn(self._clock())
            except Exception as error:  # noqa: BLE001 - without the next turn no replica is ever checked again
                log_fault(_log, "a turn of the replica pool failed", error)

    def _turn(self, now: float) -> None:
        self._members.tick()
        self._warm.begin()
        if now - self._looked_s >= (_LOOK_FULL_S if self._router.any_full else LOOK_EVERY_S):
            self._looked_s = now
            self._members.look()
        if now - self._expired_s >= self.options.expire_every_s:
            self._expired_s = now
            retired = self.book.expire(now)
            if retired:
                self._tell(retired)

    def _within_of(self, tenant: str) -> frozenset[str] | None:
        regions = self._regions.get(tenant)
        if regions is None:
            return None
        return frozenset(one.engine.name for one in self._members if one.member.announced.region in regions)

    def can_admit(self, tokens: int) -> bool:
        """Whether the cache of a replica in service holds so many tokens more."""
        return self._router.can_admit(tokens)

    def _follow(self, step: MembershipStep) -> None:
        """Caches and routes follow who comes and goes."""
        act, name, _ = step
        if act is MembershipAct.ENTER:
            if self._capabilities is None:
                self._knows(self._members[name].engine.capabilities())
            self.book.directory.join(name)
            self._warm.lost(name)
        elif act in (MembershipAct.EXIT, MembershipAct.LEAVE, MembershipAct.REFUSE):
            self.book.directory.leave(name)
        self._router.set_replicas(one.engine.name for one in self._members.serving())
        if self._apart is not None:
            self._apart.set_replicas(one.engine.name for one in self._members.prefilling())
        if act is MembershipAct.REFUSE and self._roster is not None:
            self._roster.tell_refused()

    def _tell(self, messages: Iterable[RetireNotice | PurgeNotice]) -> None:
        if self._sender is not None:
            self._sender.tell(messages)

    # Questions

    def in_service(self) -> list[Replica]:
        """The replicas that take requests now."""
        return [one.engine for one in self._members.serving()]

    @property
    def rollout(self) -> AnnouncedRollout | None:
        return None if self._roster is None else self._roster.rollout

    def revisions_in_service(self) -> frozenset[str]:
        return frozenset(one.member.revision for one in self._members.serving())

    def purge(self, tenant: str, repository: str = "") -> int:
        """Forgets what is believed to be cached, and tells the tiers; the caller ends the epoch of the salt."""
        blocks, told = self.book.purge(tenant, repository)
        self._tell(told)
        return blocks

    def count(self, tenant: str, repository: str = "") -> int:
        """Blocks that a purge would forget."""
        return self.book.directory.count(tenant, repository)

    @property
    def restarts(self) -> int:
        """Times that a replica was taken out of service."""
        return self._membership.outages

    def statistics(self) -> EngineStatistics:
        return self._members.counted()._replace(restarts=self.restarts)

    def pool_statistics(self) -> PoolStatistics:
        return PoolStatistics(
            replicas=self._members.statistics(),
            router=self._router.statistics(),
            agreement=self._placement.agreement,
            retried=self._retried,
            warm=self._warm.statistics(),
            kv_use=self._members.kv_use(),
            prompt_tokens_by_tier=self._members.prompt_tokens_by_tier(),
            membership=None if self._roster is None else self._roster.statistics(),
            apart=None if self._apart is None else self._apart.statistics(),
        )

    def collectors(self) -> list[Collector]:
        """Figures of the pool alone, for `/metrics`."""
        return [PoolCollector(self.pool_statistics, lambda: self._placement.speculation)]

    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            raise EngineUnavailableError("the pool is not started; call start() first")
        return self._capabilities
