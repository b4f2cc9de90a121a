"""How much a latency bench measures, and where its figures are kept while it runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from foretype_eval.gateway import GatewayOptions
from foretype_eval.statistics import percentiles

Progress = Callable[[str, int, int], None]
"""Told the name of a step, how much is done and how much there is."""


class Part(StrEnum):
    """Parts of the bench; a run of some leaves the rows of the others empty."""

    START = "start"
    PROMPTS = "prompts"
    LONG_PROMPTS = "long-prompts"
    CANCEL = "cancel"
    EDITOR = "editor"
    NEXT_EDIT = "next-edit"
    FIRST_SIGHT = "first-sight"


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many measurements of each kind; at least 200 where a p99 is promised."""

    cold: int = 100
    warm: int = 300
    cold_6000: int = 25
    warm_6000: int = 100
    cancel_decode: int = 200
    cancel_prefill: int = 100
    typethrough: int = 300
    shown: int = 60
    didchange: int = 400
    next_edit: int = 240
    first_sights: int = 7
    starts: int = 3


QUICK: Final = Counts(
    cold=6,
    warm=24,
    cold_6000=2,
    warm_6000=8,
    cancel_decode=12,
    cancel_prefill=6,
    typethrough=24,
    shown=6,
    didchange=30,
    next_edit=48,
    first_sights=1,
    starts=1,
)


class LatencyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        seed: which files and lines are typed.
        prompt_tokens: budget of the ordinary rows; prompts below three quarters of it are not counted.
        long_prompt_tokens: budget of the `_6000` rows; left out where the model's context is shorter.
        parts: what to measure; everything by default.
    """

    counts: Counts = Counts()
    seed: int = 0
    prompt_tokens: int = 2000
    long_prompt_tokens: int = 6000
    parts: frozenset[Part] = frozenset(Part)
    gateway: GatewayOptions = GatewayOptions()


@dataclass(slots=True)
class LatencyFigures:
    """Measurements by name, in milliseconds, with what else is worth knowing about them."""

    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[str] = field(default_factory=list[str])

    def add(self, name: str, value_ms: float) -> None:
        self.samples[name].append(value_ms)

    def count(self, name: str, by: int = 1) -> None:
        self.facts[name] = self.facts.get(name, 0) + by

    def row(self, name: str) -> dict[str, Any]:
        return percentiles(self.samples.get(name, []))._asdict()
