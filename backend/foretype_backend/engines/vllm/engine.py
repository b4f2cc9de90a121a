"""vLLM inside the gateway's process: `AsyncLLM` behind the engine port. Its engine core is a child process of its own.

Needs vLLM (0.32 or 0.33) in the environment that runs the gateway. Nothing here is imported before such an engine is asked for,
and vLLM itself not before :meth:`VllmEngine.start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from prometheus_client.registry import Collector

from foretype_backend.engines.aborted_ids import AbortLedger
from foretype_backend.engines.draft_acceptance import Acceptance, AcceptanceBook, AcceptanceCollector, Guesses
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
from foretype_backend.engines.vllm.library import Library, StepCounts, load_library
from foretype_backend.engines.vllm.options import (
    ModelShape,
    VllmOptions,
    check_blocks,
    check_memory,
    check_profile,
    engine_arguments,
)
from foretype_backend.engines.vllm.request import (
    logprobs_of,
    sampling_arguments,
    tier_parameters,
    without_end,
)
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError
from foretype_backend.prefix.origin import Origin


class VllmEngine:
    """Engine port over one `AsyncLLM`.

    An engine core that dies takes its requests with it, and every later one fails at once: like `vllm serve`, the gateway is then
    to be started again by what supervises it.
    """

    restarts = 0

    def __init__(self, options: VllmOptions) -> None:
        self._options = options
        self._shape: ModelShape = check_profile(options)
        self._llm: Any = None
        self._down = "the engine is not started; call start() first"
        self._library: Library | None = None
        self._block_tokens = 0
        self._live: dict[str, _Live] = {}
        self._next_id = itertools.count(1)
        self._ledger = AbortLedger()
        self._acceptance = AcceptanceBook()
        self._running = self._waiting = 0
        self._kv_use = 0.0
        self._prompt_tokens = self._cached_tokens = self._generated_tokens = self._tokens_after_cancel = 0

    @classmethod
    def from_config(cls, **options: object) -> VllmEngine:
        """Make an engine from the fields of :class:`VllmOptions`. Raises TypeError or ValueError naming the field."""
        return cls(VllmOptions.of(**options))

    @property
    def shared(self) -> bool:
        """Whether every request must have a salt."""
        return self._options.shared

    # Life

    async def start(self) -> None:
        if self._llm is not None:
            return
        try:
            library = load_library()
        except ImportError as error:
            raise EngineUnavailableError(
                f"vLLM cannot be imported ({error}); run the gateway in an environment with vllm>=0.32,<0.34: "
                "`make vllm-env` makes one for CPUs, `.venv-vllm/bin/foretype serve --engine vllm` runs in it"
            ) from error
        try:
            check_blocks(self._options, cpu=library.cpu)
            if library.cpu:
                check_memory(self._options, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except ValueError as error:
            raise EngineUnavailableError(str(error)) from error
        arguments = engine_arguments(self._options, cpu=library.cpu)
        self._block_tokens = arguments["block_size"]
        try:
            # On this thread: its sockets belong to the loop that runs now. Nothing else runs before the engine does.
            self._llm = library.start(arguments, self._counted)
        except Exception as error:  # whatever vLLM or torch raises: it cannot start, and says why
            self._down = f"vLLM did not start: {_told(error)}"
            raise EngineUnavailableError(self._down) from error
        self._library = library
        try:
            await self._rehearse()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        llm, self._llm = self._llm, None
        self._down = "the engine was closed"
        if llm is not None:
            await asyncio.to_thread(llm.shutdown, 5.0)

    async def ready(self) -> None:
        self.library()

    async def _rehearse(self) -> None:
        """A few throw-away requests: the first of each size compiles kernels, which must not be a user's request."""
        room = self._shape.context_tokens - 2
        for tokens in (1, min(room, self._options.batched_tokens)):
            ids = [1] * tokens  # equal ids: nobody's prompt begins like this
            two = GenerationParams(max_tokens=2)
            async for _ in self.generate(GenerationRequest(f"rehearsal-{tokens}", ids, two, salt="rehearsal")):
                pass
        self._acceptance.clear()
        self._prompt_tokens = self._cached_tokens = self._generated_tokens = 0

    # Requests

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        request_id = request.id
        if request_id in self._live:
            raise ValueError(f"request id {request_id!r} is already running; ids must be unique")
        if self._ledger.begin(request_id):
            self._ledger.end(request_id)
            yield Chunk(finish=EngineFinish.ABORTED)
            return
        live = self._live[request_id] = _Live(f"{next(self._next_id)}-{request_id}")
        try:
            async for chunk in self._stream(live, request):
                yield chunk
        finally:
            del self._live[request_id]
            self._ledger.end(request_id)

    async def _stream(self, live: _Live, request: GenerationRequest) -> AsyncIterator[Chunk]:
        token_ids, params, origin = request.token_ids, request.params, request.origin
        max_tokens = check_prompt(
            token_ids,
            params.max_tokens,
            context_limit_tokens=self._shape.context_tokens,
            vocabulary_tokens=self._shape.vocabulary_tokens,
        )
        if self._options.shared and not request.salt:
            raise PromptRefusedError(
                "the engine is shared by tenants and the request has no cache salt; configure identities"
            )
        llm, library = self.library()
        loop = asyncio.get_running_loop()
        deadline = request.deadline
        if deadline is not None and loop.time() >= deadline:
            yield Chunk(finish=EngineFinish.ABORTED)
            return
        tiers = self._tiers(origin, request.salt)
        outputs = llm.generate(
            library.prompt(list(token_ids), cache_salt=request.salt),
            library.sampling(**sampling_arguments(params, max_tokens, tiers)),
            live.engine_id,
            priority=request.priority,
        )
        # Queued beyond its deadline: it is dropped before it costs a step.
        late = None if deadline is None else loop.call_at(deadline, self._give_up, live)
        language = "" if origin is None else origin.language
        try:
            async for output in outputs:
                if late is not None:
                    late.cancel()
                chunk = self._chunk(live, output, params.end_token_ids, len(token_ids), language)
                yield chunk
                if chunk.finish is not None:
                    return
            yield Chunk(finish=EngineFinish.ABORTED)  # vLLM ends an aborted stream without a word
        except EngineUnavailableError:
            raise
        except Exception as error:
            raise self._fault(error) from error
        finally:
            if late is not None:
                late.cancel()
            with contextlib.suppress(
                Exception
            ):  # closing aborts what still runs; an engine that died has nothing to abort
                await outputs.aclose()

    def _chunk(
        self, live: _Live, output: Any, end_token_ids: frozenset[int], prompt_tokens: int, language: str
    ) -> Chunk:
        made = output.outputs[0] if output.outputs else None
        reason = None if made is None else made.finish_reason
        ids = () if made is None else without_end(made.token_ids, reason, end_token_ids)
        first, live.first = live.first, False
        self._generated_tokens += len(ids)
        if first:
            self._prompt_tokens += prompt_tokens
            self._cached_tokens += output.num_cached_tokens or 0
        elif made is not None and made.token_ids:
            self._acceptance.note(language, len(made.token_ids))
        if live.aborted:
            self._tokens_after_cancel += len(ids)
        finish = None
        if output.finished:
            finish = EngineFinish.ABORTED if live.aborted else _FINISHES.get(str(reason), EngineFinish.ABORTED)
        timing = output.metrics if first else None
        return Chunk(
            token_ids=ids,
            logprobs=() if made is None else logprobs_of(ids, made.logprobs),
            cached_tokens=(output.num_cached_tokens or 0) if first else None,
            finish=finish,
            queue_ms=None if timing is None else max(0.0, timing.scheduled_ts - timing.queued_ts) * 1000,
            prefill_ms=None if timing is None else max(0.0, timing.first_token_ts - timing.scheduled_ts) * 1000,
        )

    def abort(self, request_id: str) -> None:
        live = self._live.get(request_id)
        if live is None:
            self._ledger.aborted(request_id)
        else:
            self._end(live)

    def _give_up(self, live: _Live) -> None:
        if live.first:
            self._end(live)

    def _end(self, live: _Live) -> None:
        if not live.aborted and self._llm is not None:
            live.aborted = True
            live.ending = asyncio.get_running_loop().create_task(_abort(self._llm, live.engine_id))

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        if self._waiting:
            return  # under load it is dropped
        name, one = f"warm-{next(self._next_id)}", GenerationParams(max_tokens=1)
        request = GenerationRequest(name, token_ids, one, priority=WARM_PRIORITY, salt=salt, origin=origin)
        async for _ in self.generate(request):
            pass

    # Questions

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            running=self._running,
            waiting=self._waiting,
            restarts=self.restarts,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=self._generated_tokens,
            tokens_after_cancel=self._tokens_after_cancel,
            kv_use=self._kv_use,
        )

    def acceptance(self) -> dict[str, Acceptance]:
        """Decode steps and their tokens by language; more than one token a step is what speculation gained."""
        return self._acceptance.languages()

    def guesses(self) -> Guesses:
        """What was speculated since the start, as vLLM's scheduler counts it."""
        return self._acceptance.guesses

    def collectors(self) -> list[Collector]:
        """Figures of this engine alone, for `/metrics`."""
        speculation = self._options.speculation
        return [AcceptanceCollector(self._acceptance, 0 if speculation is None else speculation.tokens)]

    def capabilities(self) -> Capabilities:
        if self._llm is None:
            raise EngineUnavailableError(self._down)
        return Capabilities(
            salt=True,
            priority=True,
            cached_tokens=True,
            token_ids=True,
            logprobs=True,
            context_limit_tokens=self._shape.context_tokens,
            block_tokens=self._block_tokens,
            model=self._options.model.name,
        )

    # Inside

    def library(self) -> tuple[Any, Library]:
        """The running `AsyncLLM` and the names it came with, for who measures it. Raises EngineUnavailableError."""
        if self._llm is None or self._library is None:
            raise EngineUnavailableError(self._down)
        if self._llm.errored:
            raise EngineUnavailableError(
                "vLLM's engine process died; its log says why, the gateway has to be started again"
            )
        return self._llm, self._library

    def _counted(self, counts: StepCounts) -> None:
        self._running, self._waiting, self._kv_use = counts.running, counts.waiting, counts.kv_use
        self._acceptance.guessed(counts.guessed, counts.accepted)

    def _tiers(self, origin: Origin | None, salt: str | None) -> dict[str, Any] | None:
        if not self._options.host_tier_gib > 0:
            return None
        shared = origin is not None and origin.tenant in self._options.redis_tenants
        return tier_parameters(origin, salt, shared=shared)

    def _fault(self, error: Exception) -> Exception:
        if isinstance(error, PromptRefusedError):
            return error
        if self._library is not None and isinstance(error, self._library.refused):
            return PromptRefusedError(str(error))
        dead = self._llm is None or self._llm.errored
        return EngineUnavailableError(f"vLLM failed: {_told(error)}", fault=Fault.LOST if dead else Fault.ERROR)


class _Live:
    """A request that has begun. `engine_id` is unique for ever: an id of ours may come back after its end."""

    __slots__ = ("aborted", "ending", "engine_id", "first")

    def __init__(self, engine_id: str) -> None:
        self.engine_id = engine_id
        self.first = True
        self.aborted = False
        self.ending: asyncio.Task[None] | None = None


_FINISHES: Final = {"stop": EngineFinish.END_TOKEN, "length": EngineFinish.LENGTH, "abort": EngineFinish.ABORTED}


async def _abort(llm: Any, engine_id: str) -> None:
    with contextlib.suppress(Exception):  # an engine that died has nothing to abort
        await llm.abort(engine_id)


def _told(error: BaseException) -> str:
    """The last line of what an exception says, and where the rest stands."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[-1] if lines else type(error).__name__} (the log above has the rest)"
