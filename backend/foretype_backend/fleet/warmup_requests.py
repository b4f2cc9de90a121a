"""The warm-ups of a pool: what :mod:`.warmups` orders is sent to replicas, and stands in the books like any other load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from foretype_wire.tasks import end_tasks

from foretype_backend.errors import EngineUnavailableError
from foretype_backend.fleet.members.replicas import Members
from foretype_backend.fleet.routing.router import ReplicaChoice, Route, Router
from foretype_backend.fleet.warmups import PromptBeginning, WarmOptions, WarmQueue, WarmStatistics, stable_parts
from foretype_backend.prefix.cache_book import CacheBook, LookUp
from foretype_backend.prefix.origin import Origin


class WarmUps:
    """See the module.

    Args:
        book: the pool's book of caches.
        choose: where a prompt would be served now; raises EngineUnavailableError where nobody serves.
        clock: seconds, the pool's.
    """

    def __init__(
        self,
        options: WarmOptions,
        members: Members,
        router: Router,
        *,
        book: CacheBook,
        choose: Callable[[LookUp], ReplicaChoice],
        clock: Callable[[], float],
    ) -> None:
        self._queue = WarmQueue(options)
        self._members = members
        self._router = router
        self._book = book
        self._choose = choose
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def under_way(self) -> int:
        """Warm-ups that replicas compute now."""
        return len(self._tasks)

    def offer(self, token_ids: Sequence[int], salt: str | None, origin: Origin | None) -> None:
        """The stable parts of a prompt are computed when a replica has nothing better to do."""
        now = self._clock()
        found = self._book.look_up(origin or Origin(), token_ids, salt, now)
        for part in stable_parts(found.chain, token_ids, found.salt, found.origin):
            self._queue.offer(part, now)
        self.begin()

    def begin(self) -> None:
        """Start what the queue allows now."""
        loads = {name: self._members[name].member.health.in_flight for name in self._router.replicas}
        for replica, part in self._queue.take(loads, self._place_of, self._clock()):
            task = asyncio.create_task(self._compute(replica, part), name=f"warm {replica}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def lost(self, replica: str) -> None:
        """A replica's cache is empty now."""
        self._queue.lost(replica)

    def statistics(self) -> WarmStatistics:
        return self._queue.statistics()

    async def close(self) -> None:
        self._closed = True
        tasks = list(self._tasks)
        await end_tasks(*tasks)

    def _place_of(self, part: PromptBeginning) -> str | None:
        found = self._found_of(part)
        block_tokens = self._book.block_tokens
        whole = len(part.token_ids) // block_tokens * block_tokens
        choice = self._choose(found)
        return None if found.held.get(choice.replica, 0) >= whole - block_tokens else choice.replica

    def _found_of(self, part: PromptBeginning) -> LookUp:
        origin = msgspec.structs.replace(part.origin, session=f"warm/{part.origin.session}", document="")
        return self._book.look_up(origin, part.token_ids, part.salt, self._clock())

    async def _compute(self, replica: str, part: PromptBeginning) -> None:
        """One warm-up. The router counts it as load, so that people are sent elsewhere."""
        one, found = self._members[replica], self._found_of(part)
        choice = ReplicaChoice(replica, Route.WARM, found.held.get(replica, 0))
        self._router.begin(choice, len(part.token_ids), self._clock())
        computed = False
        try:
            await one.engine.warm(part.token_ids, salt=part.salt or None, origin=part.origin)
            self._book.sent(found, replica, self._clock())
            computed = True
        except EngineUnavailableError as error:
            self._members.fault(one, error)
        finally:
            now = self._clock()
            self._book.left(found.origin.session, now)
            self._router.prefilled(choice, len(part.token_ids))
            self._router.end(choice, len(part.token_ids))
            self._queue.done(replica, now, computed=computed)
            if not self._closed:
                self.begin()
