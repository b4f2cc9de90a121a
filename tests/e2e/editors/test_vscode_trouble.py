"""VS Code when something is wrong: one editor, whose settings are wrong in one way after the other, and then right.

In each case the status item says what is wrong and what to do, nothing pops up, nothing is tried again and again, and keys are keys.
"""

import json
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from e2e.editors.test_vscode import MISSING, PLAIN, QUIET, launcher
from e2e.editors.vscode_support import VsCode
from e2e.lsp_support import gateway

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

SOURCE = "values = [1]"
# Nothing in it begins as what is typed does, so the candidate is the engine's.
LARGE = 'print("a line of a file that somebody generated")\n' * 200_000
CELL = {"cell_type": "code", "id": "one", "execution_count": None, "metadata": {}, "outputs": [], "source": ["x = 1"]}
NOTEBOOK = {
    "cells": [CELL],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
NO_INDEX = {
    "PIP_CONFIG_FILE": "/dev/null",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_RETRIES": "0",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="module")
def vscode(served, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vscode")
    with closing(
        VsCode(folder, SOURCE, {**QUIET, **configured("/no/such/foretype")}, env_more={**NO_INDEX, **PLAIN})
    ) as it:
        it.folder, it.launcher = folder, launcher(folder, served.url)
        it.do("focus")
        yield it


def configured(server="", python=""):
    return {"foretype.server.path": str(server), "foretype.python.path": str(python)}


def program(file, script):
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def status(vscode):
    return vscode.do("status") or ""


def says(vscode, *words):
    """Wait until the status item is degraded and says all this; then keys are typed, and only they are in the buffer."""
    wanted = ("degraded", *words)
    vscode.until(lambda: all(word in status(vscode) for word in wanted), f"the status says {words}")
    vscode.press("Control+End", "Enter")
    vscode.type("x = 2", delay_ms=10)
    assert vscode.saved().endswith("\nx = 2")
    assert vscode.do("notifications") == []
    assert all(word in status(vscode) for word in wanted)


def restarted(vscode, mended):
    """The command Restart runs what stands in the settings, once that is a server, after a start that failed."""
    mended.write_text(Path(vscode.launcher).read_text())
    vscode.run("Foretype: Restart the Language Server")
    vscode.until(lambda: "ready" in status(vscode), "ready")
    assert vscode.do("notifications") == []


def test_a_server_that_does_not_exist(vscode):
    says(vscode, "/no/such/foretype is no program", "correct or empty foretype.server.path")


def test_a_folder_in_place_of_the_server(vscode):
    vscode.configure(configured(vscode.folder))
    says(vscode, f"{vscode.folder} is no program")


def test_a_program_whose_interpreter_is_gone(vscode):
    moved = program(vscode.folder / "moved", "")
    moved.write_text("#!/no/such/environment/bin/python\n")
    vscode.configure(configured(moved))
    says(vscode, "did not start", "correct foretype.server.path")
    restarted(vscode, moved)


def test_a_server_that_ends_at_once_is_not_started_for_ever(vscode):
    starts = vscode.folder / "starts"
    ends = program(vscode.folder / "ends", f"echo start >>{starts}; exit 1")
    vscode.configure(configured(ends))
    vscode.until(starts.exists, "the first start")
    before = ""
    while before != (before := starts.read_text()):
        time.sleep(2.0)  # until no more come
    assert 1 <= len(before.splitlines()) <= 5
    says(vscode, "see the log", "correct foretype.server.path")
    assert starts.read_text() == before
    restarted(vscode, ends)


def test_the_wrong_python(vscode):
    old = program(vscode.folder / "python", "exit 3")
    vscode.configure(configured(python=old))
    says(vscode, f"{old} is not Python 3.11 or newer", "set foretype.python.path")


def test_no_package_index(vscode):
    vscode.configure(configured())
    says(vscode, "is the package index reachable?", "restart the server to try again")


def test_once_it_is_right_it_works(vscode):
    vscode.configure(configured(vscode.launcher))
    vscode.until(lambda: "ready" in status(vscode), "ready")
    vscode.press("Control+a", "Delete")
    vscode.type("value = ", delay_ms=30)
    vscode.until(lambda: "value =  # scripted" in vscode.ghost(), "ghost text")
    vscode.press("Tab")
    vscode.until(lambda: vscode.ghost() == "", "accepted")
    assert vscode.saved() == "value = value =  # scripted"
    assert vscode.do("notifications") == []


def test_a_cell_of_a_notebook_gets_a_suggestion_and_keeps_what_was_taken(vscode):
    file = vscode.work / "a.ipynb"
    file.write_text(json.dumps(NOTEBOOK))
    vscode.open(file)
    vscode.do("cell")
    vscode.press("Control+End")
    vscode.type("\nvalue = ", delay_ms=30)
    vscode.until(lambda: "# scripted" in vscode.ghost(), "ghost text")
    vscode.press("Tab")
    vscode.until(lambda: vscode.cells(file) == ["x = 1\nvalue = value =  # scripted"], "accepted and saved")
    assert [text for text in vscode.do("notifications") if "oretype" in text] == []  # of kernels VS Code may speak
    assert "ready" in status(vscode)


def test_ten_megabytes_are_edited_and_completed_without_a_message_and_without_a_lost_key(vscode):
    file = vscode.work / "large.py"
    file.write_text(LARGE)
    vscode.open(file)
    vscode.do("focus")
    vscode.press("Control+Home")
    vscode.type("typed = 12345", delay_ms=20)
    vscode.press("Control+End")  # ten megabytes further, which no prompt could hold
    vscode.type("value = ", delay_ms=20)
    vscode.until(lambda: "# scripted" in vscode.ghost(), "ghost text")
    vscode.press("Tab")
    vscode.until(lambda: vscode.ghost() == "", "accepted")
    wanted = "typed = 12345" + LARGE + "value = value =  # scripted"
    vscode.press("Control+s")
    vscode.until(lambda: file.stat().st_size == len(wanted), "saved")
    assert file.read_text() == wanted
    assert [text for text in vscode.do("notifications") if "oretype" in text] == []


def test_a_gateway_that_goes_while_somebody_types_costs_no_key_and_comes_back_by_itself(vscode, served):
    vscode.open(vscode.file)
    vscode.do("focus")
    vscode.press("Control+a", "Delete")
    line = "total = sum(value for value in values)"
    going = threading.Timer(0.4, served.kill)
    going.start()
    vscode.type(line, delay_ms=30)
    going.join()
    told = ("degraded", "cannot be reached", "does it run, and is its URL right?", "tried again by itself")
    vscode.until(lambda: all(words in status(vscode) for words in told), "the status says so")
    vscode.press("Escape")
    assert vscode.saved() == line
    with gateway(vscode.folder, port=served.port):
        vscode.until(lambda: "ready" in status(vscode), "ready again")
        vscode.type("\nvalue = ", delay_ms=30)
        vscode.until(lambda: "value =  # scripted" in vscode.ghost(), "ghost text")
        vscode.press("Tab")
        vscode.until(lambda: vscode.ghost() == "", "accepted")
        assert vscode.saved() == f"{line}\nvalue = value =  # scripted"
    assert [text for text in vscode.do("notifications") if "oretype" in text] == []
