"""What became of a suggestion, told from what the editor reports and, where it reports nothing, from what was typed.

Pure: time is handed in, events come out as data. An event names ids, times and lengths, never text. The text of the one
suggestion that is visible per document is kept here to compare with what is typed, and dropped with it; what was rejected is
remembered as a digest.

Rules (design section 6): shown = answered, not superseded, buffer unchanged or typed through, for 750 ms; rejected = shown, then
diverged or left; the same text is not offered there again until the line changes or 10 minutes pass; a change that inserts at
least two of the next characters is a partial accept, which does not end the tracking.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from foretype_context.document import Snapshot

from foretype_client.feedback_events import (
    Accepted,
    Displayed,
    DisplaySource,
    Ended,
    EndReason,
    FeedbackEvent,
    PartiallyAccepted,
    Taken,
)
from foretype_client.places import Place, Strand

__all__ = [
    "Accepted",
    "DisplaySource",
    "Displayed",
    "EndReason",
    "Ended",
    "Feedback",
    "FeedbackEvent",
    "Offer",
    "PartiallyAccepted",
    "Taken",
]

_BEFORE_CHARS: Final = 200
_AFTER_CHARS: Final = 64
_ENDED_KEPT: Final = 64
_REJECTED_KEPT: Final = 256
_PAIRS: Final = frozenset({"()", "[]", "{}", '""', "''", "``", "<>"})
_CLOSED_BY_EDITOR: Final = frozenset(")]}>\"'`")


@dataclass(slots=True)
class Offer:
    """The suggestion that is visible in one document.

    Attributes:
        strand: its finished text and the place where it was first offered.
        place, rest: where it was offered last, and what was left of it there.
        offset: character offset of `rest` in the document as last seen.
        replaces: characters right of the cursor that accepting removes.
        offered_s: when it was first answered.
        displayed: whether an event said so.
        typed: characters of the strand that are in the document by now, typed or accepted.
        accepted, accepted_before: characters taken by partial accepts, in all and up to the last answer.
        reports: the editor reports partial accepts, so none is inferred.
    """

    id: str
    strand: Strand
    place: Place
    rest: str
    offset: int
    replaces: int
    source: str
    offered_s: float
    length: int = 0
    before: str = ""
    after: str = ""
    displayed: bool = False
    typed: int = 0
    accepted: int = 0
    accepted_before: int = 0
    reports: bool = False
    results: set[bytes] = field(default_factory=set[bytes])

    def look(self, snapshot: Snapshot) -> None:
        """Remember what the document looks like around the offer, to recognise the next change."""
        text = snapshot.text
        self.length = len(text)
        self.before = text[max(0, self.offset - _BEFORE_CHARS) : self.offset]
        self.after = text[self.offset : self.offset + _AFTER_CHARS]


_Refusal = tuple[bytes, bytes]
"""A line's key and the digest of what the refused suggestion would have made of it."""


class _Rejection(NamedTuple):
    at_s: float
    line_prefix_chars: int


class _Past(NamedTuple):
    """A suggestion that is not visible any more, for reports that come late."""

    taken: bool
    characters: int
    source: str
    rejections: tuple[_Refusal, ...]


class Feedback:
    """Tracks the visible suggestion of each document. Every method takes `now` in monotonic seconds and returns events."""

    def __init__(self, *, display_ms: float = 750.0, reoffer_s: float = 600.0) -> None:
        self._display_s = display_ms / 1000
        self._reoffer_s = reoffer_s
        self._offers: dict[str, Offer] = {}
        self._ended: OrderedDict[str, _Past] = OrderedDict()
        self._rejected: OrderedDict[_Refusal, _Rejection] = OrderedDict()

    def visible(self, uri: str) -> Offer | None:
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
        if offer is not None and offer.id != id:
            events += self._end(offer, EndReason.REPLACED, now)
            offer = None
        if offer is None:
            strand = Strand(place, text)
            offer = Offer(id, strand, place, text, offset, replaces, source, now)
            self._offers[snapshot.uri] = offer
        else:
            typed = offer.strand.typed(place) or 0
            if len(offer.strand.text) < typed + len(text):
                offer.strand.extend(text[len(offer.strand.text) - typed :])
            offer.place, offer.rest, offer.offset, offer.replaces = place, text, offset, replaces
            offer.accepted_before = offer.accepted
        offer.results.add(_result(place, text))
        offer.look(snapshot)
        return events

    def changed(self, snapshot: Snapshot, now: float) -> list[FeedbackEvent]:
        """The document changed: was it typed through, taken, or contradicted?"""
        offer = self._offers.get(snapshot.uri)
        if offer is None:
            return []
        events = self._settle(offer, now)
        step = _step(offer, snapshot)
        if step is None:
            return events + self._end(offer, EndReason.DIVERGED, now)
        taken, inserted = step
        offer.typed += taken
        offer.offset += inserted
        offer.rest = offer.rest[taken:]
        in_one_go = (
            taken >= 2 and inserted >= 2 and not _is_typing(snapshot.text[offer.offset - inserted : offer.offset])
        )
        offer.look(snapshot)
        if taken and not offer.rest:
            return events + self._take(offer, Taken.INFERRED if in_one_go else Taken.TYPED, now)
        if in_one_go and not offer.reports:
            offer.accepted += taken
            events.append(self._partial(offer, inferred=True, now=now))
        return events

    def moved(self, place: Place, now: float) -> list[FeedbackEvent]:
        """The editor asks at `place`: the user went along with the visible suggestion, or left it."""
        offer = self._offers.get(place.uri)
        if offer is None:
            return []
        events = self._settle(offer, now)
        rest = offer.strand.rest_at(place)
        if rest is None:
            return events + self._end(offer, EndReason.LEFT, now)
        if not rest:
            return events + self._take(offer, Taken.TYPED, now)
        return events

    def shown(self, id: str, now: float) -> list[FeedbackEvent]:
        """The editor reports that it displays the suggestion."""
        offer = self._by_id(id)
        if offer is None or offer.displayed:
            return []
        offer.displayed = True
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
        offer.accepted = accepted
        return [*events, self._partial(offer, inferred=False, now=now)]

    def accepted(self, id: str, now: float) -> list[FeedbackEvent]:
        """The editor reports that the suggestion was accepted. What the editor says corrects what was inferred."""
        offer = self._by_id(id)
        if offer is not None:
            return [*self._settle(offer, now, sure=True), *self._take(offer, Taken.REPORTED, now)]
        ended = self._ended.get(id)
        if ended is None or ended.taken:
            return []
        for key in ended.rejections:
            self._rejected.pop(key, None)
        self._ended[id] = ended._replace(taken=True, rejections=())
        return [Accepted(id=id, served_from=ended.source, at_s=now, how=Taken.REPORTED, characters=ended.characters)]

    def closed(self, uri: str, now: float) -> list[FeedbackEvent]:
        offer = self._offers.get(uri)
        if offer is None:
            return []
        return self._settle(offer, now) + self._end(offer, EndReason.CLOSED, now)

    def settle(self, now: float) -> list[FeedbackEvent]:
        """Displays that became certain by the passing of time alone."""
        return [event for offer in self._offers.values() for event in self._settle(offer, now)]

    def refused(self, place: Place, text: str, now: float) -> bool:
        """Whether the user has rejected `text` at `place`, at or before the point where the line now ends."""
        key = (place.key, _result(place, text))
        rejection = self._rejected.get(key)
        if rejection is None:
            return False
        if now - rejection.at_s > self._reoffer_s:
            del self._rejected[key]
            return False
        # Typed on past the point of rejection, the line has changed, and the text may be right after all.
        return len(place.line_prefix) <= rejection.line_prefix_chars

    def _by_id(self, id: str) -> Offer | None:
        return next((offer for offer in self._offers.values() if offer.id == id), None)

    def _settle(self, offer: Offer, now: float, *, sure: bool = False) -> list[FeedbackEvent]:
        if offer.displayed or (now - offer.offered_s < self._display_s and not sure):
            return []
        offer.displayed = True
        return [_displayed(offer, DisplaySource.INFERRED, offer.offered_s)]

    def _partial(self, offer: Offer, *, inferred: bool, now: float) -> FeedbackEvent:
        total = len(offer.strand.text)
        return PartiallyAccepted(
            id=offer.id,
            served_from=offer.source,
            at_s=now,
            accepted_characters=offer.accepted,
            characters=total,
            inferred=inferred,
        )

    def _take(self, offer: Offer, how: Taken, now: float) -> list[FeedbackEvent]:
        # Taken means seen, however short it was visible.
        events = self._settle(offer, now, sure=how is not Taken.TYPED)
        self._forget(offer, taken=True)
        characters = len(offer.strand.text)
        accepted = Accepted(id=offer.id, served_from=offer.source, at_s=now, how=how, characters=characters)
        return [*events, accepted]

    def _end(self, offer: Offer, reason: EndReason, now: float) -> list[FeedbackEvent]:
        rejected = offer.displayed and reason in (EndReason.DIVERGED, EndReason.LEFT)
        keys: tuple[_Refusal, ...] = ()
        if rejected:
            keys = tuple((offer.place.key, result) for result in offer.results)
            for key in keys:
                self._rejected[key] = _Rejection(now, len(offer.place.line_prefix))
                self._rejected.move_to_end(key)
            while len(self._rejected) > _REJECTED_KEPT:
                self._rejected.popitem(last=False)
        self._forget(offer, taken=False, rejections=keys)
        visible_ms = (now - offer.offered_s) * 1000
        return [
            Ended(
                id=offer.id,
                served_from=offer.source,
                at_s=now,
                reason=reason,
                rejected=rejected,
                visible_ms=visible_ms,
                typed_characters=offer.typed,
            )
        ]

    def _forget(self, offer: Offer, *, taken: bool, rejections: tuple[_Refusal, ...] = ()) -> None:
        del self._offers[offer.place.uri]
        self._ended[offer.id] = _Past(taken, len(offer.strand.text), offer.source, rejections)
        while len(self._ended) > _ENDED_KEPT:
            self._ended.popitem(last=False)


def _displayed(offer: Offer, by: DisplaySource, at_s: float) -> Displayed:
    text = offer.strand.text
    return Displayed(
        id=offer.id,
        at_s=at_s,
        display_source=by,
        characters=len(text),
        lines=text.count("\n") + 1,
        served_from=offer.source,
    )


def _result(place: Place, text: str) -> bytes:
    """Digest of the line as the suggestion would make it: the same at each point of typing it through."""
    return blake2b((place.line_prefix + text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _step(offer: Offer, snapshot: Snapshot) -> tuple[int, int] | None:
    """How far a change went along with the offer: (characters of it now typed, characters inserted); None if it diverged."""
    text, offset = snapshot.text, offer.offset
    if text[max(0, offset - _BEFORE_CHARS) : offset] != offer.before:
        return None
    if text[offset : offset + _AFTER_CHARS] == offer.after:
        return (0, 0)  # something changed further below
    whole = offset + len(offer.rest)
    kept = offer.after[offer.replaces :]
    if text[offset:whole] == offer.rest and text[whole : whole + len(kept)] == kept:
        return (len(offer.rest), len(offer.rest))
    grown = len(text) - offer.length
    if grown <= 0:
        return None
    inserted = text[offset : offset + grown]
    if text[offset + grown : offset + grown + len(offer.after)] != offer.after:
        return None
    # A text to insert may have the model's line endings where the document has its own.
    comparable = inserted if "\r" in offer.rest else inserted.replace("\r\n", "\n")
    taken = _common(comparable, offer.rest)
    if taken == 0 or not _CLOSED_BY_EDITOR.issuperset(comparable[taken:]):
        return None
    # What an editor closes by itself stands right of the cursor, so it is not part of what was typed.
    return (taken, len(inserted) - len(comparable[taken:]))


def _is_typing(inserted: str) -> bool:
    """Whether one keystroke can have inserted this: a line break with its indentation, or a pair that an editor closed."""
    return not inserted.strip() or inserted in _PAIRS


def _common(a: str, b: str) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))
