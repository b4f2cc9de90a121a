"""The words between the engine's process and its scheduler: requests, limits, actions, endings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from foretype_backend.prefix.block_keys import BlockKeys


class Ending(StrEnum):
    """Why a request ended; also the metric label."""

    COMPLETED = "completed"  # the pipeline finished it
    ABORTED = "aborted"  # its caller wants it no more
    EXPIRED = "expired"  # not started before its deadline
    DROPPED = "dropped"  # a warm-up under load
    REFUSED = "refused"  # the pipeline ignored it although nobody cancelled it: it did not fit
    LOST = "lost"  # the pipeline threw and was rebuilt


class Stage(Enum):
    """Where a request is."""

    WAITING = auto()
    PREFILL = auto()
    DECODE = auto()


@dataclass(slots=True, kw_only=True, eq=False)
class EngineJob:
    """A request as the scheduler sees it; what stands below `warm` is the scheduler's own book of it.

    Attributes:
        keys: chained block keys of the prompt, from :func:`foretype_backend.prefix.block_keys.block_keys`.
        priority: lower first (0 interactive … 5 warm).
        deadline: on the caller's clock, seconds; None waits for ever.
        warm: computes the prefix for later; nobody waits for it.
    """

    id: int
    prompt_tokens: int
    keys: BlockKeys
    max_tokens: int = 1
    priority: int = 0
    deadline: float | None = None
    warm: bool = False
    order: int = field(default=0, init=False)
    stage: Stage = field(default=Stage.WAITING, init=False)
    first_cached_tokens: int | None = field(default=None, init=False)
    computed_tokens: int = field(default=0, init=False)
    produced_tokens: int = field(default=0, init=False)
    overtaken: int = field(default=0, init=False)
    waits_for: set[int] = field(default_factory=set[int], init=False)
    was_held: bool = field(default=False, init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """Sizes of the pipeline and bounds of fairness.

    Attributes:
        chunk_tokens: tokens computed in one step at most.
        max_sequences: requests in the pipeline at once.
        reserved_sequences: of these, kept free for priorities below `reserved_below`.
        pool_blocks: blocks of the key-value cache.
        max_overtakes: how often a request may be overtaken or preempted.
        head_start_tokens: tokens that a request which preempted another produces before that one comes back.
        max_warm: warm-ups that may wait.
    """

    chunk_tokens: int = 128
    max_sequences: int = 8
    reserved_sequences: int = 2
    reserved_below: int = 3
    pool_blocks: int = 3000
    max_overtakes: int = 6
    head_start_tokens: int = 16
    max_warm: int = 4


class Add(NamedTuple):
    """Add the request to the pipeline."""

    id: int


class Drop(NamedTuple):
    """Cancel the request's handle in the pipeline. It may be added again later, under a new handle."""

    id: int


class End(NamedTuple):
    """The request is over; said exactly once for each."""

    id: int
    ending: Ending


Action = Add | Drop | End


class Produced(NamedTuple):
    """What a step did for one request in the pipeline."""

    tokens: int
    ending: Ending | None = None
