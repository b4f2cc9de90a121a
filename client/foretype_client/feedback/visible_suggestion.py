"""The suggestion that is visible in one document, and how far a change of the document goes along with it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from foretype_context.syntax.closers import is_added_by_editor
from foretype_context.syntax.document import Change, Snapshot
from foretype_context.text.strings import common_prefix

from foretype_client.feedback.events import AcceptKind, DisplaySource
from foretype_client.flow.strands import Place, Strand

_BEFORE_CHARS: Final = 200
_AFTER_CHARS: Final = 64
_PAIRS: Final = frozenset({"()", "[]", "{}", '""', "''", "``", "<>"})


@dataclass(slots=True)
class VisibleSuggestion:
    """The suggestion that is visible in one document.

    Attributes:
        session: of the first suggestion that would have made the same of the document.
        strand: its finished text and the place where it was first offered.
        place, rest: where it was offered last, and what was left of it there.
        offset: character offset of `rest` in the document as last seen.
        replaces: characters right of the cursor that accepting removes.
        offered_s: when it was first answered.
        shown_s: when the editor said that it displays it; None if it did not.
        displayed: whether an event said so.
        typed: characters of the strand that are in the document by now, typed or accepted.
        accepted, accepted_before: characters taken by partial accepts, in all and up to the last answer.
        reports: the editor reports partial accepts, so none is inferred.
        reported_typed: characters of the strand up to which reports account for what is in the document.
        moves: how often edits elsewhere changed what stands around it, so that its strand begins at another place.
    """

    id: str
    session: str
    strand: Strand
    place: Place
    rest: str
    offset: int
    replaces: int
    source: str
    offered_s: float
    shown_s: float | None = None
    displayed: bool = False
    typed: int = 0
    accepted: int = 0
    accepted_before: int = 0
    reports: bool = False
    reported_typed: int = 0
    moves: int = 0
    results: set[bytes] = field(default_factory=set[bytes])

    @property
    def display_source(self) -> DisplaySource:
        return DisplaySource.INFERRED if self.shown_s is None else DisplaySource.EDITOR

    @property
    def lines(self) -> int:
        return self.strand.text.count("\n") + 1

    def visible_ms(self, now: float) -> float:
        return (now - (self.offered_s if self.shown_s is None else min(self.shown_s, now))) * 1000

    def part(self, start: int, characters: int) -> tuple[AcceptKind, int]:
        """What accepting `characters` of the strand from `start` took: a whole line or a part of one; and its lines."""
        text = self.strand.text
        taken, end = text[start : start + characters], start + characters
        to_line_end = end >= len(text) or text[end] in "\r\n" or taken.endswith("\n")
        kind = AcceptKind.LINE if to_line_end or "\n" in taken else AcceptKind.WORD
        return kind, taken.rstrip("\n").count("\n") + 1

    def back_to(self, typed: int) -> None:
        """No more than so many characters of it are in the document: what was taken back is neither accepted nor reported."""
        self.typed = typed
        self.accepted, self.reported_typed = min(self.accepted, typed), min(self.reported_typed, typed)

    def stand_at(self, offset: int, typed: int) -> None:
        """It is back in the document, of which `typed` characters of it stand left of `offset`."""
        self.back_to(typed)
        self.offset, self.rest = offset, self.strand.text[typed:]

    def follow(self, snapshot: Snapshot) -> None:
        """Edits elsewhere may have changed what the places of the strand are known by: it begins at the one that is there now."""
        behind = self.typed - (self.strand.typed(self.place) or 0)
        begin = Place.before(snapshot, self.offset, self.place.profile, self.typed)
        if begin != self.strand.place:
            self.strand = Strand(begin, self.strand.text)
            self.place = Place.before(snapshot, self.offset, self.place.profile, behind)
            self.results.add(result_digest(begin, self.strand.text))
            self.moves += 1


def result_digest(place: Place, text: str) -> bytes:
    """Digest of the line as the suggestion would make it: the same at each point of typing it through."""
    return blake2b((place.line_prefix + text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Step(NamedTuple):
    """How far a change went along with a suggestion.

    Attributes:
        taken: characters of it that are in the document now and were not; below 0 where some were taken back.
        inserted: characters by which its rest has moved on behind what was there.
        offset: where its rest would be, had nothing been typed at it: edits above it move it.
        elsewhere: there were edits that are none of its business: above it, or wherever something was typed at it at once.
    """

    taken: int
    inserted: int
    offset: int
    elsewhere: bool


def step(offer: VisibleSuggestion, change: Change) -> Step | None:
    """How far a change of the document went along with the offer; None if it diverged.

    Edits elsewhere, of another cursor or of a tool, move the offer and contradict nothing: what counts is what happened at it.
    """
    seen = _Seen.of(offer, change)
    if seen is None:
        return None
    text, offset, before, after, elsewhere = change.after.text, seen.offset, seen.before, seen.after, seen.elsewhere
    grown = len(text) - len(change.before) - seen.grown
    if text[max(0, offset - len(before)) : offset] != before:
        return _back(offer, text, seen, -grown)
    if grown == 0 and text.startswith(after, offset):
        return Step(0, 0, offset, elsewhere)
    whole = offset + len(offer.rest)
    kept = after[offer.replaces :]
    if text[offset:whole] == offer.rest and text[whole : whole + len(kept)] == kept:
        return Step(len(offer.rest), len(offer.rest), offset, elsewhere)
    if grown <= 0:
        return None
    inserted = text[offset : offset + grown]
    if text[offset + grown : offset + grown + len(after)] != after:
        return None
    # A text to insert may have the model's line endings where the document has its own.
    comparable = inserted if "\r" in offer.rest else inserted.replace("\r\n", "\n")
    taken = common_prefix(comparable, offer.rest)
    if taken == 0 or not is_added_by_editor(comparable[taken:], change.after.language):
        return None
    # What an editor closes by itself stands right of the cursor, so it is not part of what was typed.
    return Step(taken, len(inserted) - len(comparable[taken:]), offset, elsewhere)


def _back(offer: VisibleSuggestion, text: str, seen: _Seen, gone: int) -> Step | None:
    """What was taken of the offer last was taken back: by undo, or by the key for it."""
    if not 0 < gone <= offer.typed:
        return None
    at = seen.offset - gone
    before, typed = seen.before[:-gone], offer.strand.text[offer.typed - gone : offer.typed]
    if not seen.before.endswith(typed) or text[max(0, at - len(before)) : at] != before:
        return None
    goes_on = text[at : at + len(seen.after)] == seen.after
    return Step(-gone, -gone, seen.offset, seen.elsewhere) if goes_on else None


class _Seen(NamedTuple):
    """What stood around an offer before a change, with the edits that are none of its business done.

    Attributes:
        elsewhere: there were such edits above, or anywhere beside one at the offer.
        grown: by how many characters they made the document longer.
    """

    offset: int
    before: str
    after: str
    elsewhere: bool
    grown: int

    @classmethod
    def of(cls, offer: VisibleSuggestion, change: Change) -> _Seen | None:
        """None where what was typed or taken of the offer was edited in its midst."""
        offset, elsewhere, total = offer.offset, False, 0
        before, after = (
            change.before[max(0, offset - _BEFORE_CHARS) : offset],
            change.before[offset : offset + _AFTER_CHARS],
        )
        here, touched, below = 0, False, False  # characters that edits at the offer put in
        for edit in change.edits:
            (start, end, new), grown = edit, edit.growth
            if end < offset:
                if end > offset - offer.typed:
                    return None
                first = offset - len(before)
                before = before[: max(0, start - first)] + new + before[end - first :] if end > first else before
                before = before[-_BEFORE_CHARS:]
                offset += grown
                elsewhere = True
            elif start > offset + here:
                near = start - offset - here
                after = after[:near] + new + after[near + end - start :] if near < len(after) else after
                below = True
            else:
                here += grown
                touched = True
                continue
            total += grown
        return cls(offset, before, after[:_AFTER_CHARS], elsewhere or (below and touched), total)


def is_typing(inserted: str) -> bool:
    """Whether one keystroke can have inserted this: a line break with its indentation, or a pair that an editor closed."""
    return not inserted.strip() or inserted in _PAIRS
