"""The measured traps of the pipeline, each shown on the real one, so that a new version that changes them is noticed."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import pytest
from backend.exact_cache import exact_cached_tokens
from backend.tiny_gguf import write_tiny_gguf
from foretype_backend.engines.embedded.gguf_header import kv_block_bytes, read_header
from foretype_backend.engines.embedded.ipc import Cancel, Ended, Output, Report, Submit
from foretype_backend.engines.embedded.jobs import StepLimits
from foretype_backend.engines.embedded.loop import WorkerLoop
from foretype_backend.engines.embedded.openvino_pipeline import BLOCK_TOKENS, OpenVinoPipeline
from foretype_backend.engines.embedded.pipeline import PipelineConfig
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.errors import ModelFileError, PipelineError
from foretype_models.exact_weights import plan_weights

pytestmark = pytest.mark.slow  # what the library does: it changes with its version alone

CHUNK = 128
POOL_BLOCKS = 400


def asked(
    job_id: int, ids: list[int], *, max_tokens: int = 4, end_token_ids: Sequence[int] = (), **more: float
) -> Submit:
    return Submit(id=job_id, token_ids=ids, max_tokens=max_tokens, end_token_ids=list(end_token_ids), **more)  # pyright: ignore[reportArgumentType]


def prompt(tokens: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(4, 512) for _ in range(tokens)]


def config(model: Path, **options: Any) -> PipelineConfig:
    sizes: dict[str, Any] = {"pool_blocks": POOL_BLOCKS, "chunk_tokens": CHUNK, "max_sequences": 8, "threads": 1}
    return PipelineConfig(model=str(model), **{**sizes, **options})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("traps") / "tiny.gguf")


@pytest.fixture(scope="module")
def pipeline(model: Path) -> OpenVinoPipeline:
    return OpenVinoPipeline(config(model))


def drain(pipeline: OpenVinoPipeline, *job_ids: int) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Step until all are done: their tokens, and the step in which each gave its first."""
    tokens: dict[int, list[int]] = {i: [] for i in job_ids}
    first: dict[int, int] = {}
    live, step = set(job_ids), 0
    while live:
        step += 1
        assert step < 3000
        for job_id, read in pipeline.step()[0].items():
            tokens[job_id] += read.token_ids
            first.setdefault(job_id, step)
            if read.done:
                live.discard(job_id)
    return tokens, first


def test_a_step_computes_one_chunk_so_that_a_cancel_waits_for_one_chunk_at_most(pipeline: OpenVinoPipeline) -> None:
    pipeline.add(asked(1, prompt(10 * CHUNK, 1)))
    _, first = drain(pipeline, 1)
    assert first[1] == 10


def test_finished_chunks_of_a_cancelled_prefill_stay_cached(pipeline: OpenVinoPipeline) -> None:
    cold = prompt(10 * CHUNK, 4)
    pipeline.add(asked(1, cold))
    for _ in range(4):
        pipeline.step()
    pipeline.drop(1)
    reads, discarded = pipeline.step()
    assert (reads, discarded) == ({}, 0)
    assert exact_cached_tokens(pipeline, cold) == 4 * CHUNK


def test_ignored_is_said_for_a_prompt_that_does_not_fit(model: Path) -> None:
    small = OpenVinoPipeline(config(model, pool_blocks=8))
    small.add(asked(1, prompt(16 * BLOCK_TOKENS, 6)))
    for _ in range(50):
        reads, _ = small.step()
        if 1 in reads:
            break
    assert reads[1].ignored


def test_prompt_lookup_gives_the_same_greedy_tokens_and_works_with_sampling_and_the_prefix_cache(
    pipeline: OpenVinoPipeline, model: Path
) -> None:
    lookup = OpenVinoPipeline(config(model, prompt_lookup_tokens=4))
    ids = prompt(20, 10) * 12
    pipeline.add(asked(1, ids, max_tokens=32))
    expected = drain(pipeline, 1)[0][1]
    for job_id in (1, 2):
        lookup.add(asked(job_id, ids, max_tokens=32))
        got = drain(lookup, job_id)[0][job_id]
        assert len(got) == 32
        assert got[:4] == expected[:4]
        lookup.add(asked(10 + job_id, ids, max_tokens=32, temperature=1.0))
        assert len(drain(lookup, 10 + job_id)[0][10 + job_id]) == 32


CORES = os.sched_getaffinity(0)
"""Asked before OpenVINO has run, which leaves its caller one of them."""

_Q = gguf.GGMLQuantizationType
_F = gguf.LlamaFileType


@pytest.mark.parametrize(
    ("quantisation", "file_type", "opens"),
    [
        (_Q.Q8_0, _F.MOSTLY_Q8_0, True),
        (_Q.F16, _F.MOSTLY_F16, True),
        (_Q.Q4_0, _F.MOSTLY_Q4_0, True),
        (_Q.Q5_0, _F.MOSTLY_Q5_0, False),
        (_Q.BF16, _F.MOSTLY_BF16, False),
        (_Q.F32, _F.ALL_F32, False),
        (_Q.TQ1_0, _F.MOSTLY_TQ1_0, None),
    ],
    ids=lambda value: value.name if isinstance(value, _Q) else "",
)
def test_the_header_check_says_what_the_engine_would_say(
    tmp_path: Path, quantisation: gguf.GGMLQuantizationType, file_type: gguf.LlamaFileType, opens: bool | None
) -> None:
    """`opens`: False where it would not but for the copy that is made of it, None where there can be none."""
    os.sched_setaffinity(0, CORES)
    if quantisation is _Q.F16 and len(CORES) == 1:
        pytest.skip("OpenVINO GenAI 2026.4.1 does not serve F16 on one core")
    path = write_tiny_gguf(
        tmp_path / "q.gguf", quantisation=quantisation, file_type=file_type, hidden=256, feed_forward=256
    )
    if opens is None:
        with pytest.raises(ModelFileError, match=r"which does not open; use"):
            read_header(path)
    else:
        assert read_header(path).vocabulary_tokens == 512
        assert bool(plan_weights(path).types) is not opens
    if opens:
        OpenVinoPipeline(config(path, threads=2))
    else:
        with pytest.raises(PipelineError):
            OpenVinoPipeline(config(path))


def test_memory_of_the_cache_is_bounded_and_as_computed_from_the_header(model: Path) -> None:
    small = OpenVinoPipeline(config(model, pool_blocks=64))
    for seed in range(12):  # three times what fits
        small.add(asked(seed, prompt(512, 100 + seed)))
        drain(small, seed)
    assert small.cache_bytes() <= 64 * kv_block_bytes(read_header(model))
    assert small.cache_bytes() % kv_block_bytes(read_header(model)) == 0
    assert exact_cached_tokens(small, prompt(512, 100)) == 0, "the oldest is evicted first"
    assert exact_cached_tokens(small, prompt(512, 111)) > 0


# The shadow against the exact figure


Loop = tuple[WorkerLoop, list[Report], Callable[[], OpenVinoPipeline]]


@pytest.fixture
def loop(model: Path) -> Iterator[Loop]:
    opened: list[OpenVinoPipeline] = []

    def open_pipeline() -> OpenVinoPipeline:
        opened.append(OpenVinoPipeline(config(model)))
        return opened[-1]

    reports: list[Report] = []
    limits = StepLimits(chunk_tokens=CHUNK, pool_blocks=POOL_BLOCKS)
    shadow = ShadowPrefixCache(POOL_BLOCKS * 3 // 4)
    yield WorkerLoop(open_pipeline, limits, shadow, reports.extend, lambda: 0.0), reports, lambda: opened[-1]


def submit(loop: WorkerLoop, job_id: int, ids: list[int], max_tokens: int = 2) -> None:
    loop.command(Submit(id=job_id, token_ids=ids, max_tokens=max_tokens, end_token_ids=[]))


def run(loop: WorkerLoop) -> None:
    while loop.busy:
        loop.turn()


def reported(reports: list[Report], job_id: int) -> int | None:
    return next(r.cached_tokens for r in reports if isinstance(r, Output) and r.id == job_id)


def test_the_shadow_equals_the_engines_exact_figure_in_whole_blocks(loop: Loop) -> None:
    worker, _, pipeline = loop
    base = prompt(1000, 20)
    submit(worker, 1, base)
    run(worker)
    cases = [base, base[:992], [*base, *prompt(40, 21)], [*base[:500], *prompt(500, 22)], base[:31], prompt(64, 23)]
    for case in cases:
        predicted = worker.scheduler.shadow.cached_tokens(worker.scheduler.shadow.keys(case), len(case))
        # the engine finds an unfinished last block too, when the earlier prompt ended exactly there
        assert predicted <= exact_cached_tokens(pipeline(), case) < predicted + BLOCK_TOKENS, len(case)


def test_the_shadow_is_exact_after_a_preemption_and_a_cancel_in_prefill(loop: Loop) -> None:
    worker, reports, pipeline = loop
    cold, cancelled = prompt(1500, 30), prompt(1500, 31)
    submit(worker, 1, cold)
    for _ in range(3):
        worker.turn()
    submit(worker, 2, prompt(20, 32), max_tokens=1)
    run(worker)
    first = [r.id for r in reports if isinstance(r, Output) and r.cached_tokens is not None]
    assert first == [2, 1], "the short one did not get ahead"
    submit(worker, 3, cancelled)
    for _ in range(3):
        worker.turn()
    worker.command(Cancel(id=3))
    run(worker)
    shadow = worker.scheduler.shadow
    assert shadow.cached_tokens(shadow.keys(cancelled), 1500) == 384 == exact_cached_tokens(pipeline(), cancelled)
    assert shadow.cached_tokens(shadow.keys(cold), 1500) == exact_cached_tokens(pipeline(), cold)


def test_the_second_of_two_same_prefix_requests_is_held_and_finds_the_prefix(loop: Loop) -> None:
    worker, reports, _ = loop
    same = prompt(4 * CHUNK, 40)
    submit(worker, 1, [*same, 7])
    submit(worker, 2, [*same, 8])
    run(worker)
    assert (reported(reports, 1), reported(reports, 2)) == (0, 4 * CHUNK)
    assert worker.scheduler.statistics().held == 1


def test_the_shadow_never_promises_more_than_the_engine_has_when_the_cache_overflows(loop: Loop) -> None:
    worker, _, pipeline = loop
    prompts = [prompt(random.Random(seed).randrange(33, 900), 200 + seed) for seed in range(40)]
    for job_id, ids in enumerate(prompts):
        submit(worker, job_id, ids)
        run(worker)
    shadow = worker.scheduler.shadow
    predicted = [shadow.cached_tokens(shadow.keys(ids), len(ids)) for ids in prompts]
    assert 0 < sum(p > 0 for p in predicted) < 40
    for ids, figure in reversed(list(zip(prompts, predicted, strict=True))):
        if figure:
            assert exact_cached_tokens(pipeline(), ids) >= figure


def test_a_pipeline_that_throws_is_replaced_and_goes_on(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, reports, pipeline = loop
    ids = prompt(300, 50)
    submit(worker, 1, ids)
    worker.turn()
    broken = pipeline()

    def throw() -> None:
        raise PipelineError("Check 'content_length <= prompt_ids.size()' failed at sequence_group.cpp:32")

    monkeypatch.setattr(broken, "step", throw)
    run(worker)
    submit(worker, 2, ids)
    run(worker)
    ends = {r.id: r.how for r in reports if isinstance(r, Ended)}
    assert ends == {1: "lost", 2: "length"}
    assert reported(reports, 2) == 0
    assert pipeline() is not broken
