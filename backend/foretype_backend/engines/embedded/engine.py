"""The embedded engine: one GGUF file in a process of its own that is supervised and restarted; OpenVINO GenAI or llama.cpp computes.

This side speaks the engine port to the gateway and frames to the process (:mod:`.ipc`). When the process dies, every
request in it fails at once; the next request waits for the new process. After ten minutes without a request the process rests:
it ends and its memory is given back, and the next request waits for a new one. Single tenant: there is no cache salt.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from foretype_backend.engines.aborted_ids import AbortLedger
from foretype_backend.engines.embedded.config import EmbeddedConfig
from foretype_backend.engines.embedded.ipc import Cancel, Ended, EngineLoad, Output, Ready, Report, Submit
from foretype_backend.engines.embedded.process import EngineProcess
from foretype_backend.engines.port import (
    WARM_PRIORITY,
    Capabilities,
    Chunk,
    EngineFinish,
    EngineStatistics,
    GenerationParams,
    GenerationRequest,
)
from foretype_backend.engines.prompt_limits import check_prompt
from foretype_backend.errors import EngineStartError, EngineUnavailableError, PromptRefusedError
from foretype_backend.prefix.origin import Origin

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Stream:
    """One request on this side. After `over` its reports are counted and thrown away."""

    prompt_tokens: int
    items: asyncio.Queue[Chunk | Exception] = field(default_factory=asyncio.Queue[Chunk | Exception])
    over: bool = False
    cancelled: bool = False

    async def next(self) -> Chunk:
        """All that is there, as one chunk: tokens that came together, and the end that came right behind them."""
        chunk = None
        while chunk is None or (chunk.finish is None and not self.items.empty()):
            item = await self.items.get()
            if isinstance(item, Exception):
                if chunk is None:
                    raise item
                self.items.put_nowait(item)  # nothing comes after it
                return chunk
            chunk = item if chunk is None else _join(chunk, item)
        return chunk


class EmbeddedEngine:
    """Engine port over the embedded engine's process."""

    def __init__(self, config: EmbeddedConfig) -> None:
        self._config = config
        self._process: EngineProcess | None = None
        self._begun: EngineProcess | None = None
        self._ready: Ready | None = None
        self._ready_again = asyncio.Event()
        self._wanted = asyncio.Event()
        self._rests = False
        self._back_by_s = 0.0
        """Until then who asks waits for a process that comes back from its rest."""
        self._asked_s = 0.0
        self._supervisor: asyncio.Task[None] | None = None
        self._last_error = "the engine is not started; call start() first"
        self._streams: dict[int, _Stream] = {}
        self._live: dict[str, tuple[int, _Stream]] = {}
        self._next_id = itertools.count(1)
        self._ledger = AbortLedger()
        self._load = EngineLoad()
        self._restarts = 0
        self._pipeline_restarts = 0
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._generated_tokens = 0
        self._tokens_after_cancel = 0

    @classmethod
    def from_config(cls, **config: object) -> EmbeddedEngine:
        """Make an engine from the fields of :class:`EmbeddedConfig`."""
        return cls(EmbeddedConfig.of(**config))

    # Life

    def use(self, begun: EngineProcess) -> None:
        """Start with a process that was begun already; from now on it is this engine's to close."""
        self._begun = begun

    async def start(self) -> None:
        if self._supervisor is not None:
            return
        begun, self._begun = self._begun, None
        try:
            process, ready = await EngineProcess.open(self._config, begun)
        except EngineStartError as error:
            self._last_error = str(error)
            raise EngineUnavailableError(str(error)) from None
        self._attach(process, ready)
        self._asked_s = asyncio.get_running_loop().time()
        self._supervisor = asyncio.create_task(self._supervise(process), name="embedded engine")

    async def close(self) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervisor
        mine = (self._process, self._begun)
        self._process = self._begun = None
        for process in mine:
            if process is not None:
                await process.close()
        self._last_error, self._back_by_s = "the engine was closed", 0.0
        self._fail_all(self._last_error)

    async def ready(self) -> None:
        back = asyncio.get_running_loop().time() < self._back_by_s
        if self._process is None and not self._rests and not back:
            raise EngineUnavailableError(self._last_error)

    async def _supervise(self, process: EngineProcess) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            since = loop.time()
            reason = await self._watch(process)
            self._process = None
            self._ready_again.clear()
            self._load = EngineLoad()
            if reason is None:
                await self._rest(process)
            else:
                self._last_error = f"{reason}; it is started again, retry"
                self._fail_all(self._last_error)
                self._restarts += 1
                _logger.error("%s; starting it again", reason)
                await process.close()
            if loop.time() - since > self._config.healthy_after_s:
                failures = 0
            while True:
                await asyncio.sleep(self._config.back_off_s(failures))
                failures += 1
                try:
                    process, ready = await EngineProcess.open(self._config)
                    break
                except (EngineStartError, OSError) as error:  # of the machine, which has no process or file left
                    self._last_error, self._back_by_s = str(error), 0.0
                    _logger.error("the engine cannot be started again: %s", error)
            self._attach(process, ready)

    async def _rest(self, process: EngineProcess) -> None:
        """End the process, and wait until somebody asks."""
        self._last_error = "the engine rested; it is started again, retry"
        self._wanted.clear()
        self._rests = True
        _logger.info("the engine rests: nobody asked for %g s", self._config.rest_after_s)
        try:
            await process.close()
            await self._wanted.wait()
        finally:
            self._rests = False
        self._back_by_s = asyncio.get_running_loop().time() + self._config.restart_wait_s

    async def _watch(self, process: EngineProcess) -> str | None:
        """Take reports until the process is gone or hangs, and say why; None once nobody has asked for long."""
        loop, rest_s = asyncio.get_running_loop(), self._config.rest_after_s or math.inf
        while True:
            try:
                async with asyncio.timeout(self._config.hang_s):
                    reports = await process.reports()
            except TimeoutError:
                if self._streams:
                    return f"the engine process said nothing for {self._config.hang_s:g} s and was ended"
                if loop.time() - self._asked_s >= rest_s:
                    return None
                continue
            if not reports:
                return await process.reason()
            for report in reports:
                self._take(report)

    def _attach(self, process: EngineProcess, ready: Ready) -> None:
        self._process, self._ready = process, ready
        self._ready_again.set()

    # Reports

    def _take(self, report: Report) -> None:
        match report:
            case Output():
                self._take_output(report)
            case Ended():
                self._take_end(report)
            case EngineLoad():
                self._tokens_after_cancel += max(report.tokens_after_cancel - self._load.tokens_after_cancel, 0)
                self._pipeline_restarts += max(report.pipeline_restarts - self._load.pipeline_restarts, 0)
                self._load = report
            case _:
                _logger.warning("unexpected report %s", type(report).__name__)

    def _take_output(self, report: Output) -> None:
        stream = self._streams.get(report.id)
        if stream is None:
            return
        self._generated_tokens += len(report.token_ids)
        if report.cached_tokens is not None:
            self._prompt_tokens += stream.prompt_tokens
            self._cached_tokens += report.cached_tokens
        if stream.cancelled:
            self._tokens_after_cancel += len(report.token_ids)
        if not stream.over:
            chunk = Chunk(
                token_ids=tuple(report.token_ids),
                logprobs=tuple(report.logprobs),
                cached_tokens=report.cached_tokens,
                queue_ms=report.queue_ms,
                prefill_ms=report.prefill_ms,
            )
            stream.items.put_nowait(chunk)

    def _take_end(self, report: Ended) -> None:
        stream = self._streams.pop(report.id, None)
        if stream is None or stream.over:
            return
        stream.over = True
        match report.how:
            case "refused":
                stream.items.put_nowait(PromptRefusedError(report.message))
            case "lost":
                stream.items.put_nowait(EngineUnavailableError(report.message))
            case _:
                stream.items.put_nowait(Chunk(finish=EngineFinish(report.how), end_logprob=report.end_logprob))

    def _fail_all(self, reason: str) -> None:
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            if not stream.over:
                stream.over = True
                stream.items.put_nowait(EngineUnavailableError(reason))

    # Requests

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        request_id = request.id
        if request_id in self._live:
            raise ValueError(f"request id {request_id!r} is already running; ids must be unique")
        if self._ledger.begin(request_id):
            self._ledger.end(request_id)
            yield Chunk(finish=EngineFinish.ABORTED)
            return
        job_id, stream = next(self._next_id), _Stream(len(request.token_ids))
        self._live[request_id] = job_id, stream
        try:
            if not await self._submit(job_id, stream, request):
                yield Chunk(finish=EngineFinish.ABORTED)
                return
            chunk: Chunk | None = None
            while chunk is None or chunk.finish is None:
                chunk = await stream.next()
                yield chunk
        finally:
            del self._live[request_id]
            self._ledger.end(request_id)
            if not stream.over:
                self._cancel(job_id, stream)

    async def _submit(self, job_id: int, stream: _Stream, request: GenerationRequest, *, warm: bool = False) -> bool:
        """Send the request; false when its deadline passed or it was aborted before it could be sent."""
        token_ids, params, deadline = request.token_ids, request.params, request.deadline
        process, ready = await self._available(deadline)
        if stream.cancelled:
            return False
        max_tokens = check_prompt(
            token_ids,
            params.max_tokens,
            context_limit_tokens=ready.context_limit_tokens,
            vocabulary_tokens=ready.vocabulary_tokens,
        )
        expires_in_s = None if deadline is None else deadline - asyncio.get_running_loop().time()
        if expires_in_s is not None and expires_in_s < 0:
            stream.over = True
            return False
        self._streams[job_id] = stream
        process.send(
            Submit(
                id=job_id,
                token_ids=list(token_ids),
                max_tokens=max_tokens,
                end_token_ids=sorted(params.end_token_ids),
                temperature=params.temperature,
                priority=request.priority,
                expires_in_s=expires_in_s,
                warm=warm,
                begins=params.begins,
            )
        )
        return True

    async def _available(self, deadline: float | None) -> tuple[EngineProcess, Ready]:
        """The process, waiting a little for it when it is being started again."""
        self._asked_s = asyncio.get_running_loop().time()
        self._wanted.set()
        if self._supervisor is not None and self._process is None:
            until = asyncio.get_running_loop().time() + self._config.restart_wait_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until if deadline is None else min(until, deadline)):
                    await self._ready_again.wait()
        if self._process is None or self._ready is None:
            raise EngineUnavailableError(self._last_error)
        return self._process, self._ready

    def abort(self, request_id: str) -> None:
        live = self._live.get(request_id)
        if live is None:
            self._ledger.aborted(request_id)
        elif not live[1].over:
            self._cancel(*live)
            live[1].items.put_nowait(Chunk(finish=EngineFinish.ABORTED))

    def _cancel(self, job_id: int, stream: _Stream) -> None:
        stream.over = True
        stream.cancelled = True
        if self._process is not None and job_id in self._streams:
            self._process.send(Cancel(id=job_id))

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        job_id = next(self._next_id)
        stream = _Stream(len(token_ids))
        try:
            await self._submit(
                job_id,
                stream,
                GenerationRequest("", token_ids, GenerationParams(max_tokens=1), priority=WARM_PRIORITY),
                warm=True,
            )
            while (await stream.next()).finish is None:
                pass
        finally:
            if not stream.over:
                self._cancel(job_id, stream)

    # Questions

    @property
    def restarts(self) -> int:
        return self._restarts + self._pipeline_restarts

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            running=self._load.running,
            waiting=self._load.waiting,
            restarts=self.restarts,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=self._generated_tokens,
            tokens_after_cancel=self._tokens_after_cancel,
        )

    def load(self) -> EngineLoad:
        """The last counters of the process: preemptions, holds, warm-ups dropped."""
        return self._load

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    def capabilities(self) -> Capabilities:
        if self._ready is None:
            raise EngineUnavailableError(self._last_error)
        return Capabilities(
            salt=False,
            priority=True,
            cached_tokens=True,
            token_ids=True,
            logprobs=True,
            context_limit_tokens=self._ready.context_limit_tokens,
            block_tokens=self._ready.block_tokens,
            model=self._ready.model,
            notes=("cached_tokens is a lower bound, from a shadow of the cache", *self._ready.notes),
        )


def _join(first: Chunk, then: Chunk) -> Chunk:
    return Chunk(
        token_ids=first.token_ids + then.token_ids,
        logprobs=first.logprobs + then.logprobs,
        cached_tokens=first.cached_tokens,
        finish=then.finish,
        end_logprob=then.end_logprob,
        queue_ms=first.queue_ms,
        prefill_ms=first.prefill_ms,
    )
