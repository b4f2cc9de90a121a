"""What a suggestion was made from, as data: the pieces of the prompt, how much of each the engine had cached, what was left out."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from foretype_context.prompt.plan import Plan
from foretype_context.prompt.segments import Scope, Source

from foretype_client.flow.inflight import Flight
from foretype_client.flow.suggestion import Suggestion

_KEPT: Final = 32


def cached_of(start: int, end: int, cached_tokens: int | None) -> int | None:
    """How many tokens of `[start, end)` were cached, given that a cache holds the first tokens of a prompt; None if nobody knows."""
    return None if cached_tokens is None else max(0, min(end, cached_tokens) - start)


def plan_as_object(plan: Plan, cached_tokens: int | None) -> dict[str, object]:
    """Segments with their token ranges, most stable first, and everything that was dropped; names and figures, never text."""
    return {
        "layout": plan.layout,
        "strategy": plan.strategy,
        "notes": plan.notes,
        "kind": plan.kind,
        "budget_tokens": plan.budget_tokens,
        "prompt_tokens": plan.prompt_tokens,
        "cached_tokens": cached_tokens,
        "segments": [
            {
                "kind": placed.segment.kind,
                "scope": placed.segment.scope,
                "source": _source(placed.segment.source),
                "tokens": placed.tokens,
                "start": placed.start,
                "end": placed.end,
                "cached": cached_of(placed.start, placed.end, cached_tokens),
            }
            for placed in plan.segments
        ],
        "scopes": scopes_of(plan, cached_tokens),
        "dropped": [
            {"kind": drop.kind, "source": _source(drop.source), "tokens": drop.tokens, "reason": drop.reason}
            for drop in plan.dropped
        ],
    }


def scopes_of(plan: Plan, cached_tokens: int | None) -> dict[str, dict[str, int | None]]:
    """Per scope, most stable first: how many tokens of the prompt have that scope, and how many of these the engine had cached."""
    counted: dict[str, dict[str, int | None]] = {}
    for scope in Scope:
        placed = [one for one in plan.segments if one.segment.scope is scope]
        hits = [cached_of(one.start, one.end, cached_tokens) or 0 for one in placed]
        tokens = sum(one.tokens for one in placed)
        counted[scope.value] = {"tokens": tokens, "cached": None if cached_tokens is None else sum(hits)}
    return counted


def _source(source: Source) -> dict[str, object]:
    return {
        "document": source.document,
        "path": source.path,
        "version": source.version,
        "start": source.start,
        "end": source.end,
    }


class Explanations:
    """The last suggestions and the requests behind them, to explain how a suggestion came about."""

    def __init__(self) -> None:
        self._flights: OrderedDict[str, Flight] = OrderedDict()
        self._suggestions: OrderedDict[str, Suggestion] = OrderedDict()

    def landed(self, flight: Flight) -> None:
        """Remember a request that has text, or is over."""
        _keep(self._flights, flight.id, flight)

    def answered(self, suggestion: Suggestion) -> None:
        _keep(self._suggestions, suggestion.id, suggestion)

    def of(self, id: str | None) -> dict[str, Any] | None:
        """The suggestion `id`, or without one the last that was given out; None if it is not known (any more).

        `plan` is null where no request made the suggestion (a local candidate), or where the request was too long ago.
        """
        suggestion = self._suggestions.get(id) if id is not None else next(reversed(self._suggestions.values()), None)
        if suggestion is None:
            return None
        flight = self._flights.get(suggestion.request_id)
        plan = None if flight is None else flight.plan
        usage = None if flight is None or flight.done is None else flight.done.usage
        cached_tokens = usage.cached_tokens if usage is not None and usage.cached_source else None
        return {
            "id": suggestion.id,
            "origin": suggestion.source,
            "characters": len(suggestion.text),
            "logprob": suggestion.logprob,
            "request": suggestion.request_id,
            "class": None if flight is None else flight.class_,
            "cached_source": None if usage is None else usage.cached_source,
            "generated_tokens": None if usage is None else usage.generated_tokens,
            "timings_ms": {name: round(ms, 3) for name, ms in ({} if flight is None else flight.timings_ms()).items()},
            "sources": [] if flight is None else [note._asdict() for note in flight.notes],
            "plan": None if plan is None else plan_as_object(plan, cached_tokens),
        }


def _keep(kept: OrderedDict[str, Any], key: str, value: object) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _KEPT:
        kept.popitem(last=False)
