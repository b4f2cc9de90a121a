"""Neovim in a terminal, asked about its state over its own socket."""

import itertools
import json
import math
import subprocess
import time
from pathlib import Path

from e2e.editors.terminal_support import (
    ASK_TIMEOUT_S,
    DEADLINE_S,
    ROOT,
    Terminal,
    environment,
    find,
    version_of,
)

CONFIG = """
vim.opt.showmode = false
{more}
"""
PLUGIN = """
vim.opt.runtimepath:prepend('{root}/editors/nvim')
require('foretype').setup({{ cmd = {{ {command} }} }})
"""
AFRESH = """(function()
    vim.cmd('silent! tabonly!')
    vim.cmd('silent! only!')
    vim.cmd('silent edit! {file}')
    local shown = vim.api.nvim_get_current_buf()
    for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
        if buffer ~= shown then vim.api.nvim_buf_delete(buffer, {{ force = true }}) end
    end
    vim.cmd('messages clear')
    return true
end)()"""


def written(folder: Path, command=(), more=""):
    """The configuration as a file; with our plugin if there is a command of the language server."""
    init = folder / "init.lua"
    words = ", ".join(f"'{word}'" for word in command)
    plugin = PLUGIN.format(root=ROOT, command=words) if command else ""
    init.write_text(CONFIG.format(more=more) + plugin)
    return init


class Neovim(Terminal):
    """Neovim with one file open and the cursor where it starts. Asked about its state over its own socket."""

    PROGRAM = ("neovim", "FORETYPE_NVIM")
    OLDEST, BELOW = (0, 12), (math.inf,)
    NEEDS = "needs Neovim 0.12: editors/install-neovim.sh (or FORETYPE_NVIM)"

    def __init__(self, folder: Path, source: str, command=(), *, config="", name="a.py", env=None):
        self._program, self._numbers = find(*self.PROGRAM), itertools.count()
        self._listen = folder / "nvim"
        self.work = folder / "work"
        (self.work / ".git").mkdir(parents=True)
        self.file = self.work / name
        self.file.write_text(source)
        init = written(folder, command, config)
        self._full_env = environment(folder, **(env or {}))
        self.log = folder / "home/.local/state/nvim/lsp.log"
        program = (self._program, "--clean", "-n", "-u", init, "--listen", self._listen, self.file)
        super().__init__(folder, *program, cwd=self.work, env=self._full_env)

    @classmethod
    def missing(cls):
        """Why it cannot be tried here, or None."""
        program = find(*cls.PROGRAM)
        return None if program and cls.OLDEST <= version_of(program) < cls.BELOW else cls.NEEDS

    def afresh(self, source: str):
        """Another file with this text, alone in the editor, as after a start: nothing is shown, nothing was told."""
        self.file = self.work / f"a{next(self._numbers)}.py"
        self.file.write_text(source)
        self.press("Escape")
        self.until(lambda _: self.ask("vim.fn.mode()") == "n")
        assert self.ask(AFRESH.format(file=self.file))
        self.until_ready()

    def to_start(self):
        """The cursor goes to the start of the file, where Neovim begins."""

    def new_line(self):
        """Ready to type on an empty line at the end of the file."""
        self.press("G")
        self.type("o")

    def command(self, name):
        """One of the plugin's commands, named as Emacs names it."""
        self.type(":Foretype" + "".join(map(str.title, name.split("-"))))
        self.press("Enter")

    def ask(self, lua):
        """What a Lua expression is, as JSON carries it."""
        code = f"json_encode(luaeval({_vim_string(lua)}))"
        command = [self._program, "--server", str(self._listen), "--remote-expr", code]
        end_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, env=self._full_env, timeout=ASK_TIMEOUT_S, check=False
                )
                return json.loads(done.stdout or done.stderr)  # 0.7 prints it to the latter
            except (ValueError, subprocess.TimeoutExpired) as error:
                # Not up yet, or asked before it had its terminal: such a question is never answered.
                if time.monotonic() > end_s:
                    raise TimeoutError(f"neovim does not answer: {error}\n{self.screen()}") from None
                time.sleep(0.05)

    def buffer(self):
        return "\n".join(self.ask("vim.api.nvim_buf_get_lines(0, 0, -1, false)"))

    def status(self):
        """What the server says about itself."""
        return self.ask("vim.lsp.get_clients()[1]:request_sync('foretype/status', vim.empty_dict(), 5000).result")

    def until_ready(self):
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            if self.ask("#vim.lsp.get_clients({bufnr = 0})") and self.status()["state"] == "ready":
                return
            time.sleep(0.1)
        raise TimeoutError(f"the server never became ready\n{self.screen()}")

    def ghost(self):
        """The text of the suggestion that is shown, from the marks it is drawn with; empty for none."""
        marks = self.ask(
            "vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('nvim.lsp.inline_completion'),"
            " 0, -1, {details = true})"
        )
        lines = [
            "".join(chunk[0] for chunk in line)
            for _, _, _, details in marks
            for line in [details.get("virt_text") or [], *(details.get("virt_lines") or [])]
        ]
        return "\n".join(lines)

    def complaints(self):
        """What it told the user, and what it logged as an error about the server."""
        log = self.log.read_text() if self.log.exists() else ""
        errors = [line for line in log.splitlines() if line.startswith("[ERROR]")]
        return [self.ask("vim.api.nvim_exec2('messages', {output = true}).output"), *errors]

    def goes_on_under_another_name(self, command, path):
        """Give the buffer another name, and type on at once. Neovim tells of changes under a name then that it has not opened."""
        self.type(f":{command} {path}\rGo    value = ")
        self.until("value = value =  # scripted")
        assert "etached" not in "".join(self.complaints())


class OldNeovim(Neovim):
    """Neovim before 0.12: the plugin draws, and older calls of Lua ask."""

    PROGRAM = ("neovim-old", "FORETYPE_NVIM_OLD")
    OLDEST, BELOW = (0, 7), (0, 12)
    NEEDS = "needs a Neovim from 0.7 to 0.11: apt install neovim on Debian 12 or 13 (or FORETYPE_NVIM_OLD)"

    def ghost(self):
        marks = self.ask(
            "vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('foretype'), 0, -1, {details = true})"
        )
        lines = [
            "".join(text for text, group in line if group == "ForetypeGhost")
            for _, _, _, details in marks
            for line in [details.get("virt_text") or [], *(details.get("virt_lines") or [])]
        ]
        return "\n".join(lines)

    def status(self):
        return self.ask(
            "vim.tbl_values(vim.lsp.buf_get_clients(0))[1].request_sync('foretype/status', vim.empty_dict(), 5000).result"
        )

    def until_ready(self):
        self.until(lambda _: self.ask("#vim.tbl_values(vim.lsp.buf_get_clients(0))") == 1)
        self.until(lambda _: self.status()["state"] == "ready")

    def complaints(self):
        return [self.ask("vim.api.nvim_exec('messages', true)")]


def _vim_string(text):
    return "'" + text.replace("'", "''") + "'"
