"""One completion from end to end: budgets, admission, engine, usage, timings.

This is the one place where a request passes all of them; a door only translates. The decisions are made by
:mod:`foretype_backend.admission.scheduler` (pure); this module carries out its effects. What happens between a request's start and its
last chunk stands in :mod:`foretype_backend.serving.generation`.

Life of a request, with the names of `timings_ms`::

    received ─admit→ arrived ─queue→ started ─(engine queue)─prefill→ ─decode_first→ first text ─stream→ last chunk ─finish→ done

A cancel reaches the engine before the frame that brings it is done with; tokens that still arrive are counted as
`tokens_after_cancel`. A request whose engine does not let go within `limits.abort_grace_ms` is abandoned.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Collection

from foretype_context.tokens.tokenizer import Tokenizer
from foretype_wire.messages import RequestClass
from foretype_wire.redaction import log_fault
from foretype_wire.subscriptions import Subscribers

from foretype_backend.admission import scheduler
from foretype_backend.admission.build import make_scheduler, objectives_s, promised_s
from foretype_backend.admission.degradation import Ladder
from foretype_backend.admission.limits import Denied, Reservation
from foretype_backend.admission.outcomes import SHED, Decision, Reason
from foretype_backend.admission.scheduler import Scheduler, Ticket
from foretype_backend.config.settings import AdmissionConfig, LimitsConfig
from foretype_backend.engines.port import Engine, KnowsMemory
from foretype_backend.errors import (
    FAULT_MESSAGES,
    BudgetExceededError,
    EngineUnavailableError,
    Fault,
    PromptRefusedError,
)
from foretype_backend.identity.accounts import Accounts, refused_cost
from foretype_backend.identity.directory import Principal, Tier
from foretype_backend.metrics.metrics import MeasuredEngine, Metrics
from foretype_backend.prefix.salt import SaltBook
from foretype_backend.serving.completion import (
    AdmittedRequest,
    Asked,
    Claim,
    CompletionOutcome,
    Record,
    estimated_tokens,
    rate_limited,
)
from foretype_backend.serving.generation import Generation
from foretype_backend.serving.output_text import OutputText, TextDelta
from foretype_backend.serving.tracing import RequestTracer
from foretype_backend.timing_wheel import Alarms, Deadline

__all__ = ["AdmittedRequest", "Asked", "CompletionOutcome", "CompletionService"]

_TICK_S = 0.1
_WAITING_TICK_S = 0.02
"""While requests wait: what came too late is refused a few at a time, for a hundred refusals at once hold up everybody else."""
_SMOOTHING = 0.05
_DEADLINE_GRAIN_S = 0.005
_SENDERS_DOING = frozenset(
    {Reason.EXPIRED, Reason.CANCELLED, Reason.SUPERSEDED, Reason.DISCONNECTED, Reason.RATE_LIMITED}
)
"""Ends of requests that never ran and cost their sender something: else a storm of them would be free."""

_log = logging.getLogger("foretype.gateway")


class CompletionService:
    """Serves completions on one engine. Everything runs on one event loop."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        *,
        end_token_ids: frozenset[int],
        limits: LimitsConfig,
        connections: Callable[[], int] = lambda: 0,
        salts: SaltBook | None = None,
        admission: AdmissionConfig | None = None,
        accounts: Accounts | None = None,
        tracer: RequestTracer | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.tokenizer = tokenizer
        self.limits = limits
        self.salts = salts
        self.accounts = accounts
        self._objectives_s = {} if admission is None else objectives_s(admission)
        knows = isinstance(engine, KnowsMemory)
        self._scheduler = make_scheduler(limits, admission, engine.can_admit if knows else lambda _: True)
        self.ladder = Ladder()
        self.rungs_changed: Subscribers[Collection[str]] = Subscribers()
        """Told the tenants that are on another rung of the ladder now, whose clients are to be told."""
        self._tracer = tracer
        self._records: dict[str, Record] = {}
        self._asking: dict[str, Record] = {}
        """Of them, those that wait for a ledger of budgets; the scheduler does not know them yet."""
        self._generation = Generation(
            engine,
            end_token_ids=end_token_ids,
            limits=lambda: self.limits,
            salts=salts,
            began=self._began,
            retried=lambda: self.metrics.retries.inc(),
            tokenizer=tokenizer,
            clock=clock,
        )
        self._cached_share = 0.0
        self._logged: Fault | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self.metrics = Metrics(
            engine=engine.statistics,
            scheduler=lambda: self._scheduler.statistics(),
            connections=connections,
            slots=limits.max_running,
            objectives_s=promised_s(admission or AdmissionConfig()),
            collectors=engine.collectors() if isinstance(engine, MeasuredEngine) else (),
        )
        self.metrics.watch_load(
            level=lambda: 0 if self._scheduler.pressure is None else self._scheduler.pressure.level,
            rungs=lambda: self.ladder.below.values(),
            queued_tokens=lambda: self._scheduler.queued_tokens,
        )

    def statistics(self) -> scheduler.SchedulerStatistics:
        return self._scheduler.statistics()

    @property
    def scheduler(self) -> Scheduler:
        """To look at; only this class changes it."""
        return self._scheduler

    def use(self, limits: LimitsConfig, admission: AdmissionConfig) -> None:
        """Take other bounds and objectives; what runs goes on."""
        self.limits = limits
        self._objectives_s = objectives_s(admission)
        self.metrics.objectives.use(promised_s(admission))
        self._scheduler.use(make_scheduler(limits, admission))

    def cancel(self, key: str) -> bool:
        """End a live request; its `run` returns with finish `cancelled`. False when there is none of that key."""
        if key not in self._records:
            return False
        if key in self._asking:
            self._asking[key].stop(Reason.CANCELLED)
        self._apply(self._scheduler.cancel(key, self._now()))
        return True

    def supersede(self, key: str, session: str) -> bool:
        """End a live request of a session for another that comes in its place, as :meth:`cancel` does."""
        if key not in self._records:
            return False
        if key in self._asking and self._asking[key].job.session == session:
            self._asking[key].stop(Reason.SUPERSEDED)
        self._apply(self._scheduler.supersede(key, session, self._now()))
        return True

    def finish(self, key: str) -> None:
        """End a running request as if it had reached its token limit; what was delivered stands."""
        record = self._records.get(key)
        if record is not None:
            record.enough = True

    def disconnect(self, session: str) -> None:
        """End everything of a session."""
        for record in self._asking.values():
            if record.job.session == session:
                record.stop(Reason.DISCONNECTED)
        self._apply(self._scheduler.disconnect(session, self._now()))

    def deadline(self, asked_ms: float = math.inf) -> float:
        """Of a request that came now, as :class:`Asked` has it."""
        return self._now() + min(asked_ms, self.limits.max_deadline_ms) / 1000

    def claim(
        self, principal: Principal, class_: RequestClass, *, characters: int, context_tokens: int, max_tokens: int
    ) -> Claim:
        """Reserve what a prompt of so many characters may use, before anything is done with it.

        Args:
            context_tokens: what is more is cut or refused, and counts only for what that costs.

        Raises:
            BudgetExceededError: its sender's budget does not allow it.
        """
        prompt = estimated_tokens(characters)
        if self.accounts is None:
            return Claim(None, prompt, self._settle)
        tokens = min(prompt, context_tokens) + max_tokens
        reserved = self.accounts.reserve(principal, class_, tokens, self._now())
        if isinstance(reserved, Denied) and self.accounts.may_grow(reserved):
            return Claim(None, prompt, self._settle)  # :meth:`run` reserves when it has asked for more
        if isinstance(reserved, Denied):
            self.metrics.decided(class_, Decision.RATE_LIMITED)
            self.metrics.refused(class_, Reason.RATE_LIMITED)
            raise BudgetExceededError(rate_limited(reserved))
        return Claim(reserved, prompt, self._settle)

    def _settle(self, reservation: Reservation, tokens: int) -> None:
        if self.accounts is not None:
            self.accounts.settle(reservation, tokens, self._now())

    async def run(self, job: AdmittedRequest, deliver: Callable[[TextDelta], None]) -> CompletionOutcome:
        """Serve one completion; `deliver` is called with every piece of text and must not block.

        Returns when the request is over and its engine slot is free. Raises only CancelledError (the caller is gone; the
        engine is stopped all the same) and ValueError (the key is live already).
        """
        if job.key in self._records:
            raise ValueError(f"request key {job.key!r} is live already; keys must be unique")
        record = Record(
            job=job,
            output=OutputText(self.tokenizer, job.stop, first_line_tokens=job.max_tokens, shown=job.shown),
            arrived=self.clock(),
            decision=self._loop.create_future(),
            reservation=job.reservation,
        )
        self._records[job.key] = record
        self.metrics.came(job.class_)
        if self._tracer is not None:
            self._tracer.begin(record)
        outcome: CompletionOutcome | None = None
        try:
            outcome = await self._run(record, deliver)
            return outcome
        finally:
            del self._records[job.key]
            self._apply(self._scheduler.leave(job.key, self._now()))
            reason = Reason.DISCONNECTED if outcome is None else outcome.reason
            usage = record.usage() if outcome is None else outcome.usage
            if self.accounts is not None:
                engine_s = 0.0 if record.started is None else self.clock() - record.started
                cost = refused_cost(len(job.prompt.ids)) if reason in _SENDERS_DOING else 0
                self.accounts.over(
                    record.reservation, job.principal, job.class_, usage, engine_s, self._now(), refused_tokens=cost
                )
            ttft_s = None if record.first_text is None else record.first_text - job.received
            self.metrics.finished(job.class_, reason, usage, ttft_s)
            whole_s = self.clock() - job.received
            self.metrics.objectives.ended(job.objective or job.class_, reason, first_text_s=ttft_s, whole_s=whole_s)
            if outcome is not None:
                self.metrics.stages.ended(job.class_, outcome.timings_ms, usage, job.prompt.placed)
            if self._tracer is not None:
                self._tracer.ended(record, reason, usage, self.clock())
            _log.debug(
                "%s %s %s: %d prompt tokens (%d cached), %d generated, %d after cancel",
                job.key,
                job.class_,
                reason,
                usage.prompt_tokens,
                usage.cached_tokens,
                usage.generated_tokens,
                usage.tokens_after_cancel,
            )

    async def _run(self, record: Record, deliver: Callable[[TextDelta], None]) -> CompletionOutcome:
        job = record.job
        if self.accounts is not None:
            reserved = await self._reserve(self.accounts, record)
            if not isinstance(reserved, Denied):
                record.reservation = reserved
            if record.stop_reason is not None:
                return self._ended(record, record.stop_reason, "it was stopped while its budget was asked for")
            if isinstance(reserved, Denied):
                self.metrics.decided(job.class_, Decision.RATE_LIMITED)
                return rate_limited(reserved, record.timings(self.clock()))
        now = self._now()
        try:
            with Deadline(self._alarms, job.deadline) as record.guard:
                self._apply(self._scheduler.arrive(self._ticket(job, now), now))
                refused = await record.decision
                if refused is not None:
                    return self._ended(record, refused, "admission refused it")
                record.started = self.clock()
                return await self._generation.run(record, deliver)
        except TimeoutError as error:
            if record.guard is None or not record.guard.expired:
                return self._fault(record, error)  # a time-out of an adapter, not the deadline
            reason = record.stop_reason or Reason.EXPIRED
            return self._ended(record, reason, "the deadline passed before the first token")
        except PromptRefusedError as error:
            return self._ended(record, Reason.INVALID, error.client_message, field="segments")
        except EngineUnavailableError as error:
            return self._ended(record, Reason.ENGINE_LOST, self._told(error))
        except Exception as error:  # noqa: BLE001 - ours or an adapter's fault: ends this request, counts as `fault`
            return self._fault(record, error)

    async def _reserve(self, accounts: Accounts, record: Record) -> Reservation | Denied | None:
        """Claim exactly what it may use; the ledger of several gateways is asked before it is denied."""
        job = record.job
        tokens = len(job.prompt.ids) + (0 if job.prefill_only else job.most_tokens)

        def reserve() -> Reservation | Denied | None:
            if job.reservation is None:
                return accounts.reserve(job.principal, job.class_, tokens, self._now())
            return accounts.resize(job.reservation, tokens, self._now())

        reserved = reserve()
        if isinstance(reserved, Denied) and accounts.may_grow(reserved):
            self._asking[job.key] = record
            try:
                if await accounts.grow(reserved):
                    reserved = reserve()
            finally:
                del self._asking[job.key]
        return reserved

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Everything runs on it. Asked for once: Python asks the kernel for its process each time."""
        return asyncio.get_running_loop()

    @functools.cached_property
    def _alarms(self) -> Alarms:
        return Alarms(self._loop, grain_s=_DEADLINE_GRAIN_S)

    def _now(self) -> float:
        return self._loop.time()

    def _ticket(self, job: AdmittedRequest, now: float) -> Ticket:
        principal, prompt_tokens = job.principal, len(job.prompt.ids)
        uncached_tokens = prompt_tokens - self._guess_cached(prompt_tokens)
        return Ticket(
            key=job.key,
            session=job.session,
            document=job.document,
            class_=job.class_,
            deadline=job.deadline,
            tenant=principal.tenant,
            weight=principal.weight,
            free=principal.tier is Tier.FREE,
            uncached_tokens=uncached_tokens,
            kv_tokens=uncached_tokens + job.most_tokens,
            cost_tokens=job.cost_tokens,
            objective_s=self._objectives_s.get(job.objective or job.class_.value),
            arrived=now,
        )

    def _guess_cached(self, prompt_tokens: int) -> int:
        """Before an engine has answered, the share of prompts that was cached lately is the best guess."""
        return int(prompt_tokens * self._cached_share)

    def _began(self, record: Record) -> None:
        """The first chunk says how fast the engine is, and how near the objective."""
        prompt_tokens = len(record.job.prompt.ids)
        uncached = prompt_tokens - record.cached_tokens
        self._cached_share += _SMOOTHING * (record.cached_tokens / max(1, prompt_tokens) - self._cached_share)
        now = self.clock()
        self._scheduler.first_token(
            record.job.key,
            self._now(),
            uncached_tokens=uncached,
            prefill_s=record.prefill_of(now) / 1000,
            ttft_s=now - record.job.received,
        )

    def _apply(self, effects: list[scheduler.Effect]) -> None:
        """Carry out what the scheduler decided."""
        for effect in effects:
            record = self._records.get(effect.key)
            if record is None:
                continue
            self.metrics.decided(record.job.class_, effect.decision)
            if isinstance(effect, scheduler.Stop):
                self._stop(record, effect.reason)
                continue
            self._weigh(record.job, shed=effect.decision in SHED)
            record.decide(None if isinstance(effect, scheduler.Start) else effect.reason)
        if self._ticking is None and (self._records or self._unsettled):
            tick_s = _WAITING_TICK_S if self._scheduler.waiting else _TICK_S
            self._ticking = self._loop.call_later(tick_s, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        now, pressure = self._now(), self._scheduler.pressure
        self._apply(self._scheduler.tick(now))
        if pressure is not None:
            changed = self.ladder.turn(level=pressure.level, highest=pressure.highest, now=now)
            if changed:
                self.rungs_changed.tell(changed)

    def _weigh(self, job: AdmittedRequest, *, shed: bool) -> None:
        """What a tenant asks counts for its rung."""
        self.ladder.decided(
            job.tenant,
            weight=job.principal.weight,
            tokens=job.cost_tokens,
            interactive=job.class_ is RequestClass.INTERACTIVE,
            shed=shed,
            free=job.principal.tier is Tier.FREE,
        )

    @property
    def _unsettled(self) -> bool:
        """Not everybody is fully served: something has to be looked at again, whether or not requests come."""
        pressure = self._scheduler.pressure
        return pressure is not None and (pressure.level > 0 or self.ladder.moving)

    def _stop(self, record: Record, reason: Reason) -> None:
        """Abort the engine's work at once; the request's own task then sees the end of the stream."""
        record.stop(reason)
        self._generation.abort(record)
        grace = self._now() + (0.0 if record.job.prefill_only else self.limits.abort_grace_ms / 1000)
        if record.guard is not None:
            record.guard.move(min(grace, record.job.deadline) if record.started is None else grace)

    def _told(self, error: EngineUnavailableError) -> str:
        """What a client hears of it. Where the engine is a server that is no place and none of its words, which may quote the prompt."""
        if not getattr(self.engine, "remote", False):
            return str(error)
        if error.fault is not self._logged:
            self._logged = error.fault
            _log.warning("%r: %s", self.engine, FAULT_MESSAGES[error.fault])
        return FAULT_MESSAGES[error.fault]

    def _fault(self, record: Record, error: Exception) -> CompletionOutcome:
        log_fault(_log, "request failed", error)
        return self._ended(record, Reason.FAULT, "internal error; see the gateway's log")

    def _ended(
        self, record: Record, reason: Reason, message: str = "", *, field: str | None = None
    ) -> CompletionOutcome:
        return record.ended(reason, self.clock(), message, field=field)
