"""Choosing a replica: the one with the most of the prompt in its cache, as long as that does not overload it.

The order of the questions (docs/decisions/0009-prefix-and-routing.md):

1. No replica may have more than 1.25 times the mean of requests in flight (bounded loads, Mirrokni et al. 2018), save that a
   batch which is not full costs nobody anything: so many any replica may have.
2. *Sticky*: among those that hold at least four fifths of the longest cached prefix, the one that answers first. Never simply the
   longest prefix: everybody would go where one was.
3. *Home*: nothing worth sticking to is cached. A repository has a few replicas by consistent hashing, and a session one of these.
4. *Seed*: a prompt of which nothing is cached anywhere goes to the emptiest of that few, and of equals to the one that was
   seeded least recently.
5. *Overflow*: they are all full; the next replica on the ring that is not.

A replica whose cache is held by running requests above a high-water mark gets no new prefixes: those that it has it may go on with
(2), anything else goes elsewhere as long as there is an elsewhere. What it holds is what it said last, and what was sent there since.

Predicted time to the first token: (uncached tokens queued there + uncached tokens of this prompt) / prefill rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from foretype_backend.errors import NoReplicaError
from foretype_backend.fleet.routing.ring import Ring


class Route(StrEnum):
    """Why a replica was chosen; also the metric's label."""

    STICKY = "sticky"
    HOME = "home"
    SEED = "seed"
    OVERFLOW = "overflow"
    PASS_THROUGH = "pass_through"
    WARM = "warm"


class ReplicaChoice(NamedTuple):
    """A replica, why, and the prompt tokens it is believed to have cached."""

    replica: str
    route: Route
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOptions:
    """How replicas are chosen.

    Attributes:
        load_factor: most requests in flight on one replica, as a multiple of its share by weight.
        free_in_flight: requests that a replica may have in any case: its batch; one of less weight accordingly fewer.
        sticky_share: a replica is as good as the best if it has this share of the longest cached prefix.
        worth_sticking: least share of the prompt that must be cached somewhere for it to decide.
        replicas_per_repository: replicas that a repository's sessions are spread over when none of them is full.
        prefill_tokens_per_s: of one replica; measured ones come with :meth:`Router.measured`.
        kv_high_water: share of a replica's cache in use above which it gets no new prefixes; it takes them again a tenth below.
    """

    load_factor: float = 1.25
    free_in_flight: int = 8
    sticky_share: float = 0.8
    worth_sticking: float = 0.25
    replicas_per_repository: int = 2
    prefill_tokens_per_s: float = 20_000.0
    kv_high_water: float = 0.9

    def __post_init__(self) -> None:
        if self.load_factor < 1:
            raise ValueError(f"load_factor must be at least 1, not {self.load_factor}; 1.25 is usual")
        if self.free_in_flight < 0:
            raise ValueError(
                f"free_in_flight must be at least 0, not {self.free_in_flight}; 0 keeps the bound at all loads"
            )
        if self.replicas_per_repository < 1:
            raise ValueError(f"replicas_per_repository must be at least 1, not {self.replicas_per_repository}")
        if not 0 < self.kv_high_water <= 1:
            raise ValueError(f"kv_high_water must be above 0 and at most 1, not {self.kv_high_water}; 0.9 is usual")
        if self.prefill_tokens_per_s <= 0:
            raise ValueError(f"prefill_tokens_per_s must be above 0, not {self.prefill_tokens_per_s}")


class RouterStatistics(NamedTuple):
    """Per replica: requests in flight and uncached tokens queued; per route, how often."""

    in_flight: Mapping[str, int]
    queued_tokens: Mapping[str, int]
    routes: Mapping[Route, int]


@dataclass(slots=True)
class _Load:
    in_flight: int = 0
    queued_tokens: int = 0
    seeded: float = -math.inf
    prefill_tokens_per_s: float = 0.0
    kv_tokens: int = 0  # of its cache; 0 where it is not known
    kv_held: float = 0.0  # tokens that running requests hold
    kv_full: bool = False

    @property
    def kv_share(self) -> float:
        return self.kv_held / self.kv_tokens if self.kv_tokens else 0.0


@dataclass(slots=True)
class _Book:
    loads: dict[str, _Load] = field(default_factory=dict[str, _Load])
    routes: dict[Route, int] = field(default_factory=lambda: dict.fromkeys(Route, 0))


_HYSTERESIS: Final = 0.1
_EMPTY: Final = Ring(())


class Router:
    """Replicas, their load, and the choice. The caller says when a request begins, has its first token, and ends.

    Args:
        weight: of a replica, its share of the load beside the others.
    """

    def __init__(
        self, options: RoutingOptions | None = None, *, weight: Callable[[str], float] = lambda _: 1.0
    ) -> None:
        self.options = options or RoutingOptions()
        self._weight = weight
        self._ring = _EMPTY
        self._book = _Book()

    @property
    def replicas(self) -> tuple[str, ...]:
        return self._ring.members

    def set_replicas(self, names: Iterable[str]) -> None:
        """Replicas in service from now on. Requests on others may still end."""
        members = set(names)
        if members != set(self._ring.members):
            self._ring = Ring(members)
        for name in members:
            self._book.loads.setdefault(name, _Load())
        self._book.loads = {name: load for name, load in self._book.loads.items() if name in members or load.in_flight}

    def choose(
        self,
        tenant: str,
        repository: str,
        session: str,
        prompt_tokens: int,
        cached_tokens: Mapping[str, int],
        *,
        avoid: frozenset[str] = frozenset(),
        only: frozenset[str] | None = None,
    ) -> ReplicaChoice:
        """Where to send a prompt. Changes nothing: tell the router with :meth:`begin`.

        Args:
            cached_tokens: per replica, the length of the prompt's cached prefix; replicas with none may be left out.
            avoid: replicas that just refused this request; taken only where there is no other.
            only: replicas that the tenant may use; no other is ever taken.

        Raises:
            NoReplicaError: none is in service.
        """
        members = tuple(name for name in self._ring.members if only is None or name in only)
        if not members:
            raise NoReplicaError("no replica is in service; see the health of the engines")
        loads = self._book.loads
        weights = {name: self._weight(name) or 1.0 for name in members}  # who is to take nothing may be the last one
        bounds = self._bounds(weights, sum(loads[name].in_flight for name in members))
        room = {name for name in members if loads[name].in_flight < bounds[name]}
        if avoid:
            room = (room - avoid) or set(members) - avoid or room
        kept = {name for name in members if not loads[name].kv_full}
        fresh = (room & kept) or (kept - avoid) or room
        held = {name: min(cached_tokens.get(name, 0), prompt_tokens) for name in members}
        sticky = self._sticky(room, held, prompt_tokens)
        if sticky is not None:
            return ReplicaChoice(sticky, Route.STICKY, held[sticky])
        order = [name for name in self._ring.walk(f"{tenant}\0{repository}") if name in members]
        homes = order[: self.options.replicas_per_repository]
        free = [name for name in homes if name in fresh]
        if not free:
            name = next(name for name in order if name in fresh)
            return ReplicaChoice(name, Route.OVERFLOW, held[name])
        if not any(held.values()):
            name = min(free, key=lambda one: (loads[one].in_flight / weights[one], loads[one].seeded))
            return ReplicaChoice(name, Route.SEED, 0)
        name = next(one for one in Ring(homes, points=8).walk(session) if one in free)
        return ReplicaChoice(name, Route.HOME, held[name])

    def _bounds(self, weights: Mapping[str, float], in_flight: int) -> dict[str, int]:
        """Most requests in flight on each: its share of c · (m + 1), so that the request itself always finds a place."""
        whole, heaviest = sum(weights.values()), max(weights.values())
        each: dict[str, int] = {}
        for name, weight in weights.items():
            fair = math.ceil(self.options.load_factor * (in_flight + 1) * weight / whole)
            each[name] = max(fair, math.ceil(self.options.free_in_flight * weight / heaviest))
        return each

    def _sticky(self, room: set[str], held: Mapping[str, int], prompt_tokens: int) -> str | None:
        best = max((held[name] for name in room), default=0)
        if best <= 0 or best < self.options.worth_sticking * prompt_tokens:
            return None
        near = [name for name in sorted(room) if held[name] >= self.options.sticky_share * best]
        return min(near, key=lambda name: (self.ttft_s(name, prompt_tokens - held[name]), -held[name]))

    def ttft_s(self, replica: str, uncached_tokens: int) -> float:
        """Predicted seconds to the first token of a prompt with so many uncached tokens."""
        load = self._book.loads[replica]
        rate = load.prefill_tokens_per_s or self.options.prefill_tokens_per_s
        return (load.queued_tokens + uncached_tokens) / rate

    def said(self, replica: str, kv_use: float | None, kv_tokens: int) -> None:
        """What a replica says of its cache: the share that running requests hold, and its size in tokens; None and 0 are not known."""
        load = self._book.loads.get(replica)
        if load is not None:
            load.kv_tokens = 0 if kv_use is None else kv_tokens
            load.kv_held = (kv_use or 0.0) * load.kv_tokens
            self._weigh(load)

    def _weigh(self, load: _Load) -> None:
        mark = self.options.kv_high_water - (_HYSTERESIS if load.kv_full else 0.0)
        load.kv_full = load.kv_share >= mark

    @property
    def any_full(self) -> bool:
        """Whether a replica in service gets no new prefixes."""
        return any(self._book.loads[name].kv_full for name in self._ring.members)

    def can_admit(self, tokens: int) -> bool:
        """Whether the cache of a replica in service holds so many tokens more."""
        loads = [self._book.loads[name] for name in self._ring.members]
        return not loads or any(not one.kv_tokens or one.kv_held + tokens <= one.kv_tokens for one in loads)

    def begin(self, choice: ReplicaChoice, prompt_tokens: int, now: float, *, max_tokens: int = 0) -> None:
        """A request was sent where `choice` says, and will generate at most so many tokens."""
        load = self._book.loads.setdefault(choice.replica, _Load())
        load.in_flight += 1
        load.queued_tokens += prompt_tokens - choice.cached_tokens
        load.kv_held += prompt_tokens - choice.cached_tokens + max_tokens
        self._weigh(load)
        if choice.route is Route.SEED:
            load.seeded = now
        self._book.routes[choice.route] += 1

    def prefilled(self, choice: ReplicaChoice, prompt_tokens: int) -> None:
        """Its first token came, or it ended without one: its uncached tokens wait no longer. Once per request."""
        load = self._book.loads.get(choice.replica)
        if load is not None:
            load.queued_tokens = max(0, load.queued_tokens - (prompt_tokens - choice.cached_tokens))

    def end(self, choice: ReplicaChoice, prompt_tokens: int = 0, *, max_tokens: int = 0) -> None:
        """The request is over, and what it was counted for with :meth:`begin` is free."""
        load = self._book.loads.get(choice.replica)
        if load is None:
            return
        load.kv_held = max(0.0, load.kv_held - max(0, prompt_tokens - choice.cached_tokens) - max_tokens)
        self._weigh(load)
        load.in_flight = max(0, load.in_flight - 1)
        if not load.in_flight:
            load.queued_tokens = 0
            if choice.replica not in self._ring.members:
                del self._book.loads[choice.replica]

    def measured(self, replica: str, tokens: int, seconds: float) -> None:
        """A prefill of so many uncached tokens took so long, alone; moves the replica's rate by a tenth."""
        load = self._book.loads.get(replica)
        if load is None or tokens <= 0 or seconds <= 0:
            return
        before = load.prefill_tokens_per_s or self.options.prefill_tokens_per_s
        load.prefill_tokens_per_s = 0.9 * before + 0.1 * tokens / seconds

    def statistics(self) -> RouterStatistics:
        loads = self._book.loads
        return RouterStatistics(
            {name: load.in_flight for name, load in loads.items()},
            {name: load.queued_tokens for name, load in loads.items()},
            dict(self._book.routes),
        )
