"""The loop of the engine's process on a pipeline without OpenVINO: reports, faults, preemption."""

from __future__ import annotations

from foretype_backend.engines.embedded.ipc import (
    Cancel,
    Ended,
    EngineLoad,
    FrameDecoder,
    Output,
    Report,
    Submit,
    decode_report,
    encode,
)
from foretype_backend.engines.embedded.jobs import StepLimits
from foretype_backend.engines.embedded.loop import WorkerLoop
from foretype_backend.engines.embedded.pipeline import Read
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.errors import PipelineError
from hypothesis import given, settings
from hypothesis import strategies as st
from imports import imported

CHUNK = 64


class FakePipeline:
    """Computes `CHUNK` tokens a step, first come, first served; generates 100, 101, …"""

    def __init__(self, faults: dict[int, Exception], opened: list[FakePipeline]) -> None:
        self.faults = faults
        self.requests: dict[int, list[int]] = {}
        self.asked: dict[int, Submit] = {}
        self.ignored: set[int] = set()
        self.dropped = 0
        self.steps = 0
        self.log: list[str] = []
        opened.append(self)

    def add(self, request: Submit) -> None:
        assert self.dropped == 0, "added before the cancelled request was reaped"
        self.requests[request.id] = [len(request.token_ids), 0]
        self.asked[request.id] = request
        self.log.append(f"add {request.id}")

    def drop(self, job_id: int) -> None:
        del self.requests[job_id]
        self.dropped += 1
        self.log.append(f"drop {job_id}")

    def step(self) -> tuple[dict[int, Read], int]:
        self.steps += 1
        if self.steps in self.faults:
            raise self.faults.pop(self.steps)
        discarded, self.dropped = self.dropped, 0
        reads: dict[int, Read] = {}
        budget = CHUNK
        for job_id, state in list(self.requests.items()):
            if job_id in self.ignored:
                reads[job_id] = Read([], [], True, True)
                continue
            share = min(budget, state[0])
            state[0] -= share
            budget -= share
            if state[0] == 0:
                done = state[1] + 1 >= self.asked[job_id].max_tokens
                reads[job_id] = Read([100 + state[1]], [-0.5], done)
                state[1] += 1
                if done:
                    del self.requests[job_id]
        return reads, discarded


class Bench:
    def __init__(self, **faults: Exception) -> None:
        self.opened: list[FakePipeline] = []
        self.reports: list[Report] = []
        planned = {int(step.removeprefix("step")): error for step, error in faults.items()}
        self.loop = WorkerLoop(
            lambda: FakePipeline(planned, self.opened),
            StepLimits(chunk_tokens=CHUNK, pool_blocks=100),
            ShadowPrefixCache(75),
            self.reports.extend,
            lambda: float(self.opened[-1].steps),
        )

    def submit(self, job_id: int, tokens: int, max_tokens: int = 3, ends: tuple[int, ...] = (), **kw: object) -> None:
        ids = [job_id * 1000 + i for i in range(tokens)]
        submit = Submit(id=job_id, token_ids=ids, max_tokens=max_tokens, end_token_ids=list(ends), **kw)  # pyright: ignore[reportArgumentType]
        self.loop.command(submit)

    def run(self) -> None:
        while self.loop.busy:
            self.loop.turn()

    def outputs(self, job_id: int) -> list[int]:
        return [t for r in self.reports if isinstance(r, Output) and r.id == job_id for t in r.token_ids]

    def ends(self) -> dict[int, str]:
        return {r.id: r.how for r in self.reports if isinstance(r, Ended)}

    def last_load(self) -> EngineLoad:
        return [r for r in self.reports if isinstance(r, EngineLoad)][-1]


def test_a_request_is_answered_and_its_slot_is_free_after() -> None:
    bench = Bench()
    bench.submit(1, 200)
    bench.run()
    assert bench.outputs(1) == [100, 101, 102]
    assert bench.ends() == {1: "length"}
    assert bench.last_load().running == 0


def test_an_end_token_is_cut_off_with_all_that_follows() -> None:
    bench = Bench()
    bench.submit(1, 10, max_tokens=3, ends=(102,))
    bench.run()
    assert bench.outputs(1) == [100, 101]
    assert bench.ends() == {1: "end_token"}


def test_a_throwing_step_fails_its_requests_alone_and_the_pipeline_is_rebuilt() -> None:
    bench = Bench(step2=PipelineError("content_length <= prompt_ids.size()+m_generated_ids.size()"))
    bench.submit(1, 40, max_tokens=10)
    bench.loop.turn()
    bench.submit(2, 500)
    bench.submit(3, 500)  # waits behind the prefill of 2
    bench.run()
    assert bench.ends() == {1: "lost", 2: "lost", 3: "length"}
    assert len(bench.opened) == 2
    assert bench.last_load().pipeline_restarts == 1


def test_a_request_behind_a_cold_prefill_gets_ahead_and_the_cold_one_comes_back() -> None:
    bench = Bench()
    bench.submit(1, 1000)
    for _ in range(3):
        bench.loop.turn()
    bench.submit(2, 20)
    bench.run()
    assert bench.opened[0].log == ["add 1", "drop 1", "add 2", "add 1"]
    first = [r.id for r in bench.reports if isinstance(r, Output) and r.cached_tokens is not None]
    assert first == [2, 1]
    assert bench.outputs(1) == [100, 101, 102]
    assert bench.last_load().preemptions == 1


def test_ignored_without_a_cancel_means_it_did_not_fit_and_is_refused() -> None:
    bench = Bench()
    bench.submit(1, 10)
    bench.opened[0].ignored.add(1)
    bench.run()
    assert bench.ends() == {1: "refused"}


def test_a_prompt_larger_than_the_whole_cache_is_refused_before_it_is_added() -> None:
    bench = Bench()
    bench.submit(1, 100 * 32)
    bench.run()
    bench.loop.flush()
    assert bench.ends() == {1: "refused"}
    assert bench.opened[0].log == []


def test_a_cancel_is_counted_as_cancelled_and_what_was_computed_after_it_is_counted() -> None:
    bench = Bench()
    bench.submit(1, 10, max_tokens=50)
    bench.loop.turn()
    bench.loop.command(Cancel(id=1))
    bench.loop.command(Cancel(id=1))
    bench.loop.command(Cancel(id=77))
    bench.loop.flush()
    assert bench.last_load().running == 1, "the slot is free after the next step, not before"
    bench.run()
    assert bench.ends() == {1: "aborted"}
    assert (bench.last_load().running, bench.last_load().tokens_after_cancel) == (0, 1)


def test_a_warm_up_is_dropped_when_a_request_comes() -> None:
    bench = Bench()
    bench.submit(1, 1000, max_tokens=1, priority=4, warm=True)
    bench.loop.turn()
    bench.submit(2, 500)
    bench.run()
    assert bench.ends() == {1: "aborted", 2: "length"}
    assert bench.last_load().dropped_warm == 1


def test_an_expired_request_is_never_added() -> None:
    bench = Bench()
    bench.submit(1, 1000)
    bench.submit(2, 1000, expires_in_s=2.5)
    bench.run()
    assert bench.ends() == {1: "length", 2: "aborted"}
    assert "add 2" not in bench.opened[0].log


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), max_size=5), st.integers(1, 50))
def test_frames_survive_any_cut_of_the_stream(sizes: list[int], piece: int) -> None:
    frames: list[Report] = [Output(id=i, token_ids=list(range(n)), logprobs=[-0.5] * n) for i, n in enumerate(sizes)]
    data = encode(frames)
    decoder = FrameDecoder()
    bodies = [b for at in range(0, len(data), piece) for b in decoder.feed(data[at : at + piece])]
    assert [decode_report(b) for b in bodies] == frames


def test_the_gateways_process_imports_no_openvino_which_would_hold_its_lock_while_it_computes() -> None:
    script = "import foretype_backend.engines.embedded.engine, foretype_backend.engines.embedded.loop"
    assert imported(script, "openvino", "openvino_genai", "numpy") == []
