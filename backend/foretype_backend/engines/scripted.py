"""A deterministic engine in this process, for tests and replay: the output is a pure function of the prompt.

It behaves like a real engine where a caller could notice: slots are limited and waiting requests start by priority, a prompt
prefix seen before is cached in whole blocks, prefill and every token take time on an injected sleep, a request can be
aborted at any point, and faults can be ordered in advance.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from foretype_backend.engines.aborted_ids import AbortLedger
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.engines.port import Capabilities, Chunk, EngineFinish, EngineStatistics, GenerationRequest
from foretype_backend.engines.prompt_limits import check_prompt
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.prefix.chain import ChainMaker
from foretype_backend.prefix.origin import Origin
from foretype_backend.timing_wheel import Alarms

_REMEMBERED: Final = 1024
"""Most ids that are kept so that tests can see what was done, and sessions whose last prompt is known."""
_PROMPTS: Final = 32
"""Most prompts that are kept so that tests can look at them."""

Script = Callable[[Sequence[int]], Sequence[int]]
"""Prompt ids to all the ids that the engine would ever generate after them."""


def copy_prompt(token_ids: Sequence[int]) -> Sequence[int]:
    """The simplest script: say the prompt again, from its start."""
    return token_ids


def fixed(token_ids: Sequence[int]) -> Script:
    """A script that always gives the same ids."""
    answer = tuple(token_ids)
    return lambda _prompt: answer


def text_script(
    encode: Callable[[str], Sequence[int]], decode: Callable[[Sequence[int]], str], answer: Callable[[str], str]
) -> Script:
    """A script in terms of text: `answer` gives what follows the prompt's text."""
    return lambda prompt: tuple(encode(answer(decode(prompt))))


@dataclass(slots=True, eq=False)
class _Live:
    """A request that waits or runs; `restarts` of the engine when it came, which must stay as they were."""

    restarts: int
    aborted: bool = False
    slot: asyncio.Event | None = None
    pause: asyncio.Future[None] | None = None

    def abort(self) -> None:
        self.aborted = True
        self.wake()

    def wake(self) -> None:
        """Whatever it waits for, it waits no longer."""
        if self.slot is not None:
            self.slot.set()
        if self.pause is not None and not self.pause.done():
            self.pause.set_result(None)


class _Prefilled(NamedTuple):
    """What the first chunk says of a prompt."""

    cached_tokens: int
    queue_ms: float
    prefill_ms: float
    fault: Exception | None
    fault_after: int


class ScriptedEngine:
    """An engine that follows a script.

    Args:
        script: what is generated after a prompt.
        sleep: awaited for prefill and per token with seconds; inject one that returns at once, or a simulated clock's. None
            sleeps on the event loop, and an abort ends it: an engine that steps often lets go at once.
        clock: seconds, the clock of `deadline`.
        prefill_s_per_token: time to compute one prompt token that is not cached.
        decode_s_per_token: time per generated token.
        tokens_per_chunk: ids delivered at once.
        slots: requests computed at the same time; others wait, lowest `priority` value first.
        cache_blocks, block_tokens: size of the simulated prefix cache.
        vocabulary_tokens: ids at or above it are refused; None accepts any.
        abort_log: file to which every abort appends its moment, nanoseconds of `time.perf_counter`, and its id, for who measures
            how long a cancel takes to come here.
    """

    def __init__(
        self,
        script: Script = copy_prompt,
        *,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        prefill_s_per_token: float = 0.0,
        decode_s_per_token: float = 0.0,
        tokens_per_chunk: int = 1,
        logprob: float = -0.1,
        slots: int = 8,
        cache_blocks: int = 4096,
        block_tokens: int = 32,
        context_limit_tokens: int = 8192,
        vocabulary_tokens: int | None = None,
        model: str = "scripted",
        abort_log: str | None = None,
    ) -> None:
        self._script = script
        self._sleep = sleep
        self._clock = clock
        self._prefill_s_per_token = prefill_s_per_token
        self._decode_s_per_token = decode_s_per_token
        self._tokens_per_chunk = max(1, tokens_per_chunk)
        self._logprob = logprob
        self._free_slots = slots
        self._vocabulary_tokens = vocabulary_tokens
        self.cache = ShadowPrefixCache(cache_blocks, block_tokens)
        self._chains = ChainMaker(
            block_tokens, documents_max=_REMEMBERED
        )  # of sessions, whose next prompt is like the last
        self._capabilities = Capabilities(
            salt=True,
            priority=True,
            cached_tokens=True,
            token_ids=True,
            logprobs=True,
            context_limit_tokens=context_limit_tokens,
            block_tokens=block_tokens,
            model=model,
        )
        self._abort_log_path = abort_log
        self._abort_log: BinaryIO | None = None
        self._started = False
        self._alarms: Alarms | None = None
        self._live: dict[str, _Live] = {}
        self._ledger = AbortLedger()
        self._waiting: list[tuple[int, int, asyncio.Event]] = []
        self._order = itertools.count()
        self._faults: deque[tuple[int, Exception]] = deque()
        self._restarts = 0
        self._running = 0
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._generated_tokens = 0
        self._tokens_after_cancel = 0
        self.requests: deque[Sequence[int]] = deque(maxlen=_PROMPTS)
        """Prompts of the last requests that were started, in order."""
        self.aborted: deque[str] = deque(maxlen=_REMEMBERED)
        """Ids of the last requests that ended by an abort or by closing the iterator."""

    async def start(self) -> None:
        self._started = True
        self._alarms = Alarms(asyncio.get_running_loop())
        if self._abort_log_path is not None and self._abort_log is None:
            self._abort_log = Path(self._abort_log_path).open("ab", buffering=0)  # noqa: ASYNC230, SIM115 - for measuring alone

    async def close(self) -> None:
        self._started = False
        for request_id in list(self._live):
            self.abort(request_id)
        if self._abort_log is not None:
            self._abort_log.close()
            self._abort_log = None

    async def ready(self) -> None:
        if not self._started:
            raise EngineUnavailableError("the scripted engine is not started; call start() first")

    def fail_next(self, error: Exception | None = None, *, after_tokens: int = 0) -> None:
        """The next request that is not spoken for raises `error` after that many tokens (counted as one restart)."""
        fault = error if error is not None else EngineUnavailableError("the scripted engine was told to fail; retry")
        self._faults.append((after_tokens, fault))

    def die(self) -> None:
        """Every request that runs or waits fails with EngineUnavailableError at its next step; later ones work."""
        self._restarts += 1
        for live in self._live.values():
            live.wake()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        prompt = request.token_ids
        max_tokens = self._check(request.id, prompt, request.params.max_tokens)
        live = self._live[request.id] = _Live(self._restarts, aborted=self._ledger.begin(request.id))
        finished = running = False
        queued_at = self._clock()
        try:
            await self._take_slot(request.priority, live)
            self._running += 1
            running = True
            first = await self._prefill(live, request, prompt, queued_at)
            if first is None:
                yield Chunk(finish=EngineFinish.ABORTED, queue_ms=(self._clock() - queued_at) * 1000)
                return
            ready: list[int] = []
            delivered, finish = False, EngineFinish.END_TOKEN
            for count, token_id in enumerate(self._script(prompt)):
                self._fail(first, count)
                await self._pause(self._decode_s_per_token, live)
                self._check_alive(live)
                if live.aborted:
                    yield Chunk(finish=EngineFinish.ABORTED)
                    return
                if token_id in request.params.end_token_ids:
                    break
                self._generated_tokens += 1
                ready.append(token_id)
                if count + 1 == max_tokens:
                    self._fail(first, max_tokens)
                    finish = EngineFinish.LENGTH
                    break
                if len(ready) >= self._tokens_per_chunk:
                    yield self._chunk(ready, None if delivered else first)
                    delivered, ready = True, []
                    if live.aborted:
                        yield Chunk(finish=EngineFinish.ABORTED)
                        return
            else:
                self._fail(first, None)
            finished = True
            yield self._chunk(ready, None if delivered else first, finish)
        finally:
            if running:
                self._running -= 1
                self._give_slot()
            del self._live[request.id]
            self._ledger.end(request.id)
            if not finished:
                self.aborted.append(request.id)

    async def _prefill(
        self, live: _Live, request: GenerationRequest, prompt: Sequence[int], queued_at: float
    ) -> _Prefilled | None:
        """Compute the prompt; None when it is wanted no more."""
        self._check_alive(live)
        began = self._clock()
        if live.aborted or (request.deadline is not None and began > request.deadline):
            return None
        fault_after, fault = self._faults.popleft() if self._faults else (-1, None)
        session = "" if request.origin is None else request.origin.session
        keys = self._chains.keys(session, request.token_ids, request.salt or "")
        cached_tokens = self.cache.cached_tokens(keys, len(prompt))
        self.requests.append(prompt)
        if self._prefill_s_per_token or self._sleep is not None:
            await self._pause((len(prompt) - cached_tokens) * self._prefill_s_per_token, live)
            self._check_alive(live)
            if live.aborted:
                return None
        self.cache.touch(keys)
        self._prompt_tokens += len(prompt)
        self._cached_tokens += cached_tokens
        return _Prefilled(cached_tokens, (began - queued_at) * 1000, (self._clock() - began) * 1000, fault, fault_after)

    def _chunk(self, ids: Sequence[int], first: _Prefilled | None, finish: EngineFinish | None = None) -> Chunk:
        tokens, logprobs = tuple(ids), (self._logprob,) * len(ids)
        if first is None:
            return Chunk(token_ids=tokens, logprobs=logprobs, finish=finish)
        return Chunk(
            token_ids=tokens,
            logprobs=logprobs,
            cached_tokens=first.cached_tokens,
            finish=finish,
            queue_ms=first.queue_ms,
            prefill_ms=first.prefill_ms,
        )

    def _fail(self, first: _Prefilled, count: int | None) -> None:
        """The fault that was ordered for this request comes now, after `count` tokens or at the end of the script."""
        if first.fault is not None and count in (None, first.fault_after):
            self._restarts += 1
            raise first.fault

    def abort(self, request_id: str) -> None:
        if self._abort_log is not None:
            self._abort_log.write(b"%d %s\n" % (time.perf_counter_ns(), request_id.encode()))
        live = self._live.get(request_id)
        if live is None:
            self._ledger.aborted(request_id)
        else:
            live.abort()

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        if self._running or self._waiting:
            return
        self._check("", token_ids, 1)
        keys = self.cache.keys(token_ids, salt=salt or "")
        cached_tokens = self.cache.cached_tokens(keys, len(token_ids))
        await self._pause((len(token_ids) - cached_tokens) * self._prefill_s_per_token)
        self.cache.touch(keys)

    @property
    def restarts(self) -> int:
        return self._restarts

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            running=self._running,
            waiting=len(self._live) - self._running,
            restarts=self._restarts,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=self._generated_tokens,
            tokens_after_cancel=self._tokens_after_cancel,
        )

    def capabilities(self) -> Capabilities:
        return self._capabilities

    def _check(self, request_id: str, prompt: Sequence[int], max_tokens: int) -> int:
        if not self._started:
            raise EngineUnavailableError("the scripted engine is not started; call start() first")
        if request_id in self._live:
            raise ValueError(f"request id {request_id!r} is already running; ids must be unique")
        return check_prompt(
            prompt,
            max_tokens,
            context_limit_tokens=self._capabilities.context_limit_tokens,
            vocabulary_tokens=self._vocabulary_tokens,
        )

    def _check_alive(self, live: _Live) -> None:
        if not self._started or live.restarts != self._restarts:
            raise EngineUnavailableError("the scripted engine died; it is up again, retry")

    def _pause(self, seconds: float, live: _Live | None = None) -> Awaitable[None]:
        if self._sleep is not None or self._alarms is None or live is None or seconds <= 0:
            return (self._sleep or asyncio.sleep)(seconds)
        live.pause = self._alarms.after(seconds)
        return live.pause

    async def _take_slot(self, priority: int, live: _Live) -> None:
        if self._free_slots > 0:
            self._free_slots -= 1
            return
        live.slot = asyncio.Event()
        entry = (priority, next(self._order), live.slot)
        heapq.heappush(self._waiting, entry)
        try:
            await live.slot.wait()
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
            else:
                self._give_slot()
            raise
        if entry in self._waiting:  # woken by an abort, not by a slot: take one more than there are, it ends at once
            self._waiting.remove(entry)
            heapq.heapify(self._waiting)
            self._free_slots -= 1

    def _give_slot(self) -> None:
        if self._free_slots >= 0 and self._waiting:
            heapq.heappop(self._waiting)[2].set()
        else:
            self._free_slots += 1
