"""What the engine's process does next: a scheduler over a pipeline that runs requests first come, first served.

Pure: no clock, no engine, no thread. Events are method calls, each returns the actions that the process must carry out in
order. The rules exist because of what was measured on the pipeline:

- *One long prefill at a time, in chunks.* A step computes at most `chunk_tokens`; the oldest prefill takes the whole budget,
  so a second one in the pipeline could only wait there. Short ones that fit into one step together go together.
- *Preemption.* A request with all but one chunk of its prompt cached, or of a higher class, does not wait behind a long
  prefill: the long one is cancelled (its finished chunks stay cached), one step reaps it, the short one is added, and the
  long one comes back after the first tokens of the short one (sharing steps with a prefill, its tokens took 40 ms each
  instead of 3).
- *No starvation.* A request that was overtaken `max_overtakes` times is protected: first in its turn and never
  preempted.
- *Same-prefix hold.* The cache is looked up when a request is added, so a request that shares an uncached prefix with one
  in prefill waits until that one has produced a token, instead of computing the same twice.
- *Warm-ups* run alone, or not at all: any other request drops them (what they computed stays cached).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from foretype_backend.engines.embedded.jobs import (
    Action,
    Add,
    Drop,
    End,
    Ending,
    EngineJob,
    Produced,
    Stage,
    StepLimits,
)
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.prefix.block_keys import shared_tokens


class ScheduleStatistics(NamedTuple):
    """Counters. `running` are slots of the pipeline in use: a cancelled request has one until the next step."""

    running: int
    waiting: int
    preemptions: int
    held: int
    expired: int
    dropped_warm: int


class StepScheduler:
    """Decides what is in the pipeline before each step.

    The process calls `submit` and `cancel` as commands arrive; then, while `needs_step`: `before_step`, one step of the
    pipeline, `after_step`; and `pipeline_lost` instead of the last when the step threw.
    """

    def __init__(self, limits: StepLimits, shadow: ShadowPrefixCache) -> None:
        self.limits = limits
        self.shadow = shadow
        self._entries: dict[int, EngineJob] = {}
        self._pipeline: list[EngineJob] = []
        self._order = itertools.count()
        self._reaping = 0
        self._preemptions = 0
        self._held = 0
        self._expired = 0
        self._dropped_warm = 0

    # Events

    def submit(self, job: EngineJob) -> list[Action]:
        """A request arrived. Raises ValueError for an id that is live."""
        if job.id in self._entries:
            raise ValueError(f"request id {job.id} is already live")
        job.order = next(self._order)
        self._entries[job.id] = job
        if job.warm:
            waiting_warm = sum(1 for e in self._entries.values() if e.warm) - 1
            if waiting_warm >= self.limits.max_warm or any(not e.warm for e in self._entries.values()):
                return [self._end(job, Ending.DROPPED)]
        return []

    def cancel(self, job_id: int) -> list[Action]:
        """Nobody wants this request any more. Unknown and finished ids are ignored."""
        entry = self._entries.get(job_id)
        if entry is None:
            return []
        return [*self._take_out(entry), self._end(entry, Ending.ABORTED)]

    def before_step(self, now: float) -> list[Action]:
        """What to do before the next step."""
        late = [
            e
            for e in self._entries.values()
            if e.first_cached_tokens is None and e.deadline is not None and e.deadline < now
        ]
        actions: list[Action] = [self._end(entry, Ending.EXPIRED) for entry in late]
        if any(not e.warm for e in self._entries.values()):
            for entry in [e for e in self._entries.values() if e.warm]:
                actions += [*self._take_out(entry), self._end(entry, Ending.DROPPED)]
        actions += self._preempt()
        if not self._reaping:  # a cancelled request leaves the pipeline in the next step: nothing is added before it
            actions += self._admit()
        return actions

    def after_step(self, produced: Mapping[int, Produced]) -> list[Action]:
        """A step is done; `produced` tells of the requests for which there was anything to read."""
        self._reaping = 0
        self._count_prefill()
        actions: list[Action] = []
        for job_id, (tokens, ending) in produced.items():
            entry = self._entries.get(job_id)
            if entry is None or entry.stage is Stage.WAITING:
                continue
            if tokens and entry.stage is Stage.PREFILL:
                entry.stage = Stage.DECODE
                entry.computed_tokens = entry.prompt_tokens
                self.shadow.touch(entry.keys)
            entry.produced_tokens += tokens
            if ending is not None:
                self._pipeline.remove(entry)
                self.shadow.occupy(self._blocks(entry.prompt_tokens + entry.produced_tokens) - len(entry.keys))
                actions.append(self._end(entry, ending))
            elif entry.produced_tokens >= self.limits.head_start_tokens:
                self._release_those_waiting_for(job_id)
        return actions

    def pipeline_lost(self) -> list[Action]:
        """The step threw. All that was in the pipeline is lost, with its cache; what waits, waits for the new one."""
        lost: list[Action] = [self._end(entry, Ending.LOST) for entry in self._pipeline]
        self._pipeline.clear()
        self._reaping = 0
        self.shadow.clear()
        return lost

    # Questions

    @property
    def needs_step(self) -> bool:
        return bool(self._entries) or self._reaping > 0

    def cached_tokens(self, job_id: int) -> int | None:
        """Prompt tokens found cached when the request was first added; None before that and for unknown ids."""
        entry = self._entries.get(job_id)
        return None if entry is None else entry.first_cached_tokens

    def statistics(self) -> ScheduleStatistics:
        return ScheduleStatistics(
            running=len(self._pipeline) + self._reaping,
            waiting=len(self._entries) - len(self._pipeline),
            preemptions=self._preemptions,
            held=self._held,
            expired=self._expired,
            dropped_warm=self._dropped_warm,
        )

    # Decisions

    def _preempt(self) -> list[Action]:
        """Take long prefills out of the way of a request that should not wait for them."""
        for entry in self._waiting():
            if entry.waits_for or self._held_by_prefix(entry):
                continue
            if self._fits_beside(entry, self._prefills()):
                return []  # it is going to be admitted as things are
            victims = [p for p in self._prefills() if self._may_preempt(entry, p)]
            rest = [p for p in self._prefills() if p not in victims]
            if not victims or not self._fits_beside(entry, rest) or not self._has_room(entry, without=victims):
                continue
            actions: list[Action] = []
            for victim in victims:
                victim.overtaken += 1
                victim.waits_for.add(entry.id)
                self._preemptions += 1
                actions += self._take_out(victim)
            return actions
        return []

    def _admit(self) -> list[Action]:
        actions: list[Action] = []
        for entry in self._waiting():
            if entry.waits_for:
                continue
            if self._held_by_prefix(entry):
                if not entry.was_held:
                    entry.was_held = True
                    self._held += 1
                continue
            if not self._has_room(entry):
                break  # smaller ones behind it do not get past: it would never find room
            if not self._fits_beside(entry, self._prefills()):
                break
            for other in self._entries.values():
                if other.stage is Stage.WAITING and other.order < entry.order and not other.waits_for:
                    other.overtaken += 1
            cached_tokens = self.shadow.insert(entry.keys, entry.prompt_tokens, computed_tokens=0)
            self.shadow.touch(entry.keys, cached_tokens)
            if entry.first_cached_tokens is None:
                entry.first_cached_tokens = cached_tokens
            entry.computed_tokens = cached_tokens
            entry.stage = Stage.PREFILL
            self._pipeline.append(entry)
            actions.append(Add(entry.id))
        return actions

    def _waiting(self) -> list[EngineJob]:
        """Waiting requests in their order: protected ones, then by priority, then short before long, then by age."""
        waiting = [e for e in self._entries.values() if e.stage is Stage.WAITING]
        remaining = {e.id: self._remaining_tokens(e) for e in waiting}

        def key(entry: EngineJob) -> tuple[bool, int, bool, int]:
            long = remaining[entry.id] > self.limits.chunk_tokens
            return not self._protected(entry), entry.priority, long, entry.order

        return sorted(waiting, key=key)

    def _may_preempt(self, entry: EngineJob, victim: EngineJob) -> bool:
        if self._protected(victim) or self._remaining_tokens(victim) <= self.limits.chunk_tokens:
            return False  # fairness; or it is done with the next step anyway
        if entry.priority != victim.priority:
            return entry.priority < victim.priority
        return self._remaining_tokens(entry) <= self.limits.chunk_tokens

    def _fits_beside(self, entry: EngineJob, prefills: list[EngineJob]) -> bool:
        """Whether all these prefills are done with the next step; a prefill alone always fits."""
        if not prefills:
            return True
        tokens = sum(map(self._remaining_tokens, prefills)) + self._remaining_tokens(entry)
        return tokens <= self.limits.chunk_tokens

    def _held_by_prefix(self, entry: EngineJob) -> bool:
        """Whether a request in prefill is computing tokens that this one would compute again.

        One of a lower class is no reason to wait: it is preempted, and what it has computed is found.
        """
        cached_tokens = self.shadow.cached_tokens(entry.keys, entry.prompt_tokens)
        return any(
            self._shared(entry, other) > cached_tokens
            for other in self._prefills()
            if not self._may_preempt(entry, other) or entry.priority == other.priority
        )

    def _shared(self, entry: EngineJob, other: EngineJob) -> int:
        return shared_tokens(entry.keys, other.keys, self.shadow.block_tokens)

    def _has_room(self, entry: EngineJob, without: list[EngineJob] | None = None) -> bool:
        stay = [e for e in self._pipeline if e not in (without or ())]
        low = entry.priority >= self.limits.reserved_below and not self._protected(entry)
        reserved = self.limits.reserved_sequences if low else 0
        if stay and len(stay) >= self.limits.max_sequences - reserved:
            return False
        blocks = self.blocks_needed(entry) + sum(self.blocks_needed(e) for e in stay)
        return not stay or blocks <= self.limits.pool_blocks

    def blocks_needed(self, job: EngineJob) -> int:
        """Blocks of the pool that a request can come to occupy; shared ones count for each."""
        return self._blocks(job.prompt_tokens + job.max_tokens) + 1

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.shadow.block_tokens)

    def _remaining_tokens(self, entry: EngineJob) -> int:
        if entry.stage is Stage.WAITING:
            return entry.prompt_tokens - self.shadow.cached_tokens(entry.keys, entry.prompt_tokens)
        return entry.prompt_tokens - entry.computed_tokens

    def _protected(self, entry: EngineJob) -> bool:
        return entry.overtaken >= self.limits.max_overtakes

    def _prefills(self) -> list[EngineJob]:
        return [e for e in self._pipeline if e.stage is Stage.PREFILL]

    # Bookkeeping

    def _count_prefill(self) -> None:
        """Share out the step's tokens as the pipeline does: decoding requests first, then prefills, oldest first."""
        budget = self.limits.chunk_tokens - sum(1 for e in self._pipeline if e.stage is Stage.DECODE)
        for entry in self._prefills():
            # the last token is not computed before a token was produced, which `after_step` is told
            share = max(min(budget, entry.prompt_tokens - 1 - entry.computed_tokens), 0)
            entry.computed_tokens += share
            budget -= share

    def _take_out(self, entry: EngineJob) -> list[Action]:
        if entry.stage is Stage.WAITING:
            return []
        self._pipeline.remove(entry)
        self._reaping += 1
        entry.stage = Stage.WAITING
        self.shadow.touch(entry.keys, entry.computed_tokens)
        return [Drop(entry.id)]

    def _end(self, entry: EngineJob, ending: Ending) -> End:
        del self._entries[entry.id]
        self._release_those_waiting_for(entry.id)
        self._expired += ending is Ending.EXPIRED
        self._dropped_warm += ending is Ending.DROPPED
        return End(entry.id, ending)

    def _release_those_waiting_for(self, job_id: int) -> None:
        for entry in self._entries.values():
            entry.waits_for.discard(job_id)
