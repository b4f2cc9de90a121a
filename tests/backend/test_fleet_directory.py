"""The directory without Ray: its doors, and a roll-out that gateways' figures move; tests/fleet has it under Serve."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from backend.model_servers import served
from foretype_backend.fleet.ray.register import ReplicaAnnouncement
from foretype_backend.fleet.ray.rolls import Order
from foretype_backend.fleet.rollout.machine import RolloutOptions
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

module: Any = pytest.importorskip("foretype_backend.fleet.ray.directory")  # Ray warns of its own when it is imported
Directory = module.Directory
FleetReplica: Any = pytest.importorskip("foretype_backend.fleet.ray.replica").FleetReplica
QUICK = RolloutOptions(step_s=0.0, requests_min=10, evidence_min=20, keep_s=1.0)


@pytest.mark.parametrize("deployed", [Directory, FleetReplica])
def test_what_serve_may_cancel_is_a_coroutine(deployed: type) -> None:
    """A plain method runs on in its thread when its call is cancelled, and Serve gives its place to the next call meanwhile."""
    told_once = {"record_replica_metadata"}  # of Serve's own, when the replica has started
    asked = [
        (name, method)
        for name, method in vars(deployed).items()
        if callable(method) and (name == "__call__" or not name.startswith("_")) and name not in told_once
    ]
    assert asked
    assert [name for name, method in asked if not inspect.iscoroutinefunction(method)] == []


class Gateway:
    """Counts of two revisions that grow with every question."""

    def __init__(self) -> None:
        self.asked = 0
        self.failing = False

    async def signals(self, _: Request) -> JSONResponse:
        self.asked += 1
        many = 400 * self.asked
        good = {"requests": many, "failed": 0, "shown": many, "accepted": many // 2, "cancelled": 0, "syntax_errors": 0}
        bad = {**good, "failed": 300 * self.asked if self.failing else 0}
        return JSONResponse({"fast": {"revisions": {"r1": good, "r2": bad}}})


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[tuple[Gateway, str]]:
    made = Gateway()
    async with served([Route("/v1/fleet/signals", made.signals)]) as port:
        yield made, f"http://127.0.0.1:{port}"


@pytest_asyncio.fixture(autouse=True)
async def directories(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Each ends with its test."""
    made: list[Any] = []
    begin = Directory.__init__

    def begun(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(Directory, "__init__", begun)
    yield
    for one in made:
        await one.close()


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Applications that Serve was asked to take away. It is not there otherwise."""
    names: list[str] = []

    class Handle:
        class ping:
            @staticmethod
            async def remote() -> None:
                pass

    def delete(name: str, **_: Any) -> None:
        names.append(name)

    stand_in = SimpleNamespace(get_deployment_handle=lambda *_: Handle, delete=delete, status=lambda: running(0))
    monkeypatch.setattr(module, "serve", stand_in)
    monkeypatch.setattr(module, "_ROLL_S", 0.05)
    monkeypatch.setattr(module, "_SETTLES_S", 0.0)
    monkeypatch.setattr("foretype_backend.fleet.ray.rolls._LEAVES_S", 0.5)
    return names


def running(count: int) -> SimpleNamespace:
    """What Serve says of its applications."""
    deployment = SimpleNamespace(replica_states={"RUNNING": count, "STARTING": 1})
    application = SimpleNamespace(deployments={"fast.eu": deployment})
    return SimpleNamespace(applications={"directory": application, "fast.eu.r1": application})


async def started(*args: Any, **options: Any) -> Any:
    """A directory that has heard everybody."""
    made = Directory(*args, **options)
    await made._settling
    return made


def said(revision: str) -> dict[str, Any]:
    labels = {"pool": "fast", "region": "eu", "revision": revision}
    name = f"fast.eu.{revision}"
    made = ReplicaAnnouncement(replica=revision, application=name, address="10.0.0.1:80", state="ready", labels=labels)
    return msgspec.to_builtins(made)


async def ask(directory: Any, path: str, *, method: str = "GET", token: str = "") -> tuple[int, Any]:
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
    answer = await directory(Request(scope | {"server": ("directory", 80), "scheme": "http"}))
    body = bytes(answer.body)
    return answer.status_code, json.loads(body) if body.startswith((b"[", b"{")) else body.decode()


async def until(directory: Any, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while True:
            for revision in ("r1", "r2"):
                await directory.announce(said(revision), {})
            now = (await ask(directory, "/rollouts"))[1]["fast"]
            if done(now):
                return now
            await asyncio.sleep(0.02)


async def ordered(directory: Any, number: int = 5, **changes: Any) -> None:
    order = Order(number=number, stable="r1", canary="r2", share=0.05, without_gate="a test", options=QUICK, **changes)
    await directory.reconfigure({"stable": {"fast": "r1"}, "rolls": {"fast": msgspec.to_builtins(order)}})


async def test_its_doors(tmp_path: Path, deleted: list[str]) -> None:
    token = "t" * 32
    (tmp_path / "token").write_text(token)
    directory = await started("team", 5.0, token_file=str(tmp_path / "token"))
    await directory.reconfigure({"stable": {"fast": "r1"}})
    await directory.announce(said("r1"), {})
    for path in ("/replicas", "/rollouts", "/fleet", "/metrics", "/elsewhere"):
        assert (await ask(directory, path))[0] == 401
        assert (await ask(directory, path, token="w" * 32))[0] == 401
        assert (await ask(directory, path, method="POST", token=token))[0] == 405
    [target] = (await ask(directory, "/replicas", token=token))[1]
    assert target["targets"] == ["10.0.0.1:80"] and target["labels"]["state"] == "ready"
    assert (await ask(directory, "/rollouts", token=token))[1] == {
        "fast": {"stable": "r1", "canary": None, "share": 0.0, "number": 0}
    }
    assert "foretype_fleet_replicas" in (await ask(directory, "/metrics", token=token))[1]
    assert (await ask(directory, "/elsewhere", token=token))[0] == 404


async def test_one_that_was_just_started_says_nothing_yet(deleted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLES_S", 60.0)
    directory = Directory("team", 5.0)
    assert (await ask(directory, "/replicas"))[0] == 503


async def test_one_that_comes_back_says_nothing_until_it_has_heard_everybody_whom_ray_runs(
    deleted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late their heartbeats are: gateways would let go of who is missing, and forget a roll-out that only replicas remember."""
    looked = asyncio.Event()
    loop = asyncio.get_running_loop()
    states = iter([ConnectionError("the controller is away")])

    def status() -> SimpleNamespace:
        loop.call_soon_threadsafe(looked.set)
        for error in states:
            raise error
        return running(2)

    monkeypatch.setattr(module.serve, "status", status)
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    directory = Directory("team", 5.0)
    await directory.announce(said("r1"), {})
    await directory.announce(said("r3") | {"state": "starting"}, {})
    for _ in range(3):
        looked.clear()
        looks = asyncio.create_task(looked.wait())
        await asyncio.wait([looks, directory._settling], return_when=asyncio.FIRST_COMPLETED)
        looks.cancel()
        assert (await ask(directory, "/replicas"))[0] == 503
    await directory.announce(said("r2"), {})
    await directory._settling
    status_code, rows = await ask(directory, "/replicas")
    assert status_code == 200 and len(rows) == 3


async def test_one_whom_ray_runs_and_who_says_nothing_is_not_waited_for_without_end(
    deleted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.serve, "status", lambda: running(2))
    monkeypatch.setattr(module, "_SETTLES_MOST_S", 0.1)
    assert (await ask(await started("team", 5.0), "/replicas"))[0] == 200


async def test_a_canary_that_is_good_becomes_the_stable_one(gateway: tuple[Gateway, str], deleted: list[str]) -> None:
    directory = await started("team", 5.0, gateways=[gateway[1]])
    await ordered(directory)
    await until(directory, lambda now: now["stable"] == "r2" and now["canary"] is None)
    await until(directory, lambda _: bool(deleted))
    assert deleted == ["fast.eu.r1"]  # once, when it is not kept warm any more


async def test_a_canary_that_fails_goes_back_by_itself(gateway: tuple[Gateway, str], deleted: list[str]) -> None:
    gateway[0].failing = True
    directory = await started("team", 5.0, gateways=[gateway[1]])
    await ordered(directory)
    await until(directory, lambda now: now["canary"] == "r2")
    now = await until(directory, lambda now: now["canary"] is None)
    assert now["stable"] == "r1"
    assert "failed" in (await ask(directory, "/fleet"))[1]["rolls"]["fast"]
    await until(directory, lambda _: bool(deleted))
    assert deleted == ["fast.eu.r2"]


async def test_the_next_directory_hears_of_it_from_replicas(deleted: list[str]) -> None:
    first = await started("team", 5.0)  # no gateway says anything: it stays at its first step
    await ordered(first)
    before = await until(first, lambda now: now["canary"] == "r2")
    memory = await first.announce(said("r1"), {})
    second = await started("team", 5.0)
    await second.reconfigure({"stable": {"fast": "r1"}})
    await second.announce(said("r1"), memory)
    assert (await ask(second, "/rollouts"))[1]["fast"] == before
    await ordered(second, back="by hand")
    await until(second, lambda now: now["canary"] is None and now["number"] == 5)


async def test_who_takes_a_revision_back_waits_for_no_gateway(
    gateway: tuple[Gateway, str], deleted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROLL_S", 3_600.0)
    directory = await started("team", 5.0, gateways=[gateway[1]])
    await directory.announce(said("r2"), {})
    await ordered(directory)
    await until(directory, lambda now: now["canary"] == "r2")
    await ordered(directory, back="by hand")
    await until(directory, lambda now: now["canary"] is None)
    assert not gateway[0].asked
