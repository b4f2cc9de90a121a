"""What the rehearsal changes of deploy/compose.yaml, and what it says where no container can run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from rehearsal import __main__ as rehearsal
from rehearsal.engine import Engine
from rehearsal.page import commands, elsewhere, runs
from rehearsal.refusals import said
from rehearsal.steps import Failed, until
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


def test_a_refusal_is_a_sentence_and_no_traceback() -> None:
    said("x\nthe port is taken\n", "port")
    with pytest.raises(Failed, match="nothing of port"):
        said("x\n", "port")
    with pytest.raises(Failed, match="a traceback"):
        said("Traceback\nthe port is taken\n", "port")


def test_what_never_comes_is_waited_for_no_longer_than_said() -> None:
    with pytest.raises(Failed, match=r"it rains: not within 0\.1 s"):
        until("it rains", lambda: False, every_s=0.01, limit_s=0.1)


def test_containers_know_those_on_their_networks_by_name_and_themselves_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def container(name: str, running: bool = True, **networks: str) -> dict[str, Any]:
        (tmp_path / name).write_text(f"127.0.0.1 {name}\n")
        return {
            "HostsPath": str(tmp_path / name),
            "State": {"Running": running},
            "Config": {"Labels": {"com.docker.compose.service": name}},
            "NetworkSettings": {"Networks": {network: {"IPAddress": at} for network, at in networks.items()}},
        }

    def found(*containers: dict[str, Any]) -> None:
        monkeypatch.setattr(
            Engine, "__call__", lambda _, *words: json.dumps(containers) if "inspect" in words else "a b"
        )

    one = team(tmp_path)
    redis, old = container("redis", stores="10.1.0.3"), container("old", running=False, stores="10.1.0.9")
    found(
        container("gateway", stores="10.1.0.2", engines="10.2.0.2"), redis, container("vllm", engines="10.2.0.3"), old
    )
    one.name_all()
    known = {name: (tmp_path / name).read_text().splitlines() for name in ("gateway", "redis", "vllm", "old")}
    assert known["gateway"] == [
        "127.0.0.1 gateway",
        "10.1.0.3 redis # of the rehearsal",
        "10.2.0.3 vllm # of the rehearsal",
    ]
    assert known["redis"] == ["127.0.0.1 redis", "10.1.0.2 gateway # of the rehearsal"]
    assert known["old"] == ["127.0.0.1 old"]

    alone = container("alone")
    del alone["NetworkSettings"]["Networks"]
    found(redis, alone)
    one.name_all()
    assert (tmp_path / "redis").read_text() == "127.0.0.1 redis\n"


def test_each_command_of_the_page_is_run_or_left_out_for_a_reason() -> None:
    assert [command for command in commands() if (elsewhere(command) is None) != runs(command)] == []
    assert sum(map(runs, commands())) > 10
