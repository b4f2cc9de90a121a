"""`foretype fleet status` before a cluster and a directory that say what they are told to: nothing is cut in 80 columns."""

from pathlib import Path
from typing import Any

from backend.test_fleet_file import GOOD, config_of, write
from foretype_backend.fleet.ray.commands import app
from json_server import json_server
from typer.testing import CliRunner

LONG = GOOD.replace('"eu"', '"europe-west-1"').replace('"r1"', '"qwen-7b-2026-11"')
LONG = LONG.replace("revisions.r1", "revisions.qwen-7b-2026-11")
STATES = {"ready": "10.120.130.240:31234", "draining": "10.120.130.241:31234", "starting": ""}


def test_names_and_addresses_are_whole_in_eighty_columns(tmp_path: Path) -> None:
    of = {"pool": "fast", "region": "europe-west-1"}
    replicas: list[dict[str, Any]] = [
        {"application": "fast.europe-west-1.qwen-7b-2026-11", "replica": f"k3x9q2ab-{at}", "address": address}
        | {"state": state, "phases": {"image": 31.25}, "labels": of | {"revision": "qwen-7b-2026-11"}}
        for at, (state, address) in enumerate(STATES.items())
    ]
    left = of | {"revision": "qwen-7b-2026-10"}
    replicas.append(replicas[0] | {"application": "gone", "replica": "k3x9q2ab-9", "labels": left})
    applications = config_of(tmp_path, LONG)["applications"]
    deployed = {one["name"]: {"deployed_app_config": one, "status": "RUNNING"} for one in applications}
    answers = {
        "/api/serve/applications/": {"applications": deployed},
        "/fleet": {"fleet": "team", "replicas": replicas},
    }

    with json_server(lambda _, path: answers[path]) as url:
        where = f'[cluster]\nurl = "{url}"\n[directory]\nport = {url.rpartition(":")[2]}\n'
        file = write(tmp_path, LONG.replace("[[pool]]", f"{where}[[pool]]", 1))
        shown = CliRunner().invoke(app, ["status", "--config", str(file)], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    assert "…" not in shown.output and max(map(len, shown.output.splitlines())) <= 80
    assert "fast in europe-west-1, qwen-7b-2026-11: 1 ready of 1" in shown.output
    assert "fast in europe-west-1, qwen-7b-2026-10: no longer asked for" in shown.output
    assert all(address in shown.output for address in STATES.values())
    assert all(one["replica"] in shown.output for one in replicas)


def test_a_fleet_that_is_not_up_is_told_whatever_else_the_command_says(tmp_path: Path) -> None:
    where = ["--config", str(write(tmp_path)), "--state-dir", str(tmp_path)]
    roll = [
        "roll",
        "--model",
        "r2",
        "--canary",
        "7%",
        "--pool",
        "fast",
        "--gate",
        "g",
        "--without-gate",
        "why",
        "--wait-s",
        "5",
    ]
    for command in (roll, ["roll", "--back"], ["scale", "fast", "2", "--region", "eu"], ["status", "--json"]):
        done = CliRunner().invoke(app, [*command, *where], env={"COLUMNS": "200"})
        assert done.exit_code == 1 and "team is not up on this machine" in done.output, command
