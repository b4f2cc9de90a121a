"""What no editor should have to suffer: killed without a goodbye, and files of ten megabytes."""

import sys
import time

import psutil
import pytest
from e2e.editors.test_sessions import EDITORS
from e2e.lsp_support import gateway

IN_TERMINALS = [name for name in EDITORS if name != "vscode"]  # VS Code's server is killed in test_vscode.py
PATIENCE_S = 30.0
pytestmark = pytest.mark.timeout(300)


def processes(folder, word):
    """Processes that were started in an editor's home, with a word in their command."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words, environ = process.info["cmdline"] or [], process.info["environ"] or {}
        if environ.get("HOME") == str(folder / "home") and any(word in one for one in words):
            found.append(process)
    return found


@pytest.fixture(params=IN_TERMINALS)
def kind(request):
    chosen = EDITORS[request.param]
    if reason := chosen.missing():
        pytest.skip(reason)
    return chosen


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def test_an_editor_that_is_killed_leaves_no_server_behind(served, tmp_path, kind):
    editor = kind(tmp_path, (sys.executable, "-m", "foretype_lsp", "--gateway", served.url))
    try:
        servers = processes(tmp_path, "foretype_lsp")
        assert servers
        for process in processes(tmp_path, "nvim") + processes(tmp_path, "emacs"):
            if not any("foretype_lsp" in word or "tmux" in word for word in process.cmdline()):
                process.kill()
        gone, alive = psutil.wait_procs(servers, timeout=PATIENCE_S)
        assert gone and not alive
    finally:
        editor.close()


def test_without_a_server_keys_are_keys_and_nothing_pops_up(tmp_path, kind):
    editor = kind(tmp_path, ("/no/such/foretype", "lsp"), served=False)
    try:
        editor.type("x = 1")
        if kind is not EDITORS["emacs"]:  # another file tries again
            other = editor.it.work / "b.py"
            other.write_text("b = 2\n")
            editor.press("Escape")
            editor.type(f":edit! {other}")
            editor.press("Enter")
            editor.it.until(lambda _: editor.buffer() == "b = 2")
            editor.press("O")
            editor.type("x = 1")
        editor.it.until(lambda _: "x = 1" in editor.buffer())
        assert [line for line in editor.complaints() if "is not executable" not in line] == []  # Neovim 0.12 logs that
    finally:
        editor.close()


def test_a_buffer_without_a_file_is_typed_in_without_a_message(served, tmp_path, kind):
    if kind is EDITORS["emacs"]:
        pytest.skip("lsp-mode wants a file")
    editor = kind(tmp_path, (sys.executable, "-m", "foretype_lsp", "--gateway", served.url))
    try:
        editor.press("Escape")
        editor.type(":enew! | set filetype=python")
        editor.press("Enter")
        editor.it.until_ready()
        editor.press("i")
        editor.type("value = ")
        editor.it.until(lambda _: "scripted" in editor.it.ghost())
        editor.press("Tab")
        editor.it.until(lambda _: editor.buffer() == "value = value =  # scripted")
        assert editor.complaints() == []
    finally:
        editor.close()


def test_ten_megabytes_are_edited_without_a_message_and_without_a_lost_key(served, tmp_path, kind):
    if kind is EDITORS["emacs"]:
        pytest.skip(
            "Emacs asks by itself whether to open so large a file, and lsp-mode sends it whole: not driven here"
        )
    work = tmp_path / "data"
    work.mkdir()
    large = work / "large.py"
    large.write_text("value = 1  # a line of a file that somebody generated\n" * 190_000)
    editor = kind(tmp_path, (sys.executable, "-m", "foretype_lsp", "--gateway", served.url))
    try:
        editor.press("Escape")
        editor.type(f":edit! {large}")
        editor.press("Enter", "O")
        editor.type("typed = 12345")
        end_s = time.monotonic() + PATIENCE_S
        while "typed = 12345" not in editor.buffer()[:200]:
            assert time.monotonic() < end_s
            time.sleep(0.2)
        assert editor.complaints() == []
    finally:
        editor.close()
