"""`foretype eval gate`: non-inferiority by its exit code and its JSON, over runs and over gateways that run."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eval.test_compare import item, replay_row, write
from foretype_eval.cli import app
from foretype_eval.fim.baselines import Baseline
from foretype_eval.fim.run import FimOptions, run_fim
from foretype_eval.gate.verdict import LEAST_CLUSTERS
from typer.testing import CliRunner, Result

KEYS = ("metric", "difference", "low", "high", "margin", "passes", "verdict", "n", "clusters", "needed")


def gate(baseline: object, candidate: object, *arguments: object) -> Result:
    given = ["gate", "--baseline", baseline, "--candidate", candidate, *arguments, "--json"]
    return CliRunner().invoke(app, [str(one) for one in given])


def run_of(folder: Path, items: int, *, right: Callable[[int], bool]) -> Path:
    """A benchmark run of two items a problem."""
    return write(folder, [item(n, passed=right(n)) for n in range(items)])


def test_an_equal_candidate_passes_once_there_are_enough_items(tmp_path: Path) -> None:
    enough, few = (run_of(tmp_path / str(n), n, right=lambda n: n % 2 == 0) for n in (400, 60))
    done = gate(enough, enough)
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["passes"] and found["verdict"] == "passes"
    assert all(key in found for key in KEYS) and all(key in one for one in found["metrics"] for key in KEYS)
    assert found["difference"] == 0 and -found["margin"] <= found["low"] < 0 < found["high"], (
        "equal answers to 200 problems do not prove that all are equal"
    )
    assert {one["metric"] for one in found["metrics"]} == {"pass_at_1", "exact_match"}
    done = gate(few, few)
    found = json.loads(done.stdout)
    assert (done.exit_code, found["verdict"], found["passes"]) == (1, "undecided", False)
    assert 60 < found["needed"] <= 400 and f"{found['needed']:,}" in found["reason"]
    assert gate(few, few, "--margin", "pass_at_1=0.06", "--margin", "exact_match=0.06").exit_code == 0


def test_a_worse_candidate_fails_and_a_better_one_passes(tmp_path: Path) -> None:
    good = run_of(tmp_path / "good", 400, right=lambda n: n % 10 < 6)
    bad = run_of(tmp_path / "bad", 400, right=lambda n: n % 10 < 5)
    done = gate(good, bad)
    found = json.loads(done.stdout)
    assert (done.exit_code, found["verdict"], found["needed"]) == (1, "fails", None)
    assert found["high"] < -found["margin"], "not by chance"
    assert (found["before"], found["after"]) == (0.6, 0.5)
    assert gate(bad, good).exit_code == 0
    within = gate(good, bad, "--margin", "pass_at_1=0.2", "--margin", "exact_match=0.2")
    assert within.exit_code == 0, "how much worse is still as good is for the caller to say"


def test_one_metric_that_fails_decides_the_whole(tmp_path: Path) -> None:
    good = run_of(tmp_path / "good", 400, right=lambda n: n % 2 == 0)
    rows = [item(n, passed=n % 2 == 0) | {"exact": n % 10 == 0} for n in range(400)]
    found = json.loads(gate(good, write(tmp_path / "other", rows)).stdout)
    assert (found["metric"], found["passes"]) == ("exact_match", False)
    assert [one["passes"] for one in found["metrics"]] == [True, False]


def test_few_problems_decide_nothing_however_clear(tmp_path: Path) -> None:
    items = 2 * LEAST_CLUSTERS - 2
    few = run_of(tmp_path / "few", items, right=lambda n: n % 2 == 0)
    better = run_of(tmp_path / "better", items, right=lambda n: True)
    found = json.loads(gate(few, better).stdout)
    assert (found["verdict"], found["clusters"]) == ("undecided", LEAST_CLUSTERS - 1) and found["needed"] > items
    nothing = run_of(tmp_path / "nothing", 400, right=lambda n: False)
    found = json.loads(gate(nothing, nothing).stdout)
    assert found["verdict"] == "undecided" and "nothing could be lost" in found["reason"]


def test_replays_are_compared_by_keystrokes_and_by_what_was_right(tmp_path: Path) -> None:
    def replayed(name: str, keys: int, right: int) -> Path:
        rows = [
            replay_row(str(n), system="network", keys_with=keys + n % 7, sessions=20, sessions_right=right + n % 3)
            for n in range(160)
        ]
        return write(tmp_path / name, rows)

    stands = replayed("stands", 80, 6)
    done = gate(stands, replayed("same", 80, 6))
    assert done.exit_code == 0, done.stdout
    assert [one["metric"] for one in json.loads(done.stdout)["metrics"]] == ["ksr", "a_line_precision"]
    found = json.loads(gate(stands, replayed("slower", 84, 6)).stdout)
    assert (found["metric"], found["verdict"], found["difference"]) == ("ksr", "fails", pytest.approx(-0.04))
    found = json.loads(gate(stands, replayed("wrong", 80, 4)).stdout)
    assert (found["metric"], found["verdict"]) == ("a_line_precision", "fails")
    done = gate(stands, stands, "--system", "model")
    assert done.exit_code == 2 and "--system: model is not in both" in done.stderr


def test_a_candidate_that_refuses_is_wrong_and_a_baseline_that_refuses_is_no_baseline(tmp_path: Path) -> None:
    good = run_of(tmp_path / "good", 400, right=lambda n: True)
    rows = [item(n, passed=False) | {"error": "overloaded"} for n in range(400)]
    refused = write(tmp_path / "refused", rows)
    assert gate(good, refused).exit_code == 1
    done = gate(refused, good)
    assert done.exit_code == 2 and "400 of 400 items were refused (overloaded)" in done.stderr


def test_bad_input_ends_with_two_and_names_the_option(tmp_path: Path) -> None:
    fim = run_of(tmp_path / "fim", 40, right=lambda n: True)
    replay = write(tmp_path / "replay", [replay_row(str(n)) for n in range(5)])
    weights, checkpoint = tmp_path / "w.gguf", tmp_path / "checkpoint"
    weights.write_bytes(b"GGUF")
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"")
    for arguments, message in (
        ((tmp_path / "gone", fim), "--baseline:"),
        ((fim, replay), "--candidate:"),
        ((fim, weights), "--candidate:"),
        ((fim, checkpoint), "safetensors"),
        ((weights, weights), "give --fim FILE"),
        ((fim, fim, "--margin", "speed=0.1"), "--margin speed=0.1"),
        ((fim, fim, "--margin", "pass_at_1=2"), "--margin pass_at_1=2"),
        ((fim, fim, "--candidate-layout", "spm"), "--candidate-layout"),
        ((fim, "ws://127.0.0.1:9/v1/stream", "--fim", tmp_path / "gone.jsonl"), "gone.jsonl"),
    ):
        done = gate(*arguments)
        assert done.exit_code == 2 and done.stdout == "", arguments
        assert message in done.stderr, (arguments, done.stderr)


@pytest.mark.timeout(120)
async def test_a_profile_is_measured_against_a_run(write_rows: Any, single_line_rows: Any, tmp_path: Path) -> None:
    data = write_rows("lines.jsonl", single_line_rows)
    await run_fim(FimOptions(data=data, out=tmp_path / "reference", baseline=Baseline.REFERENCE))
    profile = tmp_path / "scripted.toml"
    profile.write_text('[engine]\nname = "scripted"\n')
    out = tmp_path / "runs"
    done = await asyncio.to_thread(
        gate, tmp_path / "reference", profile, "--fim", data, "--max-tokens", 16, "--out", out
    )
    found = json.loads(done.stdout)
    assert (done.exit_code, found["verdict"], found["metric"]) == (1, "fails", found["metric"])
    assert found["sha256"] == {"baseline": None, "candidate": None}
    assert (out / "candidate-fim" / "items.jsonl").is_file()
    assert gate(tmp_path / "reference", out / "candidate-fim").exit_code == 1, "a run that was kept is a side again"
