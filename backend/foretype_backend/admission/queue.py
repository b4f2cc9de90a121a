"""Waiting requests of one class: fair between tenants, the longest waiting session first, its newest request first. Pure.

Between tenants it is deficit round robin (Shreedhar and Varghese, 1995): a tenant's turn adds `quantum x weight` tokens to what it
may spend, and a request starts when its cost is covered, so that shares are in tokens and not in requests. A tenant that had
nothing waiting goes before those that have (as in FQ-CoDel, RFC 8290): a tenant that asks seldom waits for one slot,
not for a round. One whose queue has run empty keeps its place until its turn comes, so that asking one by one gains
nothing. Every operation costs O(1), but :meth:`ClassQueue.pop` and :meth:`ClassQueue.heaviest` O(tenants) at worst.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from foretype_wire.messages import RequestClass

QUANTUM_TOKENS: Final = 512
"""A turn lets an ordinary request or two start."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """What admission knows of a request. Times are seconds on the caller's clock.

    Attributes:
        uncached_tokens: prompt tokens that have to be computed, as far as is known.
        kv_tokens: of cache memory that it may come to hold.
        free: its tenant pays nothing, and stands behind those that do.
        cost_tokens: what a start takes of the tenant's share.
        objective_s: promised time to first token; None where none is.
    """

    key: str
    session: str
    document: str = ""
    class_: RequestClass = RequestClass.INTERACTIVE
    deadline: float
    tenant: str = ""
    weight: float = 1.0
    free: bool = False
    uncached_tokens: int = 0
    kv_tokens: int = 0
    cost_tokens: int = 1
    objective_s: float | None = None
    arrived: float = 0.0


class _Line:
    """The waiting requests of one tenant."""

    __slots__ = ("count", "deficit", "has_turn", "sessions", "weight")

    def __init__(self) -> None:
        self.sessions: OrderedDict[str, list[Ticket]] = OrderedDict()
        self.weight = 1.0
        self.deficit = 0.0
        self.count = 0
        self.has_turn = False

    def first(self) -> Ticket:
        return next(iter(self.sessions.values()))[-1]

    def last(self) -> Ticket:
        return next(reversed(self.sessions.values()))[-1]


class ClassQueue:
    """Tickets that wait."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._new: deque[str] = deque()
        self._turns: deque[str] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Ticket]:
        for line in self._lines.values():
            for tickets in line.sessions.values():
                yield from tickets

    @property
    def tenants(self) -> int:
        """That have a place, waiting or not; at least those that have something waiting."""
        return len(self._lines)

    def waiting_of(self, tenant: str) -> int:
        line = self._lines.get(tenant)
        return 0 if line is None else line.count

    def push(self, ticket: Ticket) -> None:
        line = self._lines.get(ticket.tenant)
        if line is None:
            line = self._lines[ticket.tenant] = _Line()
            self._new.append(ticket.tenant)
        line.weight = max(ticket.weight, 1e-3)
        line.sessions.setdefault(ticket.session, []).append(ticket)
        line.count += 1
        self._count += 1

    def pop(self, may: Callable[[str], bool] = lambda _tenant: True) -> Ticket | None:
        """Take the next one, of a tenant that `may` start; None where there is none."""
        if not any(line.count and may(tenant) for tenant, line in self._lines.items()):
            return None
        while True:
            turns = self._new or self._turns
            line = self._lines[turns[0]]
            if not line.count:
                tenant = turns.popleft()
                if turns is self._turns:
                    del self._lines[tenant]
                else:
                    self._turns.append(tenant)
                continue
            if not may(turns[0]):
                self._turns.append(turns.popleft())  # what it may spend waits with it
                continue
            if not line.has_turn:
                line.has_turn = True
                line.deficit += QUANTUM_TOKENS * line.weight
            ticket = line.first()
            if line.deficit >= ticket.cost_tokens:
                line.deficit -= ticket.cost_tokens
                line.sessions.move_to_end(ticket.session)
                self.remove(ticket)
                return ticket
            line.has_turn = False
            self._turns.append(turns.popleft())

    def remove(self, ticket: Ticket) -> None:
        line = self._lines[ticket.tenant]
        tickets = line.sessions[ticket.session]
        tickets.remove(ticket)
        line.count -= 1
        self._count -= 1
        if not tickets:
            del line.sessions[ticket.session]
        if not line.count:
            # What an idle tenant has not spent is gone: a quiet hour is no right to a burst.
            line.deficit, line.has_turn = min(line.deficit, 0.0), False
        if not self._count:
            self._lines.clear()
            self._new.clear()
            self._turns.clear()

    def heaviest(self, arriving: Ticket | None = None) -> Ticket | None:
        """The last request of the tenant that waits with most for its weight; None where that is `arriving` itself."""
        worst, most = None, 0.0
        if arriving is not None:
            most = (self.waiting_of(arriving.tenant) + 1) / arriving.weight
        for line in self._lines.values():
            if line.count / line.weight > most:
                worst, most = line, line.count / line.weight
        if worst is None or (arriving is not None and worst is self._lines.get(arriving.tenant)):
            return None
        return worst.last()
