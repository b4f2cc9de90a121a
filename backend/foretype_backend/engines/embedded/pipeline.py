"""What the embedded engine's process needs of a pipeline; the real one is :mod:`.openvino_pipeline`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from foretype_backend.engines.embedded.ipc import Submit

__all__ = ["Pipeline", "Read"]


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

    def add(self, request: Submit) -> None: ...

    def drop(self, job_id: int) -> None:
        """Cancel; takes effect in the next step."""
        ...

    def step(self) -> tuple[dict[int, Read], int]:
        """Compute one step; what there is to read, and the tokens that were computed for dropped requests."""
        ...
