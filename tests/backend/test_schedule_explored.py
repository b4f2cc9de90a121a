"""The scheduler against a fake pipeline that behaves as the real one was measured to."""

from dataclasses import dataclass, field

from foretype_backend.engines.embedded.jobs import Action, Add, Drop, End, Ending, EngineJob, Produced, StepLimits
from foretype_backend.engines.embedded.schedule import StepScheduler
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.prefix.block_keys import block_keys
from hypothesis import given, settings
from hypothesis import strategies as st

BLOCK = 4
CHUNK = 16


@dataclass
class Handle:
    job: EngineJob
    cached: int
    computed: int
    tokens: int = 0
    cancelled: bool = False
    done: bool = False
    fresh: set[bytes] = field(default_factory=set)


class FakePipeline:
    """First come, first served; the cache is looked up on add; a cancelled request is reaped by the next step."""

    def __init__(self) -> None:
        self.cache: set[bytes] = set()
        self.handles: list[Handle] = []
        self.computed: list[bytes] = []
        self.steps = 0

    def add(self, job: EngineJob) -> Handle:
        cached = 0
        for key in job.keys:
            if key not in self.cache:
                break
            cached += BLOCK
        cached = max(min(cached, job.prompt_tokens - 1), 0)
        handle = Handle(job, cached, cached)
        self.handles.append(handle)
        return handle

    def step(self) -> list[Handle]:
        self.steps += 1
        self.handles = [h for h in self.handles if not h.cancelled]
        budget = CHUNK
        touched: list[Handle] = []
        for handle in self.handles:
            if handle.computed == handle.job.prompt_tokens and budget:
                budget -= 1
                handle.tokens += 1
                touched.append(handle)
        for handle in self.handles:
            if handle.computed < handle.job.prompt_tokens and budget:
                share = min(budget, handle.job.prompt_tokens - handle.computed)
                before, handle.computed = handle.computed, handle.computed + share
                budget -= share
                found = -(-handle.cached // BLOCK)  # a fully cached prompt computes its last token again, not a block
                done = handle.job.keys[max(before // BLOCK, found) : handle.computed // BLOCK]
                self.computed.extend(done)
                self.cache.update(done)
                if handle.computed == handle.job.prompt_tokens:
                    handle.tokens += 1
                    touched.append(handle)
        for handle in touched:
            handle.done = handle.tokens >= handle.job.max_tokens
        self.handles = [h for h in self.handles if not h.done]
        return touched


class Bench:
    """Drives scheduler and pipeline as the engine's process does, and checks what must always hold."""

    def __init__(self, limits: StepLimits, shadow_blocks: int = 10_000) -> None:
        self.limits = limits
        self.scheduler = StepScheduler(limits, ShadowPrefixCache(shadow_blocks, BLOCK))
        self.pipeline = FakePipeline()
        self.handles: dict[int, Handle] = {}
        self.jobs: dict[int, EngineJob] = {}
        self.endings: dict[int, Ending] = {}
        self.first_token_step: dict[int, int] = {}
        self.end_step: dict[int, int] = {}
        self.added: list[int] = []
        self.now = 0.0

    def submit(self, job: EngineJob) -> None:
        self.jobs[job.id] = job
        self.carry_out(self.scheduler.submit(job))

    def cancel(self, job_id: int) -> None:
        self.carry_out(self.scheduler.cancel(job_id))

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Add(job_id):
                    assert job_id not in self.handles, "added twice"
                    assert not any(h.cancelled for h in self.pipeline.handles), "added before the cancelled was reaped"
                    handle = self.handles[job_id] = self.pipeline.add(self.jobs[job_id])
                    self.added.append(job_id)
                    cached = self.scheduler.cached_tokens(job_id)
                    assert cached is not None
                    if self.added.count(job_id) == 1:
                        assert cached <= handle.cached, "the shadow promised more than the engine has"
                case Drop(job_id):
                    self.handles.pop(job_id).cancelled = True
                case End(job_id, ending):
                    assert job_id not in self.endings, "ended twice"
                    self.endings[job_id] = ending
                    self.end_step[job_id] = self.pipeline.steps
                    assert job_id not in self.handles or self.handles[job_id].done or ending is Ending.LOST, "slot leak"
                    self.handles.pop(job_id, None)

    def step(self, *, throws: bool = False) -> None:
        self.now += 1
        self.carry_out(self.scheduler.before_step(self.now))
        live = [h for h in self.pipeline.handles if not h.cancelled]
        assert len(live) <= self.limits.max_sequences
        assert len(live) == len(self.handles)
        assert len(self.pipeline.handles) == self.scheduler.statistics().running
        if throws:
            self.pipeline = FakePipeline()
            self.carry_out(self.scheduler.pipeline_lost())
            return
        produced: dict[int, Produced] = {}
        for handle in self.pipeline.step():
            produced[handle.job.id] = Produced(1, Ending.COMPLETED if handle.done else None)
            self.first_token_step.setdefault(handle.job.id, self.pipeline.steps)
        self.carry_out(self.scheduler.after_step(produced))

    def drain(self, most_steps: int = 10_000) -> None:
        while self.scheduler.needs_step:
            most_steps -= 1
            assert most_steps > 0, f"no progress: {self.scheduler!r}"
            self.step()


def job(job_id: int, ids: list[int], **options: object) -> EngineJob:
    return EngineJob(id=job_id, prompt_tokens=len(ids), keys=block_keys(ids, BLOCK), **options)  # pyright: ignore[reportArgumentType]


LIMITS = StepLimits(
    chunk_tokens=CHUNK, max_sequences=3, reserved_sequences=1, pool_blocks=200, max_overtakes=2, head_start_tokens=2
)

prompts = st.builds(
    lambda stem, length, tail: ([stem] * length) + tail,
    st.integers(0, 1),
    st.sampled_from([0, 1, 8, 30, 60, 120]),
    st.lists(st.integers(2, 4), min_size=1, max_size=9),
)
submits = st.tuples(
    st.just("submit"),
    prompts,
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from([None, None, 3.0, 50.0]),
    st.booleans(),
)
events = st.lists(
    st.one_of(
        submits,
        submits,
        st.tuples(st.just("cancel"), st.integers(0, 12)),
        st.tuples(st.just("step"), st.integers(1, 6)),
        st.just(("throw",)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(events, st.booleans())
def test_nothing_is_lost_nothing_ends_twice_no_slot_leaks_and_all_ends(script: list[tuple], small_shadow: bool) -> None:  # pyright: ignore[reportMissingTypeArgument]
    bench = Bench(LIMITS, shadow_blocks=5 if small_shadow else 10_000)
    count = 0
    for event in script:
        match event:
            case ("submit", ids, max_tokens, priority, deadline, warm):
                warm = warm and priority == 4
                bench.submit(job(count, ids, max_tokens=max_tokens, priority=priority, deadline=deadline, warm=warm))
                count += 1
            case ("cancel", job_id):
                bench.cancel(job_id)
            case ("step", times):
                for _ in range(times):
                    if bench.scheduler.needs_step:
                        bench.step()
            case _:
                if bench.scheduler.needs_step:
                    bench.step(throws=True)
    bench.drain()
    assert set(bench.endings) == set(range(count))
    assert bench.handles == {}
    assert bench.scheduler.statistics()[:2] == (0, 0)
    for job_id, ending in bench.endings.items():
        assert ending is not Ending.DROPPED or bench.jobs[job_id].warm
        assert ending is not Ending.EXPIRED or bench.jobs[job_id].deadline is not None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(prompts, st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_no_block_is_computed_twice_while_the_cache_lasts(arrivals: list[tuple[list[int], int, int]]) -> None:
    bench = Bench(LIMITS)
    for job_id, (ids, priority, steps) in enumerate(arrivals):
        bench.submit(job(job_id, ids, priority=priority, max_tokens=2))
        for _ in range(steps):
            if bench.scheduler.needs_step:
                bench.step()
    bench.drain()
    assert len(bench.pipeline.computed) == len(set(bench.pipeline.computed))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3))
def test_a_cold_request_is_not_starved_by_an_endless_stream_of_warm_ones(
    cold_priority: int, warm_priority: int, warm_tokens: int
) -> None:
    bench = Bench(LIMITS)
    bench.submit(job(0, [9] * 200, priority=cold_priority))
    count = 1
    while 0 not in bench.first_token_step:
        bench.submit(job(count, [count + 10] * warm_tokens, priority=warm_priority))
        count += 1
        bench.step()
        assert count < 100, "starved"
    assert bench.added.count(0) <= LIMITS.max_overtakes + 1
