"""The script behind `make gpu-bench`, without vLLM: shapes, table, and what it says where there is no vLLM."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "gpu"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setitem(sys.modules, "shapes", load("shapes"))
    return load("bench")


def test_the_shape_of_7b_has_seven_billion_parameters(tmp_path: Path) -> None:
    shapes = load("shapes")
    folder = shapes.write_shape("7b", tmp_path / "7b", quantization="int4")
    config = json.loads((folder / "config.json").read_text())
    width, inner, head = config["hidden_size"], config["intermediate_size"], config["hidden_size"] // 28
    attention = 2 * width * width + 2 * width * head * config["num_key_value_heads"]
    total = config["num_hidden_layers"] * (attention + 3 * width * inner) + 2 * width * config["vocab_size"]
    assert 7.3e9 < total < 7.8e9
    assert config["quantization_config"]["bits"] == 4
    assert shapes.quantized("fp8") is None


def test_every_lever_is_there_alone_and_all_together(bench: ModuleType, tmp_path: Path) -> None:
    args = bench.argparse.Namespace(model=None, draft=None, own=None)
    names = [name for name, _, _ in bench.levers(args, tmp_path, True)]
    assert set(names) == {
        *("bf16", "all together", "ngram", "no prefix cache", "fp8", "host tier", "fp8 KV", "int4", "no CUDA graphs"),
        *("int8", "draft"),
    }
    for _, arguments, parts in bench.levers(args, tmp_path, False):
        assert (Path(arguments["model"]) / "config.json").is_file()
        assert parts


def test_the_table_shows_what_failed_and_what_was_measured(bench: ModuleType) -> None:
    pair = {"n": 3, "p50_ms": 12.5, "p99_ms": 20.0}
    ttft = {"1": {"cold": pair, "warm": pair}, "4": {"cold": {"n": 0}, "warm": pair}, "8": {}}
    shown = bench.table(
        {"bf16": {"ttft": ttft, "abort": pair, "sustained": {"requests_per_s": 32}}, "int8": {"failed": "no"}}
    )
    lines = shown.splitlines()
    assert lines[2].count("12.5/20.0") == 4
    assert lines[2].rstrip().endswith("32")
    assert lines[3].split() == ["int8", "no"]


def test_without_vllm_it_says_what_to_install() -> None:
    told = subprocess.run([sys.executable, str(FOLDER / "bench.py")], capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "pip install" in told.stderr
