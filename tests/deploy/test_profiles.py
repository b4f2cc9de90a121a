"""Profiles of `vllm serve`: every flag is explained, nothing listens to the network, and what the product needs is on."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from foretype_plan import formulas
from foretype_plan.catalogue import catalogue, hardware, model

FOLDER = Path(__file__).parents[2] / "deploy" / "profiles"
PROFILES = sorted(FOLDER.glob("*.yaml"))


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text("utf-8"))


def test_there_is_one_for_each_kind_of_machine() -> None:
    names = {path.stem for path in PROFILES}
    assert names == {*FITS, "cpu"}
    listed = yaml.safe_load((FOLDER / "Kustomization").read_text("utf-8"))["configMapGenerator"][0]["files"]
    assert listed == [path.name for path in PROFILES]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_flag_is_explained_in_its_line(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    flags = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert [line for line in flags if len(line.partition("  # ")[2]) < 15] == []
    keys = [line.partition(":")[0] for line in flags]
    assert len(keys) == len(set(keys))
    assert f"--config deploy/profiles/{path.name}" in lines[2]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_what_the_gateway_needs_is_on_and_nothing_is_open(path: Path) -> None:
    profile = read(path)
    assert profile["host"] == "127.0.0.1"
    assert profile["scheduling-policy"] == "priority"
    assert profile["enable-prefix-caching"]
    assert profile["enable-prompt-tokens-details"]
    assert profile["enable-chunked-prefill"]
    # Else a prompt that has begun takes whole steps, and an interactive request waits until it is computed.
    assert profile["long-prefill-token-threshold"] == profile["max-num-batched-tokens"] // profile["max-num-seqs"]
    assert profile["long-prefill-token-threshold-adaptive"]
    assert profile["model"].startswith("/models/")
    events = profile.get("kv-events-config")
    assert events is None or events["endpoint"].startswith("tcp://127.0.0.1:")
    tiers = profile.get("kv-transfer-config")
    assert tiers is None or tiers["kv_load_failure_policy"] == "recompute"
    assert profile.get("speculative-config", {}).get("method") != "suffix"  # its tree is shared between tenants


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_speculation_has_a_load_switch_and_every_step_below_the_cap_is_one_launch(path: Path) -> None:
    profile = read(path)
    cap, graphs = profile["max-num-seqs"], profile.get("cudagraph-capture-sizes")
    speculation = profile.get("speculative-config")
    widest = cap
    if speculation is not None:
        (first, up_to, guesses), (above, last, none) = speculation["num_speculative_tokens_per_batch_size"]
        assert (first, guesses, above, last, none) == (1, speculation["num_speculative_tokens"], up_to + 1, cap, 0)
        assert up_to <= 8  # decision 8: nothing beyond was measured
        widest = max(cap, up_to * (1 + guesses))
    if graphs is not None:
        assert graphs == sorted(graphs) and graphs[-1] == widest and cap in graphs
    else:
        assert path.stem in ("cpu", "small-gpu-1.5b")


class Fit(NamedTuple):
    """What a profile is for, by the names of the planner's catalogue; `head` is what it says of its cache."""

    model: str
    hardware: str
    weight_bits: int


FITS = {
    "eight-gpus-70b-fp8": Fit("llama-3.3-70b", "h100", 8),
    "h100-30b-a3b-fp8": Fit("qwen3-coder-30b-a3b", "h100", 8),
    "h100-32b-fp8": Fit("qwen2.5-coder-32b", "h100", 8),
    "h100-7b-fp8": Fit("qwen2.5-coder-7b", "h100", 8),
    "h100-7b-int4": Fit("qwen2.5-coder-7b", "h100", 4),
    "h100-7b-int8": Fit("qwen2.5-coder-7b", "h100", 8),
    "l4-1.5b": Fit("qwen2.5-coder-1.5b", "l4", 16),
    "small-gpu-1.5b": Fit("qwen2.5-coder-1.5b", "l4", 16),
    "two-h100-30b-a3b": Fit("qwen3-coder-30b-a3b", "h100", 16),
    "two-h100-32b": Fit("qwen2.5-coder-32b", "h100", 16),
}


@pytest.mark.parametrize("name", FITS)
def test_the_planner_says_that_it_fits_and_holds_what_its_head_says(name: str) -> None:
    profile, fit = read(FOLDER / f"{name}.yaml"), FITS[name]
    kv_bits = 8 if profile.get("kv-cache-dtype") == "fp8" else 16
    drafted = profile.get("speculative-config", {}).get("method") == "draft_model"
    served = [(model(fit.model), fit.weight_bits), *([(model("qwen2.5-coder-0.5b"), 16)] if drafted else [])]
    room = formulas.kv_room_bytes(
        profile.get("tensor-parallel-size", 1),
        hardware(fit.hardware).memory,
        profile["gpu-memory-utilization"],
        sum(formulas.weights_bytes(one.parameters, bits) for one, bits in served),
        catalogue().input["reserved_bytes"].value,
    )
    token = sum(formulas.kv_bytes_per_token(one.layers, one.kv_heads, one.head_dim, kv_bits) for one, _ in served)
    tokens = room / token
    assert tokens > 4000 * profile["max-num-seqs"]  # a full batch of the longest prompts that the gateway sends
    assert tokens > profile["max-model-len"]
    said = re.search(
        r"about ([\d,]+) tokens of (\d+) KiB", (FOLDER / f"{name}.yaml").read_text("utf-8").splitlines()[1]
    )
    if name != "small-gpu-1.5b":  # which says what is left on the smallest
        assert said is not None
        assert tokens == pytest.approx(int(said[1].replace(",", "")), rel=0.1)
        assert token / 1024 == pytest.approx(int(said[2]), abs=1)
