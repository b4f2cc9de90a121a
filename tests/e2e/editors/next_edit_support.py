"""The next edit in Neovim 0.12, Neovim 0.7 and Emacs behind the same few methods, so that one test can drive them all.

Tab and the backspace are plain there: they put in a tab and take one character, so that a key that was not ours is seen.
"""

import time
from pathlib import Path
from typing import NamedTuple

from e2e.editors.emacs_support import Emacs
from e2e.editors.neovim_support import Neovim, OldNeovim
from e2e.editors.session_support import Tapped, tapping, whole
from e2e.lsp_support import DEADLINE_S

QUESTION = "textDocument/copilotInlineEdit"
SHOWN = "textDocument/didShowInlineEdit"
ENDED = "foretype/nextEditEnded"
JUMPED = "foretype/nextEditJumped"
ACCEPT = "foretype.nextEdit.accept"


NEAR = "def area(width, height):\n    size = width * height\n    print(width)\n    return size\n"
"""Rename `width` at row 0, column 9: the next edit is on the next line, and one more below it."""
FAR_ROWS = 60
FAR = "def total(values):\n" + "".join(f"    step_{i} = {i}\n" for i in range(FAR_ROWS - 1)) + "    return values\n"
"""Rename `values` at row 0, column 10: the next edit is on no screen."""


class Seen(NamedTuple):
    """What is on the screen of a next edit: a hint, or the text that the drawing says there will be."""

    hint: str = ""
    text: str = ""


def offering(file: Path, *listed, **more):
    """Have the server of `stub_lsp.py` that reads this file offer these next edits."""
    whole(file, {"next": listed, **more})


class Messages:
    """What the editor and its server have said to each other."""

    def __init__(self, file: Path):
        self._tapped = Tapped(file)
        self._from = 0

    def afresh(self):
        self._from = len(list(self._tapped.entries()))

    def all(self, speaker=""):
        entries = list(self._tapped.entries())[self._from :]
        return [message for who, _, message in entries if speaker in ("", who)]

    def told(self, method):
        """Parameters of what the editor told or asked by this method."""
        return [message["params"] for message in self.all("editor") if message.get("method") == method]

    def accepted(self):
        return [told["arguments"][0] for told in self.told("workspace/executeCommand") if told["command"] == ACCEPT]

    def reasons(self):
        return [told["reason"] for told in self.told(ENDED)]

    def answered(self):
        """Whether the editor has asked after its last change, and every question is answered; its answers."""
        messages = self.all()
        changes = [i for i, one in enumerate(messages) if one.get("method") == "textDocument/didChange"]
        asked = [(i, one["id"]) for i, one in enumerate(messages) if one.get("method") == QUESTION]
        answers = {one["id"]: one.get("result") for one in messages if "method" not in one and "id" in one}
        if not asked or (changes and asked[-1][0] < changes[-1]) or any(id not in answers for _, id in asked):
            return None
        return [answers[id] for _, id in asked]


class Driven:
    """An editor of one of the kinds; `it` is the terminal."""

    made, CONFIG = None, ""

    def __init__(self, folder: Path, source: str, command, config=""):
        tap = folder / "tap.jsonl"
        self.it = self.made(folder, source, tapping(tap, command), config=self.CONFIG + config)
        self.messages = Messages(tap)
        self.folder = folder
        self.press, self.type, self.ask = self.it.press, self.it.type, self.it.ask

    def __enter__(self):
        self.it.until_ready()
        self.settle()
        return self

    def __exit__(self, *_):
        self.it.close()

    @classmethod
    def missing(cls):
        return cls.made.missing()

    def afresh(self, source: str):
        self.gone()  # the first key of this would refuse it
        self.it.afresh(source)
        self.messages.afresh()

    @property
    def file(self):
        return self.it.file

    def until(self, satisfied):
        """Until a predicate holds; what was said last where it never does."""
        try:
            return self.it.until(lambda _: satisfied())
        except TimeoutError as error:
            said = "\n".join(str(message)[:300] for message in self.messages.all()[-12:])
            raise TimeoutError(f"{error}\n{self.text()}\n{said}") from None

    def seen(self) -> Seen | None:
        raise NotImplementedError

    def until_seen(self):
        self.until(lambda: self.seen() is not None)
        return self.seen()

    def until_gone(self):
        self.until(lambda: self.seen() is None)

    def until_accepted(self):
        """The server is told once, after the text has changed."""
        self.until(lambda: self.messages.accepted())
        assert len(self.messages.accepted()) == 1

    def until_text(self, text):
        end_s = time.monotonic() + DEADLINE_S
        while self.text() != text:
            assert time.monotonic() < end_s, f"{self.text()!r} is not {text!r}\n{self.it.screen()}"
            time.sleep(0.05)

    def last_edits(self):
        """What the last question was answered with, once it is one about the text as it is."""
        answers = None

        def answered():
            nonlocal answers
            answers = self.messages.answered()
            return answers

        self.until(answered)
        return answers[-1]["edits"]

    def asked_again(self):
        """Ask until something is shown: after a refusal there is silence for a while."""
        end_s = time.monotonic() + DEADLINE_S
        while self.seen() is None:
            assert time.monotonic() < end_s, f"nothing is shown\n{self.it.screen()}"
            self.command("jump")
            asked_s = time.monotonic()
            while self.seen() is None and time.monotonic() < asked_s + 2.5:
                time.sleep(0.1)
        return self.seen()

    def forgiven(self):
        """Take one, after which a refusal before it does not count any more."""
        self.afresh(NEAR)
        self.go(0, 9)
        self.word("forgiven")
        self.until(lambda: "forgiven" in self.text())
        self.asked_again()
        self.press("Tab")
        self.until(lambda: self.messages.accepted())

    def taken(self):
        """Tab until something is applied."""
        accepted = len(self.messages.accepted())
        if self.until_seen().hint:
            self.press("Tab")
            self.until(lambda: self.seen() and not self.seen().hint)
        self.press("Tab")
        self.until(lambda: len(self.messages.accepted()) > accepted)

    def undone(self, text):
        """Undo until the text is this."""
        end_s = time.monotonic() + DEADLINE_S
        while self.text() != text:
            assert time.monotonic() < end_s, f"{self.text()!r} never becomes {text!r}"
            self.undo()
            time.sleep(0.2)

    def word(self, new):
        """Put a word in the place of the one that the cursor is at the start of."""
        raise NotImplementedError

    def renamed(self, new, row=0, column=None):
        """Rename what is declared there, and wait for the next edit."""
        self.go(row, column)
        self.word(new)
        return self.until_seen()

    def text(self):
        return self.it.buffer()

    def line(self):
        return self.text().split("\n")[self.at()[0]]


class InNeovim(Driven):
    made = Neovim
    CONFIG = """
vim.cmd('filetype indent off')
vim.g.python_recommended_style = 0
vim.opt.autoindent, vim.opt.expandtab, vim.opt.smarttab = false, false, false
"""
    end_key, menu_keys, select_keys = "Escape", ("C-n",), ("v", "l")
    tab_name = "Tab"

    def settle(self):
        """No suggestions at the cursor: they come first, and are another test's."""
        self.ask("vim.lsp.inline_completion.enable(false)")

    def loud(self):
        """With suggestions at the cursor."""
        self.ask("vim.lsp.inline_completion.enable(true)")

    def text(self):
        return self.it.buffer() + "\n"  # goes without saying

    def go(self, row, column=None):
        self.ask(f"vim.api.nvim_win_set_cursor(0, {{{row + 1}, {column or 0}}}) or 1")

    def at(self):
        row, column = self.ask("vim.api.nvim_win_get_cursor(0)")
        return row - 1, column

    def view(self):
        view = self.ask("vim.fn.winsaveview()")
        return view["topline"], view["leftcol"], self.at()

    def mode(self):
        return self.ask("vim.fn.mode()")

    def word(self, new):
        self.type(f"ciw{new}")
        self.press("Escape")
        self.until(lambda: self.mode() == "n")

    def insert(self):
        """Into the state in which keys are text, where the cursor is."""
        self.press("i")
        self.until(lambda: self.mode() == "i")

    def overtype(self, text):
        """In the place of the word at the cursor."""
        self.type(f"cw{text}")
        self.until(lambda: self.mode() == "i")

    def appended(self, row, text):
        """Type at the end of a line."""
        self.go(row)
        self.type(f"A{text}")
        self.press("Escape")
        self.until(lambda: self.mode() == "n")

    def gone(self):
        """Show nothing, and refuse nothing."""
        self.ask("require('foretype.next_edit').drop() or 1")

    def typed(self, text):
        """Put a text in."""
        self.type(f"i{text}")
        self.press("Escape")
        self.until(lambda: self.mode() == "n")

    def at_end_of(self, row):
        """Ready to type there."""
        self.go(row)
        self.press("A")
        self.until(lambda: self.mode() == "i")

    def caught_up(self):
        """Until the keys so far have done what they do."""
        self.type(":let g:caught = 1")
        self.press("Enter")
        self.until(lambda: self.ask("vim.g.caught") == 1)
        self.ask("vim.api.nvim_set_var('caught', 0) or 1")

    def shown_file(self):
        return Path(self.ask("vim.api.nvim_buf_get_name(0)"))

    def undo(self):
        if self.mode() == "i":
            self.press("Escape")
            self.until(lambda: self.mode() == "n")
        self.press("u")

    def visit(self, file):
        """Open a file beside what is open."""
        self.type(f":edit {file}")
        self.press("Enter")
        self.until(lambda: self.shown_file() == file)
        self.it.until_ready()

    def at_rest(self):
        """Nothing is typed, nothing asked."""
        self.press("Escape")
        self.until(lambda: self.mode() == "n")

    def exclaimed(self, row):
        """A ! in the place of the last character of a line, by one key that ends in no other mode."""
        self.go(row, len(self.it.buffer().split("\n")[row].encode()) - 1)
        self.type("r!")

    def line_above(self, row, text):
        self.go(row)
        self.type(f"O{text}")
        self.press("Escape")
        self.until(lambda: self.mode() == "n")

    def back(self):
        """To where the cursor was before a jump."""
        self.press("C-o")

    def menu(self):
        return self.ask("vim.fn.pumvisible()") == 1

    def own_tab(self):
        """Tab is the user's own."""
        self.ask("vim.api.nvim_set_var('own', 0) or 1")
        self.ask("vim.api.nvim_set_keymap('n', '<Tab>', '<Cmd>let g:own += 1<CR>', {noremap = true}) or 1")

    def no_own_tab(self):
        self.ask("vim.api.nvim_del_keymap('n', '<Tab>') or 1")

    def own_tabs(self):
        return self.ask("vim.g.own")

    def command(self, name, *arguments):
        self.type(":ForetypeNextEdit " + " ".join((name, *arguments)))
        self.press("Enter")

    def seen(self):
        marks = self.ask(
            "vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('foretype_next_edit'), 0, -1, {details=true})"
        )
        return _drawn([*self.it.buffer().split("\n"), ""], marks) if marks else None


class InOldNeovim(InNeovim):
    made = OldNeovim

    def settle(self):
        asking = "{'InsertEnter', 'CursorMovedI', 'TextChangedI', 'TextChangedP'}"
        self.ask(f"vim.api.nvim_clear_autocmds({{group = 'foretype', event = {asking}}}) or 1")

    def loud(self):
        self.ask("require('foretype.fallback').setup(require('foretype').settings) or 1")


def _drawn(lines, marks):
    """What the marks say that the lines become."""
    struck = added = None
    for _, row, column, details in marks:
        if details.get("hl_group") == "ForetypeNextOld":
            struck = row, column, details["end_row"], details["end_col"]
        elif details.get("virt_text") and details["virt_text"][0][1] != "ForetypeNextHint":
            added = row, column, details["virt_text"]
        elif details.get("virt_lines") and details["virt_lines"][0][0][1] != "ForetypeNextHint":
            below = ["".join(text for text, _ in line) for line in details["virt_lines"]]
            if details["virt_lines"][0][0][1] == "ForetypeNextNew":  # whole lines more
                return Seen(text="\n".join([*lines[: row + 1], *below, *lines[row + 1 :]]))
            return Seen(text="\n".join([*lines[: struck[0] if struck else row], *below, *lines[row + 1 :]]))
        else:
            chunks = details.get("virt_text") or details["virt_lines"][0]
            return Seen(hint="".join(text for text, _ in chunks).strip())
    row, column, end_row, end_column = struck or (*added[:2], *added[:2])
    assert added is None or added[:2] == (end_row, end_column)
    new = "".join(text for text, _ in added[2]) if added else ""
    line = _cut(lines[row], 0, column) + new + _cut(lines[end_row], end_column)
    return Seen(text="\n".join([*lines[:row], line, *lines[end_row + 1 :]]))


def _cut(line, *bounds):
    return line.encode()[slice(*bounds) if len(bounds) > 1 else slice(bounds[0], None)].decode()


class InEmacs(Driven):
    made = Emacs
    CONFIG = """
(setq foretype-delay 100000) ; no suggestions at the cursor: they come first, and are another test's
(add-hook 'python-mode-hook
  (lambda ()
    (local-set-key (kbd "TAB") (lambda () (interactive) (insert "\\t")))
    (local-set-key (kbd "DEL") 'delete-backward-char)))
"""
    end_key, menu_keys, select_keys = "C-g", ("M-Tab",), ("C-@", "C-f")
    tab_name = "TAB"

    def settle(self):
        self.ask("(setq foretype-delay 100000)")

    def loud(self):
        self.ask("(setq foretype-delay 0.03)")

    def go(self, row, column=None):
        self.ask(f"(progn (goto-char 1) (forward-line {row}) (forward-char {column or 0}) t)")

    def at(self):
        row, column = self.ask("(list (1- (line-number-at-pos)) (- (point) (line-beginning-position)))")
        return row, column

    def view(self):
        return self.ask("(list (window-start) (window-hscroll))"), self.at()

    def word(self, new):
        self.press("M-d")
        self.type(new)

    def insert(self):
        pass

    overtype = word

    def appended(self, row, text):
        self.go(row)
        self.press("C-e")
        self.type(text)

    def gone(self):
        self.ask('(progn (foretype--next-off "hidden") t)')

    def typed(self, text):
        self.type(text)
        self.until(lambda: self.text().endswith(text))

    def at_end_of(self, row):
        self.go(row)
        self.press("C-e")

    def caught_up(self):
        self.press("C-l")
        self.until(lambda: self.ask("(eq last-command 'recenter-top-bottom)"))

    def shown_file(self):
        return Path(self.ask('(or buffer-file-name "")'))

    def undo(self):
        self.press("C-x", "u")

    def visit(self, file):
        self.press("C-x", "C-f", "C-a", "C-k")
        self.type(f"{file}\n")
        self.until(lambda: self.shown_file() == file)
        self.it.until_ready()

    def at_rest(self):
        pass

    def exclaimed(self, row):
        self.at_end_of(row)
        self.press("BSpace")
        self.type("!")

    def line_above(self, row, text):
        self.go(row)
        self.type(f"{text}\n")

    def back(self):
        self.press("C-u", "C-@")

    def menu(self):
        return self.ask("(and completion-in-region-mode t)")

    def own_tab(self):
        self.ask("(setq own 0)")
        self.ask('(local-set-key (kbd "TAB") (lambda () (interactive) (setq own (1+ own))))')

    def no_own_tab(self):
        """It was the buffer's mode's."""
        self.ask("(python-mode)")

    def own_tabs(self):
        return self.ask("own")

    def command(self, name, *arguments):
        self.press("M-x")
        self.type(f"foretype-next-edit-{name}\n" + "".join(f"{one}\n" for one in arguments))

    def seen(self):
        found = self.ask(
            "(when-let ((overlay (and foretype--next (foretype--next-overlay foretype--next))))"
            '  (let ((after (or (overlay-get overlay \'after-string) "")))'
            "    (list (1- (overlay-start overlay)) (1- (overlay-end overlay)) (substring-no-properties after)"
            "          (and (> (length after) 0) (eq (get-text-property 0 'face after) 'foretype-next-edit-hint) t))))"
        )
        if not found:
            return None
        start, end, after, hint = found
        if hint:
            return Seen(hint=after.strip())
        text = self.it.buffer()
        return Seen(text=text[:start] + after + text[end:])


EDITORS = {"neovim": InNeovim, "neovim_old": InOldNeovim, "emacs": InEmacs}
