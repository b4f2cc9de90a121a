"""The script behind `make gpu-bench`, without vLLM: shapes, table, and what it says where there is no vLLM."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from loading import loaded

FOLDER = Path(__file__).parents[2] / "deploy" / "gpu"


def load(name: str) -> ModuleType:
    return loaded(FOLDER / f"{name}.py", f"gpu_{name}")


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
    args = bench.argparse.Namespace(model=None, draft=None, own=None, beside=0)
    names = {"all together", "ngram", "no prefix cache", "draft", "suffix"}
    on_gpu = {"fp8", "host tier", "fp8 KV", "int4", "no CUDA graphs", "int8"}
    assert {one.name for one in bench.levers(args, tmp_path, True)} == names | on_gpu | {"bf16"}
    beside = bench.argparse.Namespace(model=None, draft=None, own=None, beside=17)
    shares = [
        {one.arguments["gpu_memory_utilization"] for one in bench.levers(given, tmp_path, True)}
        for given in (args, beside)
    ]
    assert shares == [{0.9}, {bench.BESIDE_SHARE}]  # another process holds a part of the card
    without = bench.levers(args, tmp_path, False)
    assert {one.name for one in without} == names | on_gpu | {"float32"}
    assert {one.name for one in without if one.lacks} == on_gpu
    for one in without:
        if not one.lacks:
            assert (Path(one.arguments["model"]) / "config.json").is_file()
            assert one.parts


def test_time_is_shared_out_and_a_start_always_fits(bench: ModuleType) -> None:
    assert bench.share_of(470, 6, None) == bench.FIRST_S
    assert bench.share_of(400, 5, 20.0) == 80
    assert bench.share_of(400, 5, 60.0) == 110
    assert bench.share_of(50, 1, 60.0) == 50


PROBE = """
import json, sys, time
plan = json.loads(sys.stdin.read())
def write(found):
    with open(plan["answer"], "w") as file:
        json.dump(found, file)
if "seconds" in plan["arguments"]:
    write({"start_s": 0.1})
    time.sleep(plan["arguments"]["seconds"])
else:
    raise SystemExit("ValueError: it does not start")
"""


@pytest.fixture
def probed(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Two seconds of waiting instead of engines."""
    (tmp_path / "measure.py").write_text(PROBE)
    (tmp_path / "config.json").write_text('{"vocab_size": 9}')
    monkeypatch.setattr(bench, "HERE", tmp_path)
    monkeypatch.setattr(bench, "LEAST_S", 0.5)
    model = {"model": str(tmp_path)}

    def levers(*_: object) -> list[object]:
        return [
            bench.Lever("broken", model, ("ttft",)),
            bench.Lever("missing", model, ("ttft",), needs="there_is_no_such_package"),
            bench.Lever("elsewhere", {}, (), lacks="a GPU"),
            bench.Lever("slow", {**model, "seconds": 60}, ("ttft",)),
            bench.Lever("late", model, ("ttft",)),
        ]

    monkeypatch.setattr(bench, "levers", levers)
    return bench


def ends_the_slow_one(end: Callable[[], Exception]) -> type[subprocess.Popen[bytes]]:
    """Children as they are, but that waiting for the slow one ends so, once it has written what it had."""

    class Ending(subprocess.Popen[bytes]):
        def communicate(self, *given: Any, **options: Any) -> Any:
            plan = json.loads(given[0])
            if "seconds" not in plan["arguments"]:
                return super().communicate(*given)
            assert self.stdin is not None
            self.stdin.write(given[0])
            self.stdin.close()
            answer = Path(plan["answer"])
            while not answer.exists() or not answer.stat().st_size:
                time.sleep(0.02)
            raise end()

    return Ending


def test_each_lever_is_measured_or_says_why_not_and_a_cut_keeps_what_there_was(
    probed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = probed.argparse.Namespace(
        json=tmp_path / "out.json", seconds=90.0, own=None, only="", profiles=False, beside=0
    )
    now = [0.0]

    def late() -> Exception:
        now[0] = 80.0
        return subprocess.TimeoutExpired("measure.py", 70)

    monkeypatch.setattr(probed, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(probed.subprocess, "Popen", ends_the_slow_one(late))
    result: dict[str, Any] = {"gpu": False, "rows": {}}
    probed._measure_all(args, result, tmp_path, 0.0)
    rows = json.loads(args.json.read_text())["rows"]
    assert rows == result["rows"]
    assert "does not start" in rows["broken"]["failed"]
    assert rows["missing"]["failed"] == "needs there_is_no_such_package, which is not installed"
    assert rows["elsewhere"]["failed"] == "needs a GPU"
    assert rows["slow"]["start_s"] == 0.1
    assert rows["slow"]["cut"].startswith("cut off after")
    assert rows["late"]["failed"].startswith("no time was left")
    args.only = "elsewhere, missing"
    chosen: dict[str, Any] = {"gpu": False, "rows": {}}
    probed._measure_all(args, chosen, tmp_path, now[0])
    assert list(chosen["rows"]) == ["missing", "elsewhere"]
    args.only = "nothing"
    probed._measure_all(args, chosen, tmp_path, now[0])
    assert "no row has such a name" in chosen["rows"]["none"]["failed"]


def test_a_run_that_is_ended_has_written_what_it_had(
    probed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = probed.argparse.Namespace(
        json=tmp_path / "out.json", seconds=90.0, own=None, only="", profiles=False, beside=0
    )
    monkeypatch.setattr(probed.subprocess, "Popen", ends_the_slow_one(probed.Stopped))
    result: dict[str, Any] = {"gpu": False, "rows": {}}
    with pytest.raises(probed.Stopped):
        probed._measure_all(args, result, tmp_path, time.monotonic())
    rows = json.loads(args.json.read_text())["rows"]
    assert "does not start" in rows["broken"]["failed"]
    assert rows["slow"]["cut"] == "stopped"
    assert "late" not in rows


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
