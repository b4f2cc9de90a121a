"""What an operator promises: a request that should have been answered was, and in time. One counter holds both.

`foretype_objective_total{class, outcome}` counts the requests that the gateway owed an answer:

- `met`: its first text (or its end, where nothing was to be said) came within the objective of its class;
- `late`: it came after that, or its sender gave up waiting after that;
- `failed`: refused for load, lost with an engine, broken by a fault, or past its deadline without a text.

Availability is the share that did not fail; the objective on time is kept by `met` over all. What the sender withdrew in time, what was
wrong in itself, and what the sender's own budget refused was owed nothing and is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from foretype_backend.admission.outcomes import Reason
from foretype_backend.metrics.tallies import Counter


class PromiseOutcome(StrEnum):
    """Whether a promise was kept; the label `outcome`."""

    MET = "met"
    LATE = "late"
    FAILED = "failed"


_OWED_NOTHING: Final = frozenset({Reason.INVALID, Reason.MISMATCH, Reason.RATE_LIMITED})
_WITHDRAWN: Final = frozenset({Reason.CANCELLED, Reason.SUPERSEDED, Reason.DOCUMENT_LIMIT, Reason.DISCONNECTED})
_BROKEN: Final = frozenset({Reason.OVERLOADED, Reason.ENGINE_LOST, Reason.FAULT})


def judged(reason: Reason, *, first_text_s: float | None, whole_s: float, objective_s: float) -> PromiseOutcome | None:
    """Whether the promise to one request was kept; None where nothing was owed.

    Args:
        first_text_s: from its receipt; None where no text came.
        whole_s: from its receipt to its end.
        objective_s: promised from receipt to first text.
    """
    if reason in _OWED_NOTHING:
        return None
    if reason in _BROKEN or (reason is Reason.EXPIRED and first_text_s is None):
        return PromiseOutcome.FAILED
    waited_s = whole_s if first_text_s is None else first_text_s
    if waited_s > objective_s:
        return PromiseOutcome.LATE
    return None if first_text_s is None and reason in _WITHDRAWN else PromiseOutcome.MET


class ObjectiveMetrics:
    """Args: objectives in seconds to first text, by class and by the mode `fim`."""

    def __init__(self, registry: CollectorRegistry, objectives_s: Mapping[str, float]) -> None:
        self._counter = Counter(
            "foretype_objective",
            "Requests that were owed an answer: `met`, `late` by their class's objective, or `failed`. What was withdrawn in time,"
            " wrong in itself or over its sender's budget was owed nothing.",
            ["class", "outcome"],
            registry=registry,
        )
        self._promised = Gauge(
            "foretype_objective_seconds", "Promised from receipt to first text.", ["class"], registry=registry
        )
        # A counter that appears with its first event has no rate over it, and an alert would miss the first failures.
        self._children = {
            (name, kept): self._counter.labels(name, kept.value) for name in objectives_s for kept in PromiseOutcome
        }
        self._objectives_s: dict[str, float] = {}
        self.use(objectives_s)

    def use(self, objectives_s: Mapping[str, float]) -> None:
        """Promise something else from now on."""
        self._objectives_s = dict(objectives_s)
        for name, seconds in objectives_s.items():
            self._promised.labels(name).set(seconds)

    def ended(self, class_: str, reason: Reason, *, first_text_s: float | None, whole_s: float) -> None:
        """Count one request, once. A class without an objective is promised nothing."""
        objective_s = self._objectives_s.get(class_)
        if objective_s is None:
            return
        kept = judged(reason, first_text_s=first_text_s, whole_s=whole_s, objective_s=objective_s)
        if kept is not None:
            self._children[class_, kept].inc()
