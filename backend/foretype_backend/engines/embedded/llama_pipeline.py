"""llama.cpp as a pipeline: steps of one chunk over sequences that share what they have in common. Only the engine's own process imports this.

A request is a sequence of the cache. When it is over its tokens stay, until somebody needs the room: a prompt that begins as one of
them shares that beginning, token by token. What was used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foretype_backend.engines.beginnings import Beginning, Pieces
from foretype_backend.engines.embedded.gguf_header import ModelHeader, f16_kv_block_bytes
from foretype_backend.engines.embedded.ipc import Submit
from foretype_backend.engines.embedded.llama_library import LlamaContext, LlamaInterface
from foretype_backend.engines.embedded.pipeline import PipelineConfig, Read
from foretype_backend.errors import PipelineError

BLOCK_TOKENS: Final = 32
"""It keeps single tokens. Blocks are what the scheduler counts in, for fewer keys of a prompt."""
_KEPT_SEQUENCES: Final = 64
"""Of requests that are over; each step looks at the places of all sequences."""


class LlamaLibrary:
    """llama.cpp as a :class:`~foretype_backend.engines.embedded.pipeline.Library`."""

    reads_every_type = True

    def __init__(self) -> None:
        self._interface = LlamaInterface()

    def first_gpu(self) -> str | None:
        return "GPU" if self._interface.has_gpu else None

    def block_tokens(self, device: str) -> int:
        return BLOCK_TOKENS

    def block_bytes(self, header: ModelHeader, device: str) -> int:
        return f16_kv_block_bytes(header, BLOCK_TOKENS)

    def open(self, config: PipelineConfig) -> LlamaPipeline:
        return LlamaPipeline(self._interface, config)


@dataclass(slots=True, eq=False)
class _Sequence:
    """What a sequence of the cache holds: the first `computed` of `tokens`, which are a prompt, and room for its answer."""

    id: int
    tokens: NDArray[np.int32]
    computed: int

    def shared(self, prompt: NDArray[np.int32]) -> int:
        """Tokens with which a prompt begins, too; less than all of it, since the last one must be computed to go on from."""
        most = min(self.computed, len(prompt) - 1)
        different = self.tokens[:most] != prompt[:most]
        return int(different.argmax()) if different.any() else most


@dataclass(slots=True, eq=False)
class _Job:
    """A request under way.

    Attributes:
        known: tokens of the prompt and of the answer so far.
        beginning: what is to come first of the answer.
    """

    submit: Submit
    sequence: _Sequence
    known: int
    random: np.random.Generator
    beginning: Beginning

    @property
    def missing(self) -> int:
        return self.known - self.sequence.computed

    @property
    def produced(self) -> int:
        return self.known - len(self.submit.token_ids)


class LlamaPipeline:
    """The pipeline of the second library."""

    def __init__(self, interface: LlamaInterface, config: PipelineConfig) -> None:
        if config.prompt_lookup_tokens:
            raise PipelineError("llama.cpp drafts nothing from the prompt here; set prompt_lookup_tokens to 0")
        gpu = None
        if config.device != "CPU":
            if not interface.has_gpu:
                raise PipelineError("the package xllamacpp was built without graphics processors")
            gpu = int(config.device.partition(".")[2] or 0)
        sequences = _KEPT_SEQUENCES + config.max_sequences
        self._context: LlamaContext = interface.open(
            config.model,
            tokens=config.pool_blocks * BLOCK_TOKENS,
            batch_tokens=config.chunk_tokens,
            sequences=sequences,
            threads=config.threads,
            gpu=gpu,
        )
        self._chunk_tokens = config.chunk_tokens
        self._jobs: dict[int, _Job] = {}
        self._kept: OrderedDict[int, _Sequence] = (
            OrderedDict()
        )  # of requests that are over, the one used longest ago first
        self._unused = list(range(sequences))
        self._ticket = 0

    @cached_property
    def _texts(self) -> list[bytes]:
        return self._context.pieces()

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self._texts)

    def add(self, request: Submit) -> None:
        self._ticket += 1
        prompt = np.array(request.token_ids, np.int32)
        every = (*self._kept.values(), *(job.sequence for job in self._jobs.values()))
        source = max(every, key=lambda sequence: sequence.shared(prompt), default=None)
        shared = 0 if source is None else source.shared(prompt)
        if shared and source is not None and source.id in self._kept:
            self._kept.move_to_end(source.id)
        if not self._unused:
            self._forget_one()
        sequence = _Sequence(
            self._unused.pop(), np.concatenate([prompt, np.zeros(request.max_tokens, np.int32)]), shared
        )
        if source is not None and shared:
            self._context.share(source.id, sequence.id, shared)
        self._jobs[request.id] = _Job(
            request, sequence, len(prompt), np.random.default_rng(self._ticket), Beginning(request.begins)
        )

    def drop(self, job_id: int) -> None:
        self._keep(self._jobs.pop(job_id).sequence)

    def settle(self) -> None:
        """It computes from the pages of the file."""

    def step(self) -> tuple[dict[int, Read], int]:
        batch = self._batch()
        if not batch:
            return {}, 0
        self._compute(batch)
        reads: dict[int, Read] = {}
        at = -1
        for job, count in batch:
            at += count
            job.sequence.computed += count
            if not job.missing:
                reads[job.submit.id] = self._next_token(job, self._context.logits(at))
        for job_id in [job_id for job_id, read in reads.items() if read.done]:
            self.drop(job_id)
        return reads, 0  # nothing is computed between a drop and the next step

    def _batch(self) -> list[tuple[_Job, int]]:
        """Who computes how many tokens in this step: answers first, then prompts, the oldest first."""
        room = self._chunk_tokens
        batch: list[tuple[_Job, int]] = []
        for job in sorted(self._jobs.values(), key=lambda job: not job.produced):
            if count := min(job.missing, room):
                batch.append((job, count))
                room -= count
        return batch

    def _compute(self, batch: list[tuple[_Job, int]]) -> None:
        spans = [(job.sequence, job.sequence.computed, job.sequence.computed + count) for job, count in batch]
        tokens = np.concatenate([sequence.tokens[begin:end] for sequence, begin, end in spans])
        positions = np.concatenate([np.arange(begin, end, dtype=np.int32) for _, begin, end in spans])
        sequences = np.repeat(np.array([sequence.id for sequence, _, _ in spans], np.int32), [n for _, n in batch])
        wanted = np.zeros(len(tokens), np.int8)
        wanted[np.cumsum([count for _, count in batch]) - 1] = [job.missing == count for job, count in batch]
        while not self._context.compute(tokens, positions, sequences, wanted):
            self._forget_one()

    def _forget_one(self) -> None:
        if not self._kept:
            raise PipelineError("the requests that run do not fit into the cache together")
        sequence_id, _ = self._kept.popitem(last=False)
        self._context.forget(sequence_id)
        self._unused.append(sequence_id)

    def _keep(self, sequence: _Sequence) -> None:
        self._kept[sequence.id] = sequence

    def _next_token(self, job: _Job, logits: NDArray[np.float32]) -> Read:
        highest = float(logits.max())
        choice = logits
        if job.submit.temperature > 0:
            choice = logits / job.submit.temperature + job.random.gumbel(size=len(logits))
        token = int(choice.argmax())
        if job.submit.begins and (allowed := job.beginning.allowed(self._pieces)) is not None:
            token = allowed[int(choice[np.frombuffer(allowed, np.int64)].argmax())]
            job.beginning.came(self._texts[token])
        logprob = float(logits[token]) - highest - float(np.log(np.exp(logits - highest).sum(dtype=np.float64)))
        job.sequence.tokens[job.known] = token
        job.known += 1
        done = token in job.submit.end_token_ids or job.produced == job.submit.max_tokens
        return Read([token], [logprob], done)
