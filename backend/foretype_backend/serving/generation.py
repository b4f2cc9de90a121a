"""One admitted request on its engine: attempts, text, stop rules, and letting go of what still runs."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Final

import msgspec
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_wire.redaction import log_fault

from foretype_backend.admission.outcomes import Reason
from foretype_backend.admission.scheduler import PRIORITY
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.engines.beginnings import Beginning, Pieces
from foretype_backend.engines.port import Chunk, Engine, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.salt import SaltBook
from foretype_backend.serving.completion import AdmittedRequest, CompletionOutcome, Record
from foretype_backend.serving.output_text import TextDelta, joined

_MAX_ENGINE_STOPS: Final = 4
"""OpenAI-compatible servers answer 400 to more; the gateway enforces all of them itself."""

_RETRY_PAUSE_S: Final = 0.05


class _OtherBeginningError(Exception):
    """The answer does not begin with what the prompt left out."""


_log = logging.getLogger("foretype.gateway")


class _Answer:
    """What is made of the chunks of one attempt, in the moment in which each comes: text is delivered, until something ends it.

    Args:
        began: called with the record's first chunk noted.
        clock: of the records, in seconds.
        now: of deadlines.
    """

    def __init__(
        self,
        record: Record,
        deliver: Callable[[TextDelta], None],
        *,
        began: Callable[[Record], None],
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._record = record
        self._deliver = deliver
        self._began = began
        self._clock = clock
        self._now = now
        self._outcome: CompletionOutcome | None = None
        self._failed: Exception | None = None

    @property
    def over(self) -> bool:
        return self._outcome is not None or self._failed is not None

    def outcome(self) -> CompletionOutcome:
        """When it is over. Raises what ended it."""
        if self._outcome is None:
            raise self._failed or EngineUnavailableError("the engine has not ended the stream")
        return self._outcome

    def take(self, chunk: Chunk) -> bool:
        """Whether it goes on."""
        try:
            self._outcome = self._taken(chunk)
        except Exception as error:  # noqa: BLE001 - whoever reads the stream is to raise it, not the engine that calls
            self._failed = error
            return False
        return self._outcome is None

    def _taken(self, chunk: Chunk) -> CompletionOutcome | None:
        record, output = self._record, self._record.output
        record.note(chunk, self._clock())
        if not record.measured:
            record.measured = True
            self._began(record)
        delta = output.feed(chunk)
        if record.stop_reason is not None:
            # While the engine has not ended it, only what still comes is counted.
            return None if chunk.finish is None else self._ended(record.stop_reason)
        if output.ended and output.strayed and record.answer_start is None:
            raise _OtherBeginningError
        if delta is not None:
            if record.first_text is None:
                record.first_text = self._clock()
            if chunk.finish in (None, EngineFinish.ABORTED):
                self._deliver(delta)
                delta = None
        if output.ended or record.enough:
            return self._ended(Reason.STOP if output.stopped else Reason.LENGTH, rest=delta)
        return None if chunk.finish is None else self._finished(chunk.finish, delta)

    def _finished(self, finish: EngineFinish, delta: TextDelta | None) -> CompletionOutcome:
        record, output = self._record, self._record.output
        if finish is EngineFinish.ABORTED:
            if self._now() >= record.job.deadline:
                return self._ended(Reason.EXPIRED, "the deadline passed before the engine could start")
            raise EngineUnavailableError("the engine dropped the request; retry")
        if finish is EngineFinish.END_TOKEN and not output.begun and record.answer_start is None:
            raise _OtherBeginningError
        rest = joined(delta, output.finish())
        if rest is not None and record.first_text is None:
            record.first_text = self._clock()
        return self._ended(Reason.END_OF_MIDDLE if finish is EngineFinish.END_TOKEN else Reason.LENGTH, rest=rest)

    def _ended(self, reason: Reason, message: str = "", *, rest: TextDelta | None = None) -> CompletionOutcome:
        return self._record.ended(reason, self._clock(), message, rest=rest)


class Generation:
    """Runs requests on one engine.

    Args:
        limits: those of now.
        salts: isolate the prefix caches of tenants; None where there is one tenant.
        began: called once for every request, with its first chunk noted.
        retried: called when a request is sent again because the engine was lost.
        tokenizer: the model's.
        clock: of the records, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        end_token_ids: frozenset[int],
        limits: Callable[[], LimitsConfig],
        salts: SaltBook | None,
        began: Callable[[Record], None],
        retried: Callable[[], None],
        tokenizer: Tokenizer,
        clock: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._engine = engine
        self._end_token_ids = end_token_ids
        self._salts = salts
        self._began = began
        self._retried = retried
        self._tokenizer = tokenizer
        self._read: Pieces | None = None
        self._clock = clock

    async def run(self, record: Record, deliver: Callable[[TextDelta], None]) -> CompletionOutcome:
        """Generate; when the engine is lost before the first token, once more as soon as it is back.

        An engine that died a second time since then is not asked again: this prompt may be what kills it. One that does not hold an answer
        to its beginning, and began otherwise, gets the answer begun: it would fit nowhere. Raises what the engine raises.
        """
        give_up_at = self._loop.time() + self._limits().retry_wait_ms / 1000
        restarts_before = self._engine.restarts
        strayed = False
        while True:
            if record.stop_reason is not None:
                return record.ended(record.stop_reason, self._clock())
            try:
                if strayed and record.answer_start is None:
                    await self._begin(record, deliver)
                    continue
                return await self._attempt(record, deliver)
            except _OtherBeginningError:
                strayed = True
                record.restart_output()
            except EngineUnavailableError:
                if record.stop_reason is not None:
                    continue
                died_twice = self._engine.restarts - restarts_before >= 2
                if record.output.generated_tokens or died_twice or self._loop.time() >= give_up_at:
                    raise
                if record.attempts == 1:
                    self._retried()
                await asyncio.sleep(_RETRY_PAUSE_S)

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def abort(self, record: Record) -> None:
        """Tell the engine at once; :meth:`run` returns when its stream has ended."""
        try:
            self._engine.abort(record.engine_id)
        except Exception as error:  # noqa: BLE001 - an adapter's fault; the grace of a cancel ends the request all the same
            log_fault(_log, "abort failed", error)

    async def _attempt(self, record: Record, deliver: Callable[[TextDelta], None]) -> CompletionOutcome:
        job = record.job
        record.attempt()
        salt, origin = self._whose(job)
        if job.prefill_only:
            await self._engine.warm(job.prompt.ids, salt=salt, origin=origin)
            record.warmed(self._clock())
            return record.ended(record.stop_reason or Reason.LENGTH, self._clock())
        params = GenerationParams(
            max_tokens=max(1, job.most_tokens - len(record.answer_start or ())),
            end_token_ids=self._end_token_ids if job.end_token_ids is None else job.end_token_ids,
            temperature=job.temperature,
            stop_strings=tuple(job.stop.strings[:_MAX_ENGINE_STOPS]),
            begins="" if record.answer_start else job.stop.repeats,
        )
        answer = _Answer(record, deliver, began=self._began, clock=self._clock, now=self._loop.time)
        stream = self._engine.generate(self._request(record, params, salt, origin, take=answer.take))
        try:
            async for chunk in stream:
                if answer.over or not answer.take(chunk):
                    return answer.outcome()
            raise EngineUnavailableError("the engine ended the stream without saying why; retry")
        finally:
            await self._release(record, stream)

    async def _begin(self, record: Record, deliver: Callable[[TextDelta], None]) -> None:
        """Give the answer its first tokens, each the likeliest of those that the beginning allows; where the engine chooses others, the text itself."""
        pieces = await asyncio.to_thread(self._pieces)
        beginning = Beginning(record.job.stop.repeats)
        given: list[int] = []
        while record.stop_reason is None and (allowed := beginning.allowed(pieces)) is not None:
            token = await self._one_of(record, tuple(allowed.tolist()), given)
            if record.stop_reason is not None:
                break
            if token is None:
                delta = record.output.given(beginning.left)
                given += self._tokenizer.encode(beginning.left)
                beginning.came(beginning.left.encode())
            else:
                delta = record.output.feed(Chunk(token_ids=(token,)))
                given.append(token)
                beginning.came(self._tokenizer.decode([token]))
            if delta is not None:
                record.first_text = record.first_text or self._clock()
                deliver(delta)
        record.begin_answer(given)

    async def _one_of(self, record: Record, allowed: tuple[int, ...], given: Sequence[int]) -> int | None:
        """The token that follows, of these; None where the engine takes another one."""
        record.attempt()
        salt, origin = self._whose(record.job)
        params = GenerationParams(max_tokens=1, temperature=record.job.temperature, first_of=allowed)
        stream = self._engine.generate(self._request(record, params, salt, origin, given))
        token: int | None = None
        try:
            async for chunk in stream:
                record.note(chunk, self._clock())
                token = chunk.token_ids[0] if chunk.token_ids else token
                if chunk.finish is not None or chunk.text:
                    break
        finally:
            await self._release(record, stream)
        return token if token in allowed else None

    def _pieces(self) -> Pieces:
        """Of the whole vocabulary, once."""
        if self._read is None:
            self._read = Pieces([self._tokenizer.decode([id]) for id in range(self._tokenizer.vocabulary_tokens)])
        return self._read

    def _request(
        self,
        record: Record,
        params: GenerationParams,
        salt: str | None,
        origin: Origin,
        given: Sequence[int] = (),
        take: Callable[[Chunk], bool] | None = None,
    ) -> GenerationRequest:
        job, behind = record.job, [*(record.answer_start or ()), *given]
        text = self._tokenizer.decode(behind).decode("utf-8", "replace") if behind else ""
        return GenerationRequest(
            record.engine_id,
            [*job.prompt.ids, *behind] if behind else job.prompt.ids,
            params,
            prompt_text=job.prompt.text + text,
            priority=PRIORITY[job.class_],
            salt=salt,
            deadline=job.deadline,
            origin=origin,
            traceparent=record.traceparent,
            take=take,
        )

    def _whose(self, job: AdmittedRequest) -> tuple[str | None, Origin]:
        """The salt of the cache that the prompt may use now, and its origin."""
        salts = self._salts
        if salts is None:
            return None, job.origin
        who = job.principal
        owner = salts.rights.owner(who.tenant, job.repository, team=who.team, user=who.user, credential=who.credential)
        origin = msgspec.structs.replace(job.origin, owner=owner) if owner else job.origin
        return salts.salt(salts.namespace(job.tenant, job.repository, owner=owner)), origin

    async def _release(self, record: Record, stream: AsyncIterator[Chunk]) -> None:
        """Close the engine's stream, which aborts what still runs; never wait longer than the grace for it."""
        if record.engine_done and isinstance(stream, AsyncGenerator):
            await stream.aclose()
            return
        grace_s = self._limits().abort_grace_ms / 1000
        try:
            async with asyncio.timeout(grace_s):
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()
                else:
                    self._engine.abort(record.engine_id)
        except TimeoutError:
            _log.error("the engine did not release a request within %.0f ms", self._limits().abort_grace_ms)
        except EngineUnavailableError:
            _log.warning("the engine was lost while a request was being closed")
