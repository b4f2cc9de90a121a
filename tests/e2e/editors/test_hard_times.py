"""What no editor should have to suffer: no server, a kill, ten megabytes, a gateway that goes. VS Code: test_vscode_trouble.py."""

import contextlib
import threading
import time
from contextlib import closing

import psutil
import pytest
from e2e.editors.driven import EDITORS
from e2e.editors.session_support import Tapped, tapping
from e2e.editors.terminal_support import available
from e2e.lsp_support import gateway, server_command

IN_TERMINALS = ["neovim", "neovim_old", "emacs"]  # their own commands are typed here
PATIENCE_S = 180.0
pytestmark = pytest.mark.timeout(300)


def processes(folder, word):
    """Processes that were started in an editor's home, with a word in their command."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words, environ = process.info["cmdline"] or [], process.info["environ"] or {}
        if environ.get("HOME") == str(folder / "home") and any(word in one for one in words):
            found.append(process)
    return found


def lives(process):
    """Whether it still runs. Who has ended and is not yet reaped does not, and may be so for as long as the machine likes."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(params=IN_TERMINALS)
def kind(request):
    chosen = available(EDITORS[request.param])
    return chosen


def test_an_editor_that_is_killed_leaves_no_server_behind(served, tmp_path, kind):
    with closing(kind(tmp_path, server_command("--gateway", served.url))):
        servers = processes(tmp_path, "foretype_lsp")
        assert servers
        for process in processes(tmp_path, "nvim") + processes(tmp_path, "emacs"):
            if not any("foretype_lsp" in word or "tmux" in word for word in process.info["cmdline"]):
                with contextlib.suppress(psutil.NoSuchProcess):  # the first one's end is the end of others
                    process.kill()
        end_s = time.monotonic() + PATIENCE_S
        while alive := [process for process in servers if lives(process)]:
            assert time.monotonic() < end_s, alive
            time.sleep(0.02)


def test_without_a_server_keys_are_keys_and_nothing_pops_up(tmp_path, kind):
    with closing(kind(tmp_path, ("/no/such/foretype", "lsp"), served=False)) as editor:
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


@pytest.fixture(scope="module", params=IN_TERMINALS)
def editor(request, tmp_path_factory):
    """One start of each editor for what follows, and a gateway of its own, for that is killed in the end."""
    chosen = available(EDITORS[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    tap = folder / "tap.jsonl"
    with (
        gateway(folder, decode_s=0.02) as served,  # a suggestion grows on the screen
        closing(chosen(folder, tapping(tap, server_command("--gateway", served.url)))) as it,
    ):
        it.name, it.folder, it.tapped, it.gateway = request.param, folder, Tapped(tap), served
        yield it


def test_a_buffer_without_a_file_is_typed_in_without_a_message(editor):
    if editor.name == "emacs":
        pytest.skip("lsp-mode wants a file")
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


def test_ten_megabytes_are_edited_and_completed_without_a_message_and_without_a_lost_key(editor):
    large = editor.it.work / "large.py"
    # Nothing in it begins as what is typed does, so the candidate is the engine's.
    large.write_text('print("a line of a file that somebody generated")\n' * 200_000)
    editor.open(large)
    editor.press("C-Home")
    editor.type("typed = 12345", pause_s=0.02)
    editor.caught_up()
    assert editor.start_of_buffer().startswith("typed = 12345print(")
    editor.press("C-End", "Enter")  # ten megabytes further, which no prompt could hold
    editor.type("value = ", pause_s=0.02)
    editor.it.until(lambda _: "# scripted" in editor.it.ghost())
    editor.press("Tab")
    editor.it.until(lambda _: editor.end_of_buffer().endswith("value = value =  # scripted"))
    assert editor.complaints() == []


def test_a_gateway_that_goes_while_somebody_types_costs_no_key_and_comes_back_by_itself(editor):
    small = editor.it.work / "small.py"
    small.write_text("values = [1]")
    editor.open(small)
    editor.it.until_ready()
    line = "\ntotal = sum(value for value in values)"
    editor.type(line[:12], pause_s=0.04)
    going = threading.Thread(target=editor.gateway.kill)
    going.start()
    editor.type(line[12:], pause_s=0.04)
    going.join()
    editor.caught_up()
    assert editor.buffer() == "values = [1]" + line
    editor.it.until(lambda _: "cannot be reached" in editor.it.status()["detail"])
    said = editor.says()
    assert "degraded" in said and "does it run, and is its URL right?" in said and "tried again by itself" in said
    with gateway(editor.folder, port=editor.gateway.port):
        editor.it.until_ready()
        editor.type("\nvalue = ")
        editor.it.until(lambda _: "# scripted" in editor.it.ghost())
        editor.press("Tab")
        editor.it.until(lambda _: editor.buffer() == f"values = [1]{line}\nvalue = value =  # scripted")
    assert editor.tapped.settled(PATIENCE_S) == []
    assert editor.tapped.errors() == []
    assert editor.complaints() == []
