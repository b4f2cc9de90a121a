"""Measure the time from the last key to visible ghost text, in a real editor with the embedded engine.

    python tests/e2e/editors/measure_ghost.py neovim|vscode [-n 30] [--engine scripted]

Each sample retypes the start of one line of a module of the standard library, at 40 ms a key, and waits for ghost text that
was not there before the last key. Neovim runs in a terminal of ours: visible is when the bytes that draw the text in its own
colour arrive. VS Code runs in Chromium: visible is the first frame whose page holds the text.
"""

import argparse
import json
import os
import platform
import pty
import random
import select
import statistics
import sys
import tempfile
import textwrap
import time
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from e2e.editors.terminal_support import environment, find
from e2e.editors.vscode_support import VsCode
from e2e.lsp_support import gateway

KEY_S = 0.04
PATIENCE_S = 3.0
COLOUR = b"38;2;18;52;86"  # of the ghost text, and of nothing else
CONFIG = """
vim.opt.runtimepath:prepend('{root}/editors/nvim')
vim.opt.termguicolors = true
vim.opt.swapfile = false
vim.g.loaded_matchparen = 1
require('foretype').setup({{ cmd = {{ '{python}', '-m', 'foretype_lsp', '--gateway', '{url}', '--log-file', '{log}', '--log-level', 'info' }} }})
vim.api.nvim_set_hl(0, 'ComplHint', {{ fg = '#123456' }})
"""


def samples(count, seed=7):
    """Line numbers (from 1) and the text to type there: the first part of what is on the line."""
    lines = Path(textwrap.__file__).read_text().splitlines()
    good = [
        i for i, line in enumerate(lines) if len(line.strip()) > 14 and not line.strip().startswith(("#", '"', "'"))
    ]
    rng = random.Random(seed)
    for i in rng.sample(good, count):
        text = lines[i].strip()
        yield i + 1, text[: rng.randint(5, len(text) - 6)].rstrip()


class Neovim:
    def __init__(self, folder, url):
        program = find("neovim", "FORETYPE_NVIM")
        file = folder / "a.py"
        file.write_text(Path(textwrap.__file__).read_text())
        self._log = folder / "lsp.log"
        config = folder / "init.lua"
        config.write_text(CONFIG.format(root=ROOT, python=sys.executable, url=url, log=self._log))
        env = environment(folder, TERM="xterm-256color")
        pid, self._fd = pty.fork()
        if pid == 0:
            os.execve(program, [program, "--clean", "-n", "-u", str(config), str(file)], env)
        ioctl(self._fd, TIOCSWINSZ, pack("HHHH", 40, 120, 0, 0))
        while not (self._log.exists() and "status: ready" in self._log.read_text()):
            self._read(0.1)

    def _read(self, seconds):
        """What it draws, until nothing came for that long."""
        out = b""
        while select.select([self._fd], [], [], seconds)[0]:
            out += os.read(self._fd, 1 << 16)
        return out

    def sample(self, line, text):
        os.write(self._fd, f"\x1b:e!\r:{line}\r".encode())
        self._read(0.5)
        os.write(self._fd, b"S")
        self._read(0.15)
        for char in text[:-1]:
            os.write(self._fd, char.encode())
            self._read_for(KEY_S)
        started_s = time.perf_counter()
        os.write(self._fd, text[-1].encode())
        while (left_s := started_s + PATIENCE_S - time.perf_counter()) > 0:
            if select.select([self._fd], [], [], left_s)[0] and COLOUR in os.read(self._fd, 1 << 16):
                return (time.perf_counter() - started_s) * 1000
        return None

    def _read_for(self, seconds):
        out, end_s = b"", time.perf_counter() + seconds
        while (left_s := end_s - time.perf_counter()) > 0:
            if select.select([self._fd], [], [], left_s)[0]:
                out += os.read(self._fd, 1 << 16)
        return out

    def close(self):
        os.write(self._fd, b"\x1b:qa!\r")
        self._read_for(1.0)
        os.close(self._fd)


class Code:
    def __init__(self, folder, url):
        launcher = folder / "foretype"
        launcher.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -m foretype_lsp --gateway {url} "$@"\n')
        launcher.chmod(0o755)
        settings = {
            "foretype.server.path": str(launcher),
            "editor.autoClosingBrackets": "never",
            "editor.autoClosingQuotes": "never",
            "editor.quickSuggestions": {"other": "off"},
            "editor.suggestOnTriggerCharacters": False,
            "workbench.startupEditor": "none",
        }
        self._it = VsCode(folder, Path(textwrap.__file__).read_text(), settings)
        self._it.do("focus")
        self._it.until(lambda: "ready" in (self._it.do("status") or ""), "ready")

    def sample(self, line, text):
        it = self._it
        it.press("Escape", "Control+g")
        it.type(str(line))
        it.press("Enter", "Home", "Shift+End", "Delete")
        it.type(text[:-1], delay_ms=KEY_S * 1000)
        shown_before = bool(it.ghost().strip())
        taken_ms = it.do("key_to_ghost", key=text[-1], timeout=PATIENCE_S * 1000)
        it.press("Escape", *["Control+z"] * 12)
        return None if shown_before else taken_ms

    def close(self):
        self._it.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("editor", choices=["neovim", "vscode"])
    parser.add_argument("-n", type=int, default=30)
    parser.add_argument(
        "--engine", choices=["embedded", "scripted"], default="embedded", help="scripted: without a model"
    )
    options = parser.parse_args()
    taken_ms = []
    with tempfile.TemporaryDirectory() as name, gateway(Path(name), engine=options.engine) as served:
        editor = {"neovim": Neovim, "vscode": Code}[options.editor](Path(name), served.url)
        try:
            taken_ms = [editor.sample(*sample) for sample in samples(options.n)]
        finally:
            editor.close()
    shown = sorted(ms for ms in taken_ms if ms is not None)
    figures = {
        "editor": options.editor,
        "engine": options.engine,
        "asked": len(taken_ms),
        "shown": len(shown),
        "p50_ms": round(statistics.median(shown), 1),
        "p90_ms": round(shown[int(len(shown) * 0.9)], 1),
        "max_ms": round(shown[-1], 1),
        "load": os.getloadavg()[0],
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "samples_ms": [None if ms is None else round(ms, 1) for ms in taken_ms],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
