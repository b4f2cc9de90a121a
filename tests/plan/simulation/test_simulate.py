"""`foretype simulate`: scenarios over seeds, the same bytes for the same seeds, what is interrupted goes on, bad input is a sentence."""

import json
import re
from importlib.metadata import entry_points

import pytest
import typer
from foretype_plan.number_format import number
from foretype_plan.scenario import Tier
from foretype_plan.simulation import runs, scenarios
from foretype_plan.simulation.cell import Cell
from foretype_plan.simulation.cell_options import Tenant
from foretype_plan.simulation.command import simulate
from foretype_plan.simulation.replicas import ColdStart
from foretype_plan.simulation.runs import Rows, run_scenario
from foretype_plan.simulation.scaling import Scaled, Scaler, bounds
from foretype_plan.simulation.scenarios import SCENARIOS, Base
from foretype_plan.simulation.warming import Warmer
from plan.simulation.support import SPEC, arrivals, options, ran
from typer.testing import CliRunner

APP = typer.Typer()
APP.command()(simulate)
QUICK = ("--scenario", "timestamp", "--seconds", "10", "--seeds", "2", "--json")


def run(*arguments, columns="120"):
    return CliRunner().invoke(APP, arguments, env={"COLUMNS": columns})


def test_it_is_a_command_that_names_its_scenarios():
    assert "simulate" in {one.name for one in entry_points(group="foretype.commands")}
    assert set(json.loads(run("--list", "--json").stdout)["scenarios"]) == set(SCENARIOS)
    assert all(name in run("--list").stdout for name in ("routing", "monday", "warm_pool"))


@pytest.mark.slow
def test_a_scenario_is_a_comparison_with_intervals_and_goes_on_where_it_was(tmp_path, monkeypatch):
    out = tmp_path / "rows.jsonl"
    first = run(*QUICK, "--out", str(out))
    assert first.exit_code == 0, first.output
    made = json.loads(first.stdout)
    assert [one["name"] for one in made["variants"]] == ["without", "with"]
    cached = made["variants"][0]["figures"]["cached_share"]
    assert cached["low"] <= cached["mean"] <= cached["high"] and cached["low"] < cached["high"]
    (compared,) = made["compared"]
    assert compared["with"] == "without" and compared["figures"]["ttft_p50_ms"]["mean"] > 10
    assert "NaN" not in first.stdout and "Infinity" not in first.stdout

    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:3]) + lines[3][:20])  # cut short in the last row
    ran_again = []
    base = runs.Base
    monkeypatch.setattr(runs, "Base", lambda *given: ran_again.append(given) or base(*given))
    again = run(*QUICK, "--out", str(out))
    assert again.stdout == first.stdout and len(ran_again) == 1
    assert out.read_bytes() == b"".join(lines)


@pytest.mark.slow
def test_eighty_columns_cut_no_head_and_no_number():
    shown = run(*(one for one in QUICK if one != "--json"), columns="80").stdout
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    assert all(head in shown for head in ("p50, ms", "p99, ms", "goodput", "refused", "cached", "hours"))
    assert re.search(r"without( +[\d.,]+){6}", shown) and re.search(r"^ +(± [\d.,]+ +){6}$", shown, re.MULTILINE)
    assert max(map(len, run("--list", columns="80").stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("value", "shown"), [(28_286.4, "28,286"), (1234.5, "1,234"), (0.01234567, "0.01235"), (0, "0")]
)
def test_a_number_has_all_that_is_before_its_point(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--scenario", "monda"), "scenario"),
        (("--scenario", "mad", "--gpu", "x100"), "gpu"),
        (("--scenario", "mad", "--model", "qwen2.5-72b"), "tier.fast.gpus_per_replica"),
        (("--scenario", "mad", "--set", "batch"), "--set"),
        (("--scenario", "mad", "--set", "batch=0"), "batch"),
        (("--scenario", "mad", "--set", "warm_share=1.2"), "warm_share"),
        (("--scenario", "mad", "--trace", "nowhere.json"), "trace"),
        (("--page", "nowhere.html"), "page"),
        (("--page", "nowhere.html", "--from", "nowhere.json"), "from"),
        (("--page", "nowhere.html", "--from", __file__), "from"),
        (("--day", "--developers", "0"), "developers"),
        (("--day", "--developers", "nan"), "developers"),
        (("--day", "--gpu", "l4", "--model", "qwen2.5-72b"), "tier.fast.gpus_per_replica"),
    ],
)
def test_what_cannot_be_is_one_sentence_that_names_the_field(arguments, field):
    made = run("--seconds", "10", "--seeds", "1", *arguments)
    assert (
        made.exit_code == 2 and made.output.startswith(f"foretype simulate: {field}") and "Traceback" not in made.output
    )


@pytest.mark.slow
def test_a_page_is_one_file_of_what_was_run(tmp_path):
    (tmp_path / "before.json").write_text(json.dumps({"pairs": [], "missed": []}))
    file = tmp_path / "page.html"
    quick = ("--scenario", "kv8", "--seconds", "10", "--seeds", "1")
    made = run(*quick, "--page", str(file), "--from", str(tmp_path / "before.json"))
    assert made.exit_code == 0, made.output
    text = file.read_text("utf-8")
    assert '"scenario": "kv8"' in text and '"pairs": []' in text and "of_seeds" not in text
    assert "src=" not in text and "<link" not in text
    assert not [mark for mark in ("/*UPLOT", "/*GIVEN*/", "/*APP*/") if mark in text]


def test_a_file_of_other_things_is_no_file_of_rows(tmp_path):
    (tmp_path / "rows").write_text("hello\n")
    made = run(*QUICK, "--out", str(tmp_path / "rows"))
    assert made.exit_code == 2 and made.output.startswith("foretype simulate: out: ")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_runs(name, monkeypatch):
    for phase in ("_BEFORE_S", "_RISE_S", "_AFTER_S"):  # fourteen minutes take three to simulate
        monkeypatch.setattr(scenarios, phase, 10.0)
    tier = Tier(model="qwen2.5-coder-1.5b", gpu="l4")
    made = run_scenario(
        name, tier=tier, arrivals=arrivals(), seconds=10, seeds=1, rows=Rows(None), progress=lambda *_: None
    )
    assert json.dumps(made, allow_nan=False)
    assert all(one["figures"]["requests"]["mean"] > 100 for one in made["variants"])


def test_the_policy_grows_with_the_queue_and_a_cold_start_takes_its_phases():
    cold = ColdStart(machine=10.0, image=2.0, weights=2.0, engine=4.0, probe=1.0)
    cell = Cell(options(developers=400, seconds=60.0, most_running=64))
    cell.begin()
    scaler = Scaler(cell, bounds(2, 6, learn=False, warm_max_replicas=0), cold=cold)
    cell.until(6.0)
    assert len(cell.fleet.replicas.coming()) >= 1 and len(cell.fleet.replicas.serving()) == 2
    cell.until(5.0 + 18.9)
    assert len(cell.fleet.replicas.serving()) == 2
    cell.until(5.0 + 19.1)
    assert len(cell.fleet.replicas.serving()) > 2 and scaler.most <= 6
    assert not any(one.draining for one in cell.fleet.replicas.every.values())


def test_a_warm_pool_is_there_sooner_and_is_paid_for():
    cold = ColdStart(machine=30.0, image=2.0, weights=2.0, engine=4.0, probe=1.0)
    cell = Cell(options(developers=400, seconds=60.0, most_running=64))
    cell.begin()
    scaler = Scaler(cell, bounds(2, 3, learn=False, warm_max_replicas=0), cold=cold, warm_pool=1)
    cell.until(5.0 + 5.1)
    assert len(cell.fleet.replicas.serving()) == 3
    cell.until(20.0)
    assert scaler.pool_s == 20.0


def test_the_use_of_a_gpu_does_not_show_what_waits():
    """Decoding reads memory: its arithmetic is idle while people wait."""
    most = {}
    for by in Scaled:
        cell = Cell(options(developers=300, seconds=60.0, most_running=64))
        cell.begin()
        most[by] = Scaler(cell, bounds(2, 6, learn=False, warm_max_replicas=0), by=by)
        cell.until(20.0)
    assert most[Scaled.GPU_USE].most < most[Scaled.POLICY].most


def test_what_is_warmed_is_found_by_the_first_who_asks():
    found = {}
    for warm in (False, True):
        team = Tenant(developers=40, rate=0.5, repositories=10, begin_s=10.0, ramp_s=5.0)
        cell = Cell(options(tenants=(team,), warm_up_s=10.0, seconds=15.0))
        cell.begin()
        if warm:
            Warmer(cell, ahead_s=8.0)
        cell.until(25.0)
        found[warm] = cell.report()["cached_share"]
    assert found[True] > found[False] + 0.02


def test_prompts_on_replicas_of_their_own_go_over_to_the_others():
    cell = ran(apart=1, hand_over_s=1e-6, developers=50)
    report = cell.report()
    prefiller, decoder = (cell.fleet.replicas.every[name].engine for name in ("r000", "r001"))
    assert decoder.computed_tokens == 0 < prefiller.computed_tokens
    assert report["goodput"] > 0.98 and report["tpot_p50_ms"] > 5
    assert cell.scheduler.statistics().running < 20


def test_a_base_has_developers_for_its_load():
    cell = Base(Tier(model="qwen2.5-coder-1.5b", gpu="l4"), arrivals(), 10.0).cell(load=0.5, replicas=2)
    assert cell.options.specs[0] == SPEC and cell.options.tenants[0].developers > 50


@pytest.mark.parametrize("part", ['"x": NaN', '"x": -Infinity', '"x": 1e999', '"pairs": [{"ratio": NaN}]'])
def test_a_number_that_is_none_reaches_no_page(tmp_path, part):
    (tmp_path / "run.json").write_text(f'{{"pairs": [], "missed": [], {part}}}')
    made = run("--page", str(tmp_path / "page.html"), "--from", str(tmp_path / "run.json"))
    assert made.exit_code == 2 and made.output.startswith("foretype simulate: from: ")
    assert not (tmp_path / "page.html").exists()
