"""Feedback events: what became of a suggestion, as data. They name ids, times and lengths, never text."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class DisplaySource(StrEnum):
    """Who says that a suggestion was displayed."""

    EDITOR = "editor"
    INFERRED = "inferred"


class Taken(StrEnum):
    """How the whole of a suggestion got into the document."""

    REPORTED = "reported"  # the editor said so
    INFERRED = "inferred"  # one change inserted all that was left of it
    TYPED = "typed"  # the user typed it out


class AcceptKind(StrEnum):
    """How much one accept took."""

    FULL = "full"
    LINE = "line"
    WORD = "word"


class EndReason(StrEnum):
    """Why a suggestion that was not taken is no longer visible."""

    DIVERGED = "diverged"
    LEFT = "left"
    REPLACED = "replaced"
    CLOSED = "closed"


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events: the suggestion's id, where it was served from at first, and monotonic seconds.

    Attributes:
        session: the suggestion session: equal for all suggestions, one after the other, that would make the same of the
            document, so that typing through and answering again count once. The id of the session's first suggestion.
    """

    id: str
    session: str
    served_from: str
    at_s: float


class Displayed(_Event, frozen=True, kw_only=True, tag="displayed"):
    """The suggestion was visible; one event per suggestion, however often it was answered again while typed through."""

    display_source: DisplaySource
    characters: int
    lines: int


class PartiallyAccepted(_Event, frozen=True, kw_only=True, tag="partially_accepted"):
    """Some more of the suggestion was taken in one go; `accepted_characters` is the total so far.

    Attributes:
        added_characters, added_lines: of this accept alone; a later one adds its own.
    """

    kind: AcceptKind
    added_characters: int
    added_lines: int
    accepted_characters: int
    characters: int
    inferred: bool


class _Gone(_Event, frozen=True, kw_only=True):
    """The suggestion is not visible any more.

    Attributes:
        visible_ms: from the first answer (the editor's report, if that came first) to now.
        characters, lines: of the whole suggestion.
        display_source: who says that it was visible, as far as anybody does.
    """

    visible_ms: float
    characters: int
    lines: int
    display_source: DisplaySource


class Accepted(_Gone, frozen=True, kw_only=True, tag="accepted"):
    """The whole of it is in the document.

    Attributes:
        added_characters, added_lines: what was taken now; 0 when it was typed out.
        late: the report came after the suggestion had ended, so that its display was told before.
    """

    how: Taken
    added_characters: int
    added_lines: int
    late: bool = False


class Ended(_Gone, frozen=True, kw_only=True, tag="ended"):
    """The suggestion went away; `rejected` when it had been displayed and the user went another way."""

    reason: EndReason
    rejected: bool
    typed_characters: int


FeedbackEvent = Displayed | PartiallyAccepted | Accepted | Ended


class Graft(NamedTuple):
    """Text that an accept put into a document, so that its survival can be measured. Never leaves the process.

    Attributes:
        start: character offset of `text` in the document, which may have it a moment later than this says so.
    """

    id: str
    session: str
    uri: str
    start: int
    text: str
    at_s: float
