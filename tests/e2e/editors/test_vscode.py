"""VS Code in a browser, with the built extension, the real server and a real gateway that answers by a script."""

import os
import sys

import pytest
from e2e.editors.vscode_support import Missing, VsCode, parts
from e2e.lsp_support import gateway

try:
    parts()
    MISSING = None
except Missing as missing:
    MISSING = str(missing)
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

SOURCE = "def f(a):\n    x = 1\n    return x\n"
QUIET = {
    "workbench.startupEditor": "none",
    "security.workspace.trust.enabled": False,
    "chat.commandCenter.enabled": False,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    "editor.autoClosingBrackets": "never",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def launcher(folder, url):
    """A command that takes `lsp`, as `foretype` does, with this gateway."""
    file = folder / "foretype"
    file.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -m foretype_lsp --gateway {url} "$@"\n')
    file.chmod(0o755)
    return str(file)


@pytest.fixture(scope="module")
def vscode(served, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vscode")
    settings = {**QUIET, "foretype.server.path": launcher(folder, served.url)}
    it = VsCode(folder, SOURCE, settings)
    try:
        it.do("focus")
        it.until(lambda: "ready" in (it.do("status") or ""), "the status item says ready")
        yield it
    finally:
        it.close()


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
