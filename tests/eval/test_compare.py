"""Two runs joined: paired differences with their sign, exact tests, and refusals where there is nothing to join."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eval.replay_rows import commit_row
from foretype_eval.cli import app
from foretype_eval.compare.paired import compare_runs
from foretype_eval.compare.runs import load_run
from foretype_eval.errors import EvalError
from foretype_eval.replay.results import CommitRow
from typer.testing import CliRunner


def replay_row(commit: str, **counts: Any) -> CommitRow:
    return commit_row(commit, **{"keys_without": 100, "opportunities": 90} | counts)


def item(id: int, *, passed: bool) -> dict[str, Any]:
    flags = {
        "brace_only": False,
        "blank_reference": False,
        "exact": passed,
        "passed": passed,
        "empty": False,
        "repeats": False,
    }
    sizes = {"similarity": 1.0, "chars": 3, "reference_chars": 3, "completion_hash": "x"}
    return {"id": str(id), "cluster": str(id // 2), "language": "python"} | flags | sizes


def write(folder: Path, rows: list[Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "items.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rows)) + b"\n")
    return folder


def test_fewer_keys_are_more_keystrokes_saved_and_the_interval_has_the_same_sign(tmp_path: Path) -> None:
    before = write(tmp_path / "a", [replay_row(str(n), keys_with=80 + n, accepted_chars=20) for n in range(10)])
    after = write(tmp_path / "b", [replay_row(str(n), keys_with=75 + n, accepted_chars=29) for n in range(1, 12)])
    found = compare_runs(load_run(before), load_run(after))["systems"]["model"]
    assert (found["commits"], found["only_first"], found["only_second"]) == (9, 1, 2)
    assert found["measures"]["ksr"] == {"difference": pytest.approx(0.05), "ci": None}
    assert found["measures"]["cpo"]["difference"] == pytest.approx(0.1)
    assert "late_rate" not in found["measures"], "nothing was answered in either"


def test_items_are_tested_exactly_and_by_problem(tmp_path: Path) -> None:
    before = write(tmp_path / "a", [item(n, passed=n % 2 == 0) for n in range(40)])
    after = write(tmp_path / "b", [item(n, passed=n % 2 == 0 or n < 20) for n in range(40)])
    done = CliRunner().invoke(app, ["compare", str(before), str(after), "--json"])
    row = json.loads(done.stdout)["measures"]["pass_at_1"]
    assert (row["only_first"], row["only_second"], row["difference"]) == (0, 10, 0.25)
    assert row["mcnemar_p"] == pytest.approx(2 / 1024) and row["mcnemar_p_holm"] > row["mcnemar_p"]
    assert row["ci"][0] > 0


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    replay = write(tmp_path / "r", [replay_row(str(n)) for n in range(5)])
    other = write(tmp_path / "o", [replay_row(str(n)) for n in range(3, 9)])
    keys = write(tmp_path / "k", [replay_row(str(n), keys_without=7) for n in range(5)])
    system = write(tmp_path / "s", [replay_row(str(n), system="empty") for n in range(5)])
    fim = write(tmp_path / "f", [item(1, passed=True)])
    for second, message in (
        (other, "only 2 of 5"),
        (keys, "other keystrokes"),
        (system, "no system"),
        (fim, "different kinds"),
    ):
        with pytest.raises(EvalError, match=message):
            compare_runs(load_run(replay), load_run(second))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(EvalError, match=r"no items\*\.jsonl"):
        load_run(empty)
    bad = write(tmp_path / "bad", [item(1, passed=True), {"id": 3}])
    with pytest.raises(EvalError, match=r"items\.jsonl:2: "):
        load_run(bad)
    (tmp_path / "bad" / "items-2.jsonl").write_text("{}")
    with pytest.raises(EvalError, match="several runs"):
        load_run(bad)
    done = CliRunner().invoke(app, ["compare", str(empty), str(bad)])
    assert done.exit_code == 2
