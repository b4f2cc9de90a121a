"""What a bench is told on its command line is what it measures with: each option, spelled as users spell it, in the run's own options."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foretype_backend.experiments.assign import Design
from foretype_backend.experiments.verdict import AbOptions
from foretype_eval.ab import command as ab
from foretype_eval.cli import app, bench
from foretype_eval.fim import cli as fim
from foretype_eval.fim.ask import AskOptions
from foretype_eval.fim.run import FimOptions
from foretype_eval.gateway import GatewayOptions
from foretype_eval.latency import cli as latency
from foretype_eval.latency.cli import QUICK
from foretype_eval.load import command as load
from foretype_eval.load.run import LoadOptions
from foretype_eval.load.scenarios import ScenarioOptions
from foretype_eval.replay import command as replay
from foretype_eval.replay.accept import Rule
from foretype_eval.replay.run import ReplayOptions
from typer import Typer
from typer.testing import CliRunner

PRIVATE = GatewayOptions(engine="scripted", model=Path("m.gguf"), profile=Path("p.toml"))
OF_PRIVATE = "--engine scripted --model m.gguf --profile p.toml"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """What a command's run is given in place of running."""

    def run(module: Any, name: str, group: Typer, line: str, *, waits: bool = True) -> list[Any]:
        taken: list[Any] = []

        async def later(*of: Any, **_: Any) -> dict[str, Any]:
            taken.extend(of)
            return {}

        def now(*of: Any, **_: Any) -> dict[str, Any]:
            taken.extend(of)
            return {}

        monkeypatch.setattr(module, name, later if waits else now)
        done = CliRunner().invoke(group, [*line.split(), "--json"])
        assert done.exit_code == 0, done.output
        return taken

    return run


def test_of_bench_load(given: Callable[..., list[Any]]) -> None:
    line = f"load --rate 7 --seconds 3 --developers 5 --idle 2 --search --limit-ms 4 --frame-ms 6 --seed 8 --no-pin {OF_PRIVATE}"
    options = LoadOptions(
        rate=7, seconds=3, developers=5, idle=2, search=True, limit_ms=4, frame_ms=6, seed=8, pin=False, gateway=PRIVATE
    )
    assert given(load, "run_load", bench, line) == [options]
    assert given(load, "run_load", bench, f"{line} --no-search --pin")[0].search is False
    scenario = "--scenario churn --capacity 9 --times 2 --pairs 3 --idle-s 11 --events 12"
    wanted = ScenarioOptions(load=options, capacity=9, times=2, pairs=3, idle_s=11, events=12)
    assert given(load, "run_scenario", bench, f"{line} {scenario}") == ["churn", wanted]


def test_of_a_gateway_that_runs_already(given: Callable[..., list[Any]], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    told = f"--gateway ws://h/v1/stream --token-file {tmp_path / 'token'}"
    [options] = given(load, "run_load", bench, f"load {told}")
    assert (options.gateway.url, options.gateway.token) == ("ws://h/v1/stream", "secret")


def test_of_bench_latency(given: Callable[..., list[Any]]) -> None:
    [quick] = given(latency, "run_latency", bench, f"latency --quick --seed 5 --only cancel {OF_PRIVATE}")
    assert (quick.counts, quick.seed, quick.parts, quick.gateway) == (QUICK, 5, {"cancel"}, PRIVATE)
    assert given(latency, "run_latency", bench, "latency --no-quick")[0].counts != QUICK


def test_of_eval_fim(given: Callable[..., list[Any]]) -> None:
    line = f"fim --data d.jsonl --out o --limit 3 --layout spm --max-tokens 9 --parallel 4 --seed 6 {OF_PRIVATE}"
    turned = "--post-process --no-execute --no-check-references --keep-text"
    options = FimOptions(
        data=Path("d.jsonl"),
        out=Path("o"),
        limit=3,
        layout="spm",
        seed=6,
        execute=False,
        check_references=False,
        keep_text=True,
        ask=AskOptions(max_tokens=9, post_process=True, parallel=4),
        gateway=PRIVATE,
    )
    assert given(fim, "run_fim", app, f"{line} {turned}") == [options]
    back = "--no-post-process --execute --check-references --no-keep-text"
    assert given(fim, "run_fim", app, f"fim --data d.jsonl {turned} {back}") == [FimOptions(data=Path("d.jsonl"))]


def test_of_eval_replay(given: Callable[..., list[Any]]) -> None:
    line = (
        "replay --repo r --commits 4 --systems model,empty --accept A-word --client strict --with speculative --without preload"
        " --in-strings --no-in-comments --learn --debounce-ms 5 --decide-ms 6 --growing --layout spm --suffix .go --seed 7"
        " --simulate --oracle 0.5 --latency-trace l.json --save-trace s.json --out o --model m.gguf --previous-model n.gguf"
    )
    options = ReplayOptions(
        repo=Path("r"),
        commits=4,
        suffixes=(".go",),
        systems=("model", "empty"),
        rule=Rule.WORD,
        reuse=False,
        learn=True,
        in_strings=True,
        in_comments=False,
        with_=("speculative",),
        without=("preload",),
        debounce_ms=5,
        layout="spm",
        decide_ms=6,
        growing=True,
        seed=7,
        simulate=True,
        oracle=0.5,
        latency_trace=Path("l.json"),
        save_trace=Path("s.json"),
        out=Path("o"),
        previous_model=Path("n.gguf"),
        gateway=GatewayOptions(model=Path("m.gguf")),
    )
    assert given(replay, "run_replay", app, line, waits=False) == [options]
    [turned] = given(replay, "run_replay", app, f"{line} --no-in-strings --in-comments", waits=False)
    assert (turned.in_strings, turned.in_comments) == (False, True)


def test_of_eval_ab(given: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ab, "load_rows", lambda path: path)
    line = (
        "ab rows.csv --design between --metric acceptance --control a --treatment b --planned-days 3 --alpha 0.1"
        " --salt s --language go"
    )
    options = AbOptions(
        design=Design.BETWEEN,
        metric="acceptance",
        control="a",
        treatment="b",
        planned_days=3,
        alpha=0.1,
        salt="s",
        language="go",
    )
    assert given(ab, "analyse", app, line, waits=False) == [Path("rows.csv"), options]


def test_of_eval_ab_that_simulates() -> None:
    line = "ab --simulate --experiments 10 --users 4 --days 2 --lift 0.1 --alpha 0.2 --seed 3 --json"
    result = json.loads(CliRunner().invoke(app, line.split()).stdout)
    assert (result["seed"], result["alpha"]) == (3, 0.2)
    assert {name: result["world"][name] for name in ("users", "days", "pre_days")} == {
        "users": 4,
        "days": 2,
        "pre_days": 2,
    }
    assert {(row["experiments"], row["lift"]) for row in result["table"]} == {(10, 0.1)}
