"""A token is for the gateway alone: not for who reads the network, a list of processes, a message or a log."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from e2e.lsp_support import editor
from foretype_client.chat import stream_chat
from foretype_client.commands import cli
from foretype_client.errors import TokenizerFetchError
from foretype_client.ports import Endpoint
from foretype_client.session.tokenizers import TokenizerStore
from foretype_wire.credentials import keep_secret
from foretype_wire.errors import GatewayGoneError, TokenInClearError
from typer.testing import CliRunner

TOKEN = "sesame-open-up-please"
ELSEWHERE = "0.0.0.0"  # reaches this machine, and is no address of it that a client knows
COMMANDS = {
    "complete": ("complete", "a.py:1:1"),
    "explain": ("explain", "a.py:1:1"),
    "demo": ("demo", "a.py"),
    "doctor": ("doctor",),
    "bench": ("bench", "latency"),
}


class Wire:
    """Somebody on the network: keeps what comes in clear and hangs up."""

    def __init__(self) -> None:
        self.port = 0
        self.heard: list[bytes] = []
        self.came = asyncio.Event()

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.readuntil(b"\r\n\r\n"))
        self.came.set()
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    def url(self, host: str = ELSEWHERE) -> str:
        return f"ws://{host}:{self.port}/v1/stream"


@asynccontextmanager
async def listening() -> AsyncGenerator[Wire]:
    wire = Wire()
    server = await asyncio.start_server(wire.hear, ELSEWHERE, 0)
    wire.port = server.sockets[0].getsockname()[1]
    async with server:
        yield wire


async def foretype(folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Exit code and all that a command said."""
    (folder / "a.py").write_text("x = 1\n")
    command = [str(Path(sys.executable).with_name("foretype")), *words]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
async def test_no_command_sends_a_token_in_clear_to_another_machine_unless_it_is_told_to(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    async with listening() as wire:
        given = (*command, "--gateway", wire.url(), "--token-file", str(tmp_path / "token"))
        code, said = await foretype(tmp_path, *given)
        assert code in (1, 2) and wire.heard == []
        assert "use wss://" in said and "FORETYPE_TOKEN_IN_CLEAR=1" in said
        await foretype(tmp_path, *given, FORETYPE_TOKEN_IN_CLEAR="1")
        assert f"Authorization: Bearer {TOKEN}".encode() in wire.heard[0]
        assert TOKEN not in said


@pytest.mark.slow
async def test_a_user_and_a_password_in_the_address_are_a_token_too(tmp_path: Path) -> None:
    async with listening() as wire:
        url = f"ws://anna:{TOKEN}@{ELSEWHERE}:{wire.port}/v1/stream"
        code, said = await foretype(tmp_path, "doctor", "--gateway", url)
        assert code == 1 and wire.heard == [] and "use wss://" in said and TOKEN not in said
        await foretype(tmp_path, "doctor", "--gateway", wire.url())  # without any it is nothing to keep
        assert b"Authorization" not in wire.heard[0]


@pytest.mark.slow
async def test_the_language_server_says_why_it_does_not_connect_and_what_to_do(tmp_path: Path) -> None:
    async with listening() as wire:
        options = {"gatewayUrl": wire.url(), "token": TOKEN}
        async with editor(tmp_path, options=options, ready=False) as it:
            told = await it.until("degraded")
            assert "use wss://" in told["detail"] and "tokenInClear" in told["detail"]
            assert wire.heard == []
        async with editor(tmp_path, options={**options, "tokenInClear": True}, ready=False) as it:
            await wire.came.wait()
            assert f"Authorization: Bearer {TOKEN}".encode() in wire.heard[0]
        assert TOKEN not in (tmp_path / "lsp.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["status", "prefix show", "prefix purge"])
async def test_an_operators_command_keeps_its_key_to_itself_too(tmp_path: Path, ask: str) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    async with listening() as wire:
        given = (*ask.split(), "--gateway", f"http://{ELSEWHERE}:{wire.port}", "--token-file", str(tmp_path / "token"))
        code, said = await foretype(tmp_path, *given)
        assert code in (1, 2) and wire.heard == [] and "use https://" in said
        await foretype(tmp_path, *given, FORETYPE_TOKEN_IN_CLEAR="1")
        assert f"Bearer {TOKEN}".encode() in wire.heard[0]


async def test_nothing_else_that_asks_a_gateway_sends_it_in_clear(tmp_path: Path) -> None:
    async with listening() as wire:
        endpoint = Endpoint(wire.url(), TOKEN)
        with pytest.raises(GatewayGoneError, match="use wss://"):
            await anext(stream_chat(endpoint, [], template="t", max_tokens=1))
        with pytest.raises(TokenizerFetchError, match="use wss://"):
            await TokenizerStore(tmp_path).fetch(endpoint, "0" * 32)
        assert wire.heard == []


@pytest.mark.parametrize(
    "url", ["wss://team.example/v1/stream", "ws://127.0.0.1:9/v1/stream", "ws://[::1]:9/", "ws://localhost/"]
)
def test_over_tls_and_inside_this_machine_it_may_go(url: str) -> None:
    keep_secret(url, TOKEN, in_clear=False)


@pytest.mark.parametrize(
    "url",
    [
        "ws://team.example/",
        "ws://10.0.0.1/",
        "http://team.example",
        "ws://127.0.0.1.example/",
        "ws://localhost.example/",
    ],
)
def test_to_a_name_that_only_looks_like_this_machine_it_may_not(url: str) -> None:
    with pytest.raises(TokenInClearError):
        keep_secret(url, TOKEN, in_clear=False)


@pytest.mark.parametrize("command", ["complete", "explain", "demo", "doctor", "status", "lsp"])
def test_a_token_is_no_argument_of_any_command(command: str) -> None:
    """Every user of a machine can list what its processes were started with."""
    done = CliRunner().invoke(cli.app, [command, "--token", TOKEN])
    assert done.exit_code == 2 and "No such option" in done.stderr


@pytest.mark.parametrize("content", [None, "", "\n", b"\xff"])
def test_a_token_file_that_holds_none_is_bad_input(tmp_path: Path, content: str | bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    command = ["doctor", "--gateway", "ws://127.0.0.1:9/v1/stream", "--token-file", str(file)]
    done = CliRunner(env={"COLUMNS": "1000"}).invoke(cli.app, command)
    assert done.exit_code == 2 and "--token-file" in done.output and str(file) in done.output


@pytest.mark.slow
async def test_no_message_quotes_an_address_with_its_password(tmp_path: Path) -> None:
    """Where it is tried, refused, or answers nonsense; `doctor` asks by every way there is."""
    async with listening() as wire:
        for host in ("127.0.0.1", ELSEWHERE):
            url = f"ws://anna:{TOKEN}@{host}:{wire.port}/v1/stream?key={TOKEN}"
            for command in COMMANDS.values():
                _, said = await foretype(tmp_path, *command, "--gateway", url, FORETYPE_TOKEN_IN_CLEAR="1")
                assert TOKEN not in said and "anna" not in said, said
        for words in (("status",), ("prefix", "show")):
            url = f"http://anna:{TOKEN}@127.0.0.1:{wire.port}"
            _, said = await foretype(tmp_path, *words, "--gateway", url)
            assert TOKEN not in said and "anna" not in said, said
    endpoint = Endpoint(f"ws://anna:{TOKEN}@127.0.0.1:9/v1/stream", TOKEN)
    assert TOKEN not in repr(endpoint)
    with pytest.raises(TokenizerFetchError) as caught:
        await TokenizerStore(tmp_path).fetch(endpoint, "0" * 32)
    assert TOKEN not in str(caught.value)
