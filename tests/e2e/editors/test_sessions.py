"""Sessions of a hundred keys in each editor: no stray character, no stale accept, no unanswered request, no error shown.

FORETYPE_SESSIONS says how many (1 where it is not set).
"""

import os
import random
import sys
from pathlib import Path

import pytest
from e2e.editors import emacs_support, vscode_support
from e2e.editors.session_support import Session, Tapped
from e2e.editors.terminal_support import ROOT, Neovim, OldNeovim, find, version_of
from e2e.lsp_support import gateway

SESSIONS = int(os.environ.get("FORETYPE_SESSIONS", "1"))
KEYS = 100
SETTLED_S = 30.0
SOURCE = "import os\n\n\ndef total(values, start=0):\n    result = start\n\n\ndef last(items):\n    return items[-1]\n"
pytestmark = pytest.mark.timeout(600)

NEOVIM = """
vim.opt.runtimepath:prepend('{root}/editors/nvim')
vim.cmd('filetype indent off')
vim.g.python_recommended_style = 0
vim.opt.autoindent = false
vim.opt.expandtab = false
vim.opt.smarttab = false
vim.opt.showmode = false
require('foretype').setup({{ cmd = {{ {command} }} }})
"""
EMACS = """
(add-hook 'python-mode-hook
  (lambda ()
    (local-set-key (kbd "TAB") (lambda () (interactive) (insert "\\t")))
    (local-set-key (kbd "DEL") 'delete-backward-char)))
"""
VSCODE = {
    "editor.autoIndent": "none",
    "editor.insertSpaces": False,
    "editor.detectIndentation": False,
    "editor.useTabStops": False,
    "editor.autoClosingBrackets": "never",
    "editor.autoClosingQuotes": "never",
    "editor.autoSurround": "never",
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    "editor.parameterHints.enabled": False,
    "workbench.startupEditor": "none",
    "files.eol": "\n",
}


def ready(it):
    """Wait for the server; an editor that never gets one is not left behind."""
    try:
        it.until_ready()
    except BaseException:
        it.close()
        raise


class InNeovim:
    """The cursor is at the start of an empty line that was opened after line 5, in insert mode."""

    made = Neovim
    own_indentation = False

    def __init__(self, folder, command, served=True):
        words = ", ".join(f"'{word}'" for word in command)
        program = find(
            *{Neovim: ("neovim", "FORETYPE_NVIM"), OldNeovim: ("neovim-old", "FORETYPE_NVIM_OLD")}[self.made]
        )
        self.it = self.made(program, folder, SOURCE, NEOVIM.format(root=ROOT, command=words))
        if served:
            ready(self.it)
        self.it.press("5", "G", "o")
        self.it.until(lambda _: self.it.ask("vim.fn.mode()") == "i")
        self.type, self.press, self.close = self.it.type, self.it.press, self.it.close
        lines = SOURCE.splitlines(keepends=True)
        self.left, self.right = "".join(lines[:5]), "\n" + "".join(lines[5:]).removesuffix("\n")

    def buffer(self):
        return self.it.buffer()

    def complaints(self):
        return [text for text in self.it.complaints() if text]

    @classmethod
    def missing(cls):
        program = find("neovim", "FORETYPE_NVIM")
        return None if program and version_of(program) >= (0, 12) else "needs Neovim 0.12: editors/install-neovim.sh"


class InOldNeovim(InNeovim):
    made = OldNeovim

    @classmethod
    def missing(cls):
        program = find("neovim-old", "FORETYPE_NVIM_OLD")
        good = program and (0, 7) <= version_of(program) < (0, 12)
        return None if good else "needs a Neovim from 0.7 to 0.11: apt install neovim on Debian 12 or 13"


class InEmacs:
    own_indentation = False

    def __init__(self, folder, command, served=True):
        self.it = emacs_support.Emacs(folder, SOURCE, command, config=EMACS)
        if served:
            ready(self.it)
        self.type, self.press, self.buffer, self.close = self.it.type, self.it.press, self.it.buffer, self.it.close
        self.complaints = self.it.complaints
        self.left, self.right = SOURCE, ""

    @classmethod
    def missing(cls):
        return emacs_support.missing()


class InVsCode:
    own_indentation = True  # its `InlineSuggestionItem` is relaxed about white space in the indentation
    KEYS = {"Enter": "Enter", "BSpace": "Backspace", "Right": "ArrowRight", "Tab": "Tab"}

    def __init__(self, folder, command):
        launcher = folder / "foretype"
        launcher.write_text(f"#!/bin/sh\nexec {' '.join(map(str, command))}\n")
        launcher.chmod(0o755)
        settings = {**VSCODE, "foretype.server.path": str(launcher)}
        self.it = vscode_support.VsCode(folder, SOURCE, settings)
        self.it.do("focus")
        self.it.until(lambda: "ready" in (self.it.do("status") or ""), "ready")
        self.it.press("Control+End")
        self.type, self.buffer, self.close = self.it.type, self.it.saved, self.it.close
        self.left, self.right = SOURCE, ""

    def press(self, key):
        self.it.press(self.KEYS[key])

    def complaints(self):
        return self.it.do("notifications")

    @classmethod
    def missing(cls):
        try:
            vscode_support.parts()
        except vscode_support.Missing as missing:
            return str(missing)
        return None


EDITORS = {"neovim": InNeovim, "neovim_old": InOldNeovim, "emacs": InEmacs, "vscode": InVsCode}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway"), decode_s=0.005, prefill_s=0.0005) as running:
        yield running


@pytest.mark.parametrize("seed", range(SESSIONS))
@pytest.mark.parametrize("name", EDITORS)
def test_a_hundred_keys_leave_what_was_typed_and_accepted_and_nothing_else(served, tmp_path, name, seed):
    kind = EDITORS[name]
    if reason := kind.missing():
        pytest.skip(reason)
    log, tap = tmp_path / "lsp.log", tmp_path / "tap.jsonl"
    server = (sys.executable, "-m", "foretype_lsp", "--gateway", served.url, "--log-file", log, "--log-level", "debug")
    editor = kind(tmp_path, (sys.executable, Path(__file__).parent / "tap.py", tap, *server))
    try:
        tapped = Tapped(tap)
        session = Session(editor, tapped, random.Random(seed), left=editor.left, right=editor.right)
        session.play(KEYS)
        assert tapped.settled(SETTLED_S) == []
        assert tapped.errors() == []
        assert editor.complaints() == []
        assert "ERROR" not in log.read_text()
    finally:
        editor.close()
