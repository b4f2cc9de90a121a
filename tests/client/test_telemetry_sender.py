"""Batches: kept on disk before they are sent, sent again until acknowledged, bounded, and never in anybody's way."""

import asyncio
import os
import stat
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from foretype_client.feedback.events import DisplaySource, Ended, EndReason
from foretype_client.feedback.feedback import Feedback
from foretype_client.telemetry import sender
from foretype_client.telemetry.outbox import Outbox
from foretype_client.telemetry.recorder import Recorder
from foretype_client.telemetry.sender import Telemetry, head_of
from foretype_client.telemetry.spool import Spool, user_in, user_of

WALL_MS = 1_790_078_400_000


class Gateway:
    """The other end, as the session shows it."""

    def __init__(self) -> None:
        self.connected = True
        self.store_text = False
        self.got: list[tuple[str, list[dict[str, object]]]] = []

    def feedback(self, batch: str, events: Sequence[dict[str, object]]) -> bool:
        if self.connected:
            self.got.append((batch, list(events)))
        return self.connected

    @property
    def keys(self) -> list[tuple[object, object]]:
        return [(event["session"], event["seq"]) for _, events in self.got for event in events]


class World:
    """A client's telemetry whose time is set by hand."""

    def __init__(self, directory: Path, gateway: Gateway, session: str = "s1") -> None:
        self.now = 0.0
        self.wall_ms = WALL_MS
        self.gateway = gateway
        self.spool = Spool(directory)
        self.woken = asyncio.Event()
        self.recorder = Recorder(session, Feedback(), clock=lambda: self.now, wall_ms=WALL_MS, stirred=self.woken.set)
        self.telemetry = Telemetry(
            self.recorder,
            gateway,
            self.spool,
            clock=lambda: self.now,
            wall_ms=lambda: self.wall_ms,
            head_of=lambda uri: "main",
            woken=self.woken,
        )

    def record(self, count: int = 1) -> None:
        for number in range(count):
            self.recorder.told(
                Ended(
                    id=f"i{number}",
                    session=f"i{number}",
                    served_from="network",
                    at_s=self.now,
                    reason=EndReason.LEFT,
                    rejected=False,
                    visible_ms=10.0,
                    characters=3,
                    lines=1,
                    display_source=DisplaySource.INFERRED,
                    typed_characters=0,
                )
            )

    async def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.wall_ms += int(seconds * 1000)
        await self.telemetry.tick()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, Gateway())


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.exists() else []


def touch(directory: Path, at_s: float) -> None:
    for path in directory.iterdir():
        os.utime(path, (at_s, at_s))


async def test_events_wait_for_company_are_kept_and_go_when_acknowledged(tmp_path: Path) -> None:
    world = World(tmp_path / "spool", Gateway())
    world.record(3)
    await world.turn()
    assert world.gateway.got == [] and files(tmp_path / "spool") == []
    await world.turn(5.0)
    ((name, events),) = world.gateway.got
    assert len(events) == 3
    (file,) = files(tmp_path / "spool")
    assert file.name == f"{name}.batch" and stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "spool").st_mode) == 0o700
    world.telemetry.acknowledged(name)
    await world.turn()
    assert files(tmp_path / "spool") == []
    assert world.telemetry.statistics() == (0, 0, 1, 0)


async def test_many_events_go_at_once_and_few_batches_are_on_their_way(tmp_path: Path, world: World) -> None:
    world.record(1_300)
    await world.turn()
    assert [len(events) for _, events in world.gateway.got] == [200] * 4
    for name, _ in list(world.gateway.got):
        world.telemetry.acknowledged(name)
    await world.turn(5.0)
    assert [len(events) for _, events in world.gateway.got] == [200] * 6 + [100]


async def test_an_unanswered_batch_is_sent_again_later_and_later(tmp_path: Path, world: World) -> None:
    world.record()
    await world.turn()
    await world.turn(5.0)
    sent_at = [world.now]
    while world.now < 900:
        await world.turn(5.0)
        if len(world.gateway.got) > len(sent_at):
            sent_at.append(world.now)
    assert [later - earlier for earlier, later in pairwise(sent_at)] == [30, 60, 120, 240]
    assert len({name for name, _ in world.gateway.got}) == 1


async def test_a_lost_connection_sends_what_was_on_its_way_again(tmp_path: Path, world: World) -> None:
    world.record()
    await world.turn()
    await world.turn(5.0)
    world.gateway.connected = False
    await world.turn(1.0)
    world.gateway.connected = True
    await world.turn(1.0)
    assert len(world.gateway.got) == 2 and world.gateway.got[0] == world.gateway.got[1]


async def test_what_a_process_leaves_behind_the_next_one_sends(tmp_path: Path) -> None:
    gateway = Gateway()
    gateway.connected = False
    first = World(tmp_path, gateway, "first")
    first.record(250)
    await first.turn()
    await first.telemetry.close()
    assert len(files(tmp_path)) == 2
    gateway.connected = True
    touch(tmp_path, WALL_MS / 1000 - 1)
    second = World(tmp_path, gateway, "second")
    await second.turn()
    assert gateway.got == []  # the other one may still live, and send by itself
    touch(tmp_path, WALL_MS / 1000 - 200)
    await second.turn(61.0)
    assert sorted(gateway.keys) == sorted({("first", seq) for seq in range(1, 251)})
    for name, _ in gateway.got:
        second.telemetry.acknowledged(name)
    await second.turn()
    assert files(tmp_path) == []


async def test_a_disk_that_takes_nothing_leaves_the_batch_in_memory(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file where the folder should be")
    world = World(tmp_path / "spool", Gateway())
    world.record(2)
    await world.turn()
    await world.turn(5.0)
    ((name, events),) = world.gateway.got
    assert len(events) == 2
    world.telemetry.acknowledged(name)
    await world.turn()
    assert world.telemetry.statistics().acknowledged == 1


async def test_damaged_batches_are_dropped_and_block_nothing(tmp_path: Path, world: World) -> None:
    for name, content in (("a-1", b"\xff\xff"), ("a-2", b"\x91\x01"), ("a-3", b"")):
        world.spool.write(name, content)
        os.utime(tmp_path / f"{name}.batch", (1.0, 1.0))
    world.record()
    await world.turn()
    await world.turn(5.0)
    await world.turn(5.0)
    await world.turn(5.0)
    assert [len(events) for _, events in world.gateway.got] == [1]
    assert [path.name for path in files(tmp_path)] == [f"{world.gateway.got[0][0]}.batch"]


async def test_samples_are_sent_and_never_written(tmp_path: Path) -> None:
    gateway = Gateway()
    gateway.store_text = True
    world = World(tmp_path, gateway)
    await world.turn()
    assert world.recorder.texts
    from foretype_wire.telemetry import Sample

    sample = Sample(
        session="s1", seq=9, t_ms=WALL_MS, at_ms=0.0, id="i0", shown="i0", prefix="a secret", suffix="", suggestion="x",
        accepted=True,
    )  # fmt: skip
    world.record()
    world.recorder._events.append(sample)  # pyright: ignore[reportPrivateUsage]
    await world.turn()
    await world.turn(5.0)
    ((_, events),) = gateway.got
    assert [event["event"] for event in events] == ["display", "sample"]
    (file,) = files(tmp_path)
    assert b"secret" not in file.read_bytes()


def test_the_oldest_leave_when_there_are_too_many(tmp_path: Path) -> None:
    outbox = Outbox(batches=3)
    assert [outbox.put(name) for name in "abcde"] == [[], [], [], ["a"], ["b"]]
    assert outbox.to_send(0.0) == ["c", "d", "e"] and outbox.statistics() == (0, 3, 0, 2)
    spool = Spool(tmp_path, bytes_most=25)
    for number in range(4):
        spool.write(f"s-{number}", b"x" * 10)
        os.utime(tmp_path / f"s-{number}.batch", (number + 1.0, number + 1.0))
    assert spool.left_behind(older_than_s=1, wall_s=100.0) == ["s-2", "s-3"]
    assert spool.names() == ["s-2", "s-3"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a" * 65, "é"])
def test_a_name_cannot_leave_the_spool(tmp_path: Path, name: str) -> None:
    spool = Spool(tmp_path / "spool")
    with pytest.raises(OSError, match="no name of a batch"):
        spool.write(name, b"")
    assert spool.read(name) is None


def test_a_user_has_one_pseudonym(tmp_path: Path) -> None:
    assert user_in(tmp_path) == ""
    first = user_of(tmp_path / "telemetry")
    assert len(first) == 32 and user_of(tmp_path / "telemetry") == first == user_in(tmp_path / "telemetry")
    assert stat.S_IMODE(os.stat(tmp_path / "telemetry" / "user").st_mode) == 0o600
    (tmp_path / "file").write_text("")
    assert user_of(tmp_path / "file") == ""


def test_the_branch_of_a_file(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {tmp_path / '.git'}\n")
    for file in (tmp_path / "a b.py", tmp_path / "tree" / "c.py"):
        assert head_of(file.as_uri()) == "ref: refs/heads/main"
    assert head_of("untitled:1") == head_of("file:///none/x.py") == ""


async def test_a_tick_that_ends_before_its_thread_began_loses_nothing(tmp_path: Path, world: World) -> None:
    world.gateway.connected = False
    world.record(450)
    busy, asked = threading.Event(), asyncio.Event()

    class Pool(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            asked.set()
            return super().submit(*args, **kwargs)

    pool = Pool(1)
    pool.submit(busy.wait)
    asked.clear()
    asyncio.get_running_loop().set_default_executor(pool)
    task = asyncio.create_task(world.telemetry.tick())
    await asked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    busy.set()
    await world.telemetry.close()
    kept = [event for name in world.spool.names() for event in msgspec.msgpack.decode(world.spool.read(name) or b"")]
    assert {event["seq"] for event in kept} == set(range(1, 451))


async def test_closing_while_a_tick_runs_keeps_everything(tmp_path: Path, world: World) -> None:
    world.gateway.connected = False
    task = asyncio.create_task(world.telemetry.run())
    world.record(450)
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await world.telemetry.close()
    kept: list[dict[str, Any]] = []
    for name in world.spool.names():
        kept += msgspec.msgpack.decode(world.spool.read(name) or b"")
    assert sorted({event["seq"] for event in kept}) == list(range(1, 451))


async def test_what_has_nothing_to_do_rests_until_an_event_or_a_connection_wakes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "TICK_S", 0.001)
    monkeypatch.setattr(sender, "REST_S", 3_600.0)
    world = World(tmp_path / "spool", Gateway())
    turns = 0

    def turned() -> int:
        nonlocal turns
        turns += 1
        world.now += 3.0
        return WALL_MS + int(world.now * 1000)

    monkeypatch.setattr(world.telemetry, "_wall_ms", turned)
    running = asyncio.create_task(world.telemetry.run())

    async def rested() -> int:
        """Turns until it rests; it never would if each turn were followed by another one."""
        while True:
            before = turns
            await asyncio.sleep(0.1)
            if turns == before:
                return turns

    try:
        at_first = await rested()
        world.record()
        while not world.gateway.got:  # noqa: ASYNC110 - the stand-in tells nobody
            await asyncio.sleep(0.005)
        world.telemetry.acknowledged(world.gateway.got[0][0])
        later = await rested()
        assert later > at_first
        world.gateway.connected = False
        world.woken.set()  # as a session tells that its connection went
        assert await rested() > later
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
