"""The test that leaves something open fails, named with what it left, and its neighbours pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's lists of what is open")

LEAVING = """
import asyncio, os, socket, subprocess, threading
import pytest

KEPT = []

@pytest.fixture(scope="module")
def shared():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server

@pytest.fixture
def own():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server

def test_a_socket():
    KEPT.append(socket.create_server(("127.0.0.1", 0)))
def test_after_it(): pass
def test_a_socket_by_a_skip():
    server = socket.create_server(("127.0.0.1", 0))
    KEPT.append(server)
    pytest.skip("in the middle")
def test_a_socket_that_nobody_refers_to():
    holds = [socket.create_server(("127.0.0.1", 0))]
    holds.append(holds)
def test_after_that(): pass
def test_a_file(tmp_path):
    KEPT.append(open(tmp_path / "left.txt", "w"))
def test_a_thread():
    threading.Thread(target=threading.Event().wait, name="forgotten", daemon=True).start()
def test_a_process():
    KEPT.append(subprocess.Popen(["sleep", "60"]))
def test_a_process_whose_parent_has_ended():
    subprocess.run(["sh", "-c", "sleep 61 > /dev/null 2>&1 &"], check=True)
def test_a_variable():
    os.environ["FORGOTTEN"] = "1"
def test_a_variable_for_a_while(monkeypatch):
    monkeypatch.setenv("FORGOTTEN", "1")
async def test_a_task():
    KEPT.append(asyncio.create_task(asyncio.sleep(60), name="forgotten task"))
async def test_a_task_that_was_cancelled_is_none():
    asyncio.create_task(asyncio.sleep(60)).cancel()
def test_what_a_fixture_closes(own): pass
def test_what_tests_share(shared): pass
def test_what_tests_share_and_one_asks_for_late(request): request.getfixturevalue("shared")
@pytest.fixture(scope="module", autouse=True)
def over():
    yield
    for one in KEPT:
        one.kill() if isinstance(one, subprocess.Popen) else getattr(one, "close", str)()
        isinstance(one, subprocess.Popen) and one.wait()
"""
LEAVERS = {
    "test_a_socket": "AF_INET ('127.0.0.1', ",
    "test_a_socket_by_a_skip": "AF_INET ('127.0.0.1', ",
    "test_a_socket_that_nobody_refers_to": "socket:[",
    "test_a_file": "left.txt",
    "test_a_thread": "thread 'forgotten'",
    "test_a_process": "sleep 60",
    "test_a_process_whose_parent_has_ended": "sleep 61",
    "test_a_variable": "FORGOTTEN",
    "test_a_task": "forgotten task",
}


def told(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-p",
        "no:schemathesis",
        "-rA",
        "-v",
        *arguments,
    ]
    # Options of the run that this is a part of are not this one's: it has no cache to be told a folder for.
    env = {**os.environ, "PYTEST_ADDOPTS": "", **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_test_that_leaves_something_fails_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_leaving.py").write_text(LEAVING)
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['leftovers']\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    said = told(cwd=tmp_path, LEFTOVERS_GRACE_S="0.2", PYTHONPATH=str(HERE))
    failed = dict(re.findall(r"^ERROR \S+::(\w+)(?:\[\w+\])? - (.*)$", said, re.MULTILINE))
    assert set(failed) == set(LEAVERS), said
    for name, what in LEAVERS.items():
        assert re.search(rf"test_leaving.py::{name} leaves .*{re.escape(what)}", said), said


def test_a_probe_that_is_skipped_without_redis_leaves_no_replica(tmp_path: Path) -> None:
    """It was this one: its server's socket was collected in the test after it, which failed."""
    said = told(ROOT / "tests/backend/test_start_probe.py", "-k", "a_team_that_is_there", cwd=ROOT, PATH=str(tmp_path))
    assert "1 skipped" in said and "error" not in said.lower().splitlines()[-1], said
