"""What the embedded engine's process needs of a pipeline; the real one is :mod:`.openvino_pipeline`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

__all__ = ["Pipeline", "Read", "Sampling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    max_tokens: int
    end_token_ids: frozenset[int]
    temperature: float


class Read(NamedTuple):
    """What there was to read of a request after a step.

    Attributes:
        token_ids, logprobs: of equal length, an end token included.
        done: the pipeline finished it.
        ignored: done, because it does not fit into the cache.
    """

    token_ids: list[int]
    logprobs: list[float]
    done: bool = False
    ignored: bool = False


class Pipeline(Protocol):
    """What the engine's process needs of a pipeline. `add` and `step` raise PipelineError."""

    def add(self, job_id: int, token_ids: Sequence[int], sampling: Sampling) -> None: ...

    def drop(self, job_id: int) -> None:
        """Cancel; takes effect in the next step."""
        ...

    def step(self) -> tuple[dict[int, Read], int]:
        """Compute one step; what there is to read, and the tokens that were computed for dropped requests."""
        ...
