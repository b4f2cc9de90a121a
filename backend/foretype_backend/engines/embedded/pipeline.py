"""What the embedded engine's process needs of the library that computes: :mod:`.openvino_pipeline`, or :mod:`.llama_pipeline`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from foretype_backend.engines.embedded.gguf_header import ModelHeader
from foretype_backend.engines.embedded.ipc import Submit


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Sizes of the pipeline; see :class:`foretype_backend.engines.embedded.ipc.Configure`.

    Attributes:
        model: a GGUF file.
        pool_blocks: of the key-value cache.
        prepared_dir: where a library may keep what it makes of the file; None keeps nothing.
    """

    model: str
    pool_blocks: int
    chunk_tokens: int
    max_sequences: int
    threads: int
    device: str = "CPU"
    prompt_lookup_tokens: int = 0
    prepared_dir: Path | None = None


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

    def settle(self) -> None:
        """It has run once: give back the memory that only this needed."""
        ...


class Library(Protocol):
    """What makes pipelines."""

    @property
    def reads_every_type(self) -> bool:
        """Whether weights of every type that a header may have are what the file says; else a copy is made of some."""
        ...

    def first_gpu(self) -> str | None:
        """Its name of the first GPU of this machine that it computes with; None where there is none."""
        ...

    def block_tokens(self, device: str) -> int:
        """Tokens in a block of the key-value cache."""
        ...

    def block_bytes(self, header: ModelHeader, device: str) -> int: ...

    def open(self, config: PipelineConfig) -> Pipeline:
        """Raises PipelineError."""
        ...
