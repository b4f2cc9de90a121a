"""The scheduler: `step(state, event, now) -> (state, effects)`, pure. No clock, no event loop, no I/O.

The mutable state of admission is the set of running and the queue of waiting requests; every change to it goes through
:func:`step`, and what must happen outside (start, refuse, stop) comes back as effects. Rules:

1. *Supersede*: an arrival cancels the request it names, if that belongs to the same session, and nothing else.
2. *Two per document*: of a session's live interactive requests for one document the newest two stay; older ones stop.
3. *Deadline*: a request is refused when `now + predicted TTFT > deadline`, on arrival, while waiting, and when it would start.
4. *Order*: the highest class first; between sessions the one that waited longest; within a session the newest.
5. *Full queue*: the oldest waiting request of the lowest class leaves, the arrival itself if it is of that class.

A stopped request keeps its slot until it has left (:class:`Leave`): the engine still works for it until then.

Complexity per event: O(running + waiting), both bounded by :class:`Limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foretype_client.wire import RequestClass

from foretype_backend.admission.outcomes import Reason

__all__ = [
    "PRIORITY",
    "Arrive",
    "Cancel",
    "Disconnect",
    "Effect",
    "Event",
    "Leave",
    "Limits",
    "Refuse",
    "SchedulerStatistics",
    "Start",
    "State",
    "Stop",
    "Tick",
    "Ticket",
    "step",
]

PRIORITY: Final[Mapping[RequestClass, int]] = {class_: rank for rank, class_ in enumerate(RequestClass)}
"""Rank of each class, 0 highest; also the engine's priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds: requests in the engine at once, requests waiting, live interactive requests per session and document."""

    max_running: int = 64
    max_waiting: int = 256
    live_per_document: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What admission knows of a request. `deadline` is on the caller's clock, in seconds."""

    key: str
    session: str
    document: str
    class_: RequestClass
    deadline: float
    predicted_ttft_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrive:
    ticket: Ticket
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    key: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The request is over and its engine slot is free. Idempotent."""

    key: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    session: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; waiting requests may have expired."""


Event = Arrive | Cancel | Leave | Disconnect | Tick


@dataclass(frozen=True, slots=True)
class Start:
    key: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """A request that never started ends."""

    key: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Stop:
    """A running request is to end; it leaves by itself."""

    key: str
    reason: Reason


Effect = Start | Refuse | Stop


class SchedulerStatistics(NamedTuple):
    running: int
    stopping: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Treat as immutable: :func:`step` copies what it changes. Insertion order is order of arrival."""

    limits: Limits = Limits()
    running: Mapping[str, Ticket] = field(default_factory=dict[str, Ticket])
    waiting: Mapping[str, Ticket] = field(default_factory=dict[str, Ticket])
    stopping: frozenset[str] = frozenset()

    def statistics(self) -> SchedulerStatistics:
        return SchedulerStatistics(len(self.running), len(self.stopping), len(self.waiting))

    def __repr__(self) -> str:
        return f"<State: {len(self.running)} running ({len(self.stopping)} stopping), {len(self.waiting)} waiting>"


def step(state: State, event: Event, now: float) -> tuple[State, list[Effect]]:
    """Apply one event at time `now` (seconds on the clock of the deadlines)."""
    draft = _Draft(state, now)
    match event:
        case Arrive(ticket, supersedes):
            draft.arrive(ticket, supersedes)
        case Cancel(key):
            draft.end(key, Reason.CANCELLED)
        case Disconnect(session):
            for key in draft.keys_of(session):
                draft.end(key, Reason.DISCONNECTED)
        case Leave(key):
            draft.leave(key)
        case Tick():
            draft.expire()
    draft.fill()
    return draft.done()


class _Draft:
    """The state under change within one step."""

    def __init__(self, state: State, now: float) -> None:
        self.limits = state.limits
        self.now = now
        self.running = dict(state.running)
        self.waiting = dict(state.waiting)
        self.stopping = set(state.stopping)
        self.effects: list[Effect] = []

    def done(self) -> tuple[State, list[Effect]]:
        state = State(limits=self.limits, running=self.running, waiting=self.waiting, stopping=frozenset(self.stopping))
        return state, self.effects

    def keys_of(self, session: str) -> list[str]:
        return [t.key for t in (*self.running.values(), *self.waiting.values()) if t.session == session]

    def arrive(self, ticket: Ticket, supersedes: str | None) -> None:
        if ticket.key in self.running or ticket.key in self.waiting:
            raise ValueError(f"request key {ticket.key!r} is live already; keys must be unique")
        if supersedes is not None:
            former = self.running.get(supersedes) or self.waiting.get(supersedes)
            if former is not None and former.session == ticket.session:
                self.end(supersedes, Reason.SUPERSEDED)
        if self._late(ticket):
            self.effects.append(Refuse(ticket.key, Reason.EXPIRED))
            return
        if ticket.class_ is RequestClass.INTERACTIVE and ticket.document:
            self._make_room_in_document(ticket)
        if len(self.waiting) >= self.limits.max_waiting and len(self.running) >= self.limits.max_running:
            victim = self._lowest_waiting(ticket)
            self.waiting.pop(victim.key, None)
            self.effects.append(Refuse(victim.key, Reason.OVERLOADED))
            if victim is ticket:
                return
        self.waiting[ticket.key] = ticket

    def end(self, key: str, reason: Reason) -> None:
        if self.waiting.pop(key, None) is not None:
            self.effects.append(Refuse(key, reason))
        elif key in self.running and key not in self.stopping:
            self.stopping.add(key)
            self.effects.append(Stop(key, reason))

    def leave(self, key: str) -> None:
        self.running.pop(key, None)
        self.waiting.pop(key, None)
        self.stopping.discard(key)

    def expire(self) -> None:
        for ticket in [t for t in self.waiting.values() if self._late(t)]:
            self.end(ticket.key, Reason.EXPIRED)

    def fill(self) -> None:
        while self.waiting and len(self.running) < self.limits.max_running:
            ticket = self._next()
            del self.waiting[ticket.key]
            if self._late(ticket):
                self.effects.append(Refuse(ticket.key, Reason.EXPIRED))
            else:
                self.running[ticket.key] = ticket
                self.effects.append(Start(ticket.key))

    def _late(self, ticket: Ticket) -> bool:
        return self.now + ticket.predicted_ttft_s > ticket.deadline

    def _make_room_in_document(self, ticket: Ticket) -> None:
        live = [
            t.key
            for t in (*self.running.values(), *self.waiting.values())
            if t.session == ticket.session
            and t.document == ticket.document
            and t.class_ is RequestClass.INTERACTIVE
            and t.key not in self.stopping
        ]
        for key in live[: max(0, len(live) - self.limits.live_per_document + 1)]:
            self.end(key, Reason.DOCUMENT_LIMIT)

    def _lowest_waiting(self, arrival: Ticket) -> Ticket:
        lowest = arrival
        for ticket in self.waiting.values():
            if PRIORITY[ticket.class_] > PRIORITY[lowest.class_]:
                lowest = ticket
        return lowest

    def _next(self) -> Ticket:
        best = min(PRIORITY[t.class_] for t in self.waiting.values())
        candidates = [t for t in self.waiting.values() if PRIORITY[t.class_] == best]
        session = candidates[0].session
        return [t for t in candidates if t.session == session][-1]
