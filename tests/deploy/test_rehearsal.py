"""What the rehearsal changes of deploy/compose.yaml, and what it says where no container can run."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from rehearsal import __main__ as rehearsal
from rehearsal.engine import Engine
from rehearsal.page import commands, elsewhere, runs
from rehearsal.steps import Failed
from rehearsal.team import Team

ALLOWED = {"ulimits", "depends_on", "image", "ports"}
"""Bounds, conditions that the rehearsal waits for itself, the image of a version, a port that is free."""


def overrides(one: Team) -> dict[str, Any]:
    """Without the words that say how two files are merged."""
    made: dict[str, Any] = yaml.safe_load(one.overrides().replace(" !reset ", " ").replace(" !override ", " "))
    return made


def team(folder: Path, **more: Any) -> Team:
    engine = Engine.__new__(Engine)
    engine.folder, engine.program = folder, folder / "podman"
    return Team(engine, **more)


def test_beside_the_file_there_are_bounds_and_names_alone(tmp_path: Path) -> None:
    one = team(tmp_path, vllm=True)
    changed: dict[str, Any] = overrides(one)["services"]
    assert set(changed) == set(one.services)
    assert all(set(keys) <= ALLOWED for keys in changed.values())
    assert changed["gateway"]["image"] == "foretype" and changed["gateway"]["ports"] == [
        f"127.0.0.1:{one.ports['gateway']}:7878"
    ]


def test_without_vllm_its_service_alone_is_another(tmp_path: Path) -> None:
    changed: dict[str, Any] = overrides(team(tmp_path))["services"]
    assert {name for name, keys in changed.items() if not set(keys) <= ALLOWED} == {"vllm"}


def test_a_second_gateway_is_the_first_with_a_folder_and_a_port_of_its_own(tmp_path: Path) -> None:
    one = team(tmp_path, gateways=("gateway", "gateway2"))
    changed: dict[str, Any] = overrides(one)
    second, first = changed["services"]["gateway2"], one.services["gateway"]
    assert changed["volumes"] == {"gateway2": {}}
    assert {key for key in first if first[key] != second.get(key)} == {
        "volumes",
        "ports",
        "hostname",
        "ulimits",
        "depends_on",
    }


def test_without_root_no_container_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("sys.argv", ["rehearsal", "--folder", str(tmp_path)])
    assert rehearsal.main() == 1
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 1 and told[0].endswith(
        "FAILED: no container can run here: it needs root, as an engine of containers does"
    )


def test_without_a_package_no_container_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match=r"^no container can run here: cannot install podman, runc, "):
        Engine(tmp_path)


def test_each_command_of_the_page_is_run_or_left_out_for_a_reason() -> None:
    assert [command for command in commands() if (elsewhere(command) is None) != runs(command)] == []
    assert sum(map(runs, commands())) > 10
