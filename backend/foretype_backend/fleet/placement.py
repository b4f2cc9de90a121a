"""Where a request goes: the replicas that it may ask, and the one that has most of its prompt. What is written down of it: :mod:`.attempt`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from foretype_context.syntax.languages import LANGUAGES

from foretype_backend.errors import EngineUnavailableError, Fault, NoReplicaError
from foretype_backend.fleet.attempt import Attempt, Books
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

    def attempt(self, one: OpenReplica, choice: ReplicaChoice, found: LookUp, revisions: RevisionBook) -> Attempt:
        """One attempt on one replica; `revisions` counts what became of it."""
        books = Books(
            self._router,
            revisions,
            caches=None if self._pass_through else self._book,
            cached=partial(self._agree, choice, found),
            together=None if self.speculation is None else partial(self.speculation.note, *_kind(found.origin)),
        )
        return Attempt(one, choice, found, books, clock=self._clock)

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
