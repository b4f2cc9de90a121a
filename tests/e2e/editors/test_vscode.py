"""VS Code in a browser, with the built extension, the real server and a real gateway that answers by a script."""

import os
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from e2e.editors.session_support import Tapped
from e2e.editors.vscode_support import Missing, VsCode, parts
from e2e.lsp_support import SOURCE

try:
    parts()
    MISSING = None
except Missing as missing:
    MISSING = str(missing)
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

SCALE = "def scale(v):\n    pass\n"
DOCUMENTED = 'def scale(v):\n    """Scale a vector."""\n    pass\n'
QUIET = {
    "workbench.startupEditor": "none",
    "security.workspace.trust.enabled": False,
    "chat.commandCenter.enabled": False,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    "editor.autoClosingBrackets": "never",
    "remote.autoForwardPorts": False,  # it says so in a notification where other programs open many
}


def launcher(folder, url):
    """A command that takes `lsp`, as `foretype` does, with this gateway; `tap.jsonl` is what it says and hears."""
    file, tap = folder / "foretype", Path(__file__).parent / "tap.py"
    command = f"{tap} {folder / 'tap.jsonl'} {sys.executable} -m foretype_lsp --gateway {url}"
    file.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} {command} "$@"\n')
    file.chmod(0o755)
    return str(file)


@pytest.fixture(scope="module")
def vscode(chatting, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vscode")
    settings = {**QUIET, "foretype.server.path": launcher(folder, chatting.url)}
    with closing(VsCode(folder, SOURCE, settings)) as it:
        it.tapped = Tapped(folder / "tap.jsonl")
        it.do("focus")
        it.until(lambda: "ready" in (it.do("status") or ""), "the status item says ready")
        yield it
    end_s = time.monotonic() + 180
    while running(folder) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert running(folder) == []


def test_ghost_text_is_on_screen_and_tab_puts_it_into_the_buffer(vscode):
    vscode.press("Control+End")
    vscode.type("value = ", delay_ms=30)
    vscode.until(lambda: "value =  # scripted" in vscode.ghost(), "ghost text")
    if folder := os.environ.get("FORETYPE_SCREENSHOTS"):
        vscode.do("screenshot", path=f"{folder}/vscode-ghost.png")
    vscode.press("Tab")
    vscode.until(lambda: vscode.ghost() == "", "the ghost text is gone")
    if folder:
        vscode.do("screenshot", path=f"{folder}/vscode-accepted.png")
    assert vscode.saved() == SOURCE + "value = value =  # scripted"
    assert vscode.do("notifications") == []


def emptied(vscode):
    vscode.press("Escape", "Control+a", "Delete")
    assert vscode.saved() == ""


def test_what_was_typed_through_is_not_left_behind(vscode):
    emptied(vscode)
    vscode.type("value = ", delay_ms=30)
    vscode.until(lambda: "value =  # scripted" in vscode.ghost(), "ghost text")
    vscode.type("val")
    vscode.press("Tab")
    vscode.until(lambda: vscode.ghost() == "", "the ghost text is gone")
    assert vscode.saved() == "value = value =  # scripted"


def test_several_lines_are_shown_and_accepted_at_once(vscode):
    emptied(vscode)
    vscode.type("def g(b):\n", delay_ms=30)  # VS Code indents the line
    vscode.until(lambda: "return None" in vscode.ghost(), "ghost text of two lines")
    vscode.press("Tab")
    vscode.until(lambda: vscode.ghost() == "", "the ghost text is gone")
    assert vscode.saved() == "def g(b):\n      # scripted\n    return None"


def test_a_hundred_hasty_keys_leave_what_was_typed_and_no_message(vscode):
    emptied(vscode)
    lines = ["total = sum(values) + start", "print(total, end='')", "other = total.real + 41", "x = [y for y in other]"]
    for delay_ms, line in zip((0, 20, 60, 120), lines, strict=True):
        vscode.type(line, delay_ms=delay_ms)
        vscode.press("Escape", "Enter")
    assert vscode.saved() == "\n".join(lines) + "\n"
    assert vscode.do("notifications") == []
    assert "ready" in vscode.do("status")


def test_a_word_and_a_line_are_accepted_by_themselves(vscode):
    emptied(vscode)
    vscode.type("value = ", delay_ms=30)
    vscode.until(lambda: "value =  # scripted" in vscode.ghost(), "ghost text")
    vscode.press("Control+ArrowRight")
    vscode.until(lambda: vscode.ghost().lstrip().startswith("="), "a word less")
    assert vscode.saved() == "value = value"
    vscode.press("Alt+l")
    vscode.until(lambda: "scripted" in vscode.saved(), "the line")
    assert vscode.file.read_text() == "value = value =  # scripted"


def test_before_closers_the_line_is_accepted_as_it_was_shown(vscode):
    emptied(vscode)
    vscode.type("print()")
    vscode.press("ArrowLeft")
    vscode.type("f")
    vscode.until(lambda: "scripted" in vscode.ghost(), "ghost text")
    shown = next(line for line in vscode.do("text").splitlines() if line.startswith("print"))
    vscode.press("Tab")
    vscode.until(lambda: "scripted" in vscode.saved(), "accepted")
    assert vscode.file.read_text() == shown


def test_the_prompt_behind_a_suggestion_is_explained(vscode):
    emptied(vscode)
    vscode.type("explained = ", delay_ms=30)
    vscode.until(lambda: "explained =  # scripted" in vscode.ghost(), "ghost text")
    vscode.run("Foretype: Explain This Suggestion")
    vscode.until(lambda: "layout psm_line_last" in vscode.do("active"), "the explanation")
    vscode.press("Control+w")
    vscode.until(lambda: vscode.do("active").startswith("explained = "), "the explanation is closed")


def test_where_the_cursor_rests_is_told_and_where_it_types_is_not(vscode):
    emptied(vscode)
    vscode.type("total = ", delay_ms=30)
    vscode.until(lambda: vscode.ghost() != "", "ghost text")
    before = len(vscode.tapped.rested())
    vscode.press("Escape", "ArrowLeft")
    vscode.until(lambda: len(vscode.tapped.rested()) > before, "the server is told")
    assert vscode.tapped.rested()[before:] == [{"line": 0, "character": 7}]


def test_switched_off_it_says_so_and_offers_nothing(vscode):
    emptied(vscode)
    vscode.run("Foretype: Switch Suggestions On or Off")
    vscode.until(lambda: "off" in vscode.do("status"), "off")
    vscode.type("value = ", delay_ms=30)
    time.sleep(1.0)
    assert vscode.ghost() == ""
    vscode.run("Foretype: Switch Suggestions On or Off")
    vscode.until(lambda: "ready" in vscode.do("status"), "ready")


def test_a_server_that_is_killed_comes_back(vscode):
    emptied(vscode)
    home = vscode.work.parent
    (server,) = running(home)
    server.kill()
    vscode.type("total = 1 + 2", delay_ms=20)
    vscode.until(lambda: [one.pid for one in running(home)] not in ([], [server.pid]), "the server is there again")
    vscode.until(lambda: "ready" in (vscode.do("status") or ""), "ready again")
    assert vscode.saved() == "total = 1 + 2"
    assert vscode.do("notifications") == []


def test_explains_documents_and_completes(vscode, chat, monkeypatch):
    monkeypatch.setattr(vscode, "file", vscode.work / "scale.py")
    vscode.file.write_text(SCALE)
    vscode.open(vscode.file)
    vscode.do("focus")
    vscode.press("Control+Home")
    chat.again("It scales", " a vector.")
    vscode.run("Foretype: Explain This Code")
    # Beside the file there is little room: the text is wrapped.
    vscode.until(lambda: "It scales a vector." in " ".join(vscode.do("text").split()), "the explanation")
    chat.again("Scale a vector.")
    vscode.run("Foretype: Document This Function or Class")
    vscode.until(lambda: '"""Scale a vector."""' in vscode.do("text"), "the documentation")
    assert vscode.saved() == DOCUMENTED
    vscode.run("Foretype: Complete This Function")
    vscode.until(lambda: "return None" in vscode.do("text"), "the body")
    body = vscode.saved()
    assert "return None" in body and "pass" not in body


PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
CART = "class Cart:\n    def add(self, item):\n        self.items.append(item)\n\n    def add_all(self, items):\n        for item in items:\n"


@pytest.mark.skipif("FORETYPE_INSTALL" not in os.environ, reason="installs packages: set FORETYPE_INSTALL=1")
def test_into_an_empty_vscode_the_extension_brings_its_own_server(tmp_path):
    """Nothing but Python 3.11 is there, no setting is changed: the wheel comes with the extension, the rest from the index.

    The network is fetched once somebody says so.
    """
    with closing(VsCode(tmp_path, CART, {}, env_more=PLAIN)) as it:
        it.do("focus")
        it.until(lambda: "starting" in (it.do("status") or ""), "the status item says what it does")
        it.until(
            lambda: any("Fetch it now?" in told for told in it.do("notifications")),
            "installed, and it asks",
            deadline_s=280,
        )
        it.do("answer", text="Yes")
        it.until(lambda: "ready" in (it.do("status") or ""), "fetched and ready", deadline_s=280)
        it.until(lambda: any("is here, and serves" in told for told in it.do("notifications")), "and says so")
        it.press("Control+End")
        it.type("            self.it", delay_ms=60)
        it.until(lambda: it.ghost().strip(), "the first suggestion")
        assert all("is here, and serves" in told for told in it.do("notifications"))


def running(folder):
    """Language servers that VS Code started out of a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = process.info["cmdline"] or []
        if words[1:3] == ["-m", "foretype_lsp"] and (process.info["environ"] or {}).get("HOME") == str(folder / "home"):
            found.append(process)
    return found
