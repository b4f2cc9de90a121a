"""`up` where Ray gives up: its own limits of half a minute are too few on a busy machine. Under a real Ray: tests/fleet."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foretype_backend.errors import FleetError
from foretype_backend.fleet.ray.fleet_file import load_fleet
from foretype_backend.fleet.ray.head import HeadState
from foretype_backend.fleet.ray.running import RunningFleet
from json_server import json_server

NOBODY = "http://127.0.0.1:9"
FLEET = """
[fleet]
name = "late"
[[pool]]
name = "fast"
revision = "r1"
command = ["x"]
[pool.revisions.r1]
model = "coder"
grammar = "foretype-1"
"""


@pytest.fixture
def dashboard() -> Iterator[str]:
    says = {"ray_version": "2.60.0", "data": {"result": {"result": [{"state": "ALIVE"}]}}}
    with json_server(lambda *_: says) as url:
        yield url


class Head:
    """Gives up so often, then answers; or is ended by `down`."""

    def __init__(self, dashboard: str, gives_up: int, *, by_down: bool = False) -> None:
        self.dashboard, self.gives_up, self.by_down = dashboard, gives_up, by_down
        self.started = self.ended = 0

    @property
    def fails(self) -> bool:
        return self.started <= self.gives_up

    @property
    def url(self) -> str:
        return NOBODY if self.fails else self.dashboard

    def starting(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def check_free(self) -> None: ...

    def token(self) -> str | None:
        return None

    def start(self) -> HeadState:
        self.started += 1
        return HeadState(pid=self.started, created=0.0, url=self.url)

    def state(self) -> HeadState | None:
        return HeadState(pid=self.started, created=0.0, url=self.url)

    def check(self, _: HeadState) -> None:
        if self.fails:
            raise FleetError("was ended by `down`" if self.by_down else "Ray's head ended while it started")

    def gave_up(self, _: HeadState, *, soon: bool) -> bool:
        return self.fails and not self.by_down

    def end(self, _: HeadState) -> int:
        self.ended += 1
        return 0


def fleet(tmp_path: Path, head: Head, monkeypatch: pytest.MonkeyPatch) -> tuple[RunningFleet, list[Any]]:
    (tmp_path / "fleet.toml").write_text(FLEET)
    running, deployed = RunningFleet(load_fleet(tmp_path / "fleet.toml"), tmp_path, tmp_path / "state"), list[Any]()
    running.head = head  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(running, "_deploy", lambda *of: deployed.append(of))
    return running, deployed


def test_a_head_that_gave_up_is_started_again(tmp_path: Path, dashboard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head, told = Head(dashboard, 2), list[str]()
    running, deployed = fleet(tmp_path, head, monkeypatch)
    running.up(60.0, told.append)
    assert (head.started, head.ended, len(deployed)) == (3, 2, 1)
    assert sum("it is started again" in one for one in told) == 2


def test_a_head_that_answered_and_gave_up_while_it_was_deployed_to_is_started_again(
    tmp_path: Path, dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, told = Head(dashboard, 0), list[str]()
    running, _ = fleet(tmp_path, head, monkeypatch)

    def deploy(*_: object) -> None:
        head.gives_up = 2  # the server of Ray's own client was late, and ends the head with it
        head.check(HeadState(pid=head.started, created=0.0, url=head.url))

    monkeypatch.setattr(running, "_deploy", deploy)
    running.up(60.0, told.append)
    assert (head.started, head.ended) == (3, 2)
    assert sum("ended while it started; it is started again" in one for one in told) == 2


def test_what_cannot_be_deployed_is_told_at_once_and_is_no_reason_to_start_again(
    tmp_path: Path, dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(dashboard, 0)
    running, _ = fleet(tmp_path, head, monkeypatch)

    def deploy(*_: object) -> None:
        raise FleetError("a replica has no room")

    monkeypatch.setattr(running, "_deploy", deploy)
    with pytest.raises(FleetError, match="has no room"):
        running.up(60.0, lambda _: None)
    assert (head.started, head.ended) == (1, 1)


@pytest.mark.parametrize(("by_down", "started"), [(False, 3), (True, 1)])
def test_one_that_gives_up_each_time_or_is_ended_by_somebody_is_not(
    by_down: bool, started: int, tmp_path: Path, dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(dashboard, 9, by_down=by_down)
    running, deployed = fleet(tmp_path, head, monkeypatch)
    with pytest.raises(FleetError, match="was ended by `down`" if by_down else "ended while it started"):
        running.up(60.0, lambda _: None)
    assert (head.started, head.ended, deployed) == (started, started, [])


RAY_SAYS = """The deployment failed to start 3 times in a row. See controller logs for details. Error:
ray::ServeReplica:fast.local:fast.local.initialize_and_get_metadata() (pid=7, ip=127.0.0.1)
  File "/site-packages/ray/serve/_private/replica.py", line 1, in initialize
    await self._initialize()
RuntimeError: the engine ended with 1: ValueError: weights of another shape"""


def test_why_a_replica_does_not_start_is_told_without_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Api:
        def details(self) -> dict[str, Any]:
            deployment = {"fast.local": {"message": RAY_SAYS}}
            return {"applications": {"fast.r1": {"status": "DEPLOY_FAILED", "message": "", "deployments": deployment}}}

    running, _ = fleet(tmp_path, Head(NOBODY, 0), monkeypatch)
    with pytest.raises(FleetError) as raised:
        running._serves(Api())  # pyright: ignore[reportArgumentType, reportPrivateUsage]
    told = str(raised.value)
    assert "failed to start 3 times" in told and "weights of another shape" in told
    assert "File" not in told and "ray::" not in told and len(told.splitlines()) == 2
