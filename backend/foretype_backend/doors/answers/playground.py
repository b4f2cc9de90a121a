"""Answers of the playground's doors."""

from __future__ import annotations

from typing import TypedDict

from foretype_context.edits.evidence import Evidence
from foretype_context.prompt.profile import Stop
from foretype_context.prompt.segments import Kind, Scope, Source


class LoginCode(TypedDict):
    code: str
    seconds: float


class Login(TypedDict):
    """The half of a login that the page keeps; the other is a cookie."""

    page: str


class PlannedSegment(TypedDict):
    kind: Kind
    scope: Scope
    source: Source
    text: str


class PlannedComplete(TypedDict):
    """A `complete` of the stream, without its id."""

    document: str
    version: int
    language: str
    segments: list[PlannedSegment]
    max_tokens: int
    stop: Stop
    prompt_tokens: int


class DroppedPart(TypedDict):
    kind: Kind
    tokens: int
    reason: str


class PlannedPrompt(TypedDict):
    """A prompt as a `complete` of the stream, and what the page shows of it; ranges are of tokens."""

    complete: PlannedComplete
    ranges: list[list[int]]
    layout: str
    kind: str
    budget_tokens: int
    healed: str
    dropped: list[DroppedPart]
    frozen: int
    timings_ms: dict[str, float]


class FinishedText(TypedDict):
    """What an editor would show, and how many characters right of the cursor it takes the place of."""

    text: str
    replaces: int
    reason: str | None


class PlaceAndText(TypedDict):
    """Code points of the text as it is now; where only the place is known, nothing changes there."""

    start: int
    end: int
    text: str
    evidence: Evidence
    left: int
    jump_only: bool


class OfferedEdit(TypedDict):
    """The next edit; None is silence, and where `wait_ms` is above zero so much longer of it, after which it may be asked again."""

    edit: PlaceAndText | None
    wait_ms: float
