"""The loop of the embedded engine's process: commands in, steps, reports out. Knows no OpenVINO and no pipe."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from foretype_backend.engines.embedded.ipc import Cancel, Ended, EngineLoad, Output, Report, Submit
from foretype_backend.engines.embedded.jobs import Action, Add, Drop, End, Ending, EngineJob, Produced, StepLimits
from foretype_backend.engines.embedded.pipeline import Pipeline, Read
from foretype_backend.engines.embedded.schedule import StepScheduler
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.errors import PipelineError

_logger = logging.getLogger(__name__)

_SIGN_OF_LIFE_S = 1.0


@dataclass(slots=True, eq=False)
class _Live:
    submit: Submit
    submitted_at: float
    added_at: float | None = None
    spoke: bool = False
    finish: Literal["end_token", "length"] = "length"
    end_logprob: float | None = None


class WorkerLoop:
    """Carries out the scheduler's decisions on a pipeline.

    Args:
        open_pipeline: makes a pipeline; called again after a step threw.
        send: takes the reports of one turn.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        open_pipeline: Callable[[], Pipeline],
        limits: StepLimits,
        shadow: ShadowPrefixCache,
        send: Callable[[list[Report]], None],
        clock: Callable[[], float],
    ) -> None:
        self._open_pipeline = open_pipeline
        self._pipeline = open_pipeline()
        self._shadow = shadow
        self.scheduler = StepScheduler(limits, shadow)
        self._send = send
        self._clock = clock
        self._live: dict[int, _Live] = {}
        self._out: list[Report] = []
        self._load = EngineLoad()
        self._load_sent_at = clock()
        self._tokens_after_cancel = 0
        self._pipeline_restarts = 0

    @property
    def busy(self) -> bool:
        return self.scheduler.needs_step

    def command(self, command: Submit | Cancel) -> None:
        """Take a command; its effect is reported by the next `turn` or `flush`."""
        match command:
            case Cancel(id=job_id):
                self._carry_out(self.scheduler.cancel(job_id))
            case Submit():
                self._submit(command)

    def turn(self) -> None:
        """One step of the pipeline with all that belongs to it."""
        try:
            self._carry_out(self.scheduler.before_step(self._clock()))
            if self.scheduler.statistics().running:
                reads, discarded = self._pipeline.step()
                self._tokens_after_cancel += discarded
                self._carry_out(self.scheduler.after_step({i: self._read(i, read) for i, read in reads.items()}))
        except PipelineError as error:
            self._lose_pipeline(error)
        self.flush()

    def flush(self) -> None:
        """Send what there is to say."""
        statistics = self.scheduler.statistics()
        load = EngineLoad(
            running=statistics.running,
            waiting=statistics.waiting,
            preemptions=statistics.preemptions,
            held=statistics.held,
            dropped_warm=statistics.dropped_warm,
            tokens_after_cancel=self._tokens_after_cancel,
            pipeline_restarts=self._pipeline_restarts,
        )
        now = self._clock()
        if load != self._load or now - self._load_sent_at > _SIGN_OF_LIFE_S:
            self._load, self._load_sent_at = load, now
            self._out.append(load)
        if self._out:
            reports, self._out = self._out, []
            self._send(reports)

    def _submit(self, submit: Submit) -> None:
        now = self._clock()
        job = EngineJob(
            id=submit.id,
            prompt_tokens=len(submit.token_ids),
            keys=self._shadow.keys(submit.token_ids),
            max_tokens=submit.max_tokens,
            priority=submit.priority,
            deadline=None if submit.expires_in_s is None else now + submit.expires_in_s,
            warm=submit.warm,
        )
        self._live[submit.id] = _Live(submit, now)
        if self.scheduler.blocks_needed(job) > self.scheduler.limits.pool_blocks:
            del self._live[submit.id]
            pool_tokens = self.scheduler.limits.pool_blocks * self._shadow.block_tokens
            message = f"{job.prompt_tokens} prompt tokens do not fit into a cache of {pool_tokens}; raise cache_bytes"
            self._out.append(Ended(id=submit.id, how="refused", message=message))
            return
        self._carry_out(self.scheduler.submit(job))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Add(job_id):
                    live = self._live[job_id]
                    if live.added_at is None:
                        live.added_at = self._clock()
                    self._pipeline.add(live.submit)
                case Drop(job_id):
                    self._pipeline.drop(job_id)
                case End(job_id, ending):
                    self._end(job_id, ending)

    def _read(self, job_id: int, read: Read) -> Produced:
        """Turn what was read into reports: tokens up to an end token, and how it ended."""
        live = self._live[job_id]
        token_ids, logprobs = read.token_ids, read.logprobs
        ends = live.submit.end_token_ids
        cut = next((at for at, token_id in enumerate(token_ids) if token_id in ends), len(token_ids))
        if token_ids:
            first = not live.spoke
            live.spoke = True
            now = self._clock()
            added_at = live.added_at if live.added_at is not None else now
            self._out.append(
                Output(
                    id=job_id,
                    token_ids=token_ids[:cut],
                    logprobs=logprobs[:cut],
                    cached_tokens=self.scheduler.cached_tokens(job_id) if first else None,
                    queue_ms=(added_at - live.submitted_at) * 1000 if first else None,
                    prefill_ms=(now - added_at) * 1000 if first else None,
                )
            )
        live.finish = "end_token" if cut < len(token_ids) else "length"
        live.end_logprob = logprobs[cut] if cut < len(logprobs) else None
        ending = (Ending.REFUSED if read.ignored else Ending.COMPLETED) if read.done else None
        return Produced(len(token_ids), ending)

    def _end(self, job_id: int, ending: Ending) -> None:
        live = self._live.pop(job_id)
        match ending:
            case Ending.COMPLETED:
                self._out.append(Ended(id=job_id, how=live.finish, end_logprob=live.end_logprob))
            case Ending.REFUSED:
                message = "the engine ignored the request: it does not fit into its cache; raise cache_bytes"
                self._out.append(Ended(id=job_id, how="refused", message=message))
            case Ending.LOST:
                self._out.append(Ended(id=job_id, how="lost", message="the pipeline failed and was rebuilt; retry"))
            case Ending.ABORTED | Ending.EXPIRED | Ending.DROPPED:
                self._out.append(Ended(id=job_id, how="aborted", message=ending.value))

    def _lose_pipeline(self, error: PipelineError) -> None:
        _logger.error("a step failed, the pipeline is rebuilt: %s", error)
        self._carry_out(self.scheduler.pipeline_lost())
        self._pipeline_restarts += 1
        self.flush()  # say so before the seconds that the new one takes
        self._pipeline = self._open_pipeline()
