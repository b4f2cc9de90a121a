"""One fleet from `up` to `down`, in the order of this file: scaled under clients, its parts killed, deployed by Ray's own command."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pytest
from fleet.support import LIMIT_S, Fleet, alive, until

POOLS = """
[[pool]]
name = "fast"
region = "eu"
zone = "eu-1"
revision = "r1"
max_replicas = 3
cpus = 0.5
host = "127.0.0.1"
drain_s = 1200
command = {command}

[pool.revisions.r1]
model = "coder"
grammar = "foretype-1"
block_size = 32
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet"), POOLS).up() as made:
        yield made


class Clients(threading.Thread):
    """Stream all the time from replicas that the directory calls ready, as gateways do: they ask it each second.

    What failed is told apart: `late` ones were asked by somebody who did not get round to look at the directory for two seconds.
    """

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(daemon=True)
        self.fleet, self.whole, self.failed, self.late = fleet, 0, list[str](), list[str]()
        self._end = threading.Event()

    def run(self) -> None:
        addresses: list[str] = []
        asked_s = -1.0
        while not self._end.is_set():
            if time.monotonic() - asked_s > 1.0:
                asked_s = time.monotonic()
                if (found := self.fleet.asks("/fleet")) is not None:
                    addresses = [one["address"] for one in found["replicas"] if one["state"] == "ready"]
            for address in addresses:
                self._stream(address, asked_s)
            time.sleep(0.02)

    def _stream(self, address: str, asked_s: float) -> None:
        body = {"model": "coder", "prompt": [5, 6, 7], "max_tokens": 20, "stream": True, "temperature": 0}
        url, text, begun_s = f"http://{address}/v1/completions", "", None
        try:
            with httpx.stream("POST", url, json=body, timeout=LIMIT_S, trust_env=False, verify=False) as answer:
                begun_s = time.monotonic()
                for part in answer.iter_text():
                    text += part
            assert answer.status_code == 200 and '"finish_reason": "length"' in text
            self.whole += 1
        except (httpx.HTTPError, AssertionError) as error:
            known_s = (begun_s or time.monotonic()) - asked_s
            (self.failed if known_s < 2.0 else self.late).append(f"{address}, by a list of {known_s:.1f} s: {error!r}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(LIMIT_S)
        print(f"{self.whole} answers, {len(self.failed)} failed; asked by an old list: {self.late}")


def test_everybody_is_told_who_is_there(fleet: Fleet) -> None:
    [told] = fleet.directory()
    labels = told["labels"]
    assert {
        name: labels[name] for name in ("pool", "state", "model", "revision", "grammar", "block_size", "region")
    } == {
        "pool": "fast",
        "state": "ready",
        "model": "coder",
        "revision": "r1",
        "grammar": "foretype-1",
        "block_size": "32",
        "region": "eu",
    }
    assert labels["zone"] == "eu-1" and labels["role"] == "both" and labels["weight"] == "1" and labels["replica"]
    models = httpx.get(f"http://{told['targets'][0]}/v1/models", timeout=LIMIT_S, trust_env=False, verify=False)
    assert models.status_code == 200
    assert fleet.directory("/rollouts") == {"fast": {"stable": "r1", "canary": None, "share": 0.0, "number": 0}}


def test_status_shows_each_replica_and_what_its_start_took(fleet: Fleet) -> None:
    status = fleet.status()
    [pool] = status["pools"]
    assert (pool["ready"], pool["least"], pool["most"]) == (1, 1, 1)
    [replica] = status["replicas"]
    assert replica["phases"]["weights"] == 0.5  # as its engine writes
    assert replica["phases"]["image"] > 0 and replica["phases"]["warm"] > 0
    assert re.search(r"fast.*eu.*r1.*ready", fleet.ok("status"))
    figures = httpx.get(
        f"http://127.0.0.1:{fleet.listens}/metrics", timeout=LIMIT_S, trust_env=False, verify=False
    ).text
    assert 'foretype_fleet_replicas{pool="fast",region="eu",revision="r1",state="ready"} 1.0' in figures
    assert re.search(r'foretype_fleet_start_seconds\{phase="weights",pool="fast",replica="\w+"\} 0.5', figures)
    head = psutil.Process(os.getsid(replica["pid"]))
    assert psutil.Process(replica["engine_pid"]).nice() == head.nice()  # it waits for nobody who is on the same machine
    for process in fleet.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            name, held = " ".join(process.cmdline())[:90], process.memory_full_info()
            if held.rss > 40 * 2**20:
                print(f"{held.rss / 2**20:7.0f} MiB {held.pss / 2**20:7.0f} own  {name}")


def test_a_second_up_says_what_to_do_instead(fleet: Fleet) -> None:
    done = fleet.run("up")
    assert done.returncode == 1 and "is up already" in done.stderr and "scale" in done.stderr
    assert len(fleet.ready()) == 1


def test_a_pool_grows_and_shrinks_and_no_request_fails(fleet: Fleet) -> None:
    with Clients(fleet) as clients:
        until(lambda: clients.whole > 5, what="first answers")
        assert fleet.run("scale", "fast", "4").returncode == 2  # max_replicas is 3
        fleet.ok("scale", "fast", "2")
        until(fleet.has_ready(2), what="two replicas")
        assert fleet.status()["pools"][0]["least"] == 2
        before = clients.whole
        until(lambda: clients.whole > before + 20)
        fleet.ok("scale", "fast", "1")
        [left] = until(fleet.has_ready(1), what="one replica")
        before = clients.whole
        until(lambda: clients.whole > before + 20)
    assert clients.failed == []
    until(lambda: len(fleet.those("engine.py")) == 1, what="one engine")
    assert left["address"]


def test_a_long_stream_ends_whole_before_its_replica_goes(fleet: Fleet) -> None:
    fleet.ok("scale", "fast", "2")
    two = until(fleet.has_ready(2), what="two replicas")
    goes_on = fleet.folder / "goes_on"
    body = {"model": "coder", "prompt": [5, 6, 7], "max_tokens": 60, "stream": True, "user": f"until:{goes_on}"}
    ends: dict[str, str] = {}

    def stream(address: str) -> None:
        url = f"http://{address}/v1/completions"
        with httpx.stream("POST", url, json=body, timeout=LIMIT_S, trust_env=False, verify=False) as answer:
            for text in answer.iter_text():
                ends[address] = ends.get(address, "") + text

    threads = [threading.Thread(target=stream, args=(one["address"],)) for one in two]
    for one in threads:
        one.start()
    until(lambda: len(ends) == 2, what="both streams have begun")
    fleet.ok("scale", "fast", "1")
    until(lambda: "draining" in {one["state"] for one in fleet.replicas()}, what="one drains")
    goes_on.touch()
    for one in threads:
        one.join(LIMIT_S)
    got = {address: (text.count('"token_ids": ['), "[DONE]" in text) for address, text in ends.items()}
    assert got == {one["address"]: (61, True) for one in two}  # the last one has the reason of the end
    until(fleet.has_ready(1), what="one replica")


def _killed(fleet: Fleet, pid: int, victim: dict[str, Any], what: str) -> None:
    """Waits until the directory lists it no more. Whether Ray's word comes before the lease ends is the machine's matter: printed."""
    os.kill(pid, 9)
    began_s = time.monotonic()
    states: list[str] = []

    def gone() -> bool:
        now = [one["state"] for one in fleet.replicas() if one["replica"] == victim["replica"]]
        if now and now != states[-1:]:
            print(f"{what} killed: {now[0]} after {time.monotonic() - began_s:.1f} s")
            states.extend(now)
        return not now

    until(gone, what="it is not listed")
    print(f"{what} killed: out of the directory after {time.monotonic() - began_s:.1f} s")


def test_an_engine_that_dies_takes_its_replica_along_and_another_comes(fleet: Fleet) -> None:
    [victim] = fleet.ready()
    kin = [one.pid for one in psutil.Process(victim["pid"]).children(recursive=True)]
    _killed(fleet, victim["engine_pid"], victim, "engine")
    [other] = until(fleet.has_ready(1), what="a successor")
    assert other["replica"] != victim["replica"]
    until(lambda: not any(alive(pid) for pid in kin), what="nothing of it is left")


def test_a_replica_that_is_killed_leaves_no_engine_behind(fleet: Fleet) -> None:
    [victim] = fleet.ready()
    kin = [one.pid for one in psutil.Process(victim["pid"]).children(recursive=True)]
    assert len(kin) >= 2
    _killed(fleet, victim["pid"], victim, "replica")
    until(lambda: not any(alive(pid) for pid in kin), what="nothing of it is left")
    [other] = until(fleet.has_ready(1), what="a successor")
    assert other["replica"] != victim["replica"]


def test_a_directory_that_is_killed_knows_everybody_again(fleet: Fleet) -> None:
    before = {one["replica"] for one in fleet.ready()}
    fleet.kill("ServeReplica:directory")
    began_s = time.monotonic()
    first = {one["replica"] for one in fleet.replicas()}
    print(f"directory killed: answers again after {time.monotonic() - began_s:.1f} s")
    assert first == before  # its first answer is whole: one without somebody would be believed


def test_a_controller_that_is_killed_changes_nothing_and_scales_again(fleet: Fleet) -> None:
    before = {one["replica"] for one in fleet.ready()}
    with Clients(fleet) as clients:
        until(lambda: clients.whole > 5)
        fleet.kill("ServeController")
        until(lambda: fleet.run("scale", "fast", "2").returncode == 0, what="the controller again")
        two = until(fleet.has_ready(2), what="two replicas")
        assert before < {one["replica"] for one in two}
        fleet.ok("scale", "fast", "1")
        until(fleet.has_ready(1), what="one replica")
    assert clients.failed == []


def test_rays_own_command_deploys_the_written_config(fleet: Fleet) -> None:
    written = fleet.folder / "serve.yaml"
    written.write_text(fleet.ok("config"))
    assert fleet.token() not in written.read_text()
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": fleet.token()}
    serve = [
        sys.executable,
        "-m",
        "ray.serve.scripts",
        "deploy",
        str(written),
        "-a",
        f"http://127.0.0.1:{fleet.dashboard}",
    ]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    until(fleet.has_ready(1), what="the same fleet")
    assert fleet.status()["pools"][0]["revision"] == "r1"


def test_down_leaves_no_process_and_no_port(fleet: Fleet) -> None:
    was = fleet.processes()
    assert len(was) > 5
    said = fleet.ok("down")
    print(said)  # and how many had to be killed
    assert said.startswith("tested is down")
    assert fleet.processes() == []
    for port in (fleet.port, fleet.dashboard, fleet.listens):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    assert not Path(fleet.state / "fleet" / "tested.token").exists()
    assert fleet.run("status").returncode == 1
    assert "is not up" in fleet.run("down").stderr
