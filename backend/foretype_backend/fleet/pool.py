"""Replicas behind one engine port: each request goes where most of its prompt is cached and there is room.

This is the shell: it holds the replicas (:mod:`.members`), the router (:mod:`.routing.router`) and the book of caches
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
from prometheus_client.registry import Collector

from foretype_backend.engines.aborted_ids import AbortLedger
from foretype_backend.engines.port import Capabilities, Chunk, EngineFinish, EngineStatistics, GenerationRequest, Origin
from foretype_backend.engines.vllm.metrics import LOOK_EVERY_S
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.fleet.health import HealthOptions
from foretype_backend.fleet.kv_events import follow_events
from foretype_backend.fleet.members import Members, Replica
from foretype_backend.fleet.metrics import PoolCollector
from foretype_backend.fleet.placement import Placement
from foretype_backend.fleet.routing.router import Router, RoutingOptions
from foretype_backend.fleet.routing.speculation import SpeculationOptions
from foretype_backend.fleet.statistics import PoolStatistics
from foretype_backend.fleet.warmup_requests import WarmUps
from foretype_backend.fleet.warmups import WarmOptions
from foretype_backend.prefix.cache_book import CacheBook
from foretype_backend.prefix.retire_feed import PurgeNotice, RetireNotice

__all__ = ["PoolOptions", "ReplicaPool"]

_log = logging.getLogger("foretype.gateway")
_TICK_S = 0.1


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
    """

    routing: RoutingOptions = field(default_factory=RoutingOptions)
    speculation: SpeculationOptions = field(default_factory=SpeculationOptions)
    health: HealthOptions = field(default_factory=HealthOptions)
    pass_through: bool = False
    check_timeout_s: float = 5.0
    warm: WarmOptions = field(default_factory=WarmOptions)
    expire_every_s: float = 5.0


class ReplicaPool:
    """See the module.

    Args:
        sender: takes what was retired or purged to the tiers of the replicas; closed with the pool.
        events: by replica, the ZMQ address of its cache events, on this host.
        within: by tenant that is bound to regions, the names of the replicas in them.
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
        within: Mapping[str, frozenset[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not replicas:
            raise ValueError("a pool needs at least one replica; list them in `[pool.fast] replicas`")
        self.options = options or PoolOptions()
        self._sender = sender
        self._events = dict(events or {})
        self._listeners: list[asyncio.Task[None]] = []
        self._clock = clock
        self._members = Members(
            replicas,
            self.options.health,
            check_timeout_s=self.options.check_timeout_s,
            came=self._came,
            went=self._went,
            clock=clock,
        )
        self._router = Router(self.options.routing)
        self._placed_at: dict[str, Replica] = {}
        self._ledger = AbortLedger()
        self._ticker: asyncio.Task[None] | None = None
        self._expired_s = self._looked_s = clock()
        self._capabilities: Capabilities | None = None
        self._retried = 0
        self._placement = Placement(
            self.options.speculation,
            self._members,
            self._router,
            pass_through=self.options.pass_through,
            book=lambda: self.book,
            clock=clock,
            within=dict(within or {}),
        )
        self._warm = WarmUps(
            self.options.warm,
            self._members,
            self._router,
            book=lambda: self.book,
            choose=lambda found: self._placement.choose(found, frozenset()),
            clock=clock,
        )
        self.book = CacheBook(16)

    # Life

    async def start(self) -> None:
        """Start every replica at once; those that do not answer are checked again while the others serve."""
        if self._ticker is not None:
            return
        try:
            self._capabilities = await self._members.start()
        except EngineUnavailableError:
            await self.close()
            raise
        self.book = CacheBook(self._capabilities.block_tokens)
        self._members.enter()
        self._ticker = asyncio.create_task(self._tick(), name="replica pool")
        self._listeners = [
            asyncio.create_task(
                follow_events(endpoint, self.book.block_tokens, functools.partial(self.book.heard, name)),
                name=f"cache events of {name}",
            )
            for name, endpoint in self._events.items()
        ]

    async def close(self) -> None:
        tasks = [*self._listeners, *([] if self._ticker is None else [self._ticker])]
        self._ticker, self._listeners = None, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._warm.close()
        await self._members.close()
        if self._sender is not None:
            await self._sender.close()

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
        avoid: frozenset[str] = frozenset()
        plain = self._placement.guessing(found.origin)
        while True:
            choice = self._placement.choose(found, avoid | plain)
            member = self._members[choice.replica]
            stream = member.engine.generate(
                request if not avoid else msgspec.structs.replace(request, id=f"{request_id}.{len(avoid)}")
            )
            spoke = False
            self._placed_at[request_id] = member.engine
            try:
                async with contextlib.aclosing(self._placement.follow(member, choice, found, stream)) as chunks:
                    async for chunk in chunks:
                        spoke = True
                        yield chunk
                return
            except EngineUnavailableError as error:
                self._members.fault(member, error)
                if spoke or avoid or len(self._router.replicas) - (choice.replica in self._router.replicas) < 1:
                    raise
                avoid = frozenset({choice.replica})
                self._retried += 1
            finally:
                self._placed_at.pop(request_id, None)
                self._ledger.end(request_id)

    def abort(self, request_id: str) -> None:
        """By the id that was given to `generate`; a second attempt of a request is found under it, too."""
        engine = self._placed_at.get(request_id)
        if engine is None:
            self._ledger.aborted(request_id)
        else:
            engine.abort(request_id)
            engine.abort(f"{request_id}.1")

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
        if now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self._members.look()
        if now - self._expired_s >= self.options.expire_every_s:
            self._expired_s = now
            retired = self.book.expire(now)
            if retired:
                self._tell(retired)

    def _came(self, name: str) -> None:
        self.book.directory.join(name)
        self._warm.lost(name)
        self._router.set_replicas(self._members.serving())

    def _went(self, name: str) -> None:
        self.book.directory.leave(name)
        self._router.set_replicas(self._members.serving())

    def _tell(self, messages: Iterable[RetireNotice | PurgeNotice]) -> None:
        if self._sender is not None:
            self._sender.tell(messages)

    # Questions

    def in_service(self) -> list[Replica]:
        """The replicas that take requests now."""
        return [self._members[name].engine for name in self._members.serving()]

    def purge(self, tenant: str, repository: str = "") -> int:
        """Forgets what is believed to be cached, and tells the tiers; the caller ends the epoch of the salt."""
        blocks, told = self.book.purge(tenant, repository)
        self._tell(told)
        return blocks

    def count(self, tenant: str, repository: str = "") -> int:
        """Blocks that a purge would forget."""
        return self.book.directory.count(tenant, repository)

    def statistics(self) -> EngineStatistics:
        each = [one.engine.statistics() for one in self._members]
        outages = sum(one.outages for one in self._members.statistics().values())
        counts = [one._replace(kv_use=0.0) for one in each]
        totals = EngineStatistics(*(sum(column) for column in zip(*counts, strict=True)))
        uses = self._members.kv_use().values()
        return totals._replace(restarts=outages, kv_use=sum(uses) / len(uses) if uses else None)

    def pool_statistics(self) -> PoolStatistics:
        return PoolStatistics(
            replicas=self._members.statistics(),
            router=self._router.statistics(),
            agreement=self._placement.agreement,
            retried=self._retried,
            warm=self._warm.statistics(),
            kv_use=self._members.kv_use(),
            prompt_tokens_by_tier=self._members.prompt_tokens_by_tier(),
        )

    def collectors(self) -> list[Collector]:
        """Figures of the pool alone, for `/metrics`."""
        return [PoolCollector(self.pool_statistics, lambda: self._placement.speculation)]

    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            raise EngineUnavailableError("the pool is not started; call start() first")
        return self._capabilities

    def __repr__(self) -> str:
        return f"<ReplicaPool: {len(self._members.serving())} of {len(self._members)} in service>"
