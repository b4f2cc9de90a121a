"""Text that clients, folders and models made up is printed by our commands, and no terminal acts on it."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from client.wire_server import WireServer
from context.test_terminal import HOSTILE, acts
from e2e.test_lsp_context import PROFILE, TOKENIZER
from foretype_wire.messages import Delta, Done, Finish
from json_server import json_server

pytestmark = pytest.mark.slow  # whole processes

FORETYPE = str(Path(sys.executable).parent / "foretype")
NAME = "a\x1b]0;owned\x07[red]b\n\u202ec.py"


async def foretype(folder: Path, *arguments: str) -> tuple[int | None, str]:
    """A command's exit code and all it prints, in wide lines."""
    environment = {**os.environ, "COLUMNS": "300", "XDG_CACHE_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        FORETYPE,
        *arguments,
        env=environment,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 300)
    return process.returncode, said.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / NAME).write_text(f"def total():\n    return 1  # {HOSTILE.replace(chr(13), '')}\n")
    return tmp_path


async def test_what_a_model_says_and_a_file_is_called_is_shown(folder: Path) -> None:
    async def behave(peer, message):
        await peer.send(Delta(id=message.id, text=f"1 + {HOSTILE}", tokens=2))
        await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE))

    async with WireServer(behave, profile=PROFILE) as server:
        server.tokenizer = TOKENIZER
        place = f"{folder / NAME}:2:12"
        for command in ("complete", "explain"):
            code, said = await foretype(folder, command, place, "--gateway", server.url)
            assert code == 0 and not acts(said), said
        assert "␛]0;owned" in said or "\\x1b]0;owned" in said
        code, said = await foretype(folder, "complete", place, "--json", "--gateway", server.url)
        assert not acts(said) and "1 + a\x1b" in json.loads(said.splitlines()[-1])["text"]
    code, said = await foretype(folder, "complete", f"{folder / NAME}:99:1", "--gateway", "ws://127.0.0.1:9/v1/stream")
    assert code == 2 and not acts(said) and "[red]b" in said


async def test_what_is_indexed_and_found_is_shown(folder: Path) -> None:
    assert (await foretype(folder, "index", str(folder)))[0] == 0
    code, said = await foretype(folder, "search", "total", "--root", str(folder))
    assert code == 0 and not acts(said)
    assert "a␛]0;owned␇[red]b␊\ufffdc.py:1  total" in said and said.count("\n") == 1


async def test_names_that_clients_gave_are_shown_to_an_operator(tmp_path: Path) -> None:
    row = {
        "document": HOSTILE,
        "scope": HOSTILE,
        "tokens": 1,
        "retired_blocks": 0,
        "sessions": 1,
        "replicas": [HOSTILE],
    }
    replicas = {HOSTILE: {"standing": HOSTILE, "reason": HOSTILE}}
    answer = {
        "tokens": 1,
        "block_tokens": 16,
        "documents": [row | {"since_s": 1, "last_used_s": 1}],
        "replicas": replicas,
        "sharing": [{"repository": HOSTILE, "teams": [HOSTILE], "apart": [HOSTILE]}],
    }
    with json_server(lambda *_: answer) as url:
        code, said = await foretype(tmp_path, "prefix", "show", "--gateway", url)
        assert code == 0 and not acts(said) and "[red]" in said
        code, said = await foretype(tmp_path, "prefix", "show", "--json", "--gateway", url)
        assert code == 0 and not acts(said) and json.loads(said) == answer
