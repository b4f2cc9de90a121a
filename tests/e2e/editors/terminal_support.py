"""Editors of the terminal, driven as a user would: keys into tmux, and the screen that comes back."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

DEADLINE_S = 180.0
ASK_TIMEOUT_S = 8.0  # longer than the longest wait inside a question
ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = {"neovim": "nvim", "neovim-old": "nvim", "helix": "hx"}
INSTALLED = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "foretype-editors"


def find(name, variable):
    """A program of an editor: named by a variable of the environment, installed by `editors/install-*`, or on the path."""
    if given := os.environ.get(variable):
        return given
    installed = INSTALLED / name / "bin" / PROGRAMS[name]
    return str(installed) if installed.exists() else shutil.which(installed.name)


def available(kind):
    """A kind of editor; where it cannot be tried the test is skipped."""
    if reason := kind.missing():
        pytest.skip(reason)
    return kind


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

    def screen(self, colours=False):
        return self._tmux("capture-pane", "-p", *["-e"] * colours)

    def until(self, shows, deadline_s=DEADLINE_S):
        """The screen, as soon as it shows a text or satisfies a predicate."""
        satisfied = shows if callable(shows) else lambda screen: shows in screen
        end_s = time.monotonic() + deadline_s
        while not satisfied(screen := self.screen()):
            if time.monotonic() > end_s:
                raise TimeoutError(f"never on screen: {shows!r}\n{screen}")
            time.sleep(0.02)
        return screen

    def offered(self):
        """At the end of the file stands `    value = `, and behind it what a scripted gateway says there."""
        self.new_line()
        self.type("    value = ")
        self.until("value = value =  # scripted")

    def taken(self):
        """Tab, and what a scripted gateway says is in the buffer."""
        self.press("Tab")
        self.until(lambda _: "scripted" in self.buffer())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        subprocess.run(
            ["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, timeout=DEADLINE_S, check=False
        )
