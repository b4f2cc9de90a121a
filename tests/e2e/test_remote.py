"""A folder that is another user's: the server runs where the files are, as that user, and the editor is at the other end of a pipe.

So do editors by SSH and in containers. Here a second user of this machine stands for the other machine: `runuser` for
`ssh HOST foretype lsp`, and a socket of theirs that each connection to starts a server (what `socat` or systemd do) for a forwarded one.
"""

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from e2e.lsp_support import DEADLINE_S, SCRIPTED, RawEditor

pytestmark = pytest.mark.slow  # whole processes

ROOT = Path(__file__).parents[2]
ROOMS = ("wire", "client", "context", "retrieval", "lsp_server", "backend", "eval", "models")
SOURCE = "def total(values):\n    result = \n    return result\n"
LISTEN = """
import os, socket, subprocess, sys
path, *command = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(path + ".new")
    listening.listen()
    os.rename(path + ".new", path)
    connection, _ = listening.accept()
    with connection:
        sys.exit(subprocess.run(command, stdin=connection, stdout=connection).returncode)
"""


@pytest.fixture(scope="module")
def second():
    """Another user of this machine, with a folder that nobody else may look into; gone in the end, with all that is theirs."""
    if os.getuid() != 0:
        pytest.skip("a second user is made by root")
    useradd, userdel = (shutil.which(each, path=f"{os.environ['PATH']}:/usr/sbin") for each in ("useradd", "userdel"))
    name = f"foretype-{uuid.uuid4().hex[:8]}"
    if useradd is None or subprocess.run([useradd, "--create-home", name], check=False, capture_output=True).returncode:
        pytest.skip("no user can be made here")
    user = pwd.getpwnam(name)
    try:
        Path(user.pw_dir).chmod(0o700)
        yield user
    finally:
        for process in psutil.process_iter(["uids"]):
            if process.info["uids"] and process.info["uids"].real == user.pw_uid:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGTERM)
                    process.wait(DEADLINE_S)
        subprocess.run([userdel, "--remove", name], check=True, capture_output=True)


def as_user(user, *command):
    """The command, run by them with an environment of their own."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    path = os.pathsep.join([*(str(ROOT / room) for room in ROOMS), packages])
    env = (f"HOME={user.pw_dir}", f"PYTHONPATH={path}", "PYTHONDONTWRITEBYTECODE=1", "PATH=/usr/bin:/bin")
    runuser = shutil.which("runuser", path=f"{os.environ['PATH']}:/usr/sbin")
    return [runuser, "-u", user.pw_name, "--", "env", "-i", "-C", user.pw_dir, *env, *map(str, command)]


@pytest.fixture(scope="module")
def python(second):
    """A Python of this version that they may run, too, with the packages of these tests."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        tried = as_user(second, found, "-c", "import foretype_lsp.cli, foretype_backend, uvicorn")
        if Path(found).exists() and not subprocess.run(tried, check=False, capture_output=True).returncode:
            return found
    pytest.skip(f"another user can run no {version} with the packages of this environment (its files are in a home?)")


@contextlib.asynccontextmanager
async def by_pipe(user, *command):
    process = await asyncio.create_subprocess_exec(
        *as_user(user, *command), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield RawEditor(process)
    finally:
        process.stdin.close()
        async with asyncio.timeout(DEADLINE_S):
            await process.wait()


@contextlib.asynccontextmanager
async def by_socket(user, python, *command):
    path = Path(user.pw_dir) / "lsp.sock"
    listening = await asyncio.create_subprocess_exec(*as_user(user, python, "-c", LISTEN, path, python, *command))
    async with asyncio.timeout(DEADLINE_S):
        while not path.exists():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield RawEditor(SimpleNamespace(stdin=writer, stdout=reader))
    finally:
        writer.close()
        async with asyncio.timeout(DEADLINE_S):
            await listening.wait()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("over", ["a pipe", "a socket"])
async def test_the_server_of_another_user_reads_their_files_and_completes_over(over, second, python):
    home = Path(second.pw_dir)
    state, work = home / f"state of {over}", home / "work"
    for folder in (state, work):
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, second.pw_uid, second.pw_gid)
    (state / "private.toml").write_text(SCRIPTED.format(decode_s=0.0, prefill_s=0.0))
    (file := work / "sums.py").write_text(SOURCE)
    (work / "other.py").write_text("def average(values):\n    return sum(values) / len(values)\n")
    for path in (state / "private.toml", file, work / "other.py"):
        path.chmod(0o600)
        os.chown(path, second.pw_uid, second.pw_gid)
    command = ("-P", "-m", "foretype_lsp", "--state-dir", state)
    async with by_pipe(second, python, *command) if over == "a pipe" else by_socket(second, python, *command) as editor:
        # The number of the editor's process is one of its own machine: here it is nobody's.
        params = {
            "processId": 2**22 + 1,
            "capabilities": {},
            "workspaceFolders": [{"uri": work.as_uri(), "name": "work"}],
        }
        editor.send(id=0, method="initialize", params=params)
        await editor.answer(0)
        editor.send(method="initialized", params={})
        editor.open(SOURCE, uri=file.as_uri())
        await editor.until_ready()
        place = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 1, "character": 13}}
        editor.send(id=1, method="textDocument/inlineCompletion", params={**place, "context": {"triggerKind": 1}})
        (item,) = (await editor.answer(1))["result"]["items"]
        assert item["insertText"].startswith("result = ")
        # What nobody else may read is indexed, and the gateway is theirs.
        for asked in range(2, 3_000):
            editor.send(id=asked, method="foretype/status", params={})
            if "work: 2 definitions, ready" in (said := (await editor.answer(asked))["result"]["index"]):
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail(said)
        gateway = psutil.Process(json.loads((state / "gateway.json").read_bytes())["pid"])
        assert gateway.uids().real == second.pw_uid
        assert (state / "gateway.json").stat().st_mode & 0o077 == 0
