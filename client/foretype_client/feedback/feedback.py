"""What became of a suggestion, told from what the editor reports and, where it reports nothing, from what was typed.

Pure: time is handed in, events come out as data. An event names ids, times and lengths, never text. Kept in memory are the
text of the one suggestion that is visible per document, to compare it with what is typed; of the last few that ended, for a
report that comes late; and what accepts put into documents, until the caller takes it (`grafts`). What was rejected is
remembered as a digest.

Rules: shown = answered, not superseded, buffer unchanged or typed through, for 750 ms; rejected = shown, then
diverged or left; the same text is not offered there again until the line changes or 10 minutes pass; a change that inserts at
least two of the next characters is a partial accept, which does not end the tracking. What diverged is in doubt for a few
seconds: who takes the typo back, or undoes a part that was taken, has refused nothing, and it goes on as what it was.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec
from foretype_context.syntax.document import Change, Snapshot

from foretype_client.feedback.events import (
    Accepted,
    AcceptKind,
    Displayed,
    DisplaySource,
    Ended,
    EndReason,
    FeedbackEvent,
    Graft,
    PartiallyAccepted,
    Taken,
)
from foretype_client.feedback.visible_suggestion import VisibleSuggestion, is_typing, result_digest, step
from foretype_client.flow.strands import Place, Strand
from foretype_client.policy.switches import Switches

__all__ = [
    "AcceptKind",
    "Accepted",
    "DisplaySource",
    "Displayed",
    "EndReason",
    "Ended",
    "Feedback",
    "FeedbackEvent",
    "Graft",
    "PartiallyAccepted",
    "Taken",
    "VisibleSuggestion",
]

_DISPLAY_S: Final = 0.75
"""After this long a suggestion counts as displayed, where no editor says so."""
_REOFFER_S: Final = 600.0
_ENDED_KEPT: Final = 64
_REJECTED_KEPT: Final = 256
_GRAFTS_KEPT: Final = 64
_DOUBT_S: Final = 5.0
_DOUBTED_MAX: Final = 4
"""In one document: a typo may get suggestions of its own."""

_Refusal = tuple[bytes, bytes]
"""A line's key and the digest of what the refused suggestion would have made of it."""


class _Rejection(NamedTuple):
    at_s: float
    line_prefix_chars: int


class _Past(NamedTuple):
    """A suggestion that is not visible any more, for reports that come late."""

    taken: bool
    offer: VisibleSuggestion
    ended_s: float
    rejections: tuple[_Refusal, ...]


class _Doubted(NamedTuple):
    """A suggestion that the text has gone away from, and may come back to.

    Attributes:
        begin: character offset where its text began, or would.
        gone: characters left of it that were taken away since: what is put in there next is in their place.
    """

    offer: VisibleSuggestion
    since_s: float
    begin: int
    gone: int = 0

    def leads_to(self, place: Place, offset: int) -> bool:
        typed = self.offer.strand.typed(place)
        return typed is not None and typed < len(self.offer.strand.text) and offset - typed == self.begin

    def after(self, change: Change) -> _Doubted:
        begin, gone = self.begin, self.gone
        for edit in change.edits:
            if edit.end < begin:
                begin += edit.growth
            elif edit.start <= begin:
                left = begin - edit.start
                # What ends at it stands ahead of it. Of what is put in there or over it, that does which was taken away.
                back = len(edit.text) if left and edit.end == begin else min(left + gone, len(edit.text))
                begin, gone = edit.start + back, max(0, gone + left - back)
        return self._replace(begin=begin, gone=gone)


class Feedback:
    """Tracks the visible suggestion of each document. Every method but `changed` takes `now` in monotonic seconds and returns events.

    Args:
        reoffer_s: how long what was rejected at a place is not offered there again; 0 forgets rejections at once.
    """

    def __init__(self, *, reoffer_s: float = _REOFFER_S) -> None:
        self._reoffer_s = reoffer_s
        self._offers: dict[str, VisibleSuggestion] = {}
        self._doubted: dict[str, list[_Doubted]] = {}
        self._ended: OrderedDict[str, _Past] = OrderedDict()
        self._rejected: OrderedDict[_Refusal, _Rejection] = OrderedDict()
        self._grafts: list[Graft] = []

    @classmethod
    def of(cls, switches: Switches) -> Feedback:
        return cls(reoffer_s=_REOFFER_S if switches.remember_rejections else 0.0)

    def grafts(self) -> list[Graft]:
        """Texts that accepts have put into documents since the last call. Kept for a caller who comes often, or never."""
        grafts, self._grafts = self._grafts, []
        return grafts

    def visible(self, uri: str) -> VisibleSuggestion | None:
        """The suggestion that the editor was last given for `uri`, unless something has ended it since."""
        return self._offers.get(uri)

    def offered(
        self,
        id: str,
        snapshot: Snapshot,
        offset: int,
        *,
        place: Place,
        text: str,
        replaces: int,
        source: str,
        now: float,
    ) -> list[FeedbackEvent]:
        """`text` was answered at `offset`. The same id again continues the same suggestion."""
        events: list[FeedbackEvent] = []
        offer = self._offers.get(snapshot.uri)
        session = id
        if offer is not None and offer.id != id:
            if offer.strand.rest_at(place) == text:
                session = offer.session  # the same text at the same place, only from elsewhere
            events += self._end(offer, EndReason.REPLACED, now)
            offer = None
        if offer is None:
            for doubted in tuple(self._doubted.get(snapshot.uri, ())):
                if doubted.leads_to(place, offset) and doubted.offer.strand.rest_at(place) == text:  # from elsewhere
                    session = doubted.offer.session
                    events += self._end(doubted.offer, EndReason.REPLACED, doubted.since_s)
            strand = Strand(place, text)
            offer = VisibleSuggestion(id, session, strand, place, text, offset, replaces, source, now)
            self._offers[snapshot.uri] = offer
        else:
            typed = offer.strand.typed(place) or 0
            if len(offer.strand.text) < typed + len(text):
                offer.strand.extend(text[len(offer.strand.text) - typed :])
            offer.place, offer.rest, offer.offset, offer.replaces = place, text, offset, replaces
            offer.accepted_before = offer.accepted
        offer.results.add(result_digest(place, text))
        return events

    def changed(self, change: Change) -> list[FeedbackEvent]:
        """The document changed: was it typed through, taken, or contradicted?"""
        snapshot, now = change.after, change.at_s
        events = self._decide(snapshot.uri, now)
        if snapshot.uri in self._doubted:
            self._doubted[snapshot.uri] = [one.after(change) for one in self._doubted[snapshot.uri]]
        offer = self._offers.get(snapshot.uri)
        if offer is None:
            return events
        events += self._settle(offer, now)
        taken_step = step(offer, change)
        if taken_step is None:
            return events + self._doubt(offer, change)
        taken, inserted, start, elsewhere = taken_step
        before = offer.typed
        offer.rest = offer.rest[taken:] if taken >= 0 else offer.strand.text[before + taken : before] + offer.rest
        offer.offset = start + inserted
        if taken < 0:
            offer.back_to(before + taken)
        offer.typed = before + taken
        if elsewhere:
            offer.follow(snapshot)
        in_one_go = (
            taken >= 2 and inserted >= 2 and not is_typing(snapshot.text[offer.offset - inserted : offer.offset])
        )
        if taken < 0:
            return events
        if taken and not offer.rest:
            if offer.reports and offer.accepted >= len(offer.strand.text):
                return events + self._take(offer, Taken.REPORTED, now, start=start, added="")  # told part by part
            added = offer.strand.text[before:] if in_one_go else ""
            return events + self._take(offer, Taken.INFERRED if in_one_go else Taken.TYPED, now, start, added)
        if not in_one_go:
            offer.reported_typed += taken
        elif not offer.reports:
            offer.reported_typed += taken
            offer.accepted += taken
            events.append(self._partial(offer, start, before, taken, inferred=True, now=now))
        return events

    def moved(self, place: Place, offset: int, now: float) -> list[FeedbackEvent]:
        """The editor asks at `place`, character `offset`: the user went along with the visible suggestion, left it, or came back to one."""
        events = self._decide(place.uri, now)
        offer = self._offers.get(place.uri)
        if offer is not None:
            events += self._settle(offer, now)
            rest = offer.strand.rest_at(place)
            if rest:
                return events
            if rest is None:
                events += self._end(offer, EndReason.LEFT, now)
            else:
                events += self._take(offer, Taken.TYPED, now)
        in_doubt = tuple(reversed(self._doubted.get(place.uri, ())))
        # What was made of a typo that is gone was not refused.
        came_back = any(doubted.leads_to(place, offset) for doubted in in_doubt)
        for doubted in in_doubt:
            if doubted.leads_to(place, offset):
                self._doubted[place.uri].remove(doubted)
                self._offers[place.uri] = doubted.offer
                doubted.offer.stand_at(offset, doubted.offer.strand.typed(place) or 0)
                return events
            events += self._end(doubted.offer, EndReason.REPLACED, doubted.since_s) if came_back else []
        return events

    def shown(self, id: str, now: float) -> list[FeedbackEvent]:
        """The editor reports that it displays the suggestion."""
        offer = self._by_id(id)
        if offer is None or offer.displayed:
            return []
        offer.displayed, offer.shown_s = True, now
        return [_displayed(offer, DisplaySource.EDITOR, now)]

    def partially_accepted(self, id: str, characters: int, now: float) -> list[FeedbackEvent]:
        """The editor reports that it took `characters` of the suggestion, counted from the start of the last answer."""
        offer = self._by_id(id)
        if offer is None:
            return []
        offer.reports = True
        accepted = min(offer.accepted_before + characters, len(offer.strand.text))
        if accepted <= offer.accepted:
            return []
        events = self._settle(offer, now, sure=True)
        added = accepted - offer.accepted
        offer.accepted = accepted
        # The change may have come before the report, or come after it.
        seen = offer.typed > offer.reported_typed
        start = offer.offset - added if seen else offer.offset
        before = max(0, offer.typed - added) if seen else offer.typed
        offer.reported_typed = before + added
        return [*events, self._partial(offer, start, before, added, inferred=False, now=now)]

    def accepted(self, id: str, now: float) -> list[FeedbackEvent]:
        """The editor reports that the suggestion was accepted. What the editor says corrects what was inferred."""
        offer = self._by_id(id) or self._doubted_by_id(id)
        if offer is not None:
            return [
                *self._settle(offer, now, sure=True),
                *self._take(offer, Taken.REPORTED, now, offer.offset, offer.rest),
            ]
        ended = self._ended.get(id)
        if ended is None or ended.taken:
            return []
        for key in ended.rejections:
            self._rejected.pop(key, None)
        self._ended[id] = ended._replace(taken=True, rejections=())
        offer = ended.offer
        accepted = self._accepted(offer, Taken.REPORTED, ended.ended_s, offer.offset, offer.rest, late=True)
        return [msgspec.structs.replace(accepted, at_s=now)]

    def closed(self, uri: str, now: float) -> list[FeedbackEvent]:
        events = self._decide(uri, math.inf)
        offer = self._offers.get(uri)
        if offer is None:
            return events
        return events + self._settle(offer, now) + self._end(offer, EndReason.CLOSED, now)

    def settle(self, now: float) -> list[FeedbackEvent]:
        """Displays and refusals that became certain by the passing of time alone."""
        decided = [event for uri in tuple(self._doubted) for event in self._decide(uri, now)]
        return decided + [event for offer in self._offers.values() for event in self._settle(offer, now)]

    def refused(self, place: Place, text: str, now: float) -> bool:
        """Whether the user has rejected `text` at `place`, at or before the point where the line now ends."""
        key = (place.key, result_digest(place, text))
        rejection = self._rejected.get(key)
        if rejection is None:
            return False
        if now - rejection.at_s >= self._reoffer_s:
            del self._rejected[key]
            return False
        # Typed on past the point of rejection, the line has changed, and the text may be right after all.
        return len(place.line_prefix) <= rejection.line_prefix_chars

    def _by_id(self, id: str) -> VisibleSuggestion | None:
        return next((offer for offer in self._offers.values() if offer.id == id), None)

    def _doubted_by_id(self, id: str) -> VisibleSuggestion | None:
        return next((one.offer for doubted in self._doubted.values() for one in doubted if one.offer.id == id), None)

    def _doubt(self, offer: VisibleSuggestion, change: Change) -> list[FeedbackEvent]:
        """The text went another way; whether for good is told by what comes next."""
        uri = offer.place.uri
        del self._offers[uri]
        doubted = self._doubted.setdefault(uri, [])
        doubted.append(_Doubted(offer, change.at_s, offer.offset - offer.typed).after(change))
        oldest = doubted[0]
        return self._end(oldest.offer, EndReason.DIVERGED, oldest.since_s) if len(doubted) > _DOUBTED_MAX else []

    def _decide(self, uri: str, now: float) -> list[FeedbackEvent]:
        """What was in doubt for long enough was refused, or ended before it was shown."""
        return [
            event
            for one in tuple(self._doubted.get(uri, ()))
            if now - one.since_s >= _DOUBT_S
            for event in self._end(one.offer, EndReason.DIVERGED, one.since_s)
        ]

    def _settle(self, offer: VisibleSuggestion, now: float, *, sure: bool = False) -> list[FeedbackEvent]:
        if offer.displayed or (now - offer.offered_s < _DISPLAY_S and not sure):
            return []
        offer.displayed = True
        return [_displayed(offer, DisplaySource.INFERRED, offer.offered_s)]

    def _partial(
        self, offer: VisibleSuggestion, start: int, before: int, added: int, *, inferred: bool, now: float
    ) -> FeedbackEvent:
        """A part of `added` characters that begins at `before` in the strand, and at `start` in the document."""
        kind, lines = offer.part(before, added)
        self._graft(offer, start, offer.strand.text[before : before + added], now)
        return PartiallyAccepted(
            id=offer.id,
            session=offer.session,
            served_from=offer.source,
            at_s=now,
            kind=kind,
            added_characters=added,
            added_lines=lines,
            accepted_characters=offer.accepted,
            characters=len(offer.strand.text),
            inferred=inferred,
        )

    def _take(
        self, offer: VisibleSuggestion, how: Taken, now: float, start: int = 0, added: str = ""
    ) -> list[FeedbackEvent]:
        """The whole of it is in the document; `added` is what was taken, at `start`, by this last accept."""
        # Taken means seen, however short it was visible.
        events = self._settle(offer, now, sure=how is not Taken.TYPED)
        self._forget(offer, now, taken=True)
        return [*events, self._accepted(offer, how, now, start, added)]

    def _accepted(
        self, offer: VisibleSuggestion, how: Taken, now: float, start: int, added: str, *, late: bool = False
    ) -> Accepted:
        # What was reported part by part before does not count again.
        added = added[max(0, offer.accepted - (len(offer.strand.text) - len(added))) :] if offer.reports else added
        self._graft(offer, start, added, now)
        return Accepted(
            id=offer.id,
            session=offer.session,
            served_from=offer.source,
            at_s=now,
            how=how,
            visible_ms=offer.visible_ms(now),
            characters=len(offer.strand.text),
            lines=offer.lines,
            display_source=offer.display_source,
            added_characters=len(added),
            added_lines=added.count("\n") + 1 if added else 0,
            late=late,
        )

    def _graft(self, offer: VisibleSuggestion, start: int, text: str, now: float) -> None:
        if text:
            self._grafts.append(Graft(offer.id, offer.session, offer.place.uri, start, text, now))
            del self._grafts[:-_GRAFTS_KEPT]

    def _end(self, offer: VisibleSuggestion, reason: EndReason, now: float) -> list[FeedbackEvent]:
        rejected = offer.displayed and reason in (EndReason.DIVERGED, EndReason.LEFT)
        keys: tuple[_Refusal, ...] = ()
        if rejected:
            keys = tuple((offer.place.key, result) for result in offer.results)
            for key in keys:
                self._rejected[key] = _Rejection(now, len(offer.place.line_prefix))
                self._rejected.move_to_end(key)
            while len(self._rejected) > _REJECTED_KEPT:
                self._rejected.popitem(last=False)
        self._forget(offer, now, taken=False, rejections=keys)
        return [
            Ended(
                id=offer.id,
                session=offer.session,
                served_from=offer.source,
                at_s=now,
                reason=reason,
                rejected=rejected,
                visible_ms=offer.visible_ms(now),
                characters=len(offer.strand.text),
                lines=offer.lines,
                display_source=offer.display_source,
                typed_characters=offer.typed,
            )
        ]

    def _forget(
        self, offer: VisibleSuggestion, now: float, *, taken: bool, rejections: tuple[_Refusal, ...] = ()
    ) -> None:
        uri = offer.place.uri
        if self._offers.get(uri) is offer:
            del self._offers[uri]
        left = [one for one in self._doubted.pop(uri, ()) if one.offer is not offer]
        if left:
            self._doubted[uri] = left
        self._ended[offer.id] = _Past(taken, offer, now, rejections)
        while len(self._ended) > _ENDED_KEPT:
            self._ended.popitem(last=False)


def _displayed(offer: VisibleSuggestion, by: DisplaySource, at_s: float) -> Displayed:
    text = offer.strand.text
    return Displayed(
        id=offer.id,
        session=offer.session,
        at_s=at_s,
        display_source=by,
        characters=len(text),
        lines=offer.lines,
        served_from=offer.source,
    )
