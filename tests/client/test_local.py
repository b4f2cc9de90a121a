# ruff: noqa: ASYNC240 - these tests are about processes and files
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client.wire_server import WireServer
from foretype_client.errors import GatewayStartError
from foretype_client.private_gateway.finding import find_gateway
from foretype_client.private_gateway.starting import ensure_gateway, replace_gateway
from foretype_wire.announcement import Announcement

FAKE = (sys.executable, str(Path(__file__).with_name("fake_gateway.py")))


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "state"
    yield directory
    for pid in started(directory):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def started(state_dir: Path) -> list[int]:
    try:
        return [int(line) for line in (state_dir / "starts").read_text().split()]
    except FileNotFoundError:
        return []


def ensure(state_dir: Path, **options: Any) -> Any:
    return ensure_gateway(state_dir, clock=time.monotonic, command=FAKE, **options)


def write_record(state_dir: Path, **fields: Any) -> None:
    state_dir.mkdir(exist_ok=True)
    record = {"pid": os.getpid(), "host": "127.0.0.1", "port": 9, "token": "old", "version": "1", "started": 1.0}
    (state_dir / "gateway.json").write_text(json.dumps(record | fields))


async def test_one_is_started_then_joined(state_dir: Path) -> None:
    first = await ensure(state_dir, model=Path("relative.gguf"))
    second = await ensure(state_dir)
    assert first == second
    assert len(started(state_dir)) == 1
    assert json.loads((state_dir / "gateway.json").read_text())["model"] == os.path.abspath("relative.gguf")
    assert (state_dir / "gateway.log").stat().st_mode & 0o777 == 0o600
    assert state_dir.stat().st_mode & 0o777 == 0o700


def test_language_servers_that_start_at_the_same_instant_share_one(state_dir: Path) -> None:
    script = (
        "import asyncio, sys, time; from pathlib import Path; from foretype_client.private_gateway.starting import ensure_gateway\n"
        "endpoint = asyncio.run(ensure_gateway(Path(sys.argv[1]), clock=time.monotonic, command=sys.argv[2:]))\n"
        "print(endpoint.url, endpoint.token)"
    )
    servers = [
        subprocess.Popen([sys.executable, "-c", script, str(state_dir), *FAKE], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = {server.communicate(timeout=60)[0] for server in servers}
    assert [server.returncode for server in servers] == [0] * 4
    assert len(answers) == 1
    assert len(started(state_dir)) == 1
    # Their starters have ended, and the gateway lives on.
    record = asyncio.run(find_gateway(state_dir))
    assert f"{record.stream_url} {record.token}\n" in answers


@pytest.mark.parametrize(
    "content",
    ["", "{}", "not json", '{"pid": "x"}', "[1]", '{"pid": 99999999, "host": "h", "port": 1, "token": "t"}'],
)
async def test_a_record_that_cannot_be_used_is_replaced(state_dir: Path, content: str) -> None:
    state_dir.mkdir()
    (state_dir / "gateway.json").write_text(content)
    assert await find_gateway(state_dir) is None
    await ensure(state_dir)
    assert len(started(state_dir)) == 1


async def test_a_process_id_that_was_used_again_is_not_a_gateway(state_dir: Path) -> None:
    write_record(state_dir, pid=os.getpid())  # alive, but nothing listens on the port
    await ensure(state_dir)
    assert len(started(state_dir)) == 1


async def test_a_port_that_was_used_again_is_not_this_users_gateway(state_dir: Path) -> None:
    async with WireServer(token="another user's") as stranger:
        write_record(state_dir, port=stranger.port, token="mine")
        endpoint = await ensure(state_dir)
        assert endpoint.url != stranger.url
        assert len(started(state_dir)) == 1


async def test_a_record_that_others_could_have_written_is_not_followed(state_dir: Path) -> None:
    async with WireServer(token="mine") as stranger:
        write_record(state_dir, port=stranger.port, token="mine")
        (state_dir / "gateway.json").chmod(0o666)
        assert await find_gateway(state_dir) is None
        (state_dir / "gateway.json").chmod(0o600)
        assert await find_gateway(state_dir) is not None


async def test_a_start_that_fails_says_the_last_words(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GATEWAY", "fail")
    with pytest.raises(GatewayStartError, match=r"(?s)status 3.*model file is not there.*gateway\.log"):
        await ensure(state_dir)
    monkeypatch.setenv("FAKE_GATEWAY", "")
    await ensure(state_dir)  # the lock was released


async def test_a_start_that_hangs_is_stopped_and_says_the_last_words(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GATEWAY", "hang")
    now = 0.0

    def clock() -> float:
        nonlocal now
        words = state_dir / "gateway.log"
        now += 1000.0 if words.exists() and "still loading" in words.read_text() else 0.0
        return now

    with pytest.raises(GatewayStartError, match=r"(?s)not ready in time.*still loading"):
        await ensure_gateway(state_dir, clock=clock, command=FAKE, timeout_s=10.0)


async def test_a_program_that_is_not_there_is_named(state_dir: Path) -> None:
    with pytest.raises(GatewayStartError, match="no-such-program"):
        await ensure_gateway(state_dir, clock=time.monotonic, command=["/no-such-program"])


def test_the_token_is_never_printed() -> None:
    record = Announcement(pid=1, host="::1", port=5, token="secret")
    assert "secret" not in f"{record!r} {record}"
    assert record.stream_url == "ws://[::1]:5/v1/stream"


# A model that the user chose


def recorded(state_dir: Path) -> dict[str, Any]:
    return json.loads((state_dir / "gateway.json").read_text())


async def test_a_gateway_is_started_with_the_profile_that_the_user_chose(state_dir: Path) -> None:
    state_dir.mkdir()
    (state_dir / "private.toml").write_text("")
    await ensure(state_dir)
    assert recorded(state_dir)["profile"] == str(state_dir / "private.toml")


async def test_a_model_that_is_named_wins_over_the_choice(state_dir: Path) -> None:
    state_dir.mkdir()
    (state_dir / "private.toml").write_text("")
    await ensure(state_dir, model=Path("other.gguf"))
    assert recorded(state_dir)["profile"] == "None"


async def test_a_choice_that_cannot_be_served_is_one_sentence(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GATEWAY", "refuse")
    state_dir.mkdir()
    (state_dir / "private.toml").write_text("")
    with pytest.raises(GatewayStartError) as raised:
        await ensure(state_dir)
    assert str(raised.value) == "engine.model: /gone.gguf: no such file; or choose another model: `foretype use`"


async def test_a_gateway_is_replaced_by_one_that_is_ready(state_dir: Path) -> None:
    first = await ensure(state_dir)
    (state_dir / "private.toml").write_text("")
    record = await replace_gateway(state_dir, clock=time.monotonic, command=FAKE)
    assert record is not None and record.stream_url != first.url
    assert (await ensure(state_dir)).url == record.stream_url
    assert len(started(state_dir)) == 2


async def test_a_replacement_that_fails_leaves_the_one_that_runs(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await ensure(state_dir)
    monkeypatch.setenv("FAKE_GATEWAY", "fail")
    with pytest.raises(GatewayStartError):
        await replace_gateway(state_dir, clock=time.monotonic, command=FAKE)
    assert (await ensure(state_dir)) == first


async def test_nothing_runs_so_nothing_is_replaced(state_dir: Path) -> None:
    assert await replace_gateway(state_dir, clock=time.monotonic, command=FAKE) is None
    assert started(state_dir) == []


@pytest.mark.parametrize("there", ["state", "state/gateway.lock"])
async def test_a_state_directory_that_cannot_be_written_is_told_with_what_to_do(tmp_path: Path, there: str) -> None:
    in_the_way = tmp_path / there
    in_the_way.mkdir(parents=True) if there.endswith("lock") else in_the_way.write_text("no folder")
    with pytest.raises(GatewayStartError, match=r"state cannot be written \(.+\): name another one with --state-dir"):
        await ensure(tmp_path / "state")
