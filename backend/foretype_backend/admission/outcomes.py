"""Every outcome a request can have, and how each door says it.

One table, so that the WebSocket and the HTTP doors never disagree. A :class:`Reason` says how a request ended, a
:class:`Decision` what admission decided about it; each is also the label of its metric.

| reason | WebSocket | HTTP |
|---|---|---|
| end_of_middle, stop, length | `done{finish}` | 200 |
| expired after the first token | `done{finish: expired}` | 200, finish `length` |
| expired before it | `error{expired}` | 408 |
| cancelled, superseded, document_limit | `done{finish: cancelled}` | 499 |
| disconnected | nobody is left to answer | 499 |
| rate_limited | `error{rate_limited, retry_after_ms}` | 429 + Retry-After |
| overloaded | `error{overloaded, retry_after_ms}` | `/v1/completions`, `/infill`: 200 and nothing; chat: 503 + Retry-After |
| invalid | `error{invalid_request, field}`; the connection lives | 400 |
| mismatch | `error{tokenizer_mismatch}` | 400 |
| engine_lost | `error{engine_unavailable}` | 503 |
| fault | `error{engine_unavailable}`, and a traceback in the log | 500 |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from foretype_wire.messages import ErrorCode, Finish


class Reason(StrEnum):
    """Why a request ended; the label of `foretype_requests_total`.

    Attributes:
        end_of_middle: The model ended the text.
        stop: A stop rule ended it.
        length: It has as many tokens as it may have.
        cancelled: The client withdrew it.
        superseded: The client named it in `supersedes` of a later one.
        document_limit: A third interactive request of one document withdrew it.
        disconnected: The connection ended.
        expired: Its deadline passed before the first token.
        rate_limited: The tenant, team or user is over its budget.
        overloaded: It was shed, or a queue was full.
        invalid: A frame or a field is wrong; the field is named.
        mismatch: The prompt was made with another tokenizer.
        engine_lost: The engine went away, and did not come back in time.
        fault: A fault of the gateway's own, which its log names.
    """

    END_OF_MIDDLE = "end_of_middle"
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    DOCUMENT_LIMIT = "document_limit"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    INVALID = "invalid"
    MISMATCH = "mismatch"
    ENGINE_LOST = "engine_lost"
    FAULT = "fault"


FINISHES: Final = {
    Reason.END_OF_MIDDLE: Finish.END_OF_MIDDLE,
    Reason.STOP: Finish.STOP,
    Reason.LENGTH: Finish.LENGTH,
    Reason.CANCELLED: Finish.CANCELLED,
    Reason.SUPERSEDED: Finish.CANCELLED,
    Reason.DOCUMENT_LIMIT: Finish.CANCELLED,
    Reason.DISCONNECTED: Finish.CANCELLED,
    Reason.EXPIRED: Finish.EXPIRED,
}
"""Reasons that end a request with `done`; all others end it with `error`."""

HTTP_STATUS: Final = {
    Reason.CANCELLED: 499,
    Reason.SUPERSEDED: 499,
    Reason.DOCUMENT_LIMIT: 499,
    Reason.DISCONNECTED: 499,
    Reason.EXPIRED: 408,
    Reason.RATE_LIMITED: 429,
    Reason.OVERLOADED: 503,
    Reason.INVALID: 400,
    Reason.MISMATCH: 400,
    Reason.ENGINE_LOST: 503,
    Reason.FAULT: 500,
}
"""Status of the HTTP doors where nothing was generated; every other reason is 200."""

CODES: Final = {
    Reason.EXPIRED: ErrorCode.EXPIRED,
    Reason.RATE_LIMITED: ErrorCode.RATE_LIMITED,
    Reason.OVERLOADED: ErrorCode.OVERLOADED,
    Reason.INVALID: ErrorCode.INVALID_REQUEST,
    Reason.MISMATCH: ErrorCode.TOKENIZER_MISMATCH,
    Reason.ENGINE_LOST: ErrorCode.ENGINE_UNAVAILABLE,
    Reason.FAULT: ErrorCode.ENGINE_UNAVAILABLE,
}


class Decision(StrEnum):
    """What admission decided about a request; the label of `foretype_admission_total`."""

    STARTED = "started"
    STARTED_AFTER_WAIT = "started_after_wait"
    SUPERSEDED = "superseded"
    DOCUMENT_LIMIT = "document_limit"
    CANCELLED = "cancelled"
    DISCONNECTED = "disconnected"
    EXPIRED_ON_ARRIVAL = "expired_on_arrival"
    EXPIRED_WAITING = "expired_waiting"
    RATE_LIMITED = "rate_limited"
    QUEUE_FULL = "queue_full"
    DISPLACED = "displaced"
    PREDICTED_LATE = "predicted_late"
    LATE_IN_QUEUE = "late_in_queue"
    CLASS_SHED = "class_shed"
    FREE_SHED = "free_shed"
    KV_FULL = "kv_full"


_REASONS: Final = {
    Decision.SUPERSEDED: Reason.SUPERSEDED,
    Decision.DOCUMENT_LIMIT: Reason.DOCUMENT_LIMIT,
    Decision.CANCELLED: Reason.CANCELLED,
    Decision.DISCONNECTED: Reason.DISCONNECTED,
    Decision.EXPIRED_ON_ARRIVAL: Reason.EXPIRED,
    Decision.EXPIRED_WAITING: Reason.EXPIRED,
    Decision.RATE_LIMITED: Reason.RATE_LIMITED,
}


SHED: Final = frozenset(
    {
        Decision.QUEUE_FULL,
        Decision.DISPLACED,
        Decision.PREDICTED_LATE,
        Decision.LATE_IN_QUEUE,
        Decision.CLASS_SHED,
        Decision.FREE_SHED,
        Decision.KV_FULL,
    }
)
"""Decisions against a request because of load alone."""


def reason_of(decision: Decision) -> Reason:
    """How a request ends that was decided about like this; what is shed is `overloaded`."""
    return _REASONS.get(decision, Reason.OVERLOADED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An outcome that the wire says as `error`."""

    code: ErrorCode
    message: str
    field: str | None = None
    retry_after_ms: float | None = None


def refusal(reason: Reason, message: str, *, field: str | None = None, retry_after_ms: float | None = None) -> Refusal:
    """The refusal for `reason`. Raises KeyError for a reason that ends with `done`."""
    return Refusal(code=CODES[reason], message=message, field=field, retry_after_ms=retry_after_ms)
