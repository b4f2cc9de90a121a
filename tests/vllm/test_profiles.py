"""Every profile is read by vLLM's own argument parser, and its nested parts by the classes that use them."""

from __future__ import annotations

from pathlib import Path

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


def test_a_flag_that_vllm_does_not_have_is_refused(tmp_path: Path) -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(PROFILES[0].read_text("utf-8") + "no-such-flag: 1\n")
    with pytest.raises(SystemExit):
        make_arg_parser(FlexibleArgumentParser()).parse_args(["--config", str(wrong)])
