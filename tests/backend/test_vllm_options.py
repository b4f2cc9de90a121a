"""Options of the in-process vLLM engine, and what a request becomes; no vLLM is needed for either."""

import json
from pathlib import Path
from typing import Any

import pytest
from foretype_backend.config.load import load_config
from foretype_backend.engines.draft_acceptance import AcceptanceBook, AcceptanceCollector
from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.engines.vllm.options import (
    VllmOptions,
    check_blocks,
    check_memory,
    check_profile,
    engine_arguments,
)
from foretype_backend.engines.vllm.request import (
    logprobs_of,
    sampling_arguments,
    tier_parameters,
    without_end,
)
from foretype_backend.errors import ConfigError, EngineUnavailableError, PromptRefusedError
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.salt import tier_namespace
from foretype_backend.prefix.spans import Placed, placement_of
from foretype_backend.start.prepare import prepare
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from prometheus_client import CollectorRegistry, generate_latest

SHAPE = {
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
}


def folder(path: Path, tokenizer: str = "{}", **changed: Any) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(SHAPE | changed))
    (path / "model.safetensors").write_bytes(b"")
    (path / "tokenizer.json").write_text(tokenizer)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return folder(tmp_path / "model")


def test_a_profile_becomes_arguments_of_vllm(model: Path) -> None:
    options = VllmOptions.of(
        model=str(model),
        context_tokens=2048,
        speculation={"method": "ngram", "tokens": 3, "batch_max": 4, "lookup_max": 7},
        host_tier_gib=2,
    )
    assert check_profile(options) == (1000, 2048, 2 * 8 * 2 * 64 * 2)
    arguments = engine_arguments(options, cpu=False)
    assert arguments["max_num_seqs"] == 8 and arguments["max_num_batched_tokens"] == 2048
    assert arguments["scheduling_policy"] == "priority" and arguments["block_size"] == 16
    assert arguments["long_prefill_token_threshold"] == 256 and arguments["long_prefill_token_threshold_adaptive"]
    speculative = arguments["speculative_config"]
    assert speculative["num_speculative_tokens"] == 3 and speculative["prompt_lookup_max"] == 7
    assert speculative["num_speculative_tokens_per_batch_size"] == [(1, 4, 3), (5, 8, 0)]
    assert arguments["kv_transfer_config"]["kv_load_failure_policy"] == "recompute"
    assert arguments["kv_transfer_config"]["kv_connector_extra_config"]["spec_name"] == "TieringOffloadingSpec"
    on_cpu = engine_arguments(VllmOptions.of(model=model), cpu=True)
    assert on_cpu["block_size"] == 32 and on_cpu["kv_cache_memory_bytes"] == 1 << 30
    assert "kv_transfer_config" not in on_cpu and "speculative_config" not in on_cpu
    short = engine_arguments(VllmOptions.of(model=model, context_tokens=100), cpu=True)
    assert short["long_prefill_token_threshold"] == 100  # vLLM refuses more than a prompt can have


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nonsense": 1}, "no option 'nonsense'"),
        ({"max_sequences": 0}, "max_sequences is 0"),
        ({"max_sequences": 64, "batched_tokens": 32}, "batched_tokens is 32, fewer than the 64 of max_sequences"),
        ({"gpu_memory_share": 2}, "gpu_memory_share"),
        ({"redis_url": "redis://x"}, "needs host_tier_gib"),
        ({"redis_url": "redis://x", "host_tier_gib": 1.0}, "needs redis_secret_file"),
        ({"speculation": {"method": "magic"}}, "speculation.method is 'magic'"),
        ({"speculation": {"method": "ngram", "size": 1}}, "no option 'size'"),
        ({"speculation": {"method": "ngram", "tokens": 0}}, "speculation.tokens"),
        ({"speculation": {"method": "ngram", "batch_max": -1}}, "speculation.batch_max"),
        ({"speculation": {"method": "draft_model"}}, "folder of the draft"),
        ({"speculation": {"method": "ngram", "lookup_min": 5}}, "lookup_min"),
        ({"speculation": {"method": "suffix"}, "shared": True}, "one tenant can time"),
        ({"context_tokens": 5000}, "made for 4096"),
        ({"cache_gib": 0.01}, "too small for one prompt of 4,096 tokens"),
    ],
)
def test_a_profile_that_cannot_work_is_refused_before_anything_loads(
    model: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        VllmEngine.from_config(model=model, **options)


def test_a_cache_of_compressed_vectors_is_as_small_as_it_is(tmp_path: Path) -> None:
    latent = folder(tmp_path / "latent", kv_lora_rank=512, qk_rope_head_dim=64)
    assert check_profile(VllmOptions.of(model=latent)).kv_bytes == 8 * (512 + 64) * 2


def test_models_and_drafts_are_looked_at(model: Path, tmp_path: Path) -> None:
    def draft(name: str, **changed: Any) -> dict[str, Any]:
        return {"speculation": {"method": "draft_model", "model": str(folder(tmp_path / name, **changed))}}

    VllmEngine.from_config(model=model, **draft("fits", num_hidden_layers=1))
    for options, message in (
        (draft("other", vocab_size=999), "vocabulary of 999"),
        (draft("foreign", tokenizer="[]"), "tokenizer.json is not the model's"),
        (draft("odd", num_attention_heads="x"), "speculation.model: .* describes no decoder-only model"),
    ):
        with pytest.raises(ValueError, match=message):
            VllmEngine.from_config(model=model, **options)
    (model / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="holds no safetensors"):
        VllmEngine.from_config(model=model)
    with pytest.raises(ValueError, match="models export"):
        VllmEngine.from_config(model=tmp_path / "nothing.gguf")


def test_what_the_machine_cannot_hold_is_refused(model: Path) -> None:
    options = VllmOptions.of(model=model, cache_gib=3, host_tier_gib=2)
    check_memory(options, 5 << 30)
    with pytest.raises(ValueError, match=r"cache_gib 3 and host_tier_gib 2 do not fit into the 4.0 GiB"):
        check_memory(options, 4 << 30)


@pytest.mark.parametrize(("cpu", "taken", "refused"), [(True, (32, 128), (16, 17, 48)), (False, (16, 48), (1, 17, 24))])
def test_blocks_that_the_platform_cannot_read_are_refused(
    model: Path, cpu: bool, taken: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    for tokens in (None, *taken):
        check_blocks(VllmOptions.of(model=model, block_tokens=tokens), cpu=cpu)
    for tokens in (0, -5, *refused):
        with pytest.raises(ValueError, match=rf"block_tokens is {tokens}; .* a multiple of {taken[0]}"):
            check_blocks(VllmOptions.of(model=model, block_tokens=tokens), cpu=cpu)


def test_serve_names_the_field(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.model: engine `vllm` needs|model.tokenizer"):
        prepare(load_config(engine="vllm"))
    with pytest.raises(ConfigError, match=r"engine\.model"):
        prepare(load_config(engine="vllm", model=str(tmp_path / "nothing")))


def test_tenants_share_no_engine_without_salts(model: Path, tmp_path: Path) -> None:
    from foretype_models.artifacts import FOLDER

    (model / "tokenizer.json").write_bytes((FOLDER / "tokenizer.json").read_bytes())
    profile = tmp_path / "shared.toml"

    def engine(text: str) -> VllmEngine:
        profile.write_text(f'[engine]\nname = "vllm"\nmodel = "{model}"\n{text}')
        made = prepare(load_config(profile=profile)).engine
        assert isinstance(made, VllmEngine)
        return made

    with pytest.raises(ConfigError, match=r"engine\.options\.shared: .*salts"):
        engine("[engine.options]\nshared = true\n")
    assert engine("[identity]\nenabled = true\n").shared and not engine("").shared
    with pytest.raises(ConfigError, match="one tenant can time"):
        engine('[engine.options]\nspeculation = { method = "suffix" }\n[identity]\nenabled = true\n')


@pytest.mark.parametrize(
    ("ids", "salt", "message"),
    [
        ([1], None, "no cache salt"),
        ([1], "", "no cache salt"),
        ([], "s", "empty"),
        ([1000], "s", "outside the vocabulary"),
        ([1] * 4096, "s", "4,?096"),
    ],
)
async def test_what_can_never_run_is_refused_before_vllm_hears_of_it(
    model: Path, ids: list[int], salt: str | None, message: str
) -> None:
    engine = VllmEngine.from_config(model=model, shared=True)
    with pytest.raises(PromptRefusedError, match=message):
        async for _ in engine.generate(GenerationRequest("r", ids, GenerationParams(max_tokens=1), salt=salt)):
            pass


async def test_without_vllm_it_says_how_to_get_it(model: Path) -> None:
    engine = VllmEngine.from_config(model=model)
    with pytest.raises(EngineUnavailableError, match="not started"):
        engine.capabilities()
    if _vllm_is_here():
        return
    with pytest.raises(EngineUnavailableError, match="make vllm-env"):
        await engine.start()


def _vllm_is_here() -> bool:
    from importlib.util import find_spec

    found = find_spec("vllm")
    return found is not None and found.origin is not None


# Requests


def test_the_models_own_end_token_counts_only_where_it_is_named() -> None:
    arguments = sampling_arguments(GenerationParams(max_tokens=9, end_token_ids=frozenset({7, 3})), 5)
    assert arguments["stop_token_ids"] == [3, 7] and arguments["ignore_eos"] and arguments["max_tokens"] == 5
    assert arguments["extra_args"] is None and arguments["allowed_token_ids"] is None
    assert sampling_arguments(GenerationParams(max_tokens=1, first_of=(8, 5)), 1)["allowed_token_ids"] == [8, 5]
    assert without_end([1, 7], "stop", frozenset({7})) == (1,)
    assert without_end([1, 7], "length", frozenset({7})) == (1, 7)
    assert without_end([], "stop", frozenset({7})) == ()


def test_only_the_stable_beginning_of_a_prompt_goes_down() -> None:
    def placed(scope: Scope, document: str, start: int, end: int) -> PlacedSegment:
        source = Source(document=document, version=2, start=10 * start, end=10 * end)
        return PlacedSegment(
            segment=Segment(kind=Kind.PREFIX, scope=scope, source=source, text=""), start=start, end=end
        )

    origin = Origin(
        placed=(
            placed(Scope.REPOSITORY, "", 0, 10),
            placed(Scope.FILE, "a.py", 10, 50),
            placed(Scope.SESSION, "a.py", 50, 60),
            placed(Scope.FILE, "a.py", 60, 70),
        )
    )
    parameters = tier_parameters(origin, "salt", shared=True)
    assert parameters["max_offload_tokens"] == 50
    placement = placement_of(parameters)
    assert placement.namespace == tier_namespace("salt") and placement.shared
    assert placement.placed == (Placed(10, 50, "a.py", 2, 100, 500),)
    assert not placement_of(tier_parameters(origin, None, shared=True)).shared  # whose it is, is not known
    assert tier_parameters(None, "salt", shared=True) == {"max_offload_tokens": 0}
    assert tier_namespace("a") != tier_namespace("b") and "salt" not in tier_namespace("salt")


def test_logprobs_are_those_of_the_tokens() -> None:
    class One:
        def __init__(self, logprob: float) -> None:
            self.logprob = logprob

    rows = [{1: One(-0.5), 2: One(-0.1)}, {3: One(-2.0)}]
    assert logprobs_of([1, 3], rows) == (-0.5, -2.0)
    assert logprobs_of([1], rows) == (-0.5,)
    assert logprobs_of([1], None) == logprobs_of([1, 3, 4], rows) == ()


def test_what_speculation_gained_is_counted_by_language_and_judged() -> None:
    book = AcceptanceBook()
    for _ in range(100):
        for tokens in (1, 3, 5):
            book.note("python", tokens)
        book.note("go", 1)
        book.note("go", 2)
    book.note("a client's own word", 5)
    found = book.languages()
    assert found["python"].tokens_per_step == 3 and found["python"].share(4) == 0.5
    assert found["go"].share(4) == 0.125 and list(found) == ["go", "other", "python"]
    registry = CollectorRegistry()
    registry.register(AcceptanceCollector(book, 4))
    text = generate_latest(registry).decode()
    assert 'foretype_speculation_pays{language="python"} 1.0' in text
    assert 'foretype_speculation_pays{language="go"} 0.0' in text
    assert 'pays{language="other"}' not in text and "own word" not in text  # too few steps to judge
    assert 'foretype_decode_tokens_total{language="python"} 900.0' in text

    for _ in range(501):
        book.guessed(1, 1)  # one a step and not four: what is looked up is often not found
    text = generate_latest(registry).decode()
    assert 'foretype_speculation_pays{language="go"} 1.0' in text  # half of what was guessed was right
    assert "foretype_guessed_tokens_accepted_total 501.0" in text and "foretype_guessed_tokens_total 501.0" in text
    assert 'foretype_decode_steps_total{language="python"} 300.0' in text
    book.clear()
    assert book.guessed_per_step() is None
