"""One completion from request to end: the request, the state of the running completion, its outcome. No I/O and no clock."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec
from foretype_context.prompt.profile import Stop
from foretype_wire.messages import Finish, RequestClass, Timings, Usage

from foretype_backend.admission.limits import Denied, Reservation
from foretype_backend.admission.outcomes import FINISHES, Reason, Refusal, refusal
from foretype_backend.engines.port import Chunk, EngineFinish
from foretype_backend.identity.accounts import refused_cost
from foretype_backend.identity.directory import Principal
from foretype_backend.prefix.origin import Origin
from foretype_backend.serving.output_text import OutputText, TextDelta
from foretype_backend.serving.render import Prompt
from foretype_backend.timing_wheel import Deadline

_RETRY_AFTER_MS = 1000.0

_ANYBODY = Principal()
_NO_STOP = Stop()
_NO_USAGE = Usage()
_NO_TIMINGS = Timings()
_NO_TEXT = TextDelta("", 0.0, 0)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request without its prompt: who asks, what for, and until when an answer is of use.

    Attributes:
        received: seconds on the service's `clock`, which measures stages.
        deadline: seconds on the event loop's clock, which is coarser (uvloop: milliseconds) and drives timers.
        key: unique among live requests of this gateway.
        session: the session that the request belongs to.
        user: the user's name as the client sends it, for a principal that names no user.
        prefill_only: compute and cache the prompt, generate nothing.
        principal: who asks, and pays.
        objective: the latency objective of the request, if it is not its class's (`fim`).
        repository: the repository whose cache the prompt may share, within the principal's tenant.
        traceparent: the client's span, as the client sent it.
    """

    key: str
    session: str
    received: float
    deadline: float
    class_: RequestClass = RequestClass.INTERACTIVE
    document: str = ""
    user: str = ""
    temperature: float = 0.0
    prefill_only: bool = False
    principal: Principal = _ANYBODY
    objective: str = ""
    repository: str = ""
    language: str = ""
    traceparent: str = ""


class AdmittedRequest(Asked, frozen=True, kw_only=True):
    """One completion to serve; doors make it by :meth:`of`.

    Attributes:
        reservation: of budgets, claimed before the prompt was encoded; None where nothing was claimed.
        end_token_ids: in place of those of the service.
        shown: control tokens that the answer may hold, and the bytes that each stands for.
    """

    prompt: Prompt
    max_tokens: int
    stop: Stop = _NO_STOP
    reservation: Reservation | None = None
    end_token_ids: frozenset[int] | None = None
    shown: Mapping[int, bytes] | None = None

    @classmethod
    def of(
        cls,
        asked: Asked,
        prompt: Prompt,
        claim: Claim,
        *,
        max_tokens: int,
        context_tokens: int,
        stop: Stop = _NO_STOP,
        end_token_ids: frozenset[int] | None = None,
        shown: Mapping[int, bytes] | None = None,
    ) -> Self:
        """Take the claim over; the context has to hold the prompt and what is generated."""
        return cls(
            **msgspec.structs.asdict(asked),
            prompt=prompt,
            max_tokens=max(1, min(max_tokens, context_tokens - len(prompt.ids))),
            stop=stop,
            reservation=claim.take(),
            end_token_ids=end_token_ids,
            shown=shown,
        )

    @property
    def tenant(self) -> str:
        return self.principal.tenant

    @property
    def most_tokens(self) -> int:
        """Most tokens to generate: `max_tokens`, or the limit that holds once the first line has opened a block."""
        opened = self.stop.opened
        return self.max_tokens if opened is None else max(self.max_tokens, opened.max_tokens)

    @property
    def cost_tokens(self) -> int:
        """The request's part of its tenant's share. A prompt is mostly cached, and computing a token costs less than generating one."""
        return max(1, self.max_tokens + len(self.prompt.ids) // 8)

    @property
    def origin(self) -> Origin:
        """What routing and cache tiers need to know of the request."""
        return Origin(
            tenant=self.tenant,
            repository=self.repository,
            developer=developer_of(self.tenant, self.principal.user or self.user, self.session),
            session=self.session,
            document=self.document,
            language=self.language,
            placed=self.prompt.placed,
        )


def developer_of(tenant: str, user: str, session: str) -> str:
    """One name for a developer, the same on every gateway where they have one."""
    return f"{tenant}/{user}" if user else session


class CompletionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a completion ended: `finish` or `refusal`, never both.

    Attributes:
        rest: text that came together with the end and was not delivered: the door sends both at once.
        ending: log-probability and number of the tokens that ended the text and are no part of it.
    """

    reason: Reason
    finish: Finish | None
    refusal: Refusal | None
    usage: Usage = _NO_USAGE
    timings_ms: Timings = _NO_TIMINGS
    rest: TextDelta | None = None
    ending: TextDelta = _NO_TEXT


class Claim:
    """A claim on budgets, from before a prompt is encoded until a job takes it over.

    A claim that no job takes over is settled when the `with` block ends.

    Args:
        prompt_tokens: an estimate, which :meth:`counted` replaces.
        settle: called with the reservation and what the request costs, in tokens.
    """

    def __init__(
        self, reservation: Reservation | None, prompt_tokens: int, settle: Callable[[Reservation, int], None]
    ) -> None:
        self._reservation = reservation
        self._settle = settle
        self._cost_tokens = refused_cost(prompt_tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()

    def settle(self) -> None:
        """Settle what no job took over."""
        reservation = self.take()
        if reservation is not None:
            self._settle(reservation, self._cost_tokens)

    def counted(self, prompt_tokens: int) -> None:
        """Set the exact number of tokens: the prompt was encoded."""
        self._cost_tokens = refused_cost(prompt_tokens)

    def take(self) -> Reservation | None:
        """Hand over to a job, which settles it when it is over."""
        reservation, self._reservation = self._reservation, None
        return reservation


def estimated_tokens(characters: int) -> int:
    """Tokens of a text that is not encoded yet. A low guess, so that no request within its budget is refused for a guess."""
    return characters // 4


def rate_limited(denied: Denied, timings: Timings = _NO_TIMINGS) -> CompletionOutcome:
    """The principal's budget is used up; the refusal says for how long."""
    what = denied.name.partition(":")[0]
    retry_ms = None if math.isinf(denied.retry_after_s) else max(1.0, denied.retry_after_s * 1000)
    message = f"the {what}'s budget is used up" if retry_ms else f"larger than the burst of the {what}'s budget"
    refused = refusal(Reason.RATE_LIMITED, message, retry_after_ms=retry_ms)
    return CompletionOutcome(reason=Reason.RATE_LIMITED, finish=None, refusal=refused, timings_ms=timings)


@dataclass(slots=True, eq=False)
class Record:
    """One live request. Times are seconds on the service's clock.

    Attributes:
        decision: of admission: None starts the request, a reason refuses it.
        guard: the deadline, and after a cancel the grace of the engine.
        stop_reason: why the request is to end; None while it may go on.
        reservation: of the principal's budgets.
        measured: the scheduler has been told of the first token.
        enough: the caller has enough text; the request ends as if at its token limit.
        engine_done: the engine's last chunk has come, so that closing its stream waits for nothing.
        traceparent: the gateway's own span of the request; "" where nothing is traced.
        answer_start: tokens with which the gateway began the answer, for an engine that began otherwise; they follow the prompt. None where
            the gateway did not.
        counted_generated_tokens: generated in this attempt, by the engine's count.
        prompt_computed: something came of the prompt; how much of one was computed that was given up before, nobody tells.
        generated_before: tokens of earlier attempts, by the engine's count or else those that came.
        received_before: tokens that came in earlier attempts.
    """

    job: AdmittedRequest
    output: OutputText
    arrived: float
    decision: asyncio.Future[Reason | None]
    guard: Deadline | None = None
    stop_reason: Reason | None = None
    generated_at_stop: int = 0
    started: float | None = None
    first_chunk: float | None = None
    first_text: float | None = None
    last_chunk: float | None = None
    prompt_computed: bool = False
    queue_ms: float = 0.0
    prefill_ms: float | None = None
    cached_tokens: int = 0
    cached_source: str = ""
    counted_prompt_tokens: int | None = None
    counted_generated_tokens: int | None = None
    attempts: int = 0
    reservation: Reservation | None = None
    measured: bool = False
    enough: bool = False
    engine_done: bool = False
    traceparent: str = ""
    answer_start: tuple[int, ...] | None = None
    generated_before: int = 0
    received_before: int = 0

    @property
    def generated_tokens(self) -> int:
        """Tokens generated in all attempts."""
        came, counted = self.output.generated_tokens - self.received_before, self.counted_generated_tokens
        return self.generated_before + (came if counted is None else counted)

    @property
    def engine_id(self) -> str:
        """The id for the engine. A retry needs one of its own: the engine may still remember the first."""
        return self.job.key if self.attempts <= 1 else f"{self.job.key}~{self.attempts}"

    def decide(self, refused: Reason | None) -> None:
        """Take admission's decision; the first one counts."""
        if not self.decision.done():
            self.decision.set_result(refused)

    def stop(self, reason: Reason) -> None:
        """The request is to end for this reason: tokens from now on count as tokens after a cancel."""
        self.stop_reason = reason
        self.generated_at_stop = self.generated_tokens

    def attempt(self) -> None:
        """A new attempt begins: the engine is asked, perhaps once more."""
        self.generated_before, self.received_before = self.generated_tokens, self.output.generated_tokens
        self.counted_generated_tokens = None
        self.attempts += 1
        self.engine_done = False

    def restart_output(self) -> None:
        """The answer began otherwise than the prompt demands: its text starts again from the beginning."""
        self.output = self.output.again()

    def begin_answer(self, ids: Sequence[int]) -> None:
        """From now on these tokens follow the prompt."""
        self.answer_start = tuple(ids)

    def note(self, chunk: Chunk, now: float) -> None:
        """Remember the times and counts of a chunk; its text goes elsewhere."""
        if self.first_chunk is None:
            self.first_chunk = now
        self.last_chunk = now
        if chunk.token_ids or chunk.finish is not EngineFinish.ABORTED:
            self.prompt_computed = True
        self.engine_done = chunk.finish is not None
        if chunk.cached_tokens is not None:
            self.cached_tokens = chunk.cached_tokens
            self.cached_source = "engine"
        if chunk.prompt_tokens is not None:
            self.counted_prompt_tokens = chunk.prompt_tokens
        if chunk.generated_tokens is not None:
            self.counted_generated_tokens = chunk.generated_tokens
        if chunk.queue_ms is not None:
            self.queue_ms = chunk.queue_ms
        if chunk.prefill_ms is not None:
            self.prefill_ms = chunk.prefill_ms

    def warmed(self, now: float) -> None:
        """The prompt is in the cache, which is all that was asked."""
        self.first_chunk = self.last_chunk = now
        self.prompt_computed = True

    def usage(self) -> Usage:
        generated = self.generated_tokens
        prompt_tokens = self.counted_prompt_tokens or len(self.job.prompt.ids)
        return Usage(
            prompt_tokens=prompt_tokens if self.prompt_computed else 0,
            cached_tokens=self.cached_tokens if self.prompt_computed else 0,
            cached_source=self.cached_source,
            generated_tokens=generated,
            tokens_after_cancel=max(0, generated - self.generated_at_stop) if self.stop_reason is not None else 0,
        )

    def ended(
        self,
        reason: Reason,
        now: float,
        message: str = "",
        *,
        field: str | None = None,
        rest: TextDelta | None = None,
    ) -> CompletionOutcome:
        """The outcome for `reason`. A deadline that passed after the first text is a finish, before it a refusal."""
        usage, timings = self.usage(), self.timings(now)
        finish = FINISHES.get(reason)
        if reason is Reason.EXPIRED and self.first_text is None:
            finish = None
        if finish is not None:
            return CompletionOutcome(
                reason=reason,
                finish=finish,
                refusal=None,
                usage=usage,
                timings_ms=timings,
                rest=rest,
                ending=self.output.ending,
            )
        retry = _RETRY_AFTER_MS if reason in (Reason.OVERLOADED, Reason.ENGINE_LOST) else None
        refused = refusal(reason, message, field=field, retry_after_ms=retry)
        return CompletionOutcome(reason=reason, finish=None, refusal=refused, usage=usage, timings_ms=timings)

    def _in_engine(self, now: float) -> tuple[float, float]:
        """How long the prompt waited in the engine, and was computed, in milliseconds."""
        if self.started is None:
            return 0.0, 0.0
        first_chunk = self.first_chunk if self.first_chunk is not None else now
        waited_ms = max(0.0, (first_chunk - self.started) * 1000)
        queue_ms = min(self.queue_ms, waited_ms)
        prefill_ms = waited_ms - queue_ms
        return queue_ms, prefill_ms if self.prefill_ms is None else min(self.prefill_ms, prefill_ms)

    def prefill_of(self, now: float) -> float:
        """The stage `prefill` of :meth:`timings` alone."""
        return self._in_engine(now)[1]

    def timings(self, now: float) -> Timings:
        """Split the time of a request into its stages; they add up to `now - received`, in milliseconds."""
        received, arrived = self.job.received, self.arrived
        started = self.started if self.started is not None else now
        engine_queue_ms, prefill_ms = self._in_engine(now)
        first_text = self.first_text
        last_chunk = self.last_chunk if self.last_chunk is not None else now
        until_text_ms = ((first_text if first_text is not None else last_chunk) - started) * 1000
        return Timings(
            admit=(arrived - received) * 1000,
            queue=(started - arrived) * 1000 + engine_queue_ms,
            prefill=prefill_ms,
            decode_first=max(0.0, until_text_ms - engine_queue_ms - prefill_ms) if self.started is not None else 0.0,
            stream=max(0.0, (last_chunk - first_text) * 1000) if first_text is not None else 0.0,
            finish=max(0.0, (now - max(last_chunk, first_text or 0.0)) * 1000),
        )
