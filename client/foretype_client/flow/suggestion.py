"""What the flow hands to an editor, and what it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec
from foretype_wire.messages import Finish, Usage


class Origin(StrEnum):
    """Where a suggestion came from."""

    NETWORK = "network"
    CACHE = "cache"
    IN_FLIGHT = "in_flight"
    SPECULATIVE = "speculative"
    LOCAL = "local"


class Outcome(StrEnum):
    """Why a request ended without a suggestion, beside the reasons of policy; also the metric label."""

    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    EMPTY = "empty"
    FILTERED = "filtered"
    LOW_CONFIDENCE = "low_confidence"
    BROKEN = "broken"
    FOREIGN = "foreign"
    REFUSED_BEFORE = "refused_before"
    SELECTED_MISMATCH = "selected_mismatch"
    OFFLINE = "offline"
    SHED = "shed"
    NOT_READY = "not_ready"
    GATEWAY_GONE = "gateway_gone"
    FAULT = "fault"
    CLOSED = "closed"


class SelectedCompletion(NamedTuple):
    """The item selected in the editor's popup: `[start, end)` of the document would become `text`."""

    start: int
    end: int
    text: str


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """One suggestion at one position.

    Attributes:
        id: names it in feedback; stays the same while it is typed through.
        text: what to insert at the cursor.
        replaces: characters right of the cursor that `text` replaces.
        source: where it came from.
        request_id: request that produced it; empty for a local candidate.
        finish: why generation ended; None while it still runs, or for a local candidate.
        usage: token counts, once the gateway has told them.
        timings_ms: milliseconds by stage (`debounce`, `assemble`, `network`, `admit`, `queue`, `prefill`, `decode_first`,
            `stream`, `finish`), `ttft` (request sent to first delta) and `shown` (asked to answered).
        logprob: mean natural log-probability per token; None where unknown.
        parses: whether what was found adds no error of syntax at its place, even if `text` is what was left of it; None where
            nobody can tell.
    """

    id: str
    text: str
    replaces: int = 0
    source: Origin
    request_id: str = ""
    finish: Finish | None = None
    usage: Usage | None = None
    timings_ms: dict[str, float] = {}
    logprob: float | None = None
    parses: bool | None = None


class FlowState(StrEnum):
    READY = "ready"
    STARTING = "starting"
    OFFLINE = "offline"
    PAUSED = "paused"
    SPARED = "spared"
    CLOSED = "closed"


class FlowStatus(NamedTuple):
    """The flow at one moment, for a status line and for metrics.

    Attributes:
        state, detail: what the user should know; `detail` names the last refusal or failure.
        asked: calls of `suggest`.
        requests: sent to the gateway. `cancelled` of them were given up because the user went another way.
        cache_hits, in_flight_reuses, local: answers that needed no request of their own.
        cached_share: cached part of all prompt tokens so far, 0–1; None before the first answer.
        counts: how each `suggest` ended, by label (origins, policy's skip reasons, outcomes).
        running: requests not yet ended.
    """

    state: FlowState
    detail: str
    asked: int
    requests: int
    cancelled: int
    cache_hits: int
    in_flight_reuses: int
    local: int
    cached_share: float | None
    last_ttft_ms: float | None
    last_shown_ms: float | None
    counts: dict[str, int]
    running: int


@dataclass(slots=True)
class FlowCounters:
    """Counters behind a status."""

    counts: Counter[str] = field(default_factory=Counter[str])
    asked: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    last_ttft_ms: float | None = None
    last_shown_ms: float | None = None
    detail: str = ""

    def used(self, usage: Usage) -> None:
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens

    def ended(self, result: Suggestion | str) -> None:
        """One `suggest` is over."""
        if isinstance(result, Suggestion):
            self.counts[result.source] += 1
            self.last_shown_ms = result.timings_ms["shown"]
        else:
            self.counts[result] += 1

    def status(self, state: FlowState, detail: str, *, requests: int, cancelled: int, running: int) -> FlowStatus:
        return FlowStatus(
            state=state,
            detail=detail or self.detail,
            asked=self.asked,
            requests=requests,
            cancelled=cancelled,
            cache_hits=self.counts[Origin.CACHE] + self.counts[Origin.SPECULATIVE],
            in_flight_reuses=self.counts[Origin.IN_FLIGHT],
            local=self.counts[Origin.LOCAL],
            cached_share=self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None,
            last_ttft_ms=self.last_ttft_ms,
            last_shown_ms=self.last_shown_ms,
            counts=dict(self.counts),
            running=running,
        )
