"""The thin shell over OpenVINO GenAI's continuous batching pipeline. Only the engine's own process imports this.

`step()` holds the interpreter lock for its whole duration, which is why it lives in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

sys.modules.setdefault("openvino.tools.ovc", None)  # pyright: ignore[reportArgumentType]
# The converter of models, which the package does without where it is missing: a fifth of the import, and 8 MiB.

import openvino as ov
import openvino_genai as genai

from foretype_backend.engines.embedded.ipc import Submit
from foretype_backend.engines.embedded.pipeline import Read
from foretype_backend.errors import PipelineError

__all__ = ["BLOCK_TOKENS", "GPU_BLOCK_TOKENS", "OpenVinoPipeline", "PipelineConfig", "first_gpu", "library_versions"]

BLOCK_TOKENS: Final = 32
"""Tokens in a block of the key-value cache, on CPU with the u8 cache that is the default there."""
GPU_BLOCK_TOKENS: Final = 16
"""The same on a GPU, whose default is f16. From OpenVINO's sources; nobody has tried it here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Sizes of the pipeline; see :class:`foretype_backend.engines.embedded.ipc.Configure`.

    Attributes:
        model: a GGUF file, or a folder that such a file was saved to.
        save: write what the library makes of the file beside it, as such a folder's contents.
    """

    model: str
    save: bool = False
    pool_blocks: int
    chunk_tokens: int
    max_sequences: int
    threads: int
    device: str = "CPU"
    prompt_lookup_tokens: int = 0


def first_gpu() -> str | None:
    """OpenVINO's name of the first GPU of this machine that it computes with; None where it names none."""
    return next((str(name) for name in ov.Core().available_devices if str(name).startswith("GPU")), None)


def library_versions() -> str:
    """Who makes pipelines here: what one version has saved is not for another."""
    return f"{ov.get_version()} {genai.get_version()}"


class OpenVinoPipeline:
    """The real pipeline."""

    def __init__(self, config: PipelineConfig) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = True
        # `cache_size` takes whole gigabytes only; the number of blocks bounds the memory exactly
        scheduler.num_kv_blocks = config.pool_blocks
        scheduler.max_num_batched_tokens = config.chunk_tokens
        scheduler.max_num_seqs = config.max_sequences
        scheduler.dynamic_split_fuse = True  # without it a prompt longer than a chunk throws out of step()
        properties: dict[str, object] = {"PERFORMANCE_HINT": "LATENCY"}
        if config.device == "CPU":
            properties["INFERENCE_NUM_THREADS"] = config.threads
            # a pinned thread waits for its core while another is free: 33 tokens took 509 ms instead of 308 on a busy machine
            properties["ENABLE_CPU_PINNING"] = False
        if config.save:
            properties["enable_save_ov_model"] = True
        if config.prompt_lookup_tokens:
            properties["prompt_lookup"] = True
        self._lookup_tokens = config.prompt_lookup_tokens
        with _native_errors():
            self._pipeline: Any = genai.ContinuousBatchingPipeline(config.model, scheduler, config.device, properties)
        self._handles: dict[int, Any] = {}
        self._dropped: list[Any] = []
        self._ticket = 0

    def add(self, request: Submit) -> None:
        config = genai.GenerationConfig()
        config.max_new_tokens = request.max_tokens
        config.logprobs = 1  # at 0 every log-probability reads 0.0
        if request.end_token_ids:
            # set both: with drafts the pipeline's own default is "no end", and stop ids are ignored under ignore_eos
            config.eos_token_id = min(request.end_token_ids)
            config.stop_token_ids = set(request.end_token_ids)
        else:
            config.ignore_eos = True
            config.set_eos_token_id(0)  # a saved folder names none, and its -1 is refused
        self._ticket += 1
        if request.temperature > 0:
            config.do_sample = True
            config.temperature = request.temperature
            config.rng_seed = self._ticket
        if self._lookup_tokens:
            config.num_assistant_tokens = self._lookup_tokens
            config.max_ngram_size = 3
        prompt = ov.Tensor(np.array([request.token_ids], dtype=np.int64))
        with _native_errors():
            self._handles[request.id] = self._pipeline.add_request(self._ticket, prompt, config)

    def drop(self, job_id: int) -> None:
        handle = self._handles.pop(job_id)
        handle.cancel()
        self._dropped.append(handle)

    def step(self) -> tuple[dict[int, Read], int]:
        with _native_errors():
            self._pipeline.step()
        discarded = sum(len(_read(handle).token_ids) for handle in self._dropped)
        self._dropped.clear()
        reads: dict[int, Read] = {}
        for job_id, handle in list(self._handles.items()):
            read = _read(handle)
            if read.done:
                del self._handles[job_id]
            if read.done or read.token_ids:
                reads[job_id] = read
        return reads, discarded

    def cache_bytes(self) -> int:
        """Bytes of the whole key-value cache once it is allocated; 0 before the first step."""
        return int(self._pipeline.get_metrics().kv_cache_size_in_bytes)


@contextmanager
def _native_errors() -> Generator[None]:
    """C++ exceptions arrive as whatever Python type fits their own (a missing tensor is an IndexError); make them one."""
    try:
        yield
    except (RuntimeError, ValueError, IndexError, ArithmeticError, MemoryError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[-1] if lines else type(error).__name__
        raise PipelineError("not enough memory" if isinstance(error, MemoryError) else said) from error


def _read(handle: Any) -> Read:
    token_ids: list[int] = []
    logprobs: list[float] = []
    while handle.can_read():
        outputs = handle.read()
        if not outputs:  # after a cancel there is something to read, and it is empty
            break
        for output in outputs.values():
            token_ids += output.generated_ids
            logprobs += output.generated_log_probs
    status = handle.get_status()
    ignored = status == genai.GenerationStatus.IGNORED
    return Read(token_ids, logprobs, ignored or status != genai.GenerationStatus.RUNNING, ignored)
