"""Feedback events: what became of a suggestion, as data. They name ids, times and lengths, never text."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = [
    "Accepted",
    "DisplaySource",
    "Displayed",
    "EndReason",
    "Ended",
    "FeedbackEvent",
    "PartiallyAccepted",
    "Taken",
]


class DisplaySource(StrEnum):
    """Who says that a suggestion was displayed."""

    EDITOR = "editor"
    INFERRED = "inferred"


class Taken(StrEnum):
    """How the whole of a suggestion got into the document."""

    REPORTED = "reported"  # the editor said so
    INFERRED = "inferred"  # one change inserted all that was left of it
    TYPED = "typed"  # the user typed it out


class EndReason(StrEnum):
    """Why a suggestion that was not taken is no longer visible."""

    DIVERGED = "diverged"
    LEFT = "left"
    REPLACED = "replaced"
    CLOSED = "closed"


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events: the suggestion's id, where it was served from at first, and monotonic seconds."""

    id: str
    served_from: str
    at_s: float


class Displayed(_Event, frozen=True, kw_only=True, tag="displayed"):
    """The suggestion was visible; one event per suggestion, however often it was answered again while typed through."""

    display_source: DisplaySource
    characters: int
    lines: int


class PartiallyAccepted(_Event, frozen=True, kw_only=True, tag="partially_accepted"):
    """Some more of the suggestion was taken in one go; `accepted_characters` is the total so far."""

    accepted_characters: int
    characters: int
    inferred: bool


class Accepted(_Event, frozen=True, kw_only=True, tag="accepted"):
    how: Taken
    characters: int


class Ended(_Event, frozen=True, kw_only=True, tag="ended"):
    """The suggestion went away; `rejected` when it had been displayed and the user went another way."""

    reason: EndReason
    rejected: bool
    visible_ms: float
    typed_characters: int


FeedbackEvent = Displayed | PartiallyAccepted | Accepted | Ended
