"""The scheduler: every admission decision of a gateway. Pure: no clock, no event loop, no I/O; time is passed in.

The mutable state of admission is the set of running and the queues of waiting requests. Every change goes through a method
of :class:`Scheduler`, and what must happen outside (start, refuse, stop) comes back as effects. Rules:

1. *Supersede*: a request ends the one it names, if that belongs to the same session, and nothing else.
2. *Two per document*: of a session's live interactive requests for one document the newest two stay; older ones stop.
3. *Deadline*: a request is refused when `now + predicted TTFT > deadline`, on arrival, while waiting, and when it would start.
4. *Objective*: with objectives, new work is refused when its predicted wait is above `refuse_share` of its objective, and
   waiting work when it has waited for longer than that. A class that is shed (`pressure`) is queued no more: it starts where
   slots lie idle that higher classes do not need, so that shedding wastes none, and is refused everywhere else.
5. *Order*: the highest class first; tenants by deficit round robin; then the session that waited longest; its newest first.
6. *Reserved slots*: a class never takes the slots that are kept for a higher one.
7. *Headroom*: while several tenants are about, one that holds its part leaves the last slots to those that hold less, and what is
   within a tenant's part is queued although others have driven the gateway to where such work is not (`shares`).
8. *Memory*: what the engines' cache memory cannot hold beside what it holds is refused on arrival: it would be computed twice.
9. *Full queue*: of the lowest class the tenant with most in the queue for its weight gives one up, the arrival if it is that one's.
10. *Free customers* are behind paying ones within a class: they start when no paying one of it waits, are shed as the lowest class is
    whatever they ask, give up the queue first, and after a paying customer was refused for the load no free one of that class or a lower
    one starts for two seconds. So in what a paying customer is refused a free one is refused too.

A stopped request keeps its slot until it has left (:meth:`Scheduler.leave`): the engine still works for it until then.

An event costs O(live of its document) + O(tenants); :meth:`Scheduler.tick` and a full queue O(waiting).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from foretype_wire.messages import RequestClass

from foretype_backend.admission.outcomes import SHED, Decision, Reason, reason_of
from foretype_backend.admission.pressure import Pressure, Rates
from foretype_backend.admission.queue import ClassQueue, Ticket
from foretype_backend.admission.tenant_shares import Shares

__all__ = ["PRIORITY", "Effect", "Refuse", "Scheduler", "SchedulerStatistics", "SlotLimits", "Start", "Stop", "Ticket"]

PRIORITY: Final[Mapping[RequestClass, int]] = {class_: rank for rank, class_ in enumerate(RequestClass)}
"""Rank of each class, 0 highest; also the engine's priority."""
_BUSY_SHARE: Final = 0.8
_SPARE_IN: Final = 16
"""Of the slots, one in so many must lie idle, for every step that a class is below the shedding level, for it to start all the same."""
_SHORT_WAIT: Final = 0.125
"""Of an objective: so long interactive work may wait at the last level, or a few slots would idle between two arrivals."""
_FREE_AFTER_S: Final = 2.0
"""So long after a paying customer was refused free ones are: the window that objectives are watched in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimits:
    """Bounds: requests in the engine at once, requests waiting, live interactive requests per session and document.

    Attributes:
        reserved: slots of a class that lower ones never take.
        refuse_share: of an objective; see rule 4.
    """

    max_running: int = 64
    max_waiting: int = 256
    live_per_document: int = 2
    reserved: Mapping[RequestClass, int] = field(default_factory=dict[RequestClass, int])
    refuse_share: float = 0.8


class Start(msgspec.Struct, frozen=True):
    key: str
    decision: Decision = Decision.STARTED


class Refuse(msgspec.Struct, frozen=True):
    """A request that never started ends."""

    key: str
    decision: Decision

    @property
    def reason(self) -> Reason:
        return reason_of(self.decision)


class Stop(msgspec.Struct, frozen=True):
    """A running request is to end; it leaves by itself."""

    key: str
    decision: Decision

    @property
    def reason(self) -> Reason:
        return reason_of(self.decision)


Effect = Start | Refuse | Stop


class SchedulerStatistics(NamedTuple):
    running: int
    stopping: int
    waiting: int


@dataclass(slots=True, eq=False)
class _Running:
    ticket: Ticket
    started: float
    stopping: bool = False
    prefilling: bool = True


class Scheduler:
    """The state of admission.

    Args:
        pressure: watches objectives; None sheds nothing early.
        can_admit: whether the engines have memory for so many tokens more.
    """

    def __init__(
        self,
        limits: SlotLimits | None = None,
        pressure: Pressure | None = None,
        *,
        can_admit: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._can_admit = can_admit
        self.limits = limits or SlotLimits()
        self.pressure = pressure
        self.rates = Rates()
        self._running: dict[str, _Running] = {}
        self._waiting: dict[str, Ticket] = {}
        self.shares = Shares()
        self._queues = {(class_, free): ClassQueue() for class_ in RequestClass for free in (False, True)}
        """In the order in which slots are given."""
        self._paid_shed_s: dict[RequestClass, float] = {}
        """When a paying customer's request of a class was refused for the load."""
        self._running_of = dict.fromkeys(RequestClass, 0)
        self._of_session: dict[str, dict[str, None]] = {}
        self._of_document: dict[tuple[str, str], dict[str, None]] = {}
        self._stopping = 0
        self._prefilling_tokens = 0
        self._waiting_tokens = 0

    def use(self, other: Scheduler) -> None:
        """Take the bounds and the objectives of another one; what runs and waits stays."""
        self.limits, self.pressure = other.limits, other.pressure

    def statistics(self) -> SchedulerStatistics:
        return SchedulerStatistics(len(self._running), self._stopping, len(self._waiting))

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def queued_tokens(self) -> int:
        """Uncached prompt tokens that wait or are being computed: the signal to scale on."""
        return self._prefilling_tokens + self._waiting_tokens

    def arrive(self, ticket: Ticket, now: float) -> list[Effect]:
        """A new request. Raises ValueError when its key is live already."""
        if ticket.key in self._running or ticket.key in self._waiting:
            raise ValueError(f"request key {ticket.key!r} is live already; keys must be unique")
        effects: list[Effect] = []
        self.shares.asked(ticket.tenant, ticket.weight, now, free=ticket.free)
        refused = self._refusal(ticket, now)
        if refused is not None:
            self._refuse(ticket, refused, now, effects)
            self._fill(now, effects)
            return effects
        if ticket.class_ is RequestClass.INTERACTIVE and ticket.document:
            self._make_room_in_document(ticket, now, effects)
        if self._nobody_before(ticket) and self._available(ticket):
            self._remember(ticket)
            self._start(ticket, now, effects, Decision.STARTED)
            return effects
        if len(self._waiting) >= self.limits.max_waiting and len(self._running) >= self.limits.max_running:
            victim = self._victim(ticket)
            if victim is None:
                self._refuse(ticket, Decision.QUEUE_FULL, now, effects)
                return effects
            self._end(victim.key, Decision.DISPLACED, now, effects)
        self._remember(ticket)
        self._waiting[ticket.key] = ticket
        self._queues[ticket.class_, ticket.free].push(ticket)
        self._waiting_tokens += ticket.uncached_tokens
        self._fill(now, effects)
        return effects

    def supersede(self, key: str, session: str, now: float) -> list[Effect]:
        """Another request of the session takes its place; does nothing if the request is not of that session."""
        effects: list[Effect] = []
        if key in self._of_session.get(session, ()):
            self._end(key, Decision.SUPERSEDED, now, effects)
            self._fill(now, effects)
        return effects

    def cancel(self, key: str, now: float) -> list[Effect]:
        effects: list[Effect] = []
        self._end(key, Decision.CANCELLED, now, effects)
        self._fill(now, effects)
        return effects

    def disconnect(self, session: str, now: float) -> list[Effect]:
        """End everything of a session."""
        effects: list[Effect] = []
        for key in list(self._of_session.get(session, ())):
            self._end(key, Decision.DISCONNECTED, now, effects)
        self._fill(now, effects)
        return effects

    def first_token(self, key: str, now: float, *, uncached_tokens: int, prefill_s: float, ttft_s: float) -> None:
        """A running request has been computed as far as its first token; that is measured. Once; later calls say nothing."""
        running = self._running.get(key)
        if running is None or not running.prefilling:
            return
        self._prefilled(running)
        self.rates.prefilled(uncached_tokens, prefill_s)
        if self.pressure is not None:
            self.pressure.first_token(running.ticket.class_, ttft_s)

    def leave(self, key: str, now: float) -> list[Effect]:
        """The request is over and its engine slot is free. Idempotent."""
        effects: list[Effect] = []
        running = self._running.pop(key, None)
        if running is not None:
            self._prefilled(running)
            self._running_of[running.ticket.class_] -= 1
            self._stopping -= running.stopping
            self.rates.served(now - running.started)
            self._forget(running.ticket, ran=True)
        elif key in self._waiting:
            self._forget(self._unqueue(key))
        self._fill(now, effects)
        return effects

    def tick(self, now: float) -> list[Effect]:
        """Time passed: waiting requests may have expired, and the pressure may have changed."""
        effects: list[Effect] = []
        self.shares.turn(now)
        if self.pressure is not None:
            self.pressure.turn(now)
        for ticket in list(self._waiting.values()):
            refused = self._late(ticket, now)
            if refused is not None:
                self._end(ticket.key, refused, now, effects)
        self._fill(now, effects)
        return effects

    def _refusal(self, ticket: Ticket, now: float) -> Decision | None:
        """Why an arrival is refused; None when it may wait or start."""
        if not self._can_admit(ticket.kv_tokens):
            return Decision.KV_FULL
        if self._behind_refused(ticket, now):
            return Decision.FREE_SHED
        free = self._nobody_before(ticket) and self._available(ticket)
        modest = self.shares.modest(ticket.tenant, self.limits.max_running)
        behind = ticket.free and self.shares.paid_about
        if self.pressure is not None:
            if not free or len(self._running) >= _BUSY_SHARE * self.limits.max_running:
                self.pressure.busy()
            steps = self.pressure.spare_steps(ticket.class_, behind=behind)
            spare = steps * max(1, self.limits.max_running // _SPARE_IN)
            if spare and not modest and not (free and self._free(ticket.class_) > spare):
                return Decision.CLASS_SHED
        wait_s = self._predicted_wait_s(ticket, free=free)
        if now + wait_s + self.rates.prefill_s(ticket.uncached_tokens) > ticket.deadline:
            return Decision.EXPIRED_ON_ARRIVAL
        if self.pressure is None or ticket.objective_s is None or free:
            return None
        if wait_s > self.limits.refuse_share * ticket.objective_s:
            return Decision.PREDICTED_LATE
        if self.pressure.queues_interactive(behind=behind) or modest:
            return None
        return Decision.PREDICTED_LATE if wait_s > _SHORT_WAIT * ticket.objective_s else None

    def _predicted_wait_s(self, ticket: Ticket, *, free: bool) -> float:
        """Until the engine begins with it: slots by fair share, and prefill that is queued in the engine already."""
        engine_s = self.rates.prefill_s(self._prefilling_tokens) / max(1, len(self._running))
        if free:
            return engine_s
        ahead = 0
        own = PRIORITY[ticket.class_], ticket.free
        for (class_, behind), queue in self._queues.items():
            if (PRIORITY[class_], behind) <= own:
                ahead += min(len(queue), (queue.waiting_of(ticket.tenant) + 1) * max(1, queue.tenants))
        return self.rates.wait_s(ahead, self.limits.max_running)

    def _late(self, ticket: Ticket, now: float) -> Decision | None:
        if now + self.rates.prefill_s(ticket.uncached_tokens) > ticket.deadline:
            return Decision.EXPIRED_WAITING
        if self._behind_refused(ticket, now):
            return Decision.FREE_SHED
        if self.pressure is None or ticket.objective_s is None:
            return None
        return Decision.LATE_IN_QUEUE if now - ticket.arrived > self.limits.refuse_share * ticket.objective_s else None

    def _fill(self, now: float, effects: list[Effect]) -> None:
        if not self._waiting:
            return
        for (class_, _), queue in self._queues.items():
            while (free := self._free(class_)) > 0:
                ticket = queue.pop(lambda tenant, free=free: free > self._headroom(tenant))
                if ticket is None:
                    break
                del self._waiting[ticket.key]
                self._waiting_tokens -= ticket.uncached_tokens
                refused = self._late(ticket, now)
                if refused is None:
                    self._start(ticket, now, effects, Decision.STARTED_AFTER_WAIT)
                else:
                    self._forget(ticket)
                    self._refuse(ticket, refused, now, effects)

    def _refuse(self, ticket: Ticket, decision: Decision, now: float, effects: list[Effect]) -> None:
        """It ends without having started."""
        if decision in SHED and not ticket.free:
            self._paid_shed_s[ticket.class_] = now
        effects.append(Refuse(ticket.key, decision))

    def _behind_refused(self, ticket: Ticket, now: float) -> bool:
        """Whether a paying customer was refused just now in what this free one asks for, or in a higher class."""
        return ticket.free and any(
            now - at < _FREE_AFTER_S and PRIORITY[class_] <= PRIORITY[ticket.class_]
            for class_, at in self._paid_shed_s.items()
        )

    def _nobody_before(self, ticket: Ticket) -> bool:
        """Nobody waits whom this request would pass; those of free customers are no reason to keep a paying one."""
        if ticket.free or not self._waiting:
            return not self._waiting
        return not any(len(queue) for (_, free), queue in self._queues.items() if not free)

    def _available(self, ticket: Ticket) -> bool:
        """Whether a slot is free for this request."""
        free = self._free(ticket.class_)
        return free > 0 and free > self._headroom(ticket.tenant)

    def _headroom(self, tenant: str) -> int:
        return self.shares.headroom(tenant, self.limits.max_running)

    def _free(self, class_: RequestClass) -> int:
        """Slots that are free for this class."""
        free = self.limits.max_running - len(self._running)
        if free > 0 and self.limits.reserved:
            for higher, slots in self.limits.reserved.items():
                if PRIORITY[higher] < PRIORITY[class_]:
                    free -= max(0, slots - self._running_of[higher])
        return free

    def _start(self, ticket: Ticket, now: float, effects: list[Effect], decision: Decision) -> None:
        self._running[ticket.key] = _Running(ticket, now)
        self._running_of[ticket.class_] += 1
        self.shares.started(ticket.tenant)
        self._prefilling_tokens += ticket.uncached_tokens
        effects.append(Start(ticket.key, decision))

    def _end(self, key: str, decision: Decision, now: float, effects: list[Effect]) -> None:
        running = self._running.get(key)
        if running is not None:
            if not running.stopping:
                running.stopping = True
                self._stopping += 1
                self._leave_document(running.ticket)
                effects.append(Stop(key, decision))
        elif key in self._waiting:
            ticket = self._unqueue(key)
            self._forget(ticket)
            self._refuse(ticket, decision, now, effects)

    def _unqueue(self, key: str) -> Ticket:
        ticket = self._waiting.pop(key)
        self._queues[ticket.class_, ticket.free].remove(ticket)
        self._waiting_tokens -= ticket.uncached_tokens
        return ticket

    def _prefilled(self, running: _Running) -> None:
        if running.prefilling:
            running.prefilling = False
            self._prefilling_tokens -= running.ticket.uncached_tokens

    def _victim(self, arriving: Ticket) -> Ticket | None:
        """The request that leaves a full queue; None for the arrival itself."""
        for of, queue in reversed(self._queues.items()):
            if of == (arriving.class_, arriving.free):
                return queue.heaviest(arriving)
            if len(queue):
                return queue.heaviest()
        return None

    def _make_room_in_document(self, ticket: Ticket, now: float, effects: list[Effect]) -> None:
        live = list(self._of_document.get((ticket.session, ticket.document), ()))
        for key in live[: max(0, len(live) - self.limits.live_per_document + 1)]:
            self._end(key, Decision.DOCUMENT_LIMIT, now, effects)

    def _remember(self, ticket: Ticket) -> None:
        self.shares.taken(ticket.tenant)
        self._of_session.setdefault(ticket.session, {})[ticket.key] = None
        if ticket.class_ is RequestClass.INTERACTIVE and ticket.document:
            self._of_document.setdefault((ticket.session, ticket.document), {})[ticket.key] = None

    def _forget(self, ticket: Ticket, *, ran: bool = False) -> None:
        self.shares.gone(ticket.tenant, ran=ran)
        keys = self._of_session[ticket.session]
        del keys[ticket.key]
        if not keys:
            del self._of_session[ticket.session]
        self._leave_document(ticket)

    def _leave_document(self, ticket: Ticket) -> None:
        """A request that is over, or stopping, no longer counts among the document's live ones."""
        place = (ticket.session, ticket.document)
        live = self._of_document.get(place)
        if live is not None:
            live.pop(ticket.key, None)
            if not live:
                del self._of_document[place]
