"""The real vLLM on processors, with our tiers in it, from `up` to `down` in the order of this file: scaled by load, killed, rolled, taken back.

Developers type through a gateway all the time, and every answer has to be a whole one of one of the two models. vLLM has an environment of its
own (`make vllm-env`), without Ray: a fleet's file names its interpreter.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from fleet.support import Fleet, alive, free_ports, until
from fleet.typists import KEYS, Answer, Typists, gateway_process
from foretype_backend.fleet.members.announced import AnnouncedRollout
from foretype_backend.fleet.members.revisions import on_canary
from vllm_world.model_folders import write_first_two_layers, write_served

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("FORETYPE_VLLM_VENV", ROOT / ".venv-vllm")) / "bin" / "python"
USERS = 6

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="vLLM is not installed: make vllm-env")

POOLS = """
[[pool]]
name = "fast"
revision = "r1"
max_replicas = 2
cpus = 0.5
host = "127.0.0.1"
drain_s = 30
command = {vllm}
environment = { VLLM_CPU_KVCACHE_SPACE = "1", VLLM_NO_USAGE_STATS = "1", HF_HUB_OFFLINE = "1" }
rollout = { step_s = 3600 }
# By requests alone: how long a first token takes says nothing on a machine that does other work as well.
scaling = { running_per_replica = 4, down_after_s = 5, warm_max_replicas = 0, learn = false, p99_objective_ms = 1e6 }

[pool.revisions.r1]
model = "coder"
grammar = "foretype-1"
profile = "r1.yaml"
[pool.revisions.r2]
model = "coder"
grammar = "foretype-1"
profile = "r2.yaml"
"""


def _profile(model: Path) -> str:
    """deploy/profiles/cpu.yaml with our tiers."""
    flags = yaml.safe_load((ROOT / "deploy" / "profiles" / "cpu.yaml").read_text())
    tiers = {
        "cpu_bytes_to_use": 1 << 26,
        "spec_name": "HostCopyTieringSpec",
        "spec_module_path": "foretype_backend.vllm_plugin.host_copies",
        "eviction_policy": "RetiringCachePolicy",
        "cache_policy_module_path": "foretype_backend.vllm_plugin.policy",
    }
    transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": tiers}
    return yaml.safe_dump({**flags, "model": str(model), "kv-transfer-config": json.dumps(transfer)})


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def fleet(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("vllm")
    # What `vllm serve` runs; the command itself looks for a distribution `vllm`, which the CPU build is not.
    vllm = json.dumps([str(PYTHON), "-P", "-m", "vllm.entrypoints.openai.api_server"])
    made = Fleet(folder, POOLS.replace("{vllm}", vllm), fleet=f'gateways = ["http://127.0.0.1:{port}"]')
    (folder / "r1.yaml").write_text(_profile(write_served(folder / "model")))
    (folder / "r2.yaml").write_text(_profile(write_first_two_layers(folder / "other")))
    with made.up():
        yield made


@pytest.fixture(scope="module")
def typists(fleet: Fleet, port: int) -> Iterator[Typists]:
    directory = f"http://127.0.0.1:{fleet.listens}"
    with (
        gateway_process(fleet.folder / "gateway", directory, port) as url,
        Typists(url, fleet.folder, users=USERS) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def first(typists: Typists) -> dict[str, str]:
    """What the first model writes at each key."""
    found = {one.key: one.text for one in typists.each(len(KEYS))}
    assert not typists.faults() and set(found) == set(KEYS) and any(found.values())
    return found


def _unlike(answers: list[Answer], *models: dict[str, str]) -> list[Answer]:
    """Answers that are no model's: cut short, or of two."""
    return [one for one in answers if not one.fault and one.text not in [model[one.key] for model in models]]


def _starts(fleet: Fleet) -> str:
    return "; ".join(
        " ".join(f"{name} {seconds:.1f}" for name, seconds in one["phases"].items()) for one in fleet.ready()
    )


def test_two_replicas_come_by_load(fleet: Fleet, typists: Typists, first: dict[str, str]) -> None:
    before = len(typists.answers)
    began_s = time.monotonic()
    typists.busy()
    until(lambda: len(fleet.replicas()) == 2, what="a second replica starts")
    fleet.ok("scale", "fast", "2")  # it came by load; however long it takes to start, none goes meanwhile
    typists.calm()  # what starts has the processors
    until(fleet.has_ready(2), what="it is ready")
    typists.busy()
    print(f"two after {time.monotonic() - began_s:.1f} s; {_starts(fleet)}")
    typists.each(10)
    assert typists.faults(before) == [] and _unlike(typists.answers, first) == []


def test_an_engine_that_is_killed_costs_no_more_than_what_it_was_answering(
    fleet: Fleet, typists: Typists, first: dict[str, str]
) -> None:
    before = len(typists.answers)
    victim = fleet.ready()[0]
    kin = psutil.Process(victim["engine_pid"]).children(recursive=True)
    engine = max(kin, key=lambda one: one.memory_info().rss)  # it holds model and cache
    engine.kill()
    killed_s = time.monotonic()
    typists.calm()
    until(lambda: victim["replica"] not in {one["replica"] for one in fleet.replicas()}, what="it is not listed")
    print(f"engine killed: not listed after {time.monotonic() - killed_s:.1f} s")
    until(fleet.has_ready(2), what="a successor")
    typists.busy()
    print(f"a successor after {time.monotonic() - killed_s:.1f} s; {_starts(fleet)}")
    whole = len(typists.answers)
    typists.each(10)
    faults = typists.faults(before, whole)
    print(
        f"{whole - before} answers meanwhile, {len(faults)} lost, the last {max([one.at_s - killed_s for one in faults], default=0):.1f} s after"
    )
    assert len(faults) <= 2 * USERS and typists.faults(whole) == [] and _unlike(typists.answers, first) == []
    until(
        lambda: not any(alive(one) for one in (victim["engine_pid"], *(one.pid for one in kin))), what="nothing is left"
    )


def test_one_goes_when_the_load_is_gone_and_no_request_fails(
    fleet: Fleet, typists: Typists, first: dict[str, str]
) -> None:
    before = len(typists.answers)
    typists.calm()
    began_s = time.monotonic()
    fleet.ok("scale", "fast", "auto")
    until(fleet.has_ready(1), what="one replica")
    print(f"one after {time.monotonic() - began_s:.1f} s")
    typists.each(3)
    assert typists.faults(before) == [] and _unlike(typists.answers, first) == []


def test_another_model_is_rolled_out_and_back_and_no_request_fails(
    fleet: Fleet, typists: Typists, first: dict[str, str]
) -> None:
    before = len(typists.answers)
    typists.calm()
    fleet.ok("roll", "--model", "r2", "--canary", "60%", "--without-gate", "a test")
    told = fleet.directory("/rollouts")["fast"]
    rollout = AnnouncedRollout(told["stable"], told["canary"], told["share"], told["number"])
    drawn = {user for user in typists.users if on_canary(rollout, f"default/{user}")}
    print(f"rolled out; {_starts(fleet)}; {len(drawn)} of {USERS} on the canary")
    until(lambda: not drawn or "r2" in typists.signals()["revisions"], what="the canary is asked")
    typists.each(1)  # what was asked before has ended
    since = len(typists.answers)
    typists.each(len(KEYS))
    until_ = len(typists.answers)
    second = {one.key: one.text for one in typists.answers[since:until_] if one.user in drawn}
    for one in typists.answers[since:until_]:
        assert one.text == (second if one.user in drawn else first)[one.key], one
    assert not drawn or second != first
    back_s = time.monotonic()
    fleet.ok("roll", "--back")
    said_s = time.monotonic()
    typists.each(len(KEYS))
    old = [one.at_s - back_s for one in typists.answers[until_:] if one.text != first[one.key]]
    print(
        f"roll --back: the command took {said_s - back_s:.1f} s, the last answer of the canary came after {max(old, default=0.0):.1f} s"
    )
    until(fleet.has_ready(1), what="the canary is taken away")
    last = len(typists.answers)
    typists.each(len(KEYS))
    assert all(one.text == first[one.key] for one in typists.answers[last:])
    assert typists.faults(before) == [] and _unlike(typists.answers, first, {**first, **second}) == []


def test_down_leaves_no_process_and_no_port(fleet: Fleet, typists: Typists, first: dict[str, str]) -> None:
    ports = [int(one["address"].rpartition(":")[2]) for one in fleet.ready()]
    typists.rest()
    began_s = time.monotonic()
    said = fleet.ok("down")
    assert said.startswith("tested is down")
    print(f"{said.strip()}, in {time.monotonic() - began_s:.1f} s")
    assert fleet.processes() == []
    for port in (fleet.port, fleet.dashboard, fleet.listens, *ports):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
