"""Editors of the terminal, driven as a user would: keys into tmux, and the screen that comes back."""

import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

DEADLINE_S = 30.0
ASK_TIMEOUT_S = 8.0  # longer than the longest wait inside a question
ROOT = Path(__file__).resolve().parents[3]
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
PROGRAMS = {"neovim": "nvim", "neovim-old": "nvim", "helix": "hx"}
INSTALLED = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "foretype-editors"


def find(name, variable):
    """A program of an editor: named by a variable of the environment, installed by `editors/install-*`, or on the path."""
    if given := os.environ.get(variable):
        return given
    installed = INSTALLED / name / "bin" / PROGRAMS[name]
    return str(installed) if installed.exists() else shutil.which(installed.name)


def version_of(program):
    """The version as a tuple of numbers; empty if it cannot be run."""
    try:
        out = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    word = next((word for word in out.stdout.split() if word.strip("v")[:1].isdigit()), "0")
    return tuple(int(part) for part in word.strip("v").split("+")[0].split("-")[0].split(".") if part.isdigit())


def environment(folder: Path, **more):
    """An environment in which a program has no past: its own home, and the rest of ours."""
    home = folder / "home"
    # Two Neovims that begin at once, the editor and the one that asks it, may both make the folder of their log: the one that
    # loses says so and waits for Enter.
    (home / ".local" / "state" / "nvim").mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TMUX", "NVIM", "VIM"))}
    return {**kept, "HOME": str(home), "SHELL": "/bin/sh", "LANG": "C.UTF-8", "TERM": "screen-256color", **more}


class Terminal:
    """A program in a tmux of its own. Without a server of the user's: the socket lies in `folder`."""

    def __init__(self, folder: Path, *command, cwd, env, columns=120, lines=40):
        self._socket = folder / "tmux"
        self._env = env
        size = ("-x", str(columns), "-y", str(lines))
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(cwd), *map(str, command))
        self._tmux("set", "-g", "escape-time", "0")

    def _tmux(self, *arguments):
        command = ["tmux", "-S", str(self._socket), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=self._env, timeout=DEADLINE_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def type(self, text, pause_s=0.0):
        """Type characters, one at a time where there is a pause."""
        for part in text if pause_s else [text]:
            self._tmux("send-keys", "-l", "--", part)
            time.sleep(pause_s)

    def press(self, *keys):
        """Press keys by tmux's names: `Tab`, `Escape`, `M-Right`."""
        self._tmux("send-keys", *keys)

    def screen(self):
        return self._tmux("capture-pane", "-p")

    def until(self, shows, deadline_s=DEADLINE_S):
        """The screen, as soon as it shows a text or satisfies a predicate."""
        satisfied = shows if callable(shows) else lambda screen: shows in screen
        end_s = time.monotonic() + deadline_s
        while not satisfied(screen := self.screen()):
            if time.monotonic() > end_s:
                raise TimeoutError(f"never on screen: {shows!r}\n{screen}")
            time.sleep(0.02)
        return screen

    def close(self):
        subprocess.run(
            ["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, timeout=DEADLINE_S, check=False
        )


class Neovim(Terminal):
    """Neovim with one file open and the cursor where `+call cursor` put it. Asked about its state over its own socket."""

    def __init__(self, program, folder: Path, source: str, config: str, *, env=None, name="a.py"):
        self._program, self._numbers = program, itertools.count()
        self._listen = folder / "nvim"
        self.work = folder / "work"
        (self.work / ".git").mkdir(parents=True)
        self.file = self.work / name
        self.file.write_text(source)
        (folder / "init.lua").write_text(config)
        self._full_env = environment(folder, **(env or {}))
        self.log = folder / "home/.local/state/nvim/lsp.log"
        command = (program, "--clean", "-n", "-u", folder / "init.lua", "--listen", self._listen, self.file)
        super().__init__(folder, *command, cwd=self.work, env=self._full_env)

    def afresh(self, source: str):
        """Another file with this text, alone in the editor, as after a start: nothing is shown, nothing was told."""
        self.file = self.work / f"a{next(self._numbers)}.py"
        self.file.write_text(source)
        self.press("Escape")
        self.until(lambda _: self.ask("vim.fn.mode()") == "n")
        assert self.ask(AFRESH.format(file=self.file))
        self.until_ready()

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


class OldNeovim(Neovim):
    """Neovim before 0.12: the plugin draws, and older calls of Lua ask."""

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
