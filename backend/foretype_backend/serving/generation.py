"""One admitted request on its engine: attempts, text, stop rules, and letting go of what still runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

import msgspec
from foretype_wire.redaction import log_fault

from foretype_backend.admission.outcomes import Reason
from foretype_backend.admission.scheduler import PRIORITY
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.engines.port import Chunk, Engine, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.salt import SaltBook
from foretype_backend.serving.completion import AdmittedRequest, CompletionOutcome, Record
from foretype_backend.serving.output_text import TextDelta, joined

_MAX_ENGINE_STOPS: Final = 4
"""OpenAI-compatible servers answer 400 to more; the gateway enforces all of them itself."""

_RETRY_PAUSE_S: Final = 0.05

_log = logging.getLogger("foretype.gateway")


class Generation:
    """Runs requests on one engine.

    Args:
        limits: may be changed while requests run.
        salts: isolate the prefix caches of tenants; None where there is one tenant.
        began: called once for every request, with its first chunk noted.
        retried: called when a request is sent again because the engine was lost.
        clock: of the records, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        end_token_ids: frozenset[int],
        limits: LimitsConfig,
        salts: SaltBook | None,
        began: Callable[[Record], None],
        retried: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.limits = limits
        self._engine = engine
        self._end_token_ids = end_token_ids
        self._salts = salts
        self._began = began
        self._retried = retried
        self._clock = clock

    async def run(self, record: Record, deliver: Callable[[TextDelta], None]) -> CompletionOutcome:
        """Generate; when the engine is lost before the first token, once more as soon as it is back.

        An engine that died a second time since then is not asked again: this prompt may be what kills it. Raises what the engine raises.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.limits.retry_wait_ms / 1000
        restarts_before = self._engine.restarts
        while True:
            if record.stop_reason is not None:
                return self._ended(record, record.stop_reason)
            try:
                return await self._attempt(record, deliver, loop)
            except EngineUnavailableError:
                if record.stop_reason is not None:
                    continue
                died_twice = self._engine.restarts - restarts_before >= 2
                if record.output.generated_tokens or died_twice or loop.time() >= give_up_at:
                    raise
                if record.attempts == 1:
                    self._retried()
                await asyncio.sleep(_RETRY_PAUSE_S)

    def abort(self, record: Record) -> None:
        """Tell the engine at once; :meth:`run` returns when its stream has ended."""
        try:
            self._engine.abort(record.engine_id)
        except Exception as error:  # noqa: BLE001 - an adapter's fault; the grace of a cancel ends the request all the same
            log_fault(_log, "abort failed", error)

    async def _attempt(
        self, record: Record, deliver: Callable[[TextDelta], None], loop: asyncio.AbstractEventLoop
    ) -> CompletionOutcome:
        job = record.job
        record.attempts += 1
        record.engine_done = False
        salt, origin = self._whose(job)
        if job.prefill_only:
            await self._engine.warm(job.prompt.ids, salt=salt, origin=origin)
            record.first_chunk = record.last_chunk = self._clock()
            return self._ended(record, record.stop_reason or Reason.LENGTH)
        stream = self._engine.generate(
            GenerationRequest(
                record.engine_id,
                job.prompt.ids,
                GenerationParams(
                    max_tokens=job.most_tokens,
                    end_token_ids=self._end_token_ids if job.end_token_ids is None else job.end_token_ids,
                    temperature=job.temperature,
                    stop_strings=tuple(job.stop.strings[:_MAX_ENGINE_STOPS]),
                    begins=job.stop.repeats,
                ),
                prompt_text=job.prompt.text,
                priority=PRIORITY[job.class_],
                salt=salt,
                deadline=job.deadline,
                origin=origin,
                traceparent=record.traceparent,
            )
        )
        try:
            return await self._consume(record, stream, deliver, loop)
        finally:
            await self._release(record, stream)

    def _whose(self, job: AdmittedRequest) -> tuple[str | None, Origin]:
        """The salt of the cache that the prompt may use now, and its origin."""
        salts = self._salts
        if salts is None:
            return None, job.origin
        who = job.principal
        owner = salts.rights.owner(who.tenant, job.repository, team=who.team, user=who.user, credential=who.credential)
        origin = msgspec.structs.replace(job.origin, owner=owner) if owner else job.origin
        return salts.salt(salts.namespace(job.tenant, job.repository, owner=owner)), origin

    async def _consume(
        self,
        record: Record,
        stream: AsyncIterator[Chunk],
        deliver: Callable[[TextDelta], None],
        loop: asyncio.AbstractEventLoop,
    ) -> CompletionOutcome:
        output = record.output
        async for chunk in stream:
            record.note(chunk, self._clock())
            if not record.measured:
                record.measured = True
                self._began(record)
            delta = output.feed(chunk)
            if record.stop_reason is not None:
                if chunk.finish is None:
                    continue  # already aborted: only count what still comes
                return self._ended(record, record.stop_reason)
            if delta is not None:
                if record.first_text is None:
                    record.first_text = self._clock()
                if chunk.finish in (None, EngineFinish.ABORTED):
                    deliver(delta)
                    delta = None
            if output.stopped:
                return self._ended(record, Reason.STOP, rest=delta)
            if record.enough or output.too_long or output.unlikely:
                return self._ended(record, Reason.LENGTH, rest=delta)
            if chunk.finish is not None:
                break
        else:
            raise EngineUnavailableError("the engine ended the stream without saying why; retry")
        if chunk.finish is EngineFinish.ABORTED:
            if loop.time() >= record.job.deadline:
                return self._ended(record, Reason.EXPIRED, "the deadline passed before the engine could start")
            raise EngineUnavailableError("the engine dropped the request; retry")
        rest = joined(delta, output.finish())
        if rest is not None and record.first_text is None:
            record.first_text = self._clock()
        reason = Reason.END_OF_MIDDLE if chunk.finish is EngineFinish.END_TOKEN else Reason.LENGTH
        return self._ended(record, reason, rest=rest)

    async def _release(self, record: Record, stream: AsyncIterator[Chunk]) -> None:
        """Close the engine's stream, which aborts what still runs; never wait longer than the grace for it."""
        if record.engine_done and isinstance(stream, AsyncGenerator):
            await stream.aclose()
            return
        grace_s = self.limits.abort_grace_ms / 1000
        try:
            async with asyncio.timeout(grace_s):
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()
                else:
                    self._engine.abort(record.engine_id)
        except TimeoutError:
            _log.error("the engine did not release a request within %.0f ms", self.limits.abort_grace_ms)
        except EngineUnavailableError:
            _log.warning("the engine was lost while a request was being closed")

    def _ended(
        self, record: Record, reason: Reason, message: str = "", *, rest: TextDelta | None = None
    ) -> CompletionOutcome:
        return record.ended(reason, self._clock(), message, rest=rest)
