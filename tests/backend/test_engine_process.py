"""The engine of one replica, without Ray: started until it completes, its requests counted, ended with what it started."""

import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.fleet.ray.engine_process import EngineProcess
from foretype_backend.fleet.ray.register import ReplicaAnnouncement

LIMIT_S = 120.0
ENGINE = Path(__file__).parents[1] / "fleet" / "engine.py"


def made(tmp_path: Path, *command: str, **flags: Any) -> EngineProcess:
    return EngineProcess(
        command or (sys.executable, str(ENGINE)),
        flags,
        model="coder",
        host="127.0.0.1",
        environment={},
        log=tmp_path / "engine.log",
    )


async def test_it_is_ready_when_it_completes_and_says_what_its_start_took(tmp_path: Path) -> None:
    engine = made(tmp_path)
    await engine.start(LIMIT_S)
    try:
        await engine.check()
        assert engine.runs and await engine.requests() == 0
        assert engine.phases["weights"] == 0.5 and engine.phases["import"] >= 0
        assert (tmp_path / "engine.yaml").stat().st_mode & 0o077 == 0  # a profile may name a store with its password
        kin = psutil.Process(engine.pid).children(recursive=True)
        assert kin
    finally:
        await engine.stop()
    assert not engine.runs
    psutil.wait_procs(kin, timeout=LIMIT_S)
    assert not any(one.is_running() for one in kin)
    with pytest.raises(EngineUnavailableError, match="is gone"):
        await engine.check()


async def test_a_stream_under_way_is_a_request_that_runs(tmp_path: Path) -> None:
    engine = made(tmp_path)
    await engine.start(LIMIT_S)
    body = {"model": "coder", "prompt": [5, 6], "max_tokens": 500, "stream": True, "user": "slow"}
    try:
        url = f"http://{engine.address}/v1/completions"
        async with (
            httpx.AsyncClient(trust_env=False, timeout=60) as client,
            client.stream("POST", url, json=body) as answer,
        ):
            await anext(answer.aiter_lines())
            assert await engine.requests() == 1
        async with asyncio.timeout(LIMIT_S):
            while await engine.requests():  # noqa: ASYNC110  it is another process
                await asyncio.sleep(0.05)
    finally:
        await engine.stop()


async def test_a_start_that_fails_says_the_end_of_the_log(tmp_path: Path) -> None:
    for engine, told in (
        (made(tmp_path, refuses="weights of another shape"), "ended with 1; its log ends: .*weights of another shape"),
        (made(tmp_path, "/nowhere/vllm"), "/nowhere/vllm cannot be started .*pool.command"),
    ):
        with pytest.raises(EngineUnavailableError, match=told):
            await engine.start(LIMIT_S)
        await engine.stop()
    late = made(tmp_path, **{"start-s": 60})
    with pytest.raises(EngineUnavailableError, match="not ready after 1 s"):
        await late.start(1.0)
    await late.stop()


class Busy:
    """Looks of which some fail; `ends_at` is the one from which its process is gone."""

    def __init__(self, looks: list[int | None], ends_at: int | None = None) -> None:
        self.looks, self.ends_at, self.at = looks, ends_at, 0

    @property
    def runs(self) -> bool:
        return self.ends_at is None or self.at < self.ends_at

    async def requests(self) -> int:
        found = self.looks[min(self.at, len(self.looks) - 1)]
        self.at += 1
        if found is None:
            raise EngineUnavailableError("no figures (ReadTimeout)")
        return found


async def test_a_look_that_fails_is_no_sign_that_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain that took it for one would end a stream in the middle."""
    replica: Any = pytest.importorskip("foretype_backend.fleet.ray.replica")  # Ray warns of its own when it is imported
    monkeypatch.setattr(replica, "_LOOK_S", 0.0)
    for engine, looks in ((Busy([0, None, 1, None, 0]), 8), (Busy([1, None], ends_at=2), 2)):
        await replica.FleetReplica._is_quiet(SimpleNamespace(_engine=engine))
        assert engine.at == looks


async def test_nobody_else_takes_the_port_of_an_engine_that_takes_its_time(tmp_path: Path) -> None:
    """vLLM listens half a minute after it was told where; connections going out use ports of the same range."""
    engine = made(tmp_path)
    host, _, port = engine.address.rpartition(":")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((host, int(port)))
    await engine.start(LIMIT_S)  # and the engine itself can
    await engine.stop()


async def test_who_drains_goes_on_until_the_directory_has_heard_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy directory hears late, and whom it calls ready still gets requests."""
    replica: Any = pytest.importorskip("foretype_backend.fleet.ray.replica")
    monkeypatch.setattr(replica, "_UNLISTED_S", 0.0)
    goes = asyncio.Event()
    waits = asyncio.create_task(replica.FleetReplica._is_unlisted(SimpleNamespace(_goes=goes)))
    await asyncio.sleep(0.1)
    assert not waits.done()
    goes.set()
    await waits
    monkeypatch.setattr(replica, "_HEARD_S", 0.0)
    await replica.FleetReplica._is_unlisted(
        SimpleNamespace(_goes=asyncio.Event())
    )  # one that is away is not waited for


async def test_the_directory_has_heard_of_a_drain_when_it_says_so() -> None:
    replica: Any = pytest.importorskip("foretype_backend.fleet.ray.replica")
    heard: list[Any] = []

    async def announce(said: dict[str, Any], _: Any) -> dict[str, Any]:
        heard.append(said["state"])
        if len(heard) == 2:
            raise ConnectionError("the directory is away")
        return {}

    handle = SimpleNamespace(announce=SimpleNamespace(remote=announce))
    for state in ("ready", "draining", "draining"):
        said = ReplicaAnnouncement(replica="a", application="fast.eu.r1", address="127.0.0.1:1", state=state, labels={})
        one = SimpleNamespace(_directory=handle, _memory={}, _goes=asyncio.Event(), _said=lambda said=said: said)
        with contextlib.suppress(ConnectionError):
            await replica.FleetReplica._tell(one)
        assert one._goes.is_set() == (len(heard) == 3)
