"""Where the time of requests goes, by stage and class, as histograms; and whose text of a prompt was cached.

Stages are those of `timings_ms`, in the order of a request, with what lies outside of one: `network` is what clients measured beyond the
gateway's own stages, `authenticate` is paid by a connection or an HTTP request and not by class, `per_token` is the time of each token
after the first text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from foretype_context.prompt.segments import PlacedSegment, Scope
from foretype_wire.messages import RequestClass, Timings, Usage
from prometheus_client import CollectorRegistry

from foretype_backend.metrics.tallies import Counter, Histogram

STAGES: Final = (
    "network",
    "authenticate",
    "admit",
    "queue",
    "prefill",
    "decode_first",
    "per_token",
    "stream",
    "finish",
)
_IN_ENGINE: Final = ("prefill", "decode_first", "stream", "finish")
_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
_NO_CLASS: Final = ""
_MOST_MS: Final = 3_600_000
"""What a client says that is no number of milliseconds up to an hour is not counted: a sum would be spoilt for good."""


class StageMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "foretype_stage_seconds",
            "Time of requests by stage, those of `timings_ms` in docs/protocol.md. `per_token` is the time of one token after the"
            " first, `finish` that from the last text to the engine's release; `network` is what clients report of it.",
            ["stage", "class"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._scope_tokens = Counter(
            "foretype_scope_prompt_tokens",
            "Prompt tokens by whose text they are: `global`, `repository`, `file` or `session`.",
            ["scope"],
            registry=registry,
        )
        self._scope_cached = Counter(
            "foretype_scope_cached_tokens",
            "Of these prompt tokens, those that the engine had cached.",
            ["scope"],
            registry=registry,
        )
        self._by_scope = {
            scope: (self._scope_tokens.labels(scope.value), self._scope_cached.labels(scope.value)) for scope in Scope
        }
        self._children: dict[tuple[str, str], Any] = {}

    def ended(self, class_: RequestClass, timings: Timings, usage: Usage, placed: Sequence[PlacedSegment]) -> None:
        """Count one request, once, when it is over. Stages that it did not come to are not counted."""
        self._observe("admit", class_, timings.admit / 1000)
        self._observe("queue", class_, timings.queue / 1000)
        if not usage.prompt_tokens:  # the engine said nothing of it
            return
        for stage in _IN_ENGINE:
            self._observe(stage, class_, getattr(timings, stage) / 1000)
        if usage.generated_tokens > 1 and timings.stream > 0:
            self._observe("per_token", class_, timings.stream / 1000 / (usage.generated_tokens - 1))
        for scope, (tokens, cached) in cached_by_scope(placed, usage.cached_tokens).items():
            all_, had = self._by_scope[scope]
            all_.inc(tokens)
            had.inc(cached)

    def authenticated(self, seconds: float) -> None:
        """Count what it took to know who asks."""
        self._observe("authenticate", _NO_CLASS, seconds)

    def told_by_clients(self, events: Iterable[Mapping[str, object]]) -> None:
        """Count the network's part of what clients waited, from their events."""
        for event in events:
            stages = event.get("stages_ms") if event.get("event") == "result" else None
            network_ms = cast("Mapping[str, object]", stages).get("network") if isinstance(stages, Mapping) else None
            if isinstance(network_ms, bool) or not isinstance(network_ms, int | float):
                continue
            if 0 <= network_ms <= _MOST_MS:
                self._observe("network", _NO_CLASS, network_ms / 1000)

    def _observe(self, stage: str, class_: str, seconds: float) -> None:
        child = self._children.get((stage, class_))
        if child is None:
            child = self._children[stage, class_] = self._seconds.labels(stage, class_)
        child.observe(seconds)


def cached_by_scope(placed: Iterable[PlacedSegment], cached_tokens: int) -> dict[Scope, tuple[int, int]]:
    """Prompt tokens by scope, and how many of them lie in the first `cached_tokens`: a prefix cache has no other.

    Segments of one scope mostly stand together, and are counted together: each begins where the one before it ends.
    """
    found: dict[Scope, tuple[int, int]] = {}
    scope: Scope | None = None
    start = end = 0
    for one in placed:
        if one.segment.scope is not scope or one.start != end:
            if scope is not None:
                _add(found, scope, start, end, cached_tokens)
            scope, start = one.segment.scope, one.start
        end = one.end
    if scope is not None:
        _add(found, scope, start, end, cached_tokens)
    return found


def _add(found: dict[Scope, tuple[int, int]], scope: Scope, start: int, end: int, cached_tokens: int) -> None:
    tokens, cached = found.get(scope, (0, 0))
    found[scope] = tokens + end - start, cached + max(0, min(end, cached_tokens) - start)
