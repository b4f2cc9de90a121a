"""`foretype plan`: the whole answer, its bad inputs, its day."""

import json
from importlib.metadata import entry_points

import pytest
import typer
from foretype_plan.catalogue import catalogue, hardware, model
from foretype_plan.commands import plan as command
from foretype_plan.day import COMMITS, OFFICE, active_by_hour
from foretype_plan.errors import PlanError
from foretype_plan.formulas import (
    flop_per_token,
    kv_bytes_per_session,
    kv_bytes_per_token,
    prefill_tokens_per_s,
    step_s,
    weights_bytes,
)
from foretype_plan.plan import WALLS, plan
from foretype_plan.scenario import Language, Scenario, Tier, read
from typer.testing import CliRunner

APP = typer.Typer()
APP.command()(command)


def run(*arguments):
    return CliRunner().invoke(APP, arguments, env={"COLUMNS": "80"})


def test_a_million_developers():
    made = json.loads(run("--developers", "1000000", "--model", "qwen2.5-coder-7b", "--gpu", "h100", "--json").stdout)
    assert set(made["ttft_ms"]) == {"cold", "warm", "p50", "p95", "p99"}
    assert set(made["gpus"]) == {"mean", "peak", "with_failure"}
    assert {"month", "per_1k_accepted"} <= set(made["cost"])
    assert made["binding"] in WALLS and made["meets_objective"]
    figures = made["tiers"]["fast"]["figures"]
    assert all(one["formula"] and one["low"] <= one["value"] <= one["high"] for one in figures.values())
    assert all(one["source"] for one in made["tiers"]["fast"]["inputs"].values())
    assert made["tiers"]["fast"]["levers"]
    cliff = made["tiers"]["fast"]["cliff"]
    assert [one["warm_share"] for one in cliff] == [at / 20 for at in range(21)]
    here = next(one for one in cliff if one["warm_share"] == 0.75)
    assert all(here[f"{one}_ms"] == pytest.approx(made["ttft_ms"][one]) for one in ("p50", "p95", "p99"))
    assert cliff[0]["p99_ms"] > 1.5 * here["p99_ms"] and cliff[-1]["p99_ms"] < here["p99_ms"]


def test_it_is_a_command():
    assert "plan" in {one.name for one in entry_points(group="foretype.commands")}
    shown = run("--developers", "200")
    assert shown.exit_code == 0 and max(map(len, shown.stdout.splitlines())) <= 80


WRONG = (
    (("--developers", "0"), "developers"),
    (("--developers", "nan"), "developers"),
    (("--set", "warm_share=1.2"), "warm_share"),
    (("--set", "warm_share=-0.1"), "warm_share"),
    (("--set", "warm_shar=0.5"), "tier.fast.inputs.warm_shar"),
    (("--set", "warm_share"), "--set"),
    (("--set", "objective_s=0.02"), "tier.fast.inputs.objective_s"),
    (("--set", "prompt_tokens=0"), "prompt_tokens"),
    (("--set", "hand_over_bytes_per_s=0"), "hand_over_bytes_per_s"),
    (("--set", "objective_share=1"), "objective_share"),
    (("--set", "active_hours=25"), "active_hours"),
    (("--set", "active_hours=20"), "active_hours"),
    (("--gpu", "x100"), "gpu"),
    (("--model", "gpt-9"), "model"),
    (("--model", "nowhere.json"), "model"),
    (("--model", "qwen2.5-72b", "--gpu", "l4"), "tier.fast.gpus_per_replica"),
    (("--weight-bits", "7"), "weight_bits"),
    (("--kv-bits", "4"), "kv_bits"),
    (("--gpus-per-replica", "0"), "gpus_per_replica"),
    (("--price", "0"), "price"),
    (("--regions", "0"), "regions"),
    (("--budget", "-1"), "budget_month"),
    (("nowhere.toml",), "file"),
)


@pytest.mark.parametrize(("arguments", "field"), WRONG, ids=[" ".join(one) for one, _ in WRONG])
def test_what_cannot_be_is_one_sentence_that_names_the_field(arguments, field):
    made = run(*arguments)
    assert made.exit_code == 2
    told = made.output.strip()
    assert (
        told.startswith(f"foretype plan: {field}: ")
        and "Traceback" not in told
        and "nan" not in told.partition(field)[2].replace("nan:", "")
    )


def test_an_objective_that_prompts_miss_by_themselves_is_said_not_hidden():
    made = plan(Scenario(tier={"fast": Tier(gpu="l4", inputs={"warm_share": 0.3})}))
    assert not made["meets_objective"] and made["binding"] == "compute" and made["ttft_ms"]["p99"] > 100


def test_a_way_that_is_given_and_nearly_all_of_the_objective_has_a_band():
    made = plan(Scenario(tier={"fast": Tier(inputs={"network_s": 0.09})}))
    assert made["ttft_ms"]["warm"] > 98


def test_the_wall_that_binds():
    def wall(**inputs):
        return plan(Scenario(developers=1e6, tier={"fast": Tier(inputs=inputs)}))["binding"]

    easy = {"objective_s": 5.0, "warm_share": 0.9}
    assert wall(**easy, output_tokens=200.0) == "bandwidth"
    assert (
        wall(**easy, prompt_tokens=8000.0, shared_tokens=0.0, output_tokens=2.0, remembered_per_developer=0.0)
        == "compute"
    )
    assert wall(**easy, remembered_per_developer=1e3) == "memory"
    assert wall() == "queue"
    assert wall(network_s=0.09, new_tokens=600.0) == "network"
    assert plan(Scenario(developers=1e6, budget_month=1.0))["binding"] == "money"


def test_prompts_go_to_servers_of_their_own_only_where_short_steps_waste_arithmetic_and_the_hand_over_is_in_time():
    def prefill(**inputs):
        return plan(Scenario(tier={"fast": Tier(inputs={"objective_s": 2.0, **inputs})}))["tiers"]["fast"]["prefill"]

    usual, tight = prefill(), prefill(pause_objective_s=0.006)
    assert not usual["split_could_pay"] and usual["chunk_tokens_most"] > 10 * usual["ridge_tokens"]
    assert tight["split_could_pay"] and 0 < tight["chunk_tokens_most"] < tight["ridge_tokens"] == usual["ridge_tokens"]
    assert tight["hand_over_ms"] == pytest.approx(1000 * 2000 * 2 * 28 * 4 * 128 * 2 / 25e9)
    assert not prefill(pause_objective_s=0.006, hand_over_bytes_per_s=1e7)["split_could_pay"]
    assert prefill(pause_objective_s=0.001) == usual | {"chunk_tokens_most": 0.0}
    assert "answers pause too long" in run("--set", "pause_objective_s=0.001").stdout
    shown = " ".join(run("--set", "objective_s=2", "--set", "pause_objective_s=0.006").stdout.replace("│", "").split())
    assert "prompts and answers apart could pay" in shown
    told = run().stdout
    assert "together, in steps of up to" in told and max(map(len, told.splitlines())) <= 80


def test_a_day_over_zones_is_flatter_and_of_the_same_hours():
    one = active_by_hour(OFFICE, {0.0: 1.0}, 0.87)
    three = active_by_hour(OFFICE, {0.0: 0.4, -5.0: 0.35, 8.0: 0.25}, 0.87)
    assert sum(one) == pytest.approx(0.87) == pytest.approx(sum(three))
    assert max(three) < max(one)
    assert one[16] == max(one) and sum(COMMITS) == pytest.approx(1, abs=0.001)
    shifted = active_by_hour(OFFICE, {-5.0: 1.0}, 0.87)
    assert shifted[21] == one[16]  # 16 o'clock there
    half = active_by_hour(OFFICE, {-3.5: 1.0}, 0.87)
    assert sum(half) == pytest.approx(0.87) and half[0] == one[20]  # half past eight there


@pytest.mark.parametrize(
    ("zones", "curve"),
    [
        ({}, OFFICE),
        ({0.0: -1.0}, OFFICE),
        ({0.0: float("nan")}, OFFICE),
        ({0.0: float("inf")}, OFFICE),
        ({20.0: 1.0}, OFFICE),
        ({float("nan"): 1.0}, OFFICE),
        ({0.0: 1.0}, [1.0]),
        ({0.0: 1.0}, [0.0] * 24),
        ({0.0: 1.0}, [float("nan")] * 24),
    ],
)
def test_days_that_are_none_are_refused(zones, curve):
    with pytest.raises(PlanError, match=r"zones|curve"):
        active_by_hour(curve, zones, 0.87)


def test_every_region_has_a_replica_in_all_figures():
    made = plan(Scenario(developers=30, regions=3))["tiers"]["fast"]
    assert made["gpus"] == {"mean": 3, "peak": 3, "with_failure": 6}
    assert {hour["gpus"] for hour in made["hours"]} == {3}


def test_a_file_with_tiers(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text(
        """
developers = 5000
zones = {0 = 0.5, -5 = 0.5}
regions = 2

[tier.fast]
gpu = "l4"
model = "qwen2.5-coder-1.5b"
share = 0.9
inputs = {warm_share = 0.85}

[tier.chat]
model = "qwen2.5-coder-32b"
gpus_per_replica = 2
share = 0.1
inputs = {objective_s = 2.0, prompt_tokens = 4000, output_tokens = 300, batch = 32}
"""
    )
    made = plan(read(file))
    assert list(made["tiers"]) == ["fast", "chat"]
    assert made["gpus"]["peak"] == sum(one["gpus"]["peak"] for one in made["tiers"].values())
    assert made["tiers"]["fast"]["inputs"]["developers"]["value"] == 4500
    changed = json.loads(run(str(file), "--developers", "10", "--set", "warm_share=0.5", "--json").stdout)
    assert changed["developers"] == 10 and changed["tiers"]["fast"]["inputs"]["warm_share"]["value"] == 0.5


def test_what_is_guessed_right_differs_by_language():
    """Two in three tokens are of a language in which half of what is guessed is taken, and the others of one in which all is."""
    of = {"python": Language(share=2.0, draft_acceptance=0.5), "sql": Language(share=1.0, draft_acceptance=1.0)}
    made = plan(Scenario(tier={"fast": Tier(inputs={"draft_tokens": 1.0}, languages=of)}))["tiers"]["fast"]
    assert made["figures"]["tokens_per_step"]["value"] == pytest.approx(1 / (2 / 3 / 1.5 + 1 / 3 / 2))
    assert made["inputs"]["tokens_per_step"]["source"] == "by language: python, sql"
    with pytest.raises(PlanError, match=r"tier\.fast\.languages\.sql: a share"):
        plan(Scenario(tier={"fast": Tier(languages={"sql": Language(share=0.0, draft_acceptance=0.5)})}))


@pytest.mark.parametrize("text", ["developers = 'many'", "[tier.fast]\nbits = 3", "x = 1", "developers = ", "\xff"])
def test_a_file_that_says_no_plan(tmp_path, text):
    (tmp_path / "plan.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(PlanError, match="file: "):
        read(tmp_path / "plan.toml")


def test_more_hits_never_cost_more():
    gpus = [
        plan(Scenario(developers=1e6, tier={"fast": Tier(inputs={"warm_share": share / 10})}))["gpus"]["peak"]
        for share in range(4, 11)
    ]
    assert gpus == sorted(gpus, reverse=True)


CONFIGS = {
    "qwen2.5-coder-7b": {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False, "model_type": "qwen2"},
    "qwen2.5-coder-1.5b": {"hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151936, "tie_word_embeddings": True, "model_type": "qwen2"},
    "llama-3.1-8b": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False, "model_type": "llama"},
    "starcoder2-3b": {"hidden_size": 3072, "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2, "intermediate_size": 12288, "vocab_size": 49152, "tie_word_embeddings": True, "model_type": "starcoder2"},
    "qwen3-coder-30b-a3b": {"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 5472, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False, "model_type": "qwen3_moe"},
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_shape_is_read_from_a_config(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    read_, known = model(str(tmp_path)), model(name)
    assert read_.parameters == pytest.approx(known.parameters, rel=0.02)
    assert read_.active == pytest.approx(known.active or known.parameters, rel=0.05)
    assert (read_.layers, read_.kv_heads, read_.head_dim) == (known.layers, known.kv_heads, known.head_dim)


DEEPSEEK_V3 = {"hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "tie_word_embeddings": False, "model_type": "deepseek_v3"}  # fmt: skip
DEEPSEEK_CODER_V2_LITE = DEEPSEEK_V3 | {"hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": None, "vocab_size": 102400, "model_type": "deepseek_v2"}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "parameters", "active"),
    [
        (DEEPSEEK_CODER_V2_LITE, 15.7e9, 2.66e9),
        (DEEPSEEK_V3, 671e9, 37.6e9),
    ],  # as their authors state them, head included
)
def test_routed_experts_and_latent_attention_are_read(tmp_path, config, parameters, active):
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = model(str(tmp_path))
    assert found.parameters == pytest.approx(parameters, rel=0.02)
    assert found.active == pytest.approx(active, rel=0.05)
    assert kv_bytes_per_token(found.layers, found.kv_heads, found.head_dim, 16) == pytest.approx(found.layers * 576 * 2)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"hidden_size": "wide"}', '{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 0}'],
)
def test_a_config_that_is_none_is_named(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PlanError, match=r"model: .*config.json"):
        model(str(tmp_path / "config.json"))


def test_what_is_missing_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}')
    with pytest.raises(PlanError, match="'intermediate_size' is missing"):
        model(str(tmp_path))


def test_two_cores_are_reckoned_as_they_were_measured():
    """docs/measurements/vllm.md: the shipped network on vLLM, 1,024 tokens computed, and one token of one stream."""
    two, known = hardware("cpu-2"), catalogue().input
    parameters, layers, heads, kv_heads, head_dim = 134_515_008, 30, 9, 3, 64
    flop = flop_per_token(parameters, layers, heads, head_dim, 1024)
    computes = known["prefill_efficiency"].value
    assert prefill_tokens_per_s(1, two.flops["16"], computes, flop) == pytest.approx(800, rel=0.2)
    cache = kv_bytes_per_session(1024, kv_bytes_per_token(layers, kv_heads, head_dim, 16))
    reads, decodes = weights_bytes(parameters, 16), known["decode_efficiency"].value
    step = step_s(reads, 1, cache, 1, two.bandwidth, decodes, flop, two.flops["16"], computes, 0.0)
    assert step == pytest.approx(0.063, rel=0.2)


def test_the_catalogue_says_where_everything_comes_from():
    known = catalogue()
    assert all(one.source for one in (*known.hardware.values(), *known.input.values()))
    assert all(one.low <= one.value <= one.high and one.better for one in known.input.values() if one.low is not None)
    assert hardware("H100").bandwidth == 3.35e12
