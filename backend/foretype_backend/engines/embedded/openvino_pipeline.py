"""The thin shell over OpenVINO GenAI's continuous batching pipeline. Only the engine's own process imports this.

`step()` holds the interpreter lock for its whole duration, which is why it lives in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.modules.setdefault("openvino.tools.ovc", None)  # pyright: ignore[reportArgumentType]
# The converter of models, which the package does without where it is missing: a fifth of the import, and 8 MiB.

import openvino as ov
import openvino_genai as genai

from foretype_backend.engines.embedded.gguf_header import ModelHeader, f16_kv_block_bytes, kv_block_bytes
from foretype_backend.engines.embedded.ipc import Submit
from foretype_backend.engines.embedded.openvino_model import leave_pages, open_model
from foretype_backend.engines.embedded.pipeline import PipelineConfig, Read
from foretype_backend.errors import PipelineError

BLOCK_TOKENS: Final = 32
"""Tokens in a block of the key-value cache, on CPU with the u8 cache that is the default there."""
GPU_BLOCK_TOKENS: Final = 16
"""The same on a GPU, whose default is f16. From OpenVINO's sources; nobody has tried it here."""


class OpenVinoLibrary:
    """OpenVINO GenAI as a :class:`~foretype_backend.engines.embedded.pipeline.Library`."""

    reads_every_type = False

    def first_gpu(self) -> str | None:
        return next((str(name) for name in ov.Core().available_devices if str(name).startswith("GPU")), None)

    def block_tokens(self, device: str) -> int:
        return BLOCK_TOKENS if device == "CPU" else GPU_BLOCK_TOKENS

    def block_bytes(self, header: ModelHeader, device: str) -> int:
        return (kv_block_bytes if device == "CPU" else f16_kv_block_bytes)(header, self.block_tokens(device))

    def open(self, config: PipelineConfig) -> OpenVinoPipeline:
        return OpenVinoPipeline(config)


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
        if config.prompt_lookup_tokens:
            properties["prompt_lookup"] = True
        self._lookup_tokens = config.prompt_lookup_tokens

        def open_path(path: Path, **more: object) -> Any:
            with _native_errors():
                return genai.ContinuousBatchingPipeline(str(path), scheduler, config.device, properties | more)

        self._pipeline: Any = open_model(Path(config.model), config.prepared_dir, open_path)
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
            config.set_eos_token_id(0)  # a file may name none, and its -1 is refused
        self._ticket += 1
        if request.temperature > 0:
            config.do_sample = True
            config.temperature = request.temperature
            config.rng_seed = self._ticket
        if request.begins:
            config.structured_output_config = _beginning(request.begins)
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

    def settle(self) -> None:
        leave_pages()

    def cache_bytes(self) -> int:
        """Bytes of the whole key-value cache once it is allocated; 0 before the first step."""
        return int(self._pipeline.get_metrics().kv_cache_size_in_bytes)


def _beginning(text: str) -> Any:
    """Any text that begins with `text`; with a line break where `text` holds one."""
    parts = genai.StructuredOutputConfig
    first = parts.Regex(r"\r?\n") if "\n" in text else parts.ConstString(text)
    return parts(structural_tags_config=parts.Concat([first, parts.AnyText()]))


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
