"""Messages of the wire protocol `/v1/stream`, version 1.

Binary frames carry MessagePack and text frames JSON, with the same keys and one kind per connection. Unknown fields are
ignored, an unknown `type` is `invalid_request`. Both ends import this module; it costs msgspec alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from foretype_context.edit_models.question import EditQuestion, WindowEdit
from foretype_context.prompt.profile import Profile, Stop
from foretype_context.prompt.segments import Kind, Scope, Source

__all__ = [
    "DEADLINE_MS",
    "MAX_CHANGED",
    "MAX_FRAME_BYTES",
    "MAX_ID_CHARS",
    "SEGMENT_CACHE_BYTES",
    "VERSION",
    "Ack",
    "Cancel",
    "ChangeReason",
    "Changed",
    "ClientMessage",
    "Complete",
    "Delta",
    "Done",
    "Edited",
    "Error",
    "ErrorCode",
    "Feedback",
    "Finish",
    "GatewayMessage",
    "Goaway",
    "Hello",
    "Need",
    "NextEdit",
    "Profile",
    "RequestClass",
    "Stop",
    "Timings",
    "Usage",
    "WireSegment",
    "Workspace",
]

VERSION: Final = 1
MAX_FRAME_BYTES: Final = 1 << 20
DEADLINE_MS: Final = 10_000.0
"""Of a request that names none."""

MAX_ID_CHARS: Final = 64
SEGMENT_CACHE_BYTES: Final = 1 << 20
"""Size of the segment LRU that both ends of a connection run by the same rule (UTF-8 bytes of the texts)."""
MAX_CHANGED: Final = 1024
"""Documents that one `changed` names; who has more sends more frames."""
_MOST_KNOBS: Final = 64
_MOST_ITEMS: Final = 4096
"""Of any other list. In MessagePack a longer one is refused by its head, before a single item of it is made."""


class RequestClass(StrEnum):
    """Classes of work, highest first."""

    INTERACTIVE = "interactive"
    NEXT_EDIT = "next_edit"
    BLOCK = "block"
    CHAT = "chat"
    SPECULATIVE = "speculative"
    WARM = "warm"


class Finish(StrEnum):
    """Why a completion ended."""

    END_OF_MIDDLE = "end_of_middle"
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REFUSED = "refused"

    @property
    def is_whole(self) -> bool:
        """The model or a stop rule ended the text, so that what is missing is missing for good; tokens did not run out."""
        return self in (Finish.END_OF_MIDDLE, Finish.STOP)


class ErrorCode(StrEnum):
    """Every refusal a gateway can express on the wire."""

    INVALID_REQUEST = "invalid_request"
    TOKENIZER_MISMATCH = "tokenizer_mismatch"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    EXPIRED = "expired"
    ENGINE_UNAVAILABLE = "engine_unavailable"


class ChangeReason(StrEnum):
    EDIT = "edit"
    BRANCH = "branch"
    PULL = "pull"
    DELETE = "delete"


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of all messages: tagged by `type`."""


class Workspace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open folder; `repository` is BLAKE2b-128 of the root commit id, or of the path where there is none."""

    root: str
    repository: str = ""


class WireSegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A segment on the wire: exactly one of `digest` (16 bytes) and `text` is present."""

    kind: Kind
    scope: Scope
    source: Source = Source()
    digest: bytes | None = None
    text: str | None = None


class Hello(_Message, frozen=True, kw_only=True, tag="hello"):
    """The first message.

    Attributes:
        user: a pseudonym that telemetry is kept under, and may be deleted by.
        knobs: what the gateway may change about this client (`foretype_context.prompt.profile.KNOBS`, and `layout.NAME` for every
            layout that it can send); an experiment that needs more leaves it out.
    """

    v: int
    client: str = ""
    user: str = ""
    knobs: Annotated[list[str], msgspec.Meta(max_length=_MOST_KNOBS)] = []
    workspaces: Annotated[list[Workspace], msgspec.Meta(max_length=_MOST_ITEMS)] = []


SegmentT_co = TypeVar("SegmentT_co", covariant=True)


class Complete(_Message, Generic[SegmentT_co], frozen=True, kw_only=True, tag="complete", rename={"class_": "class"}):
    """Ask for a completion: with whole texts as a client asks (`Complete[Segment]`), with digests as it travels.

    Attributes:
        supersedes: id of the request that this one replaces; nothing else is cancelled by it.
        deadline_ms: milliseconds after receipt at which an answer is worth nothing any more.
        traceparent: the span of the client that this belongs to, as W3C Trace Context writes it; "" where nothing is traced.
    """

    id: str
    class_: RequestClass = RequestClass.INTERACTIVE
    supersedes: str | None = None
    document: str = ""
    version: int = 0
    language: str = ""
    segments: Annotated[Sequence[SegmentT_co], msgspec.Meta(max_length=_MOST_ITEMS)]
    max_tokens: int = 64
    stop: Stop = Stop()
    deadline_ms: float = DEADLINE_MS
    prompt_tokens: int | None = None
    """The client's own count; advisory. A difference is answered with `tokenizer_mismatch`."""
    traceparent: str = ""


class NextEdit(_Message, frozen=True, kw_only=True, tag="next_edit"):
    """Ask for the next edit; its class is `next_edit`. For a gateway whose profile says `next_edit`: another refuses it.

    Attributes:
        supersedes, deadline_ms, traceparent: as of :class:`Complete`.
    """

    id: str
    supersedes: str | None = None
    document: str = ""
    version: int = 0
    language: str = ""
    question: EditQuestion
    deadline_ms: float = DEADLINE_MS
    traceparent: str = ""


class Cancel(_Message, frozen=True, kw_only=True, tag="cancel"):
    id: str


class Changed(_Message, frozen=True, kw_only=True, tag="changed"):
    documents: Annotated[list[str], msgspec.Meta(max_length=MAX_CHANGED)]
    reason: ChangeReason


class Feedback(_Message, frozen=True, kw_only=True, tag="feedback"):
    batch: str
    events: Annotated[list[dict[str, object]], msgspec.Meta(max_length=_MOST_ITEMS)]


class Need(_Message, frozen=True, kw_only=True, tag="need"):
    """The gateway lacks these digests; the client answers with the same `complete` carrying their text."""

    id: str
    digests: list[bytes]


class Delta(_Message, frozen=True, kw_only=True, tag="delta"):
    """More text; `logprob` is the sum over its `tokens` tokens of their natural log-probabilities."""

    id: str
    text: str
    logprob: float = 0.0
    tokens: int = 0


class Edited(_Message, frozen=True, kw_only=True, tag="edited"):
    """The answer to a `next_edit`; `done` follows.

    Attributes:
        edit: of the window; None where there is none.
        reason: why there is none (:class:`foretype_context.edit_models.answer.Nothing`); "" beside an edit.
    """

    id: str
    edit: WindowEdit | None = None
    reason: str = ""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one completion; `cached_source` is `engine` (reported) or `directory` (predicted).

    The prompt's are 0 where nothing came of it: it was given up before its first token.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_source: str = ""
    generated_tokens: int = 0
    tokens_after_cancel: int = 0


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds by stage. The client fills `debounce`, `assemble` and `network`; the gateway the others."""

    debounce: float = 0.0
    assemble: float = 0.0
    network: float = 0.0
    admit: float = 0.0
    queue: float = 0.0
    prefill: float = 0.0
    decode_first: float = 0.0
    stream: float = 0.0
    finish: float = 0.0


class Done(_Message, frozen=True, kw_only=True, tag="done"):
    """The end of an answer; `logprob` is the sum over the `tokens` tokens that ended it and became no text, as an end token does."""

    id: str
    finish: Finish
    usage: Usage = Usage()
    timings_ms: Timings = Timings()
    logprob: float = 0.0
    tokens: int = 0


class Ack(_Message, frozen=True, kw_only=True, tag="ack"):
    """The batch is committed.

    Attributes:
        refused: of its events; an `error` before this names the first.
        store_text: the tenant has opted in to samples of text.
    """

    batch: str
    refused: int = 0
    store_text: bool = False


class Goaway(_Message, frozen=True, kw_only=True, tag="goaway"):
    grace_ms: float


class Error(_Message, frozen=True, kw_only=True, tag="error"):
    """A refusal; with `id` it ends that request, without it belongs to the connection, which lives on."""

    code: ErrorCode
    id: str | None = None
    field: str | None = None
    message: str = ""
    retry_after_ms: float | None = None


ClientMessage = Hello | Complete[WireSegment] | NextEdit | Cancel | Changed | Feedback
GatewayMessage = Profile | Need | Delta | Edited | Done | Ack | Goaway | Error
