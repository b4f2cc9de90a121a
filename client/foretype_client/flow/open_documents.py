"""What the flow knows of each open document: its text, its requests, and the one question that is waiting for an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foretype_context.finish.post_processing import Finished, finish
from foretype_context.folder.exclude import holds_key, reason_in_line, reason_to_exclude
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.syntax.document import Change, Snapshot
from foretype_wire.messages import Finish

from foretype_client.feedback.visible_suggestion import VisibleSuggestion
from foretype_client.flow.inflight import ASKED, Flight
from foretype_client.flow.question import Question
from foretype_client.flow.strands import Place, Strand
from foretype_client.flow.suggestion import Suggestion
from foretype_client.sources.all_sources import Gathered

_HEAD_CHARS: Final = 8_192
_GIVEN_MAX: Final = 5
_NOTHING_YET: Final = Finished("")
_HARMLESS: Final = frozenset({"generated", "lock file"})
"""Not worth showing as context to others, but a user who edits one may be helped."""


@dataclass(slots=True)
class LastAnswer:
    """The last answer for a document: the raw text that it is part of lets it grow.

    Attributes:
        made: where it was made: there it was trimmed, and only there.
        question: where it was given last.
        raw: the generated text that it is the beginning of; `lead` characters of it stood there already where it was made.
        grown: what the editor was given or told of, the longest.
        drawn_s: when that was, in monotonic seconds.
        moves: as feedback counts them, when `raw` was put where it begins now.
        finished: what its request had come to when it was finished last, and what came of it.
    """

    suggestion: Suggestion
    made: Question
    question: Question
    raw: Strand
    lead: int
    flight: Flight | None
    kind: SuggestionKind
    grown: str
    drawn_s: float
    moves: int = 0
    finished: tuple[tuple[str, bool], Finished] | None = None

    def come_to(self) -> Finished:
        """What its request has come to by now, as it is shown where it was made; empty where it has none.

        Asked with every key that is typed through it, while little comes: it is finished when more has come.
        """
        if self.flight is None:
            return _NOTHING_YET
        came = self.flight.so_far(self.raw.text[self.lead :]), self.flight.whole
        if self.finished is None or self.finished[0] != came:
            text, final = came
            shown = finish(text, self.made.snapshot, self.made.offset, kind=self.kind, final=final)
            self.finished = came, shown
        return self.finished[1]

    def follow(self, snapshot: Snapshot, offer: VisibleSuggestion) -> None:
        """Edits elsewhere have moved it: what is still generated goes on at the place that is there now."""
        if offer.moves == self.moves:
            return
        self.moves = offer.moves
        begin = Place.before(snapshot, offer.offset, self.raw.place.profile, offer.typed + self.lead)
        self.raw = Strand(begin, self.raw.text)
        if self.flight is not None:
            self.flight.strand = self.raw


class SortedRequests(NamedTuple):
    """The requests of a document, seen from one place: those that may still answer there, and those that cannot."""

    fitting: list[Flight]
    diverged: list[Flight]


@dataclass(slots=True)
class TrackedDocument:
    """One open document.

    Attributes:
        snapshot: newest known state.
        changed_s: arrival of the last change; None before the first.
        stood_s: since when the cursor is known to stand where it does: arrival of the last change or told move.
        asked_s: when the editor asked last.
        flights: requests that run, and ended ones that the waiting question has not judged yet.
        gathered: what the last prompt was offered of other files.
        last: the last change; None before the first.
        given: the last answers, by id.
        unlikely: the request that ended last, where its answer became too unlikely to be shown.
    """

    snapshot: Snapshot
    changed_s: float | None = None
    stood_s: float = -math.inf
    asked_s: float = -math.inf
    flights: list[Flight] = field(default_factory=list[Flight])
    waiting: Question | None = None
    given: dict[str, LastAnswer] = field(default_factory=dict[str, LastAnswer])
    unlikely: Flight | None = None
    gathered: Gathered = field(default_factory=Gathered)
    last: Change | None = None
    head: tuple[str, str] | None = None
    excluded: str | None = None

    def give(self, answer: LastAnswer) -> None:
        """Remember it by its id, with the few before it: the text may come back to one of them."""
        self.given.pop(answer.suggestion.id, None)
        self.given[answer.suggestion.id] = answer
        while len(self.given) > _GIVEN_MAX:
            del self.given[next(iter(self.given))]

    def change(self, change: Change) -> None:
        """The document has changed."""
        self.last, self.snapshot, self.changed_s, self.stood_s = change, change.after, change.at_s, change.at_s

    def only_deleted(self, offset: int) -> bool:
        """Whether the last change did nothing but take away what stood right of character `offset`."""
        if self.last is None or self.last.edit.text or self.last.edit.growth == 0:
            return False
        start, before, gone = self.last.edit.start, self.last.before, -self.last.edit.growth
        # Of equal characters an editor may name another one than the key took.
        low, high = min(start, offset), max(start, offset)
        return before[low:high] == before[low + gone : high + gone]

    def take_over(self, question: Question) -> None:
        """Make `question` the one that waits; an older one is answered with nothing, at once."""
        if self.waiting is not None:
            self.waiting.supersede()
        self.waiting = question
        self.flights = [flight for flight in self.flights if flight.running]

    def release(self, question: Question) -> None:
        if self.waiting is question:
            self.waiting = None

    def ended(self, flight: Flight) -> None:
        """A request of this document has."""
        if flight.class_ in ASKED:
            unlikely = flight.done is not None and flight.done.finish is Finish.LENGTH
            self.unlikely = flight if unlikely else None

    def wake(self) -> None:
        if self.waiting is not None:
            self.waiting.wake.set()

    def sort(self, place: Place) -> SortedRequests:
        """Requests that may still answer at `place`, newest first, and those wanted ones that the user has left behind."""
        fitting: list[Flight] = []
        diverged: list[Flight] = []
        for flight in reversed(self.flights):
            typed = flight.strand.typed(place) if flight.strand.place.profile == place.profile else None
            if typed is not None and (flight.running or typed <= len(flight.strand.text)):
                if not flight.dropped:
                    fitting.append(flight)
            elif flight.wanted:
                diverged.append(flight)
        return SortedRequests(fitting, diverged)

    def reason_excluded(self, snapshot: Snapshot, offset: int) -> str | None:
        """Why this file is never sent, or this line of it gets nothing, or None. Its beginning is looked at again when it changes."""
        head = (snapshot.path or snapshot.uri, snapshot.text[:_HEAD_CHARS])
        if head != self.head:
            # Its size is policy's own rule.
            reason = reason_to_exclude(head[0], 0, head[1].encode("utf-8", "surrogatepass"), edited=True)
            self.head, self.excluded = head, None if reason in _HARMLESS else reason
        if self.excluded is None and holds_key(snapshot.text):
            return "holds a private key"
        return self.excluded or reason_in_line(snapshot.line_text(snapshot.line_of(offset)))
