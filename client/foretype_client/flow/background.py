"""Requests that nobody waits for yet: what comes after the visible suggestion, and the prompt of a place where the cursor rests.

Both are of the classes that a gateway sheds first, and a refusal of them makes the client ask for no more of them for a while; it
never delays a question of the user's. At most one of them runs per document, and it ends when the user goes another way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Segment
from foretype_context.syntax.document import Snapshot
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import Complete, RequestClass

from foretype_client.flow.after_accepting import Way, WayPoint, way_after
from foretype_client.flow.collaborators import Collaborators
from foretype_client.flow.inflight import ASKED, Flight
from foretype_client.flow.open_documents import TrackedDocument
from foretype_client.flow.planning import Planner, call_of
from foretype_client.flow.strands import Place, Strand
from foretype_client.flow.suggestion import Suggestion

_PAUSE_S: Final = 5.0
"""After a refusal that names no time."""


@dataclass(slots=True)
class _Ahead:
    """The way that the user of a document is expected to go, and the request for its end."""

    way: Way
    timer: asyncio.TimerHandle | None = None
    flight: Flight | None = None


@dataclass(slots=True)
class _Book:
    """What is under way for one document."""

    ahead: _Ahead | None = None
    resting: asyncio.TimerHandle | None = None
    preloaded: Place | None = None
    warm: list[Flight] = field(default_factory=list[Flight])


class Background:
    """Sends what nobody waits for yet. All methods are called where the flow runs; times are monotonic seconds."""

    def __init__(self, shared: Collaborators) -> None:
        self._shared = shared
        self._switches = shared.policy.options.switches
        self._paused_until_s = float("-inf")
        self._books: dict[str, _Book] = {}
        shared.requests.departed.add(self._departed)

    def shown(self, document: TrackedDocument, snapshot: Snapshot, offset: int, suggestion: Suggestion) -> None:
        """`suggestion` was answered at character `offset` of `snapshot`: if it stands for a while, what comes after it is asked for."""
        if not self._speculates():
            return
        way = way_after(snapshot, offset, suggestion.text, suggestion.replaces)
        book = self._books.setdefault(snapshot.uri, _Book())
        if book.ahead is not None:
            if book.ahead.way.same_end(way):
                return  # typed on along the same suggestion
            self._leave(book)
        ahead = book.ahead = _Ahead(way)
        ahead.timer = self._later(
            self._shared.options.background.shown_ms, lambda: self._ask_ahead(document, book, ahead)
        )

    def changed(self, document: TrackedDocument) -> None:
        """The document has changed: the way is left, gone on, or at its end, where its request is one of the document's."""
        book = self._books.get(document.snapshot.uri)
        if book is None:
            return
        if book.resting is not None:
            book.resting.cancel()
        if (ahead := book.ahead) is None:
            return
        seen = ahead.way.seen_in(document.snapshot)
        if seen is WayPoint.LEFT:
            self._leave(book)
        elif seen is WayPoint.ARRIVED:
            if ahead.flight is not None:
                if ahead.flight.wanted:
                    document.flights.append(ahead.flight)
                # Only now the prompt counts as shown, so that the next one is decided as if it had been asked for here.
                self._commit(ahead.flight)
                ahead.flight = None
            self._leave(book)

    def stands(self, document: TrackedDocument, snapshot: Snapshot, offset: int) -> None:
        """The cursor stands at character `offset` since `document.stood_s`; once that is long enough, it rests there."""
        if not self._switches.preload:
            return
        book = self._books.setdefault(snapshot.uri, _Book())
        if book.resting is not None:
            book.resting.cancel()
        if book.preloaded is not None and Place.of(snapshot, offset, self._shared.gateway.profile) != book.preloaded:
            self._shared.requests.drop(book.warm)
        left_ms = self._shared.options.background.rest_ms - (self._shared.clock() - document.stood_s) * 1000
        book.resting = self._later(max(0.0, left_ms), lambda: self._preload(document, book, snapshot, offset))

    def closed(self, uri: str) -> None:
        book = self._books.pop(uri, None)
        if book is not None:
            if book.resting is not None:
                book.resting.cancel()
            self._leave(book)
            self._shared.requests.drop(book.warm)

    def close(self) -> None:
        for uri in list(self._books):
            self.closed(uri)

    def landed(self, flight: Flight, now: float) -> None:
        """A request of these classes is over."""
        if isinstance(flight.error, RequestRefusedError):
            retry_after_ms = flight.error.retry_after_ms
            pause_s = _PAUSE_S if retry_after_ms is None else retry_after_ms / 1000
            self._paused_until_s = max(self._paused_until_s, now + pause_s)

    def _departed(self, flight: Flight, call: Complete[Segment]) -> None:
        """What the user asks for computes the rest of a prompt that was only warmed."""
        if flight.class_ in ASKED and (book := self._books.get(call.document)) is not None:
            self._shared.requests.drop(book.warm)

    def _later(self, delay_ms: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, call)

    def _leave(self, book: _Book) -> None:
        ahead, book.ahead = book.ahead, None
        if ahead is not None:
            if ahead.timer is not None:
                ahead.timer.cancel()
            if ahead.flight is not None:
                self._shared.requests.drop([ahead.flight])

    def _speculates(self) -> bool:
        """As the gateway's profile says, else as is chosen here."""
        profile = self._shared.gateway.profile
        wanted = None if profile is None else profile.speculative
        return self._switches.speculative if wanted is None else wanted

    def _planner(self) -> tuple[Profile, Planner] | None:
        profile = self._shared.gateway.profile
        now = self._shared.clock()
        if profile is None or not self._shared.gateway.connected or now < self._paused_until_s:
            return None
        if self._shared.policy.spared(now) is not None:
            return None
        least = self._switches.least(profile)
        if least is not None and least.shows_nothing:
            return None  # a user who asks for a suggestion waits for it; computing for every rest would warm the machine, not the cache
        planner = self._shared.planner_for(profile)
        return None if planner is None else (profile, planner)

    def _ask_ahead(self, document: TrackedDocument, book: _Book, ahead: _Ahead) -> None:
        ahead.timer = None
        way = ahead.way
        if book.ahead is not ahead or (found := self._planner()) is None:
            return
        profile, planner = found
        place = Place.of(way.target, way.target_offset, profile)
        if not self._shared.cache.knows(place):
            ahead.flight = self._send(
                document, profile, planner, place, way.target, way.target_offset, RequestClass.SPECULATIVE
            )

    def _preload(self, document: TrackedDocument, book: _Book, snapshot: Snapshot, offset: int) -> None:
        book.resting = None
        busy = document.waiting is not None or any(flight.wanted for flight in (*document.flights, *book.warm))
        if busy or document.snapshot.text is not snapshot.text or (found := self._planner()) is None:
            return
        profile, planner = found
        place = Place.of(snapshot, offset, profile)
        if place == book.preloaded or self._shared.cache.knows(place):
            return
        book.preloaded = place
        flight = self._send(document, profile, planner, place, snapshot, offset, RequestClass.WARM)
        self._commit(flight)
        book.warm = [flight]

    def _commit(self, flight: Flight) -> None:
        if flight.draft is not None and self._shared.book.is_current(flight.draft):
            self._shared.book.commit(flight.draft)

    def _send(
        self,
        document: TrackedDocument,
        profile: Profile,
        planner: Planner,
        place: Place,
        snapshot: Snapshot,
        offset: int,
        class_: RequestClass,
    ) -> Flight:
        now = self._shared.clock()
        draft = self._shared.book.draft(
            planner, profile, snapshot, offset, snippets=document.gathered.snippets, now=now, clock=self._shared.clock
        )
        call = call_of(
            draft.plan, snapshot, id=self._shared.new_id(), class_=class_, deadline_ms=self._shared.options.deadline_ms
        )
        return self._shared.requests.start(document, call, strand=Strand(place), draft=draft)
