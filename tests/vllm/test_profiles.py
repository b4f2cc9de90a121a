"""Every profile is read by vLLM's own argument parser, and its nested parts by the classes that use them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

PROFILES = sorted((Path(__file__).parents[2] / "deploy" / "profiles").glob("*.yaml"))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_the_parser_of_vllm_takes_it(path: Path) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    given = yaml.safe_load(path.read_text("utf-8"))
    read = parser.parse_args(["--config", str(path)])
    for name in ("host", "port", "model", "max_num_seqs", "max_num_batched_tokens", "block_size", "scheduling_policy"):
        assert getattr(read, name) == given[name.replace("_", "-")], name
    assert read.enable_scale_out
    assert read.enable_prompt_tokens_details
    arguments = AsyncEngineArgs.from_cli_args(read)
    assert arguments.enable_prefix_caching
    assert arguments.kv_cache_dtype == given.get("kv-cache-dtype", "auto")
    assert arguments.tensor_parallel_size == given.get("tensor-parallel-size", 1)
    if "kv-events-config" in given:
        assert arguments.kv_events_config is not None
        assert arguments.kv_events_config.endpoint == given["kv-events-config"]["endpoint"]
    if "kv-transfer-config" in given:
        transfer = arguments.kv_transfer_config
        assert transfer is not None
        assert transfer.kv_load_failure_policy == "recompute"
        assert transfer.kv_connector_extra_config == given["kv-transfer-config"]["kv_connector_extra_config"]
    if "speculative-config" in given:
        assert arguments.speculative_config == given["speculative-config"]
    if "cudagraph-capture-sizes" in given:
        assert arguments.cudagraph_capture_sizes == given["cudagraph-capture-sizes"]


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES if path.stem != "cpu"))
def test_the_bench_for_gpus_hands_each_to_the_engine(name: str, tmp_path: Path) -> None:
    """`make gpu-bench PROFILES=1`: what the engine is given is what the server would be, on a model of the same shape."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    given = yaml.safe_load((PROFILES[0].parent / f"{name}.yaml").read_text("utf-8"))
    made = bench_profiles().arguments_of(name, tmp_path)
    if made.get("quantization") == "awq_marlin":
        made["quantization"] = (
            "awq"  # Marlin's kernels are a GPU's: there vLLM takes an AWQ folder for them, here it does not
        )
    arguments = AsyncEngineArgs(**made)
    model = arguments.create_model_config()
    assert model.max_model_len == given["max-model-len"]
    assert (arguments.max_num_seqs, arguments.kv_cache_dtype) == (
        given["max-num-seqs"],
        given.get("kv-cache-dtype", "auto"),
    )
    speculation = arguments.speculative_config
    if speculation is not None:
        build_dynamic_sd_schedule_lookup(
            speculation["num_speculative_tokens_per_batch_size"],
            vllm_max_batch_size=arguments.max_num_seqs,
            vllm_num_speculative_tokens=speculation["num_speculative_tokens"],
        )


def test_the_bench_for_gpus_says_which_cards_a_profile_lacks() -> None:
    made = bench_profiles()
    assert sorted(made.names()) == sorted(path.stem for path in PROFILES if path.stem != "cpu")
    on_l4 = {name for name in made.names() if not made.lacking_for(name, gpus=1, memory_gb=24)}
    assert on_l4 == {"l4-1.5b", "small-gpu-1.5b", "h100-7b-fp8", "h100-7b-int4", "h100-7b-int8"}
    assert made.lacking_for("two-h100-32b", gpus=1, memory_gb=80) == "2 GPUs"
    assert not any(made.lacking_for(name, gpus=8, memory_gb=80) for name in made.names())


def bench_profiles() -> Any:
    folder = str(Path(__file__).parents[2] / "deploy" / "gpu")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("profiles")


def test_a_flag_that_vllm_does_not_have_is_refused(tmp_path: Path) -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(PROFILES[0].read_text("utf-8") + "no-such-flag: 1\n")
    with pytest.raises(SystemExit):
        make_arg_parser(FlexibleArgumentParser()).parse_args(["--config", str(wrong)])
