"""Whole replays: simulated, through a real gateway process, resumed, refused."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from foretype_eval.cli import app
from foretype_eval.errors import EvalError, RepositoryError
from foretype_eval.gateway import GatewayOptions
from foretype_eval.replay.accept import Rule
from foretype_eval.replay.arrivals import record_arrivals
from foretype_eval.replay.recorded import load_recorded
from foretype_eval.replay.run import ReplayOptions, run_replay
from foretype_eval.replay.trace import LatencyTrace, TraceRow
from foretype_eval.replay.typist import keys_of
from foretype_models.artifacts import locate
from foretype_plan.simulation.people import read_arrivals
from git_repo import history
from typer.testing import CliRunner

BASE = "".join(
    f"def check_{i}(runner):\n    result = runner.invoke(command_{i}, ['--help'])\n    assert result.exit_code == 0\n\n\n"
    for i in range(4)
)
ADDED = (
    "def check_new(runner):\n    result = runner.invoke(command_new, ['--help'])\n    assert result.exit_code == 0\n"
)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return history(tmp_path / "repo", "checks.py", BASE, BASE + ADDED, BASE + ADDED + ADDED.replace("new", "last"))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    LatencyTrace([TraceRow([20.0 + i], 60.0 + i) for i in range(7)]).save(path)
    return path


def quiet(step: str, done: int, total: int) -> None:
    pass


def test_what_repeats_is_saved_and_the_empty_row_saves_nothing(repo: Path) -> None:
    options = ReplayOptions(repo=repo, commits=2, systems=("adaptive", "copy_line", "empty"), decide_ms=0)
    systems = run_replay(options, progress=quiet)["systems"]
    assert systems["empty"]["ksr"] == 0.0 and systems["empty"]["requests"] == 0
    assert systems["copy_line"]["ksr"] > 0.1
    assert systems["adaptive"]["ksr"] > systems["copy_line"]["ksr"]
    assert systems["copy_line"]["keys_without"] == systems["empty"]["keys_with"]
    low, high = systems["copy_line"]["ci"]["ksr"]
    assert low <= systems["copy_line"]["ksr"] <= high


def test_what_is_learned_of_a_developer_goes_from_commit_to_commit(repo: Path, tmp_path: Path) -> None:
    options = ReplayOptions(repo=repo, commits=2, systems=("adaptive",), decide_ms=0, learn=True, out=tmp_path / "out")
    found = run_replay(options, progress=quiet)
    learned = found["learned"]["adaptive"]["python"]
    assert learned["taken"] > 1 and learned["looks"] >= learned["taken"]
    (items,) = (tmp_path / "out").glob("items-*.jsonl")
    rows = items.read_text().splitlines()
    items.write_text(rows[-1] + "\n")
    again = run_replay(options, progress=quiet)
    assert again["learned"] == found["learned"], "a row that is missing is not made with what later ones taught"
    never = run_replay(msgspec.structs.replace(options, rule=Rule.NEVER), progress=quiet)
    assert never["systems"]["adaptive"]["ksr"] == 0
    assert never["learned"]["adaptive"].get("python", {"taken": 0})["taken"] == 0


def test_suggestions_are_booked_by_where_they_stand_and_whether_they_parse(repo: Path, tmp_path: Path) -> None:
    options = ReplayOptions(repo=repo, commits=2, systems=("adaptive",), in_strings=True, out=tmp_path / "out")
    run_replay(options, progress=quiet)
    (items,) = (tmp_path / "out").glob("items-*.jsonl")
    slices: dict[str, int] = {}
    for line in items.read_text().splitlines():
        for name, (sessions, _, _) in json.loads(line)["slices"].items():
            slices[name] = slices.get(name, 0) + sessions
    assert slices["parses:yes"] > 0 and "parses:no" not in slices
    within = {name: count for name, count in slices.items() if name.startswith("within:")}
    assert sum(within.values()) == sum(count for name, count in slices.items() if name.startswith("parses:"))


@pytest.mark.engine
def test_two_simulated_runs_give_equal_bytes_and_latency_costs(repo: Path, trace: Path) -> None:
    arguments = ["replay", "--repo", str(repo), "--commits", "2", "--simulate", "--latency-trace", str(trace), "--json"]
    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    assert first.stdout == second.stdout
    systems = json.loads(first.stdout)["systems"]
    assert set(systems) == {"model", "adaptive", "copy_line", "empty"}
    for row in systems.values():
        assert {"ksr", "cpo", "requests", "accepted_chars", "late_rate", "ci"} <= set(row)


@pytest.mark.engine
@pytest.mark.parametrize("reuse", [True, False])
def test_a_late_answer_is_counted_late(repo: Path, tmp_path: Path, reuse: bool) -> None:
    def late_rate(ms: float) -> float:
        path = tmp_path / f"{ms}.jsonl"
        LatencyTrace([TraceRow([ms], ms)]).save(path)
        options = ReplayOptions(
            repo=repo, commits=2, systems=("network",), simulate=True, latency_trace=path, reuse=reuse, debounce_ms=0
        )
        rate: float = run_replay(options, progress=quiet)["systems"]["network"]["late_rate"]
        return rate

    assert late_rate(5.0) < late_rate(400.0)


@pytest.mark.timeout(180)
def test_a_real_gateway_is_measured_and_its_trace_can_be_laid_again(repo: Path, tmp_path: Path) -> None:
    saved, out = tmp_path / "saved.jsonl", tmp_path / "out"
    gateway = GatewayOptions(engine="scripted")
    options = ReplayOptions(repo=repo, commits=1, systems=("network",), gateway=gateway, save_trace=saved, out=out)
    result = run_replay(options, progress=quiet)
    assert result["latency"] == "measured" and result["model"]
    row = result["systems"]["network"]
    assert row["requests"] > 10 and 0 < row["cached_share"] < 1
    assert len(LatencyTrace.load(saved).rows) == row["requests"]
    assert row["overhead_ms"]["n"] > 10 and row["overhead_ms"]["p50"] < row["overhead_ms"]["p99"]

    again = run_replay(options, progress=quiet)
    assert again["systems"] == result["systems"], "rows that are there are not made again"
    (items,) = out.glob("items-*.jsonl")
    assert len(items.read_text().splitlines()) == 1
    assert ADDED.splitlines()[1].strip() not in items.read_text()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_run_that_goes_on_saves_the_latencies_of_all_its_rows(repo: Path, tmp_path: Path) -> None:
    saved, gateway = tmp_path / "saved.jsonl", GatewayOptions(engine="scripted")
    one = ReplayOptions(repo=repo, commits=1, systems=("network",), gateway=gateway, out=tmp_path / "out")
    run_replay(one, progress=quiet)
    both = msgspec.structs.replace(one, commits=2, save_trace=saved)
    row = run_replay(both, progress=quiet)["systems"]["network"]
    assert len(LatencyTrace.load(saved).rows) == row["requests"]

    (items,) = (tmp_path / "out").glob("items-*.jsonl")
    kept = [{k: v for k, v in json.loads(line).items() if k != "latencies"} for line in items.read_text().splitlines()]
    items.write_text("".join(json.dumps(line) + "\n" for line in kept))
    with pytest.raises(EvalError, match=r"2 rows .* give another --out"):
        run_replay(both, progress=quiet)


def test_rows_of_another_trace_are_not_taken_for_those_of_this_one(repo: Path, trace: Path, tmp_path: Path) -> None:
    options = ReplayOptions(
        repo=repo, commits=1, systems=("network",), simulate=True, latency_trace=trace, out=tmp_path / "out"
    )
    run_replay(options, progress=quiet)
    LatencyTrace([TraceRow([9000.0], 9000.0)]).save(trace)
    slow = run_replay(options, progress=quiet)
    assert slow == run_replay(msgspec.structs.replace(options, out=None), progress=quiet)


def test_a_half_written_row_is_made_again(repo: Path, tmp_path: Path) -> None:
    options = ReplayOptions(repo=repo, commits=2, systems=("copy_line",), out=tmp_path / "out")
    whole = run_replay(options, progress=quiet)
    (items,) = (tmp_path / "out").glob("items-*.jsonl")
    items.write_text(items.read_text()[:-40])
    assert run_replay(options, progress=quiet) == whole


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"commits": "nothing..such"}, RepositoryError, "nothing..such"),
        ({"commits": 3, "suffixes": (".rs",)}, RepositoryError, "no commits"),
        ({"simulate": True}, EvalError, "--latency-trace"),
        (
            {"simulate": True, "save_trace": Path("x"), "latency_trace": Path("y")},
            EvalError,
            "--simulate measures none",
        ),
        ({"latency_trace": Path("/nowhere/trace.jsonl")}, EvalError, "/nowhere/trace.jsonl"),
    ],
)
def test_bad_input_names_what_is_wrong(
    repo: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run_replay(ReplayOptions(repo=repo, **options), progress=quiet)


def test_a_broken_trace_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"deltas_ms": [1], "done_ms": 2}\n{"deltas_ms": "x"}\n')
    with pytest.raises(EvalError, match=r"trace\.jsonl:2: .*deltas_ms"):
        LatencyTrace.load(path)


def test_the_command_refuses_unknown_systems(repo: Path) -> None:
    done = CliRunner().invoke(app, ["replay", "--repo", str(repo), "--systems", "gpt"])
    assert done.exit_code == 2
    assert "none of model, unfiltered, network, adaptive, copy_line, empty" in " ".join(done.output.split())


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_previous_model_is_a_row_of_its_own(repo: Path) -> None:
    gateway = GatewayOptions(engine="embedded")
    options = ReplayOptions(repo=repo, commits=1, systems=("empty",), gateway=gateway, previous_model=locate().path)
    systems = run_replay(options, progress=quiet)["systems"]
    assert list(systems) == ["empty", "previous_model"]
    assert systems["previous_model"]["requests"] > 0


RECORDING: list[dict[str, Any]] = [
    {"kind": "documentEncountered", "id": 0, "time": 0, "relativePath": "checks.py"},
    {"kind": "setContent", "id": 0, "time": 0, "content": BASE},
]


def recorded(folder: Path, edits: list[tuple[int, int, int, str]]) -> Path:
    path = folder / "session.jsonl"
    entries = RECORDING + [
        {"kind": "changed", "id": 0, "time": at_ms, "edit": [[start, end, text]]} for at_ms, start, end, text in edits
    ]
    path.write_text("\n".join(map(json.dumps, entries)), "utf-8")
    return path


def test_a_recording_is_replayed_as_what_finally_stood_there(tmp_path: Path, trace: Path) -> None:
    end = len(BASE)
    keys = [(1000 + at, end + at, end + at, key) for at, key in enumerate(ADDED)]
    wrong = len(ADDED) + end
    slip = [(4000, wrong, wrong, "xy"), (4100, wrong, wrong + 2, "")]
    paste = [(700_000, 0, 0, "#" * 201)]
    later = [(701_000, 0, 0, "# note")]
    path = recorded(tmp_path, [*keys, *slip, *paste, *later])
    newest, oldest = load_recorded(path)
    assert [s.target for s in oldest.stretches] == [ADDED] and oldest.stretches[0].before == BASE
    assert [s.target for s in newest.stretches] == ["# note"] and newest.skipped == {"pasted": 1}
    options = ReplayOptions(repo=path, simulate=True, latency_trace=trace, systems=("copy_line", "adaptive", "empty"))
    result = run_replay(options, progress=quiet)
    assert result["commits"] == 2 and result["systems"]["copy_line"]["ksr"] > 0
    assert result["systems"]["empty"]["keys_with"] == keys_of(ADDED) + len("# note")


@pytest.mark.parametrize(("content", "message"), [("not a recording", "not JSON"), ("", "nothing was changed")])
def test_a_file_that_is_no_recording_is_refused_with_a_remedy(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(content)
    with pytest.raises(RepositoryError, match=rf"{message}.*give a git repository or a recording"):
        run_replay(ReplayOptions(repo=path), progress=quiet)
    only_a_paste = recorded(tmp_path, [(10, 0, 0, "#" * 201)])
    with pytest.raises(RepositoryError, match=r"nothing was typed.*pasted"):
        run_replay(ReplayOptions(repo=only_a_paste), progress=quiet)


def test_what_is_asked_while_commits_are_typed_is_what_a_simulation_reads(repo: Path, tmp_path: Path) -> None:
    made = record_arrivals(repo, 2, requests=5)
    (tmp_path / "arrivals.json").write_text(json.dumps(made))
    arrivals = read_arrivals(tmp_path / "arrivals.json")
    assert {len(stretch) for stretch in arrivals.stretches} == {5} and arrivals.rate > 0
    with pytest.raises(RepositoryError, match="nothing was asked"):
        record_arrivals(repo, 2, requests=5, suffixes=(".rs",))
