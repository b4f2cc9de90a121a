"""Each editor behind the same few methods, with the same text, so that one test can drive them all.

What every class here has: `type` and `press` (tmux's names of keys), `buffer`, `caught_up` (returns when every key so far has done
what it does), `says` (what the editor tells somebody who asks how Foretype is), `complaints` (what it told unasked), `close`,
`missing` (why it cannot be tried here, else None), `left` and `right`, the text around the cursor at the start, and
`own_indentation`, whether it takes the blanks of a suggestion for those that were typed.
"""

import shlex
import time

from e2e.editors import vscode_support
from e2e.editors.emacs_support import Emacs
from e2e.editors.neovim_support import Neovim, OldNeovim

PATIENCE_S = 180.0
# Neovim's own words about a large file, and about a terminal that was slow to tell its background on a busy machine.
NEOVIMS_OWN = ("'redrawtime' exceeded", "E1568: Terminal did not respond")
SOURCE = "import os\n\n\ndef total(values, start=0):\n    result = start\n\n\ndef last(items):\n    return items[-1]\n"

NEOVIM = """
vim.cmd('filetype indent off')
vim.g.python_recommended_style = 0
vim.opt.autoindent = false
vim.opt.expandtab = false
vim.opt.smarttab = false
foretype_marks = 0
vim.keymap.set('i', '<F12>', function() foretype_marks = foretype_marks + 1 end)
"""
EMACS = """
(add-hook 'python-mode-hook
  (lambda ()
    (local-set-key (kbd "TAB") (lambda () (interactive) (insert "\\t")))
    (local-set-key (kbd "DEL") 'delete-backward-char)))
(defvar foretype-marks 0)
(defun foretype-mark () (interactive) (setq foretype-marks (1+ foretype-marks)))
(put 'foretype-mark 'lsp-inline-completion-keep t)
(global-set-key (kbd "<f12>") 'foretype-mark)
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


class InTerminal:
    """Keys take their way through a terminal; one that only counts how often it was pressed shows where the editor is in them."""

    MARK, COUNT = "F12", ""
    _marked = 0

    @classmethod
    def missing(cls):
        return cls.made.missing()

    def caught_up(self):
        self._marked += 1
        self.press(self.MARK)
        end_s = time.monotonic() + PATIENCE_S
        while self.it.ask(self.COUNT) < self._marked:
            assert time.monotonic() < end_s, f"keys are not taken\n{self.it.screen()}"


class InNeovim(InTerminal):
    """The cursor is at the start of an empty line that was opened after line 5, in insert mode."""

    COUNT = "foretype_marks"
    made = Neovim
    own_indentation = False

    def __init__(self, folder, command, served=True):
        self.it = self.made(folder, SOURCE, command, config=NEOVIM)
        if served:
            ready(self.it)
        self.it.press("5", "G", "o")
        self.it.until(lambda _: self.it.ask("vim.fn.mode()") == "i")
        self.type, self.press, self.close = self.it.type, self.it.press, self.it.close
        lines = SOURCE.splitlines(keepends=True)
        self.left, self.right = "".join(lines[:5]), "\n" + "".join(lines[5:]).removesuffix("\n")

    def buffer(self):
        return self.it.buffer()

    def start_of_buffer(self):
        return "\n".join(self.it.ask("vim.api.nvim_buf_get_lines(0, 0, 3, false)"))

    def end_of_buffer(self):
        return "\n".join(self.it.ask("vim.api.nvim_buf_get_lines(0, -3, -1, false)"))

    def open(self, file):
        self.press("Escape")
        self.type(f":edit! {file}")
        self.press("Enter", "G", "A")
        self.it.until(lambda _: self.it.ask("vim.api.nvim_buf_get_name(0)") == str(file))
        self.caught_up()

    def says(self):
        """The report of `:checkhealth foretype`; insert mode before and behind."""
        self.press("Escape")
        self.type(":checkhealth foretype")
        self.press("Enter")
        self.it.until(lambda _: self.it.ask("vim.bo.filetype") == "checkhealth" and "foretype" in self.buffer())
        report = self.buffer()
        self.type(":bwipeout!")
        self.press("Enter", "A")
        self.it.until(lambda _: self.it.ask("vim.fn.mode()") == "i")
        return report

    def complaints(self):
        return [text for text in self.it.complaints() if text and not text.startswith(NEOVIMS_OWN)]


class InOldNeovim(InNeovim):
    made = OldNeovim


class InEmacs(InTerminal):
    COUNT = "foretype-marks"
    made = Emacs
    own_indentation = False

    def __init__(self, folder, command, served=True):
        self.it = self.made(folder, SOURCE, command, config=EMACS)
        if served:
            ready(self.it)
        self.type, self.press, self.buffer, self.close = self.it.type, self.it.press, self.it.buffer, self.it.close
        self.complaints = self.it.complaints
        self.left, self.right = SOURCE, ""

    def start_of_buffer(self):
        return self.it.ask("(buffer-substring-no-properties 1 (min 100 (point-max)))")

    def end_of_buffer(self):
        return self.it.ask("(buffer-substring-no-properties (max 1 (- (point-max) 100)) (point-max))")

    def open(self, file):
        self.press("C-x", "C-f", "C-a", "C-k")
        self.type(f"{file}\n")
        opened = f'(equal buffer-file-name "{file}")'
        if file.stat().st_size > 10_000_000:  # Emacs asks before it opens such a file
            self.it.until("really open")
            self.press("y")
        self.it.until(lambda _: self.it.ask(opened))
        self.press("M->")

    def says(self):
        return self.it.ask("(foretype-show-status)")


class InVsCode:
    own_indentation = True  # its `InlineSuggestionItem` is relaxed about white space in the indentation
    KEYS = {"Enter": "Enter", "BSpace": "Backspace", "Right": "ArrowRight", "Tab": "Tab"}

    def __init__(self, folder, command):
        launcher = folder / "foretype"
        launcher.write_text(f"#!/bin/sh\nexec {shlex.join(map(str, command))}\n")
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

    def caught_up(self):
        """A key is pressed when the page has taken it, and `buffer` is read by a key as well."""

    def says(self):
        return self.it.do("status") or ""

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
