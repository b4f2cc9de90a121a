"""`foretype bench all`: turns, ratios with intervals, rows that fail, and going on where a run ended; by benches that take no time."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from foretype_lab.all_rows import sides
from foretype_lab.all_rows.conductor import OURS, THEIRS, behind, conduct
from foretype_lab.all_rows.sides import HERE, HERE_SIDE, checked_out, run_bench
from foretype_lab.all_rows.table import GATE_ROUNDS, Aimed, Bench, Better, Row, load_table
from foretype_lab.commands import bench
from foretype_lab.errors import BenchFailedError
from foretype_lab.processes import environment
from git_repo import git
from typer.testing import CliRunner

COMMAND = [sys.executable, "-P", "-m", "foretype_lab", "bench", "all"]
KEYS = ["name", "value", "unit", "against", "ratio", "low", "high", "aim", "met", "record", "spread"]


def a_bench(*rows: Row, rounds: int = 4, **more: Any) -> Bench:
    return Bench(
        name="b", command=("x",), minutes=1, rounds=rounds, row=rows or (Row(name="r", pick="ms", unit="ms"),), **more
    )


def scripted(
    ours: Sequence[float | str], theirs: Sequence[float | str] = (), asked: list[str] | None = None
) -> Callable[[Bench, str], dict[str, Any]]:
    """Benches that report these figures, one a run; a text is why a run fails."""
    left = {OURS: iter(ours), THEIRS: iter(theirs)}

    def ask(_bench: Bench, side: str) -> dict[str, Any]:
        if asked is not None:
            asked.append(side)
        found = next(left[side])
        if isinstance(found, str):
            raise BenchFailedError(found)
        return {"ms": found, "peer": {"ms": 2 * found}, "noise": 1.0}

    return ask


def test_sides_take_turns_and_the_ratio_has_an_interval_over_rounds() -> None:
    asked: list[str] = []
    row = Row(name="r", pick="ms", unit="ms", aim=6, record="docs/x.md")
    ((found,),) = conduct([a_bench(row)], scripted([4, 8, 6, 5], [8, 16, 12, 11], asked), against=True)
    assert asked == [OURS, THEIRS, THEIRS, OURS] * 2
    assert list(found) == KEYS
    assert (found["value"], found["against"], found["ratio"]) == (5.5, 11.5, round(23 / 47, 4))
    assert found["low"] < found["ratio"] < found["high"] and found["high"] - found["low"] < 0.1
    assert found["aim"] == "≤ 6" and found["met"] is True and found["record"] is None


def test_anything_is_any_number_of_times_a_peer_that_had_nothing() -> None:
    row = Row(name="keys", pick="ms", unit="%", aim=1.5, of=Aimed.PEER, better=Better.HIGHER, peer="peer")
    for ours, met in ((0.9, True), (0, None)):
        assert row.met(ours, None, 0) is met


def test_how_far_rounds_lie_apart_is_told_of_the_ratio_where_there_is_one() -> None:
    row = Row(name="r", pick="ms", unit="ms")
    ((alone,),) = conduct([a_bench(row)], scripted([4, 8, 6, 6], []), against=False)
    ((beside,),) = conduct([a_bench(row)], scripted([4, 8, 6, 6], [8, 16, 12, 15]), against=True)
    ((once,),) = conduct([a_bench(row, rounds=1)], scripted([4], []), against=False)
    assert (alone["spread"], beside["spread"], once["spread"]) == (0.667, 0.2, None)


def test_an_aim_that_is_missed_names_its_record_and_one_without_a_record_says_so() -> None:
    rows = (
        Row(name="limit", pick="ms", unit="ms", aim=3, record="docs/x.md"),
        Row(name="none", pick="ms", unit="ms", aim=3),
        Row(name="rate", pick="ms", unit="1/s", aim=3, better=Better.HIGHER),
        Row(name="peer", pick="ms", peer="peer.ms", unit="ms", aim=0.5, of=Aimed.PEER),
        Row(name="less", pick="ms", less="noise", unit="ms", aim=3),
        Row(name="reported", pick="ms", unit="ms"),
    )
    ((limit, none, rate, peer, less, reported),) = conduct([a_bench(*rows)], scripted([4] * 4), against=False)
    assert (limit["met"], limit["record"]) == (False, "docs/x.md")
    assert none["met"] is False and "no record" in none["record"]
    assert (rate["aim"], rate["met"]) == ("≥ 3", True)
    assert (peer["against"], peer["ratio"], peer["met"], peer["aim"]) == (8, 0.5, True, "≤ 0.5 of the peer's")
    assert (peer["low"], peer["high"]) == (None, None), "four equal rounds know no interval"
    assert (less["value"], less["met"]) == (3, True)
    assert (reported["aim"], reported["met"], reported["record"]) == (None, None, None)


def test_a_bench_that_fails_says_why_in_its_rows_and_the_next_is_run() -> None:
    failing = a_bench(Row(name="first", pick="ms", unit="ms"), Row(name="second", pick="ms", unit="ms"))
    ask = scripted([4, "no nvim", 7, 7, 7, 7])
    first, second = conduct([failing, a_bench()], ask, against=False)
    assert [(row["value"], row["record"]) for row in first] == [(None, "no nvim")] * 2
    assert second[0]["value"] == 7


def test_a_figure_that_a_report_lacks_is_its_row_s_own_fault() -> None:
    row = Row(name="missing", pick="ms.p50", unit="ms")
    ((lacking, good),) = conduct([a_bench(row, Row(name="r", pick="ms", unit="ms"))], scripted([4] * 4), against=False)
    assert lacking["value"] is None and "ms.p50" in lacking["record"]
    assert good["value"] == 4


def test_the_other_side_s_failure_leaves_our_figure() -> None:
    asked: list[str] = []
    ((found,),) = conduct([a_bench()], scripted([4] * 4, ["has no such command"], asked), against=True)
    assert asked.count(THEIRS) == 1 and asked.count(OURS) == 4
    assert (found["value"], found["against"], found["ratio"]) == (4, None, None)
    assert found["record"] == "the other side: has no such command"


def test_a_bench_that_compares_by_itself_is_not_run_on_the_commit_and_one_with_a_counterpart_always_is() -> None:
    asked: list[str] = []
    list(conduct([a_bench(alone=True)], scripted([4] * 4, [], asked), against=True))
    assert asked == [OURS] * 4
    list(conduct([a_bench(beside=("y",))], scripted([4] * 4, [8] * 4, asked := []), against=False))
    assert asked.count(THEIRS) == 4


def test_a_gate_is_shut_by_what_is_a_tenth_behind_in_every_round_and_by_what_has_no_figure() -> None:
    rows = Row(name="ms", pick="ms", unit="ms"), Row(name="rate", pick="ms", unit="1/s", better=Better.HIGHER)

    def shut(ours: Sequence[float | str], theirs: Sequence[float]) -> list[str]:
        bench = a_bench(*rows, rounds=2)
        (found,) = conduct([bench], scripted(ours, theirs), against=True)
        return [one.partition(":")[0] for one in behind([bench], {row["name"]: row for row in found})]

    assert shut([12, 13], [10, 10]) == ["ms"]
    assert shut([8, 7], [10, 10]) == ["rate"]
    assert shut([13, 10.5], [10, 10]) == [], "one round of two is the machine's"
    assert shut([10, 10], [10, 10]) == []
    assert shut(["no engine"], [10]) == ["ms", "rate"]


# The command

FAKE = """
[[bench]]
name = "good"
command = ["{python}", "-c", "import json, sys, foretype_wire; print(json.dumps({'ms': 5, 'from': foretype_wire.__file__}))"]
minutes = 0.5
gate = true
row = [{ name = "steady", pick = "ms", unit = "ms", aim = 9 }]

[[bench]]
name = "bad"
command = ["{python}", "-c", "import pathlib, sys; sys.exit(0 if print(pathlib.Path(r'FILE').read_text()) else 0)"]
minutes = 0.5
row = [{ name = "sometimes", pick = "ms", unit = "ms" }]

[[bench]]
name = "absent"
command = ["{python}", "-c", "1"]
minutes = 0.5
needs = ["no-such-program"]
row = [{ name = "elsewhere", pick = "ms", unit = "ms" }]

[[bench]]
name = "replayed"
command = ["{python}", "-c", "1", "{recording}"]
minutes = 0.5
row = [{ name = "recorded, at most", pick = "ms", unit = "ms" }]
"""


def run(table: Path, *arguments: str) -> Any:
    return CliRunner().invoke(bench, ["all", "--table", str(table), "--rounds", "1", "--json", *arguments])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.toml"
    path.write_text(FAKE.replace("FILE", str(tmp_path / "said.json")))
    return path


def rows_of(answer: Any) -> dict[str, dict[str, Any]]:
    assert answer.exit_code == 0, answer.output
    return {row["name"]: row for row in json.loads(answer.stdout)["rows"]}


def test_the_command_prints_every_row_and_the_reasons_of_those_without_a_figure(table: Path) -> None:
    found = rows_of(run(table))
    assert [list(row) for row in found.values()] == [KEYS] * 4
    assert (found["steady"]["value"], found["steady"]["met"]) == (5, True)
    assert "FileNotFoundError" in found["sometimes"]["record"] and "status 1" in found["sometimes"]["record"]
    assert found["elsewhere"]["record"] == "not on this machine: no-such-program"
    assert "--recording" in found["recorded, at most"]["record"]


def test_a_run_goes_on_with_what_had_no_figure(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    rows_of(run(table, "--out", str(out)))
    kept = json.loads(out.read_text())
    kept["rows"][0]["value"] = 4.5  # as measured then: it must not be measured again
    out.write_text(json.dumps(kept))
    (tmp_path / "said.json").write_text('{"ms": 6}')
    found = rows_of(run(table, "--out", str(out)))
    assert (found["steady"]["value"], found["sometimes"]["value"]) == (4.5, 6)
    kept["commit"] = "another"
    out.write_text(json.dumps(kept))
    refused = run(table, "--out", str(out))
    assert refused.exit_code == 2 and "other commits" in refused.output


def test_the_table_is_made_in_pieces_in_one_file(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    (tmp_path / "said.json").write_text('{"ms": 6}')
    assert list(rows_of(run(table, "--only", "sometimes", "--out", str(out)))) == ["sometimes"]
    first = json.loads(out.read_text())
    out.write_text(json.dumps({**first, "minutes": 30.0}))
    assert list(rows_of(run(table, "--only", "good", "--out", str(out)))) == ["steady", "sometimes"]
    found = json.loads(out.read_text())
    assert [row["value"] for row in found["rows"]] == [5, 6] and found["minutes"] >= 30


def test_rows_are_chosen_by_name_and_the_gate_is_the_hot_path(table: Path) -> None:
    assert list(rows_of(run(table, "--only", "sometimes,absent"))) == ["sometimes", "elsewhere"]
    assert list(rows_of(run(table, "--only", "recorded, at most", "--only", "good"))) == ["steady", "recorded, at most"]
    assert list(rows_of(run(table, "--gate"))) == ["steady"]
    table.write_text(table.read_text().replace("'ms': 5", "'s': 5"))
    shut = run(table, "--gate")
    assert shut.exit_code == 1 and "steady: its report has no figure ms" in shut.stderr
    refused = run(table, "--only", "speed")
    assert refused.exit_code == 2 and "speed" in refused.output and "good" in refused.output


def test_a_field_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text(FAKE.replace("minutes", "minuets", 1))
    refused = run(path)
    assert refused.exit_code == 2 and "minuets" in refused.output


BACKEND = """
import pathlib, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name, here = "foretype-0.0.1", pathlib.Path.cwd()
    with zipfile.ZipFile(pathlib.Path(folder) / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("foretype.pth", f"{here / 'wire'}\\n")
        wheel.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\\nName: foretype\\nVersion: 0.0.1\\nProvides-Extra: dev\\n")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{name}.dist-info/entry_points.txt", "[foretype.commands]\\nof_that_commit = foretype_wire:SAYS\\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    return f"{name}-py3-none-any.whl"
"""
SAYS = """
import foretype_wire, importlib.metadata, importlib.util, json
points = importlib.metadata.entry_points(group="foretype.commands")
print(json.dumps({
    "ms": getattr(foretype_wire, "SAYS", 1),
    "own_points": any(point.name == "of_that_commit" for point in points),
    "our_points": any(point.name == "serve" for point in points),
    "our_versions": importlib.util.find_spec("msgspec") is not None,
}))
"""


@pytest.fixture
def other_commit(tmp_path: Path) -> Path:
    """A repository in which a room that ships says where it was read, with entry points of its own and our versions."""
    root = tmp_path / "repository"
    (root / "wire" / "foretype_wire").mkdir(parents=True)
    (root / "requirements").mkdir()
    (root / "requirements" / "lock.txt").write_bytes((HERE / "requirements" / "lock.txt").read_bytes())
    (root / "wire" / "foretype_wire" / "__init__.py").write_text("SAYS = 10\n")
    (root / "backend.py").write_text(BACKEND)
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    git(tmp_path, "init", "-q", str(root))
    committed(root)
    (root / "wire" / "foretype_wire" / "__init__.py").write_text("SAYS = 99\n")
    return root


def committed(root: Path) -> None:
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "as it was")


@pytest.mark.slow
def test_a_commit_is_measured_from_its_own_files_and_knows_its_own_entry_points(other_commit: Path) -> None:
    it, command = a_bench(), ["{python}", "-c", SAYS]
    with checked_out("HEAD", other_commit) as side:
        assert side.commit is not None and len(side.commit) == 40
        found = run_bench(it, command, side, {})
        assert found == {"ms": 10, "own_points": True, "our_points": False, "our_versions": True}
        assert run_bench(it, command, HERE_SIDE, {})["ms"] == 1
    assert not side.root.exists()


@pytest.mark.slow
def test_a_commit_with_other_versions_has_none_of_ours(other_commit: Path) -> None:
    (other_commit / "requirements" / "lock.txt").write_text("msgspec==0.1\n")
    committed(other_commit)
    with checked_out("HEAD", other_commit) as side:
        assert run_bench(a_bench(), ["{python}", "-c", SAYS], side, {})["our_versions"] is False


@pytest.mark.slow
def test_a_commit_that_cannot_be_installed_is_told(other_commit: Path) -> None:
    (other_commit / "backend.py").write_text("raise SystemExit('no compiler here')")
    committed(other_commit)
    with pytest.raises(BenchFailedError, match="cannot be installed"), checked_out("HEAD", other_commit):
        pass


def test_an_unknown_commit_is_refused_by_name(table: Path) -> None:
    refused = run(table, "--against", "no-such-branch")
    assert refused.exit_code == 2 and "no-such-branch" in refused.output


def test_a_bench_that_takes_too_long_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sides, "_AT_LEAST_S", 3.0)
    monkeypatch.setattr(sides, "_GOODBYE_S", 0.2)
    # Shells, since they start within the time on every machine.
    child = f"trap '' INT; echo $$ > {shlex.quote(str(tmp_path / 'pid'))}; exec sleep 600"
    slow = Bench(name="slow", command=(), minutes=0.001, row=a_bench().row)
    with pytest.raises(BenchFailedError, match="longer than"):
        run_bench(slow, ["sh", "-c", f"sh -c {shlex.quote(child)} & wait"], HERE_SIDE, {})
    started = int((tmp_path / "pid").read_text())
    with suppress(psutil.NoSuchProcess):
        psutil.Process(started).wait(5)


def test_who_ends_the_command_ends_the_bench_that_runs(tmp_path: Path) -> None:
    pid, path = tmp_path / "pid", tmp_path / "rows.toml"
    code = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"
    path.write_text(
        f'[[bench]]\nname = "slow"\ncommand = ["{{python}}", "-c", {json.dumps(code)}]\nminutes = 1\n'
        'row = [{ name = "never", pick = "ms", unit = "ms" }]\n'
    )
    command = [*COMMAND, "--table", str(path), "--json"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as it:
        while not (pid.exists() and pid.read_text()):
            assert it.poll() is None, it.communicate()
            time.sleep(0.05)
        it.terminate()
        it.communicate(timeout=60)
    assert it.returncode != 0
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(pid.read_text())).wait(5)


def test_who_is_interrupted_while_a_bench_begins_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    slow = Bench(name="slow", command=(), minutes=1, row=a_bench().row)
    with pytest.raises(KeyboardInterrupt):
        run_bench(slow, [sys.executable, "-c", "import time; time.sleep(600)"], HERE_SIDE, {})
    with begun[0] as it:
        assert it.wait(30) < 0


# The table


def test_the_table_is_whole_and_fits_into_its_hour_and_the_gate_into_ten_minutes() -> None:
    benches = load_table()
    names = [row.name for one in benches for row in one.row]
    assert len(names) == len(set(names)) and len({one.name for one in benches}) == len(benches)
    minutes = sum(one.minutes * one.rounds * one.sides(against=True) for one in benches)
    gate = sum(one.minutes * min(one.rounds, GATE_ROUNDS) * 2 for one in benches if one.gate)
    assert minutes <= 60, f"{minutes:.0f} minutes"
    assert gate <= 10, f"{gate:.1f} minutes"
    for one in benches:
        for row in one.row:
            assert not row.record or (HERE / row.record).is_file(), f"{row.name}: there is no {row.record}"
    retired = [row for one in benches for row in one.row if row.floor is not None]
    assert len(retired) <= 3
    for row in retired:
        assert f"{row.floor:g}" in (HERE / row.record).read_text(), (
            f"{row.name}: {row.record} does not say {row.floor:g}"
        )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_row_is_measured_beside_the_commit_before() -> None:
    options = ["--only", "import", "--rounds", "2", "--json", "--against", "HEAD"]
    ran = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False, env=environment())
    assert ran.returncode == 0, ran.stderr
    wall, cpu = json.loads(ran.stdout)["rows"]
    for row in (wall, cpu):
        assert row["value"] > 0 and row["against"] > 0 and row["record"] != "", row
    print(f"the same commit on both sides: {wall['ratio']:.2f} of the time, {cpu['ratio']:.2f} of the processor's")
    assert cpu["low"] <= cpu["ratio"] <= cpu["high"]
