"""Where a request goes: the product's router and its book of caches, or what others do instead. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from enum import StrEnum

from foretype_backend.errors import NoReplicaError
from foretype_backend.fleet.routing.ring import Ring
from foretype_backend.fleet.routing.router import ReplicaChoice, Route, Router, RoutingOptions
from foretype_backend.prefix.directory import PrefixDirectory
from foretype_backend.prefix.salt import Namespace

from foretype_plan.simulation.people import Prompt


class Routing(StrEnum):
    """`prefix` is the product; `hash` sends a session always to one place; `round_robin` knows nothing."""

    PREFIX = "prefix"
    HASH = "hash"
    ROUND_ROBIN = "round_robin"


class RoutingBook:
    """See the module.

    Args:
        capacity_blocks: of a replica's cache, as the book believes it.
    """

    def __init__(self, routing: Routing, *, slots: int, capacity_blocks: int, prefill_tokens_per_s: float) -> None:
        self._routing = routing
        self.router = Router(RoutingOptions(free_in_flight=slots, prefill_tokens_per_s=prefill_tokens_per_s))
        self._directory = PrefixDirectory(capacity_blocks=capacity_blocks)
        self._ring = Ring(())
        self._turn = itertools.count()
        self._expired_s = 0.0

    def set_replicas(self, names: Iterable[str]) -> None:
        """Those in service from now on; a new one's cache is empty."""
        now, before = sorted(names), set(self.router.replicas)
        for name in now:
            if name not in before:
                self._directory.join(name)
        for name in before.difference(now):
            self._directory.leave(name)
        self.router.set_replicas(now)
        self._ring = Ring(now)

    def choose(
        self, tenant: str, repository: str, session: str, prompt: Prompt, avoid: frozenset[str]
    ) -> ReplicaChoice | None:
        """None where no replica is in service."""
        try:
            if self._routing is Routing.PREFIX:
                size = prompt.chain[0].end if prompt.chain else 1
                reusable = prompt.keys[: max(0, (prompt.tokens - 1) // size)]
                held = {name: count * size for name, count in self._directory.cached_blocks(reusable).items()}
                return self.router.choose(tenant, repository, session, prompt.tokens, held, avoid=avoid)
            if not self.router.replicas:
                return None
            if self._routing is Routing.HASH:
                return ReplicaChoice(next(self._ring.walk(session)), Route.HOME, 0)
            names = self.router.replicas
            return ReplicaChoice(names[next(self._turn) % len(names)], Route.OVERFLOW, 0)
        except NoReplicaError:
            return None

    def sent(
        self, choice: ReplicaChoice, tenant: str, repository: str, session: str, prompt: Prompt, now: float
    ) -> None:
        self.router.begin(choice, prompt.tokens, now)
        self.believed(choice.replica, tenant, repository, session, prompt, now)

    def believed(self, replica: str, tenant: str, repository: str, session: str, prompt: Prompt, now: float) -> None:
        """A prompt went to a replica, which will hold it."""
        if self._routing is Routing.PREFIX:
            namespace = Namespace(tenant, repository)
            self._directory.place(namespace, session, "file", prompt.chain, replica=replica, now=now)
            if now - self._expired_s > 5.0:
                self._expired_s = now
                self._directory.expire(now)
