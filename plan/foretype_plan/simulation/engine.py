"""A replica's engine in virtual time: continuous batching, prefill in chunks, blocks of keys and values, guessed tokens. Pure.

A step computes one token for each request that decodes (with guesses: some) and as much of the waiting prompts as its budget has room
for. It lasts as long as reading the weights and the batch's keys and values does, or as long as the arithmetic does, whichever is longer: the
formulas of :mod:`foretype_plan.formulas`, from the same inputs (:func:`spec_of`). Steps in which nobody joins or leaves are taken at
once; a request that comes meanwhile joins at the end of the step that is running, as it would one by one.

The caller says what time it is: :attr:`Engine.due` is when something happens next, :meth:`Engine.advance` says what.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from foretype_plan.errors import PlanError
from foretype_plan.scenario import Scenario, Tier, values
from foretype_plan.sheet import evaluate
from foretype_plan.simulation.kv_cache import KvCache

BLOCK_TOKENS: Final = 64
"""Of the simulation's blocks. Engines use 16; a prompt is found to within one, and a coarse one costs a quarter of the time."""
HOST_BYTES_PER_S: Final = 13e9
"""From the host's memory, as vLLM's offloading brings it to an H200 (docs/measurements/vllm.md); the bus could do four times that."""


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine takes for what. Seconds.

    Attributes:
        batch: requests computed at once. chunk_tokens: most tokens of a step.
        blocks, host_blocks: of :data:`BLOCK_TOKENS` tokens.
        token_s: arithmetic of one token. weights_s: reading the weights once. context_s: reading one token's keys and values.
        request_s: of each request in a step, beside its tokens: on a processor attention and sampling take one after the other.
        load_s: of one token's keys and values from the host.
        guesses: tokens guessed for each step; each costs `guess_share` of a step.
    """

    batch: int = 8
    chunk_tokens: int = 512
    blocks: int
    host_blocks: int = 0
    token_s: float
    weights_s: float
    context_s: float
    overhead_s: float
    request_s: float = 0.0
    load_s: float = 0.0
    guesses: int = 0
    guess_share: float = 0.0


def spec_of(tier: Tier, name: str = "fast", *, chunk_tokens: int = 512) -> EngineSpec:
    """From the inputs and formulas that a plan is made of.

    Raises:
        PlanError: it cannot be, as of a plan.
    """
    given = values(Scenario(), tier, name)
    wanted = ("prefill_tokens_per_s", "kv_room_bytes", "read_bytes", "kv_bytes_per_token")
    known: dict[str, float] = {}
    for one in wanted:
        known |= evaluate(given, only=one)
    bandwidth = given["gpus_per_replica"] * given["gpu_bandwidth"] * given["decode_efficiency"]
    blocks = int(known["kv_room_bytes"] / known["kv_bytes_per_token"] / BLOCK_TOKENS)
    least = math.ceil((given["prompt_tokens"] + given["output_tokens"]) / BLOCK_TOKENS) + 1
    if blocks < least:
        raise PlanError(
            f"tier.{name}.gpus_per_replica",
            f"{blocks} blocks of cache are left and one prompt needs {least}: more GPUs, or fewer bits",
        )
    if given["batch"] < 1 or chunk_tokens < BLOCK_TOKENS:
        raise PlanError(f"tier.{name}.inputs.batch", "at least one request, and 64 tokens of a prompt, in a step")
    return EngineSpec(
        batch=int(given["batch"]),
        chunk_tokens=chunk_tokens,
        blocks=blocks,
        host_blocks=int(
            given["host_bytes_per_gpu"] * given["gpus_per_replica"] / known["kv_bytes_per_token"] / BLOCK_TOKENS
        ),
        token_s=1 / known["prefill_tokens_per_s"],
        weights_s=known["read_bytes"] / bandwidth,
        context_s=known["kv_bytes_per_token"] / bandwidth,
        overhead_s=given["step_overhead_s"],
        load_s=known["kv_bytes_per_token"] / (HOST_BYTES_PER_S * given["gpus_per_replica"]),
        guesses=int(given["draft_tokens"]),
        guess_share=given["draft_step_share"],
    )


@dataclass(slots=True, eq=False)
class Work:
    """One request.

    Attributes:
        keys: of the whole blocks of its prompt.
        steps: of decoding after the first token; with guesses fewer than tokens.
        prefilled: its keys and values come from elsewhere, and it only decodes.
    """

    key: str
    keys: Sequence[bytes]
    prompt_tokens: int
    steps: int
    priority: int = 0
    prefilled: bool = False
    left: int = field(default=0, init=False)
    cached_tokens: int = field(default=0, init=False)
    blocks: int = field(default=0, init=False)
    pinned: int = field(default=0, init=False)
    loaded_s: float = field(default=0.0, init=False)


class First(NamedTuple):
    """A request's first token is there."""

    key: str
    cached_tokens: int


class Ended(NamedTuple):
    """A request's last one."""

    key: str


Happening = First | Ended


class Engine:
    """See the module."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.cache = KvCache(spec.blocks, spec.host_blocks)
        self.due: float | None = None
        self.slowness = 1.0
        """How much longer than usual everything takes: a GPU that throttles."""
        self.busy_s = 0.0
        self.computed_tokens = 0
        self.computing_s = 0.0
        """Of `busy_s`, as long as arithmetic bound: what a utilisation by FLOP/s would show."""
        self._waiting: list[tuple[int, int, Work]] = []
        self._order = 0
        self._prefilling: list[Work] = []
        self._decoding: list[Work] = []
        self._context = 0
        self._began = 0.0
        self._step_s = 0.0
        self._steps = 0
        self._chunks: list[tuple[Work, int]] = []
        self._gone: set[str] = set()

    @property
    def running(self) -> int:
        return len(self._decoding) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, work: Work, now: float) -> None:
        """Raises PlanError: all of the cache has no room for it."""
        if _blocks(work) > self.cache.blocks:
            raise PlanError(
                "prompt_tokens",
                f"{work.prompt_tokens} tokens need more than the {self.cache.blocks} blocks of a replica",
            )
        self._order += 1
        heapq.heappush(self._waiting, (work.priority, self._order, work))
        if self._steps:
            self._cut(now)
        else:
            self._begin(now)

    def cancel(self, key: str, now: float) -> bool:
        """It leaves when the step that runs is over; True where it leaves now, for it had not begun."""
        for at, (_, _, work) in enumerate(self._waiting):
            if work.key == key:
                del self._waiting[at]
                heapq.heapify(self._waiting)
                return True
        self._gone.add(key)
        self._cut(now)
        return False

    def advance(self, now: float) -> list[Happening]:
        """The step that runs is over at `now`: what became of its requests; the next one begins."""
        happened: list[Happening] = []
        self.busy_s += self._step_s * self._steps
        if self._steps:
            for work in self._decoding:
                work.steps -= self._steps
        if self._gone or any(work.steps <= 0 for work in self._decoding):
            self._decoding = self._leave(self._decoding, happened)
        for work, tokens in self._chunks:
            work.left -= tokens
        if self._chunks or self._gone:
            self._prefilling = self._prefilled(happened)
        self._gone.clear()
        self._begin(now)
        return happened

    def lose(self) -> list[str]:
        """It is gone, with all it held; the requests that were in it."""
        lost = [work.key for work in (*self._decoding, *self._prefilling, *(one for _, _, one in self._waiting))]
        self.due, self._steps = None, 0
        self._waiting, self._prefilling, self._decoding, self._chunks = [], [], [], []
        self._context = 0
        self._gone.clear()
        self.cache = KvCache(self.spec.blocks, self.spec.host_blocks)
        return lost

    def _leave(self, works: list[Work], happened: list[Happening]) -> list[Work]:
        kept: list[Work] = []
        for work in works:
            if work.steps > 0 and work.key not in self._gone:
                kept.append(work)
                continue
            self._context -= work.prompt_tokens
            self._free(work)
            happened.append(Ended(work.key))
        return kept

    def _prefilled(self, happened: list[Happening]) -> list[Work]:
        kept: list[Work] = []
        for work in self._prefilling:
            if work.key in self._gone:
                self._free(work)
                happened.append(Ended(work.key))
            elif work.left > 0:
                kept.append(work)
            else:
                new = work.keys[work.pinned :]
                self.cache.publish(new)
                work.pinned, work.blocks = len(work.keys), work.blocks - len(new)
                if not work.prefilled:
                    happened.append(First(work.key, work.cached_tokens))
                if work.steps > 0:
                    self._decoding.append(work)
                    self._context += work.prompt_tokens
                else:
                    self._free(work)
                    happened.append(Ended(work.key))
        return kept

    def _free(self, work: Work) -> None:
        self.cache.give(work.keys[: work.pinned], work.blocks)

    def _begin(self, now: float) -> None:
        spec = self.spec
        while self._waiting and self.running < spec.batch and self._admit(self._waiting[0][2], now):
            heapq.heappop(self._waiting)
        self._chunks.clear()
        decoding = len(self._decoding)
        tokens = decoding * (1 + spec.guesses)
        room = spec.chunk_tokens - tokens
        loading = math.inf
        for work in self._prefilling:
            if work.loaded_s > now:
                loading = min(loading, work.loaded_s)
                continue
            chunk = min(work.left, max(room, 0))
            if chunk or not work.left:
                self._chunks.append((work, chunk))
                room -= chunk
                tokens += chunk
        if not decoding and not self._chunks:
            self._steps, self._step_s = 0, 0.0
            self.due = None if loading == math.inf else loading
            return
        context = self._context + sum(work.prompt_tokens - work.left for work, _ in self._chunks)
        reading = spec.weights_s + context * spec.context_s
        computing = tokens * spec.token_s
        # Loading and chunks end with one step; while nobody prefills, nothing changes until the first of them has its last token.
        self._steps = 1 if self._prefilling else min(work.steps for work in self._decoding)
        guessing = 1 + spec.guesses * spec.guess_share if decoding else 1
        each = (decoding + len(self._chunks)) * spec.request_s
        self._step_s = (max(reading, computing) * guessing + spec.overhead_s + each) * self.slowness
        self.computing_s += self._steps * min(computing, self._step_s)
        self.computed_tokens += tokens - decoding * (1 + spec.guesses)
        self._began = now
        self.due = now + self._steps * self._step_s

    def _admit(self, work: Work, now: float) -> bool:
        usable = work.keys[: max(0, (work.prompt_tokens - 1) // BLOCK_TOKENS)]  # one token is always computed
        near, host = (len(work.keys), 0) if work.prefilled else self.cache.find(usable)
        pinned = 0 if work.prefilled else near
        blocks = _blocks(work) - pinned
        if not self.cache.take(work.keys[:pinned], blocks):
            return False
        work.pinned, work.blocks = pinned, blocks
        work.cached_tokens = work.prompt_tokens if work.prefilled else (near + host) * BLOCK_TOKENS
        work.left = work.prompt_tokens - work.cached_tokens
        work.loaded_s = now + host * BLOCK_TOKENS * self.spec.load_s
        self._prefilling.append(work)
        return True

    def _cut(self, now: float) -> None:
        """Somebody comes or goes: of the steps ahead, only the one that runs is still taken as planned."""
        if self._steps > 1 and self.due is not None:
            done = min(self._steps, max(1, math.ceil((now - self._began) / self._step_s)))
            self.computing_s -= (self._steps - done) * min(self._computing(), self._step_s)
            self._steps = done
            self.due = self._began + done * self._step_s

    def _computing(self) -> float:
        return len(self._decoding) * (1 + self.spec.guesses) * self.spec.token_s


def _blocks(work: Work) -> int:
    """That a request needs until it ends."""
    return math.ceil((work.prompt_tokens + work.steps + 1) / BLOCK_TOKENS)
