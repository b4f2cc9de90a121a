"""Where a request goes, and what is written down of it: the router's load, the replica's health, the book of caches, speculation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import NamedTuple

from foretype_context.syntax.languages import LANGUAGES

from foretype_backend.engines.port import Chunk, EngineFinish
from foretype_backend.errors import EngineUnavailableError, Fault, NoReplicaError
from foretype_backend.fleet.members.announced import AnnouncedRollout
from foretype_backend.fleet.members.replicas import Members, OpenReplica
from foretype_backend.fleet.members.revisions import RevisionBook, names_of
from foretype_backend.fleet.routing.patterns import Pattern, line_at, pattern_of
from foretype_backend.fleet.routing.router import ReplicaChoice, Route, Router
from foretype_backend.fleet.routing.speculation import SpeculationOptions, SpeculationPolicy
from foretype_backend.prefix.cache_book import CacheBook, LookUp
from foretype_backend.prefix.origin import Origin


class Agreement(NamedTuple):
    """The directory's prediction beside what the engines said: requests, and those at most one block apart."""

    requests: int
    within_block: int
    predicted_tokens: int
    cached_tokens: int


class Placement:
    """See the module.

    Args:
        pass_through: the one replica is a router of its own: nothing is chosen here and no cache is believed.
        within: of a tenant that is bound to regions, the replicas in them; None of any other.
        rollout: which revisions are asked.
        book: the pool's book of caches.
        clock: seconds, the pool's.
    """

    def __init__(
        self,
        options: SpeculationOptions,
        members: Members,
        router: Router,
        *,
        pass_through: bool,
        book: CacheBook,
        clock: Callable[[], float],
        within: Callable[[str], frozenset[str] | None],
        rollout: Callable[[], AnnouncedRollout | None],
    ) -> None:
        self._options = options
        self._members = members
        self._router = router
        self._pass_through = pass_through
        self._book = book
        self._clock = clock
        self._within = within
        self._rollout = rollout
        self.agreement = Agreement(0, 0, 0, 0)
        self.speculation: SpeculationPolicy | None = None

    def guessing(self, origin: Origin) -> frozenset[str]:
        """Replicas to avoid: those that speculate, where it does not pay and others do not.

        A server speculates for all its requests or for none, so what is switched is where a request goes.
        """
        guessing = {name for name in self._router.replicas if self._members[name].engine.guesses}
        if not guessing:
            return frozenset()
        guesses = max(self._members[name].engine.guesses for name in guessing)
        if self.speculation is None:
            self.speculation = SpeculationPolicy(guesses, self._options)
        self.speculation.counted(guesses)
        load = self._router.statistics().in_flight
        verdict = self.speculation.decide(*_kind(origin), min(load[name] for name in guessing))
        return frozenset() if verdict.on else frozenset(guessing)

    def choose(self, found: LookUp, avoid: frozenset[str]) -> ReplicaChoice:
        """Raises EngineUnavailableError: nobody is in service whom this tenant may ask."""
        origin, tokens = found.origin, len(found.token_ids)
        within = self._within(origin.tenant)
        if within is not None and within.isdisjoint(self._router.replicas):
            told = f"no replica in the regions of tenant {origin.tenant!r} is in service"
            raise EngineUnavailableError(told, fault=Fault.REGION)
        if self._pass_through:
            if not self._router.replicas:
                raise self._members.unavailable()
            return ReplicaChoice(self._router.replicas[0], Route.PASS_THROUGH, 0)
        only = self.allowed(origin, self._router.replicas)
        try:
            return self._router.choose(
                origin.tenant, origin.repository, origin.session, tokens, found.held, avoid=avoid, only=only
            )
        except NoReplicaError:
            raise self._members.unavailable() from None

    def allowed(self, origin: Origin, names: Iterable[str]) -> frozenset[str] | None:
        """Of these replicas, those in the tenant's regions and of the developer's revision; None for all of them."""
        within, rollout = self._within(origin.tenant), self._rollout()
        if rollout is None:
            return within
        revisions = {name: self._members[name].member.revision for name in names if within is None or name in within}
        return frozenset(names_of(rollout, origin.developer or origin.session, revisions))

    async def follow(
        self,
        one: OpenReplica,
        choice: ReplicaChoice,
        found: LookUp,
        stream: AsyncIterator[Chunk],
        *,
        revisions: RevisionBook,
        max_tokens: int,
    ) -> AsyncGenerator[Chunk]:
        """One attempt on one replica: what it says, and the books of it; `revisions` counts what became of it."""
        began, tokens, book = self._clock(), len(found.token_ids), self._book
        (engine, member), revision = one, one.member.revision
        revisions.asked(revision, found.origin.developer or found.origin.session)
        alone = not member.health.in_flight
        self._router.begin(choice, tokens, began, max_tokens=max_tokens)
        member.health.began(began)
        noted = self._pass_through

        def note() -> None:
            nonlocal noted
            if not noted:
                noted = True
                book.sent(found, choice.replica, began)

        # The request leaves with this turn of the loop: while it is under way there is time for the book.
        asyncio.get_running_loop().call_soon(note)
        generated: list[int] = []
        waiting, served = True, False
        kind = None if self.speculation is None else _kind(found.origin)
        try:
            async for chunk in stream:
                now = self._clock()
                member.health.heard(now)
                if waiting:
                    waiting = False
                    revisions.first_token(revision, now - began)
                    self._router.prefilled(choice, tokens)
                    if alone:
                        self._router.measured(choice.replica, tokens - choice.cached_tokens, now - began)
                if generated and chunk.token_ids and engine.guesses and self.speculation is not None and kind:
                    self.speculation.note(*kind, len(chunk.token_ids))
                generated += chunk.token_ids
                if chunk.cached_tokens is not None:
                    self._agree(choice, found, chunk.cached_tokens)
                if chunk.finish is not None:
                    served = chunk.finish is not EngineFinish.ABORTED
                yield chunk
        except EngineUnavailableError:
            revisions.failed(revision)
            raise
        finally:
            try:
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()
            finally:  # a replica that does not let go is not waited for: it must not count as busy for ever
                if waiting:
                    self._router.prefilled(choice, tokens)
                self._router.end(choice, tokens, max_tokens=max_tokens)
                member.health.ended(served=served)
                note()  # of one that was over within its turn
                if not self._pass_through:
                    now = self._clock()
                    if generated:
                        book.answered(found, generated, choice.replica, now)
                    if not found.origin.document:  # a stateless client: there is no session that could end
                        book.left(found.origin.session, now)

    def _agree(self, choice: ReplicaChoice, found: LookUp, cached_tokens: int) -> None:
        predicted = found.held.get(choice.replica, 0)
        before = self.agreement
        near = abs(predicted - cached_tokens) <= self._book.block_tokens
        self.agreement = Agreement(
            before.requests + 1,
            before.within_block + near,
            before.predicted_tokens + predicted,
            before.cached_tokens + cached_tokens,
        )


def _kind(origin: Origin) -> tuple[str, Pattern]:
    """What speculation is judged by. A language without a grammar here counts as `other`."""
    language = origin.language if origin.language in LANGUAGES else "other"
    return language, pattern_of(line_at(origin.placed), language)
