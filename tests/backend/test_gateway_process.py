"""`foretype serve` as a process: ready line, private mode, signals, refusals."""

import asyncio
import contextlib
import json
import os
import signal
import socket as socket_module
import stat
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import connected
from backend.tiny_gguf import write_tiny_gguf
from foretype_backend.config.config import Config
from foretype_backend.config.settings import GatewayConfig
from foretype_backend.transport.sockets import bind
from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_models.artifacts import FOLDER
from foretype_wire.messages import GatewayMessage, Goaway, Hello
from msgspec import msgpack
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

SERVE = (sys.executable, "-m", "foretype_backend", "serve", "--engine", "scripted")


@contextlib.asynccontextmanager
async def serving(
    *arguments: str,
    command: Sequence[str] = SERVE,
    scheme: str = "http",
    log: int = asyncio.subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """A gateway process and the URL of its ready line."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, *arguments, stdout=pipe, stderr=log, env=env)
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode().strip()
        assert line.startswith(f"ready {scheme}://"), line
        yield process, line.removeprefix("ready ")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def refused(*arguments: str, command: Sequence[str] = SERVE) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 2
    assert out == b""
    return err.decode()


async def test_ready_means_that_the_first_request_is_served() -> None:
    async with serving("--port", "0") as (process, url), httpx.AsyncClient(trust_env=False, timeout=60) as http:
        answer = await http.post(f"{url}/v1/completions", json={"prompt": "def f(", "suffix": ")\n", "max_tokens": 8})
        assert answer.json()["choices"][0]["text"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_private_gateway_announces_itself_to_its_user_alone(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with serving("--private", "--state-dir", str(state)) as (process, url):
        file = state / "gateway.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        found = json.loads(file.read_text())
        assert found["pid"] == process.pid
        assert url == f"http://{found['host']}:{found['port']}"
        assert set(found) == {"pid", "host", "port", "token", "version", "started"}
        headers = {"Authorization": f"Bearer {found['token']}"}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            assert (await http.get(f"{url}/healthz", headers=headers)).json()["authorized"] is True
            assert (await http.get(f"{url}/v1/models")).status_code == 401
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert list(state.iterdir()) == []


@pytest.mark.slow
async def test_a_pool_for_blocks_alone_that_is_away_is_told_in_one_line(tmp_path: Path) -> None:
    profile = tmp_path / "team.toml"
    pool = {"url": "http://127.0.0.1:9/v1", "tokenizer": str(FOLDER / "tokenizer.json"), "grammar": "foretype-1"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in pool.items()]
    profile.write_text("\n".join(["[pool.quality]", *lines, "block_fails_over = false"]))
    error = await refused("--profile", str(profile), "--port", "0", "--state-dir", str(tmp_path))
    assert error.splitlines()[-1].startswith("foretype serve: pool.quality.url: ") and "Traceback" not in error


async def test_an_engine_whose_caches_nobody_keeps_apart_ends_the_start(tmp_path: Path) -> None:
    arguments = ("--engine", "embedded", "--identity-url", str(tmp_path / "i.db"), "--state-dir", str(tmp_path))
    error = await refused(*arguments, "--port", "0")
    assert error.startswith("foretype serve: identity.enabled: ") and "Traceback" not in error


@pytest.mark.slow
async def test_two_starts_have_two_tokens(tmp_path: Path) -> None:
    tokens: set[str] = set()
    for _ in range(2):
        async with serving("--private", "--state-dir", str(tmp_path)) as (process, _):
            tokens.add(json.loads((tmp_path / "gateway.json").read_text())["token"])
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    assert len(tokens) == 2


@pytest.mark.slow
async def test_a_private_gateway_ends_after_the_last_connection_left(tmp_path: Path) -> None:
    linger_s = 15.0  # within which a busy machine connects
    async with serving("--private", "--state-dir", str(tmp_path), "--linger-s", str(linger_s)) as (process, url):
        token = json.loads((tmp_path / "gateway.json").read_text())["token"]
        stream = url.replace("http", "ws") + "/v1/stream"
        options: dict[str, Any] = {"additional_headers": {"Authorization": f"Bearer {token}"}, "proxy": None}
        async with connect(stream, open_timeout=60, **options) as one:
            async with connect(stream, open_timeout=60, **options):
                pass
            await one.send(msgpack.encode(Hello(v=1)))
            await one.recv()
            await asyncio.sleep(linger_s + 0.5)  # one connection is enough to stay
            assert process.returncode is None
            await (await one.ping())
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert not (tmp_path / "gateway.json").exists()


@pytest.mark.slow
async def test_the_file_of_a_successor_is_left_alone(tmp_path: Path) -> None:
    async with serving("--private", "--state-dir", str(tmp_path)) as (process, _):
        file = tmp_path / "gateway.json"
        other = json.loads(file.read_text()) | {"token": "of-the-successor"}
        file.write_text(json.dumps(other))
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert json.loads(file.read_text()) == other


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--host", "0.0.0.0"), "--token-file"),
        (("--private",), "--state-dir"),
        (("--engine", "vllm"), "model.tokenizer"),
        (("--engine", "nonsense"), "engine"),
        (("--profile", "/no/such.toml"), "/no/such.toml"),
    ],
)
async def test_what_cannot_be_served_is_refused_with_the_remedy(arguments: tuple[str, ...], told: str) -> None:
    message = await refused(*arguments)
    assert told in message
    assert "Traceback" not in message


@pytest.mark.slow
async def test_a_port_in_use_is_refused_with_the_remedy() -> None:
    async with serving("--port", "0") as (_, url):
        message = await refused("--port", url.rpartition(":")[2])
        assert "--port" in message
        assert "Traceback" not in message


def test_the_announcement_appears_whole(tmp_path: Path) -> None:
    from foretype_backend.start.announcement import announced

    with announced(tmp_path, host="127.0.0.1", port=1, token="t", version="0") as path:
        assert json.loads(path.read_text())["pid"] == os.getpid()
        assert [entry.name for entry in tmp_path.iterdir()] == ["gateway.json"]
    assert list(tmp_path.iterdir()) == []


def test_a_gateway_sees_that_another_has_taken_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from foretype_backend.start.announcement import StillAnnounced, announced

    found, reads, read_bytes = StillAnnounced(tmp_path, "t"), [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path) or read_bytes(path))
    assert not found()
    with announced(tmp_path, host="127.0.0.1", port=1, token="t", version="0") as path:
        assert found() and found() and found()
        assert len(reads) == 1  # asked all day
        path.write_text("half")
        assert found()  # whatever it is, it ends nobody's gateway
        with announced(tmp_path, host="127.0.0.1", port=2, token="u", version="0"):
            assert not found() and not found()
    assert not found()


async def test_sigterm_tells_clients_before_it_closes(tmp_path: Path) -> None:
    profile = tmp_path / "gateway.toml"
    profile.write_text("[gateway]\ndrain_s = 0.5\n")  # nobody moves here
    async with serving("--profile", str(profile), "--port", "0") as (process, url):
        async with connect(url.replace("http", "ws") + "/v1/stream", proxy=None, open_timeout=60) as socket:
            await socket.send(msgpack.encode(Hello(v=1)))
            await socket.recv()
            process.send_signal(signal.SIGTERM)
            assert isinstance(msgpack.decode(await socket.recv(), type=GatewayMessage), Goaway)
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        assert await process.wait() == 0


def test_small_frames_never_wait_for_an_acknowledgement() -> None:
    """asyncio sets TCP_NODELAY only on sockets that name their protocol; without it a delta may wait 40 ms."""
    listener = bind(Config(gateway=GatewayConfig(port=0)))
    assert listener.proto == socket_module.IPPROTO_TCP
    listener.close()


@pytest.mark.slow
@pytest.mark.engine
async def test_a_gguf_file_of_the_user_is_served_with_nothing_beside_it(tmp_path: Path) -> None:
    names = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>"]
    model = write_tiny_gguf(tmp_path / "mine.gguf", architecture="qwen2", controls=[*names, "<|file_sep|>"])
    async with (
        serving("--engine", "embedded", "--model", str(model), "--port", "0") as (_, url),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http,
    ):
        health = (await http.get("/health")).json()
        assert (health["status"], health["model"], health["grammar"]) == ("ok", "mine", "qwen2.5-coder")
        body = {"prompt": "def f(", "suffix": "):\n    pass\n", "max_tokens": 4}
        answer = (await http.post("/v1/completions", json=body)).json()
        assert answer["usage"]["prompt_tokens"] == len("def f():\n    pass\n") + 3  # one token for each byte
        async with connected(url, cache_dir=tmp_path / "c") as session:
            profile = session.profile
            assert profile is not None
            tokenizer = tokenizer_from_bytes(await session.tokenizer_json())
            assert tokenizer.digest == profile.tokenizer_digest
            assert tokenizer.count("def f(") == 6


async def test_a_gguf_file_without_a_usable_tokenizer_says_what_to_put_beside_it(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "mine.gguf", pretokenizer="viking")
    error = await refused("--engine", "embedded", "--model", str(model), "--port", "0")
    assert "pre-tokeniser 'viking' is not known" in error
    assert "put its tokenizer.json beside it" in error
