"""Fleets that cannot be: each is told in a sentence, and nothing of it stays."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet.support import FORETYPE, LIMIT_S, Fleet, until
from foretype_backend.fleet.ray.fleet_file import load_fleet
from foretype_backend.fleet.ray.head import Head, HeadState
from foretype_backend.fleet.ray.running import RunningFleet
from json_server import json_server

POOL = """
[[pool]]
name = "fast"
revision = "r1"
cpus = 0.5
host = "127.0.0.1"
command = {command}
[pool.revisions.r1]
model = "coder"
grammar = "foretype-1"
"""


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, request.param)
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.mark.parametrize("made", [POOL.replace("cpus = 0.5", "cpus = 64")], indirect=True, ids=["big"])
def test_a_fleet_that_no_node_can_place(made: Fleet) -> None:
    done = made.run("up")
    assert done.returncode == 1
    assert "fast.local: a replica of 64 CPU has no room" in done.stderr
    assert "lower pool.cpus" in done.stderr and "cluster.nodes" in done.stderr
    assert made.processes() == []


@pytest.mark.parametrize("made", [POOL + 'profile = "profile.yaml"\n'], indirect=True, ids=["refused"])
def test_a_model_that_no_replica_can_load(made: Fleet) -> None:
    (made.folder / "profile.yaml").write_text('refuses: "ValueError: weights of another shape"\n')
    done = made.run("up")
    assert done.returncode == 1
    assert "fast.local.r1 cannot be served; see pool.revisions.r1" in done.stderr
    assert "weights of another shape" in done.stderr and 'File "' not in done.stderr
    assert made.processes() == []


@pytest.mark.parametrize("made", [POOL + 'profile = "profile.yaml"\n'], indirect=True, ids=["down"])
def test_down_in_the_middle_of_up(made: Fleet) -> None:
    (made.folder / "profile.yaml").write_text("start-s: 3600\n")  # however long the others take: it is not over yet
    with made.coming_up() as up:
        second = made.run("up")
        assert second.returncode == 1 and "is being started already" in second.stderr
        assert "is down" in made.ok("down")
        _, told = up.communicate(timeout=LIMIT_S)
        assert up.returncode == 1 and "was ended by `foretype fleet down` while it started" in told
    assert made.processes() == []


@pytest.mark.parametrize("made", [POOL], indirect=True, ids=["interrupted"])
def test_an_up_that_is_interrupted_leaves_nothing(made: Fleet) -> None:
    with made.coming_up() as up:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=LIMIT_S)
    assert made.processes() == []
    assert "is not up" in made.run("status").stderr


@pytest.mark.parametrize("made", [POOL], indirect=True, ids=["spawned"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a head outlives its Popen on purpose
def test_an_up_that_is_interrupted_as_soon_as_the_head_is_spawned_leaves_nothing(
    made: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = Head.start

    def spawned(head: Head) -> HeadState:
        spawn(head)
        made._remember()
        raise KeyboardInterrupt

    monkeypatch.setattr(Head, "start", spawned)
    running = RunningFleet(load_fleet(made.file), made.folder, made.state / "fleet")
    with pytest.raises(KeyboardInterrupt):
        running.up(LIMIT_S, lambda _: None)
    assert made.processes() == []


def test_a_cluster_of_another_ray_is_left_as_it_is(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def dashboard(method: str, path: str) -> dict[str, str]:
        asked.append((method, path))
        return {"ray_version": "2.55.1"}

    with json_server(dashboard) as url:
        file = tmp_path / "fleet.toml"
        file.write_text(f'[fleet]\nname = "theirs"\n[cluster]\nurl = "{url}"\n' + POOL.replace("{command}", '["x"]'))
        done = subprocess.run(
            [str(FORETYPE), "fleet", "up", "--config", str(file)], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1 and "cluster.url: this is made for Ray 2.60, and found 2.55.1" in done.stderr
    assert asked == [("GET", "/api/version")]


@pytest.mark.parametrize("made", [POOL], indirect=True, ids=["port"])
@pytest.mark.parametrize("field", ["cluster.port", "cluster.dashboard_port", "directory.port"])
def test_a_port_that_is_taken(made: Fleet, field: str) -> None:
    ports = {"cluster.port": made.port, "cluster.dashboard_port": made.dashboard, "directory.port": made.listens}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports[field]))
        taken.listen()
        done = made.run("up")
    assert done.returncode == 1 and field in done.stderr and "choose another port" in done.stderr
    assert until(lambda: made.processes() == [])
