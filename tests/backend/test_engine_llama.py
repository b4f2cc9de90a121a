"""The embedded engine's second library, llama.cpp: what its own pipeline does, and that it computes what the first one computes.

What callers rely on is held in `test_engine_contract.py` and `test_engine_embedded.py`, for both.
"""

import platform
import random
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from backend.tiny_gguf import write_chain_gguf, write_tiny_gguf
from foretype_backend.engines.embedded import llama_library
from foretype_backend.engines.embedded.gguf_header import read_header
from foretype_backend.engines.embedded.ipc import Submit
from foretype_backend.engines.embedded.libraries import LIBRARIES, library_here, load_library
from foretype_backend.engines.embedded.llama_library import LlamaInterface
from foretype_backend.engines.embedded.llama_pipeline import BLOCK_TOKENS, LlamaLibrary, LlamaPipeline
from foretype_backend.engines.embedded.pipeline import Pipeline, PipelineConfig
from foretype_backend.errors import LibraryError, PipelineError

CHUNK = 128
CHAIN = "def run(x):"


def asked(job_id: int, ids: list[int], *, most: int = 4, ends: tuple[int, ...] = (), **more: float) -> Submit:
    return Submit(id=job_id, token_ids=ids, max_tokens=most, end_token_ids=list(ends), **more)  # pyright: ignore[reportArgumentType]


def prompt(tokens: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(4, 512) for _ in range(tokens)]


def opened(model: Path, library: str = "llama.cpp", **options: Any) -> Pipeline:
    sizes: dict[str, Any] = {"pool_blocks": 128, "chunk_tokens": CHUNK, "max_sequences": 8, "threads": 1}
    return load_library(library)().open(PipelineConfig(model=str(model), **{**sizes, **options}))


def answers(pipeline: Pipeline, *job_ids: int) -> tuple[dict[int, list[int]], int]:
    """Step until all are done: their tokens, and the steps that it took."""
    tokens: dict[int, list[int]] = {job_id: [] for job_id in job_ids}
    live, steps = set(job_ids), 0
    while live:
        steps += 1
        assert steps < 2000
        for job_id, read in pipeline.step()[0].items():
            tokens[job_id] += read.token_ids
            live -= {job_id} if read.done else set()
    return tokens, steps


def steps_to_the_first_token(pipeline: Pipeline, ids: list[int]) -> int:
    """Of a prompt: how many chunks of it were not cached."""
    pipeline.add(asked(999, ids, most=1))
    return answers(pipeline, 999)[1]


def said_first(pipeline: Pipeline, prompts: dict[int, list[int]]) -> dict[int, float]:
    """Log-probability of the token that follows each prompt, all at once: of a model without meaning, another for each prompt."""
    for job_id, ids in prompts.items():
        pipeline.add(asked(job_id, ids, most=1))
    found: dict[int, float] = {}
    while len(found) < len(prompts):
        found |= {job_id: read.logprobs[0] for job_id, read in pipeline.step()[0].items()}
    return found


def near(left: dict[int, float], right: dict[int, float]) -> bool:
    """Other chunks are other roundings."""
    return left == pytest.approx(right, abs=0.03)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("llama") / "tiny.gguf")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    controls = ("<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    return write_chain_gguf(tmp_path_factory.mktemp("llama") / "chain.gguf", CHAIN, controls=controls, endless=True)


@pytest.fixture
def pipeline(model: Path) -> Iterator[LlamaPipeline]:
    opened_here = opened(model)
    assert isinstance(opened_here, LlamaPipeline)
    yield opened_here


def test_both_libraries_say_the_same_with_the_same_certainty(chain: Path) -> None:
    found: dict[str, tuple[list[int], list[float]]] = {}
    for library in LIBRARIES:
        pipeline = opened(chain, library)
        pipeline.add(asked(1, [5, 9, 5], most=24))
        tokens: list[int] = []
        logprobs: list[float] = []
        while len(tokens) < 24:
            for read in pipeline.step()[0].values():
                tokens += read.token_ids
                logprobs += read.logprobs
        found[library] = tokens, logprobs
    assert found["llama.cpp"][0] == found["openvino"][0]
    assert found["llama.cpp"][1] == pytest.approx(found["openvino"][1], abs=0.02)


def test_a_step_computes_one_chunk_so_that_a_cancel_waits_for_one_chunk_at_most(pipeline: LlamaPipeline) -> None:
    assert steps_to_the_first_token(pipeline, prompt(10 * CHUNK, 1)) == 10


def test_finished_chunks_of_a_cancelled_prefill_stay_cached(pipeline: LlamaPipeline) -> None:
    cold = prompt(10 * CHUNK, 2)
    pipeline.add(asked(1, cold))
    for _ in range(4):
        pipeline.step()
    pipeline.drop(1)
    assert pipeline.step() == ({}, 0)
    assert steps_to_the_first_token(pipeline, cold) == 6


def test_what_follows_a_shared_beginning_is_what_follows_it_in_a_cold_cache(
    pipeline: LlamaPipeline, model: Path
) -> None:
    first = prompt(3 * CHUNK + 7, 3)
    before = said_first(pipeline, {1: first})
    for cut in (1, 2 * CHUNK, 2 * CHUNK + 5, len(first) - 1):
        branch = [*first[:cut], *prompt(60, cut)]
        shared = said_first(pipeline, {1: branch})
        assert near(shared, said_first(opened(model), {1: branch})) and not near(shared, before), cut
        assert steps_to_the_first_token(pipeline, first) == 1, "the other branch is still there, down to its last token"
    assert near(said_first(pipeline, {1: first}), before)


def test_requests_at_once_say_what_each_says_alone(pipeline: LlamaPipeline, model: Path) -> None:
    prompts = {job_id: prompt(20 + 40 * job_id, 10 + job_id) for job_id in range(1, 7)}
    together = said_first(pipeline, prompts)
    for job_id, ids in prompts.items():
        assert near({job_id: together[job_id]}, said_first(opened(model), {job_id: ids}))


def test_a_full_cache_forgets_what_was_used_longest_ago_and_goes_on(model: Path) -> None:
    small = opened(model, pool_blocks=16)  # 512 tokens
    kept, other = prompt(200, 20), prompt(200, 21)
    assert [steps_to_the_first_token(small, ids) for ids in (kept, other, kept)] == [2, 2, 1]
    assert steps_to_the_first_token(small, prompt(250, 22)) == 2
    assert [steps_to_the_first_token(small, ids) for ids in (kept, other)] == [1, 2]


def test_many_short_requests_use_up_no_sequences(pipeline: LlamaPipeline) -> None:
    for seed in range(200):
        steps_to_the_first_token(pipeline, prompt(3, 100 + seed))


def test_what_cannot_fit_together_is_a_fault_of_the_pipeline_and_not_an_endless_loop(model: Path) -> None:
    small = opened(model, pool_blocks=8)
    small.add(asked(1, prompt(200, 30), most=50))
    small.step(), small.step()
    small.add(asked(2, prompt(200, 31)))
    with pytest.raises(PipelineError, match="do not fit into the cache together"):
        answers(small, 2)


def test_a_temperature_draws_and_no_end_tokens_mean_no_end(pipeline: LlamaPipeline) -> None:
    ids = prompt(50, 40)
    for job_id in range(1, 5):
        pipeline.add(asked(job_id, ids, most=60, temperature=2.0))
    said = answers(pipeline, 1, 2, 3, 4)[0]
    assert len({tuple(tokens) for tokens in said.values()}) == 4
    assert all(len(tokens) == 60 for tokens in said.values())


def test_an_end_token_is_read_and_is_the_last(pipeline: LlamaPipeline) -> None:
    ids = prompt(50, 41)
    pipeline.add(asked(1, ids, most=20))
    whole = answers(pipeline, 1)[0][1]
    pipeline.add(asked(2, ids, most=20, ends=(whole[2],)))
    assert answers(pipeline, 2)[0][2] == whole[: whole.index(whole[2]) + 1]


def test_the_cache_takes_the_memory_that_is_computed_from_the_header(model: Path) -> None:
    header = read_header(model)
    library = LlamaLibrary()
    assert library.block_bytes(header, "CPU") == BLOCK_TOKENS * header.layers * header.kv_heads * header.head_size * 4


def test_a_model_that_does_not_open_is_told_in_the_librarys_words(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"blk\.1\.attn_q\.weight"):
        opened(write_tiny_gguf(tmp_path / "bad.gguf", without="blk.1.attn_q.weight"))


def test_what_this_library_cannot_do_is_refused(model: Path) -> None:
    with pytest.raises(PipelineError, match="prompt_lookup_tokens to 0"):
        opened(model, prompt_lookup_tokens=4)


def test_another_build_is_refused_before_anything_is_made_of_its_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(llama_library._CONTEXT_DEFAULTS, "n_ctx", 4096)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(
        LibraryError, match=r"another version than the one that is known \(\{'n_ctx': 512\}\); pip install"
    ):
        LlamaInterface()


def test_a_module_without_the_interface_is_refused() -> None:
    found = util.find_spec("_ctypes")
    assert found is not None and found.origin is not None
    with pytest.raises(LibraryError, match="does not export llama_log_set; pip install"):
        LlamaInterface(Path(found.origin))


@pytest.mark.parametrize(
    ("machine", "installed", "chosen"),
    [
        ("x86_64", ("openvino_genai", "xllamacpp"), "openvino"),
        ("AMD64", ("openvino_genai",), "openvino"),
        ("x86_64", ("xllamacpp",), "llama.cpp"),
        ("arm64", ("openvino_genai", "xllamacpp"), "llama.cpp"),
        ("aarch64", ("openvino_genai",), "openvino"),
    ],
)
def test_openvino_computes_on_x86_64_and_llama_cpp_elsewhere(
    monkeypatch: pytest.MonkeyPatch, machine: str, installed: tuple[str, ...], chosen: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(
        "foretype_backend.engines.embedded.libraries.find_spec", lambda name: object() if name in installed else None
    )
    assert library_here() == chosen


def test_a_library_that_is_not_installed_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretype_backend.engines.embedded.libraries.find_spec", lambda _: None)
    with pytest.raises(LibraryError, match=r"pip install 'foretype\[embedded\]'"):
        library_here()
    with pytest.raises(LibraryError, match=r"xllamacpp, which is not installed; pip install 'foretype\[llama-cpp\]'"):
        load_library("llama.cpp")
