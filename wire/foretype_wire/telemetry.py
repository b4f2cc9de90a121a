"""Telemetry events, version 1: what travels in `feedback{batch, events}`.

Both ends import this module; it costs msgspec alone. Events name ids, times, lengths and labels, never source text. The one
exception is `sample`, which a client sends only where its gateway's tenant has opted in, and never writes to its spool.

Definitions of what is made of them: docs/telemetry.md. Where they come from:

`opportunity → request → result → display → accept | dismiss → survive`

- **opportunity**: a content change or caret move after which policy allows a suggestion; one per keystroke; the universal
  denominator.
- **display**: text painted. A **suggestion session** (`shown`) is a maximal run of displays whose resulting document text is
  the same; typing through merges. All "shown" counts are sessions.
- **Read(T)**: a session visible for T in all, or accepted. Acceptance is AR_T = accepted sessions / Read(T) sessions.
- **accept**: a partial accept counts its characters; a later extension of the same session adds its delta; the session is
  accepted once.
- **survive**: `arc`, the characters accepted and retained (not touched by later edits, common prefix and suffix removed);
  `levenshtein`, so that "mostly unchanged" is `levenshtein / max(length) < 0.33`; `fourgram`, the share of character
  four-grams that are still there.

`t_ms` is wall time (Unix milliseconds) and says on which day it was; `at_ms` is monotonic since the session began, and every
duration is a difference of those, so that a clock that jumps spoils none.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

EVENT_VERSION: Final = 1
SURVIVAL_AGES_S: Final = (15, 30, 120, 300, 600, 1800)
"""Seconds after an accept at which it is looked at again: the union of what Copilot and Cody publish, and 30 minutes."""

_MOST: Final = 2**53
Id = Annotated[str, Meta(pattern=r"^[\x21-\x7e]{1,64}$")]
Name = Annotated[str, Meta(pattern=r"^[\w.+#:/-]{0,64}$")]
Label = Annotated[str, Meta(pattern=r"^[a-z0-9_]{0,32}$")]
Count = Annotated[int, Meta(ge=0, le=_MOST)]
Milliseconds = Annotated[float, Meta(ge=0, le=_MOST)]
Text = Annotated[str, Meta(max_length=20_000)]


class Caret(StrEnum):
    """Where in its line the caret stood."""

    LINE_START = "line_start"
    LINE_END = "line_end"
    MID_LINE = "mid_line"


class DismissKind(StrEnum):
    """How a suggestion that was shown was refused. `esc` is for editors that report it."""

    ESC = "esc"
    TYPED_OVER = "typed_over"
    MOVED = "moved"
    BLUR = "blur"


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """Base of all events.

    Attributes:
        v: version of this format.
        session, seq: the client process, and the number of the event in it; together they name the event for ever.
        t_ms: wall time in Unix milliseconds.
        at_ms: monotonic milliseconds since the session began.
        language: language id of the document.
        experiment, variant, block: of the profile that a suggestion was asked under: the experiment ("" for none), its arm, and the
            number of its block by the gateway's clock.
        editor: what the editor calls itself, in small letters.
        model: name of the model of the profile in use.
    """

    v: int = EVENT_VERSION
    session: Id
    seq: Count
    t_ms: Count
    at_ms: Milliseconds
    language: Name = ""
    experiment: Name = ""
    variant: Name = ""
    block: Count = 0
    editor: Name = ""
    model: Name = ""


class Opportunity(_Event, frozen=True, kw_only=True, tag="opportunity"):
    """One keystroke or caret move after which policy allows a suggestion.

    Attributes:
        document: digest of the document's uri, keyed by the session, so that it names nothing outside of it.
        outcome: where the answer came from, or why there was none (labels of `Origin`, `Outcome`, gateway errors).
        parses: whether the text that was found adds no error of syntax at its place, shown or not; absent where there was
            none, or no grammar to judge it.
    """

    id: Id
    document: Id
    trigger: Label
    caret: Caret
    outcome: Label
    parses: bool | None = None


class Request(_Event, frozen=True, kw_only=True, tag="request"):
    """A completion asked of the gateway; `at_ms` is when it was sent. Told when it is over, with its token counts."""

    id: Id
    opportunity: Id | None = None
    request_class: Label = ""
    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    supersedes: Id | None = None


class Result(_Event, frozen=True, kw_only=True, tag="result"):
    """What came of a request.

    Attributes:
        id: of the request. Why its text was not shown stands in `outcome` of the opportunity that it was sent for.
        first_ms, last_ms: request sent to first delta (none came: absent), and to the end.
        finish: why it ended; `dropped` if the user had gone another way; an error's code.
        stages_ms: milliseconds by stage, client's and gateway's.
        request_class: of the request; nobody waits for a speculative one.
    """

    id: Id
    first_ms: Milliseconds | None = None
    last_ms: Milliseconds
    generated_tokens: Count = 0
    tokens_after_cancel: Count = 0
    characters: Count = 0
    finish: Label = ""
    logprob: Annotated[float, Meta(ge=-1e6, le=0)] | None = None
    stages_ms: dict[Label, Milliseconds] = {}
    request_class: Label = ""


class Display(_Event, frozen=True, kw_only=True, tag="display"):
    """A suggestion that was visible, told when it no longer is; `at_ms` is when it came.

    Attributes:
        id: of the suggestion. `shown` is its suggestion session: sum `visible_ms` over it.
        display_source: `editor` where an editor reported it, `inferred` where nothing contradicts it.
        end: `accepted`, `typed`, `diverged`, `left`, `replaced`, `closed`.
    """

    id: Id
    shown: Id
    opportunity: Id | None = None
    request: Id | None = None
    served_from: Label
    display_source: Label
    visible_ms: Milliseconds
    characters: Count
    lines: Count
    end: Label


class Accept(_Event, frozen=True, kw_only=True, tag="accept"):
    """Text that was taken; a later accept of the same session adds its own `characters`.

    Attributes:
        kind: `full`, `line` or `word`.
        how: `reported` by the editor or `inferred` from one change that inserted it.
    """

    id: Id
    shown: Id
    kind: Label
    how: Label
    characters: Count
    lines: Count


class Dismiss(_Event, frozen=True, kw_only=True, tag="dismiss"):
    """A suggestion that had been displayed was refused."""

    id: Id
    shown: Id
    kind: DismissKind


class Survive(_Event, frozen=True, kw_only=True, tag="survive"):
    """What is left of accepted text `age_s` after it was taken (see the module's docstring for the measures)."""

    id: Id
    shown: Id
    age_s: Count
    characters: Count
    length_now: Count
    arc: Count
    levenshtein: Count
    fourgram: Annotated[float, Meta(ge=0, le=1)]
    branch_changed: bool = False


class Typing(_Event, frozen=True, kw_only=True, tag="typing"):
    """What was typed by hand in documents of one language, told about once a minute; what keys are saved is a share of it.

    Attributes:
        keys: changes that inserted one or two characters, or a line ending with the indentation after it.
        deletions: changes that only took text away.
    """

    keys: Count
    deletions: Count


class Feel(_Event, frozen=True, kw_only=True, tag="feel"):
    """What somebody answered who was asked whether completions feel instant, with what this editor measured meanwhile.

    Attributes:
        answer: `yes`, `mostly` or `no`.
        p50_ms, p95_ms: from asking to showing, of the last `suggestions` that were shown.
    """

    answer: Label
    p50_ms: Milliseconds
    p95_ms: Milliseconds
    suggestions: Count


class NextEdit(_Event, frozen=True, kw_only=True, tag="next_edit"):
    """A next edit that was visible, told when it no longer is; `at_ms` is when it came.

    Attributes:
        chain, order: the first one of those that followed each other by acceptance, and its number among them, from 1.
        evidence: what it rested on.
        end: `accepted`, `rejected` (Esc), `typed`, `moved`, `replaced`, `hidden`, `closed`.
        inserted, deleted: characters.
        elsewhere: it is of another file.
        jump: it was too far for a diff in place: only where it is was shown at first; `jumped`: the user went there.
    """

    id: Id
    chain: Id
    order: Count
    evidence: Label
    end: Label
    visible_ms: Milliseconds
    inserted: Count
    deleted: Count
    elsewhere: bool = False
    jump: bool = False
    jumped: bool = False


class NextSurvive(_Event, frozen=True, kw_only=True, tag="next_survive"):
    """What is left of a next edit `age_s` after it was taken.

    Attributes:
        inserted, deleted: characters of the edit.
        inserted_kept, deleted_kept: the same where what was inserted still stands there, what was deleted is still gone; else 0.
        reversed: its lines are as they were before.
    """

    id: Id
    age_s: Count
    inserted: Count
    inserted_kept: Count
    deleted: Count
    deleted_kept: Count
    reversed: bool = False


class Sample(_Event, frozen=True, kw_only=True, tag="sample"):
    """Text around a suggestion, and the suggestion: only where the tenant has opted in (`store_text`)."""

    id: Id
    shown: Id
    prefix: Text
    suffix: Text
    suggestion: Text
    accepted: bool


Event = (
    Opportunity
    | Request
    | Result
    | Display
    | Accept
    | Dismiss
    | Survive
    | Typing
    | Feel
    | NextEdit
    | NextSurvive
    | Sample
)
