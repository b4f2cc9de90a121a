"""What is measured on the real engine by a command of its own: each runs here once, as small as it goes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from foretype_lab.commands import bench
from lab.test_cache_counters import write
from typer.testing import CliRunner


@pytest.fixture(autouse=True)
def this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETYPE_VLLM_PYTHON", sys.executable)


def test_vllm_counts_as_the_simulation_does(tmp_path: Path) -> None:
    recording = write(tmp_path / "s.jsonl")
    done = CliRunner().invoke(bench, ["counters", str(recording), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    for row in result["layouts"].values():
        assert row["requests"] > 3 and row["cached_tokens_counted"] > 0
        assert row["agreement"] == 1.0, row


@pytest.mark.timeout(600)
def test_the_engine_bench_measures_what_it_is_asked_for(model_folder: Path) -> None:
    parts = ["serving", "cancel", "isolation"]
    asked = ["--model", str(model_folder), "--parts", ",".join(parts), "--samples", "8", "--seconds", "1", "--json"]
    done = CliRunner().invoke(bench, ["engine", *asked])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [name for name in result if name in (*parts, "speculation")] == parts
    assert result["engine"].startswith("vllm ") and result["cancel"]["cancel_to_running_falls_ms"]["n"] >= 1
    cached = {name: found["cached_tokens"] for name, found in result["isolation"].items()}
    assert cached["a_again"] > 0 and not cached["a_first"] + cached["b_after_a"] + cached["a_after_purge"]
