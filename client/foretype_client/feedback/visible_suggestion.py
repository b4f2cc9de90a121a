"""The suggestion that is visible in one document, and how far a change of the document goes along with it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from foretype_context.text.document import Snapshot
from foretype_context.text.strings import common_prefix

from foretype_client.feedback.events import AcceptKind, DisplaySource
from foretype_client.flow.strands import Place, Strand

__all__ = ["VisibleSuggestion", "is_typing", "result_digest", "step"]

_BEFORE_CHARS: Final = 200
_AFTER_CHARS: Final = 64
_PAIRS: Final = frozenset({"()", "[]", "{}", '""', "''", "``", "<>"})
_CLOSED_BY_EDITOR: Final = frozenset(")]}>\"'`")


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
    length: int = 0
    before: str = ""
    after: str = ""
    shown_s: float | None = None
    displayed: bool = False
    typed: int = 0
    accepted: int = 0
    accepted_before: int = 0
    reports: bool = False
    reported_typed: int = 0
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

    def look(self, snapshot: Snapshot) -> None:
        """Remember what the document looks like around the offer, to recognise the next change."""
        text = snapshot.text
        self.length = len(text)
        self.before = text[max(0, self.offset - _BEFORE_CHARS) : self.offset]
        self.after = text[self.offset : self.offset + _AFTER_CHARS]


def result_digest(place: Place, text: str) -> bytes:
    """Digest of the line as the suggestion would make it: the same at each point of typing it through."""
    return blake2b((place.line_prefix + text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def step(offer: VisibleSuggestion, snapshot: Snapshot) -> tuple[int, int] | None:
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
    taken = common_prefix(comparable, offer.rest)
    if taken == 0 or not _CLOSED_BY_EDITOR.issuperset(comparable[taken:]):
        return None
    # What an editor closes by itself stands right of the cursor, so it is not part of what was typed.
    return (taken, len(inserted) - len(comparable[taken:]))


def is_typing(inserted: str) -> bool:
    """Whether one keystroke can have inserted this: a line break with its indentation, or a pair that an editor closed."""
    return not inserted.strip() or inserted in _PAIRS
