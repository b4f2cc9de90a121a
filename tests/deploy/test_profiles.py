"""Profiles of `vllm serve`: every flag is explained, nothing listens to the network, and what the product needs is on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "profiles"
PROFILES = sorted(FOLDER.glob("*.yaml"))


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text("utf-8"))


def test_there_is_one_for_each_kind_of_machine() -> None:
    names = {path.stem for path in PROFILES}
    assert names == {"h100-7b-fp8", "h100-7b-int4", "small-gpu-1.5b", "eight-gpus-70b-fp8", "cpu"}


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
    assert profile["model"].startswith("/models/")
    events = profile.get("kv-events-config")
    assert events is None or events["endpoint"].startswith("tcp://127.0.0.1:")
    tiers = profile.get("kv-transfer-config")
    assert tiers is None or tiers["kv_load_failure_policy"] == "recompute"
    assert profile["max-num-seqs"] == (32 if "70b" in path.stem else 8)
    assert profile["max-num-batched-tokens"] == (8192 if "70b" in path.stem else 2048)
    assert profile.get("speculative-config", {}).get("method") != "suffix"  # its tree is shared between tenants
