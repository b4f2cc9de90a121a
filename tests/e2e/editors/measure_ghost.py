"""Measure the time from the last key to visible ghost text, in a real editor with the embedded engine.

    python tests/e2e/editors/measure_ghost.py jupyter|neovim|neovim-old|emacs|vscode [-n 30] [--rest-s 0.5] [--engine shared|scripted]

Each sample goes to a line of a module of the standard library, empties it, rests there for half a second as somebody does who
looks before writing (`--rest-s`), retypes its start at 20 ms a key (any slower and the text is there before the last key), and waits for ghost text that was not there before the last
key. Three of ten suggestions are accepted, so that the debounce is that of a usual user. Neovim and Emacs run in a terminal of ours: visible is when the bytes that draw the text in
its own colour arrive. VS Code runs in Chromium: visible is the first frame whose page holds the text. `stages_ms` says where the
time went, medians of the shown, from the key on: the server had the change, sent its request, had the first token, had the
question, had answered it, it was visible. A request that a key before the last one caused, and that still fits, was sent before it.
"""

import argparse
import contextlib
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
from contextlib import closing
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

import psutil
from e2e.editors import emacs_support, jupyter_support, neovim_support
from e2e.editors.session_support import Tapped, tapping
from e2e.editors.span_support import collector
from e2e.editors.terminal_support import environment, find
from e2e.editors.vscode_support import VsCode
from e2e.lsp_support import gateway, server_command

KEY_S = 0.02
REST_S = 0.5
PATIENCE_S = 3.0
ACCEPTED = (1, 4, 7)  # of ten
STAGES = ("changed", "sent", "first_token", "asked", "answered", "visible")
COLOUR = b"38;2;18;52;86"  # of the ghost text, and of nothing else
NEOVIM = """
vim.opt.termguicolors = true
vim.g.loaded_matchparen = 1
vim.api.nvim_set_hl(0, 'ComplHint', { fg = '#123456' })
vim.api.nvim_set_hl(0, 'ForetypeGhost', { fg = '#123456' })
"""
EMACS = """
(set-face-attribute 'lsp-inline-completion-overlay-face nil :inherit 'unspecified :foreground "#123456")
(global-set-key (kbd "C-c r") (lambda () (interactive) (revert-buffer t t t)))
(defun measured-line (line)
  (goto-char (point-min)) (forward-line (1- line)) (delete-region (point) (line-end-position)))
(global-set-key (kbd "C-c l") (lambda (line) (interactive "nLine: ") (measured-line line)))
"""


@contextlib.contextmanager
def private(folder):
    """The user's private gateway with the embedded engine, as the language server starts it."""
    state = folder / "state"
    try:
        yield "--state-dir", state, "--unsure"  # the shipped model shows nothing unasked, and it is what is timed
    finally:
        if (record := state / "gateway.json").exists():
            running = psutil.Process(json.loads(record.read_text())["pid"])
            running.terminate()
            running.wait(PATIENCE_S)


@contextlib.contextmanager
def shared(folder, engine="embedded"):
    """A gateway that the language server takes for a team's, so that nothing is computed beforehand."""
    with gateway(folder, engine=engine) as served:
        yield "--gateway", served.url


def scripted(folder):
    """The same without a model."""
    return shared(folder, "scripted")


BACKENDS = {"embedded": private, "shared": shared, "scripted": scripted}


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


class Sample(NamedTuple):
    """One last key: when it was pressed (`at_ms`, monotonic) and how long until ghost text was visible, None if never.

    `before`: there was ghost text before that key, so that what was seen is not the answer to it.
    """

    at_ms: float
    taken_ms: float | None
    before: bool


class InTerminal:
    """An editor in a terminal of ours; ready when the server's log says so."""

    def __init__(self, program, arguments, folder, rest_s, **env):
        self._rest_s = rest_s
        self._log = folder / "lsp.log"
        full_env = environment(folder, TERM="xterm-256color", COLORTERM="truecolor", **env)
        pid, self._fd = pty.fork()
        if pid == 0:
            os.execvpe(program, [program, *map(str, arguments)], full_env)
        ioctl(self._fd, TIOCSWINSZ, pack("HHHH", 40, 120, 0, 0))
        while not (self._log.exists() and "status: ready" in self._log.read_text()):
            self._read(0.1)

    def press(self, keys):
        os.write(self._fd, keys.encode())

    def _read(self, seconds):
        """What it draws, until nothing came for that long."""
        out = b""
        while select.select([self._fd], [], [], seconds)[0]:
            out += os.read(self._fd, 1 << 16)
        return out

    def open_line(self, line):
        """The file as it was, with that line emptied and the cursor on it."""
        raise NotImplementedError

    def sample(self, line, text, accepted):
        self.open_line(line)
        self._read_for(self._rest_s)
        before = b""
        for char in text[:-1]:
            self.press(char)
            before += self._read_for(KEY_S)
        started_s = time.perf_counter()
        self.press(text[-1])
        while (left_s := started_s + PATIENCE_S - time.perf_counter()) > 0:
            if select.select([self._fd], [], [], left_s)[0] and COLOUR in os.read(self._fd, 1 << 16):
                taken_ms = (time.perf_counter() - started_s) * 1000
                if accepted:
                    self.press("\t")
                    self._read(0.1)
                return Sample(started_s * 1000, taken_ms, COLOUR in before)
        return Sample(started_s * 1000, None, COLOUR in before)

    def _read_for(self, seconds):
        out, end_s = b"", time.perf_counter() + seconds
        while (left_s := end_s - time.perf_counter()) > 0:
            if select.select([self._fd], [], [], left_s)[0]:
                out += os.read(self._fd, 1 << 16)
        return out

    def close(self):
        with contextlib.suppress(OSError):  # it has ended
            self._read_for(1.0)
        os.close(self._fd)


def server(folder, backend):
    """Command of the language server; `backend` are the arguments that say where its gateway is."""
    log = ("--log-file", folder / "lsp.log", "--log-level", "info")
    return [*map(str, tapping(folder / "tap.jsonl", server_command(*backend, *log)))]


class Neovim(InTerminal):
    kind = neovim_support.Neovim

    def __init__(self, folder, backend, rest_s):
        file = folder / "a.py"
        file.write_text(Path(textwrap.__file__).read_text())
        init = neovim_support.written(folder, server(folder, backend), NEOVIM)
        super().__init__(find(*self.kind.PROGRAM), ["--clean", "-n", "-u", init, file], folder, rest_s)

    def open_line(self, line):
        self.press(f"\x1b:e!\r:{line}\r")
        self._read(0.5)
        self.press("S")

    def close(self):
        self.press("\x1b:qa!\r")
        super().close()


class OldNeovim(Neovim):
    kind = neovim_support.OldNeovim


class Emacs(InTerminal):
    def __init__(self, folder, backend, rest_s):
        file = folder / "a.py"
        file.write_text(Path(textwrap.__file__).read_text())
        (folder / "emacs").mkdir(mode=0o700)
        init = emacs_support.written(folder, server(folder, backend), EMACS)
        super().__init__("emacs", ["-nw", "-Q", "-l", init, file], folder, rest_s)

    def open_line(self, line):
        self.press("\x07\x03r")
        self._read(0.5)
        self.press(f"\x03l{line}\r")

    def close(self):
        self.press("\x07\x18\x03n\x18\x03yes\r")
        super().close()


class Code:
    def __init__(self, folder, backend, rest_s):
        self._rest_s = rest_s
        launcher = folder / "foretype"
        launcher.write_text(f"#!/bin/sh\nexec {' '.join(server(folder, backend))}\n")
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

    def sample(self, line, text, accepted):
        it = self._it
        it.press("Escape", "Control+g")
        it.type(str(line))
        it.press("Enter", "Home", "Shift+End", "Delete")
        time.sleep(self._rest_s)
        it.type(text[:-1], delay_ms=KEY_S * 1000)
        before = bool(it.ghost().strip())
        seen = it.do("key_to_ghost", key=text[-1], timeout=PATIENCE_S * 1000)
        at_ms = time.perf_counter() * 1000 - seen["ago"]
        it.press("Tab" if accepted and seen["taken"] is not None else "Escape", *["Control+z"] * 12)
        return Sample(at_ms, seen["taken"], before)

    def close(self):
        self._it.close()


class InJupyter:
    """The module in three cells of a notebook: what stands above and below the line, and the one with the line.

    The line is emptied to its indentation, as in VS Code. A line that JupyterLab made by Enter may have none, and Delete in an
    empty line takes the next one up: then a statement stands right of the cursor, where nothing is shown unasked.
    """

    def __init__(self, folder, backend, rest_s):
        self._rest_s = rest_s
        self._lines = Path(textwrap.__file__).read_text().splitlines()
        self._jupyter = jupyter_support.Jupyter(folder, command=server(folder, backend))
        self._it = jupyter_support.Page(self._jupyter)
        self._log = folder / "lsp.log"

    def sample(self, line, text, accepted):
        it = self._it
        first, last = max(0, line - 15), line + 10
        parts = self._lines[:first], self._lines[first:last], self._lines[last:]
        it.open("measured.ipynb", *("\n".join(part) for part in parts), focus=1)
        it.until(lambda: self._log.exists() and "status: ready" in self._log.read_text(), "ready")
        it.press("Control+Home", *["ArrowDown"] * (line - 1 - first), "End", "Home", "Shift+End", "Delete")
        cell, indentation = it.active(), self._lines[line - 1][: -len(self._lines[line - 1].lstrip())]
        assert cell.split("\n")[line - 1 - first] == indentation, f"the line is not emptied: {cell}"
        time.sleep(self._rest_s)
        it.type(text[:-1], delay_ms=KEY_S * 1000)
        seen = bool(it.ghost().strip())
        shown = it.do("key_to_ghost", key=text[-1], timeout=PATIENCE_S * 1000)
        at_ms = time.perf_counter() * 1000 - shown["ago"]
        if accepted and shown["taken"] is not None:
            it.press("Tab")
        return Sample(at_ms, shown["taken"], seen)

    def close(self):
        self._it.close()
        self._jupyter.close()
        time.sleep(PATIENCE_S)  # the language server ends with the Jupyter server, which does not wait for it


EDITORS = {"jupyter": InJupyter, "neovim": Neovim, "neovim-old": OldNeovim, "emacs": Emacs, "vscode": Code}


class Shown(NamedTuple):
    """Where the time went for one suggestion that was shown: milliseconds from the key on, and what the engine did for it."""

    stages_ms: list[float]
    computed_tokens: int | None
    prefill_ms: float | None


def explained(log, requests, shown):
    """Of each sample whose suggestion a request made: a `Shown`."""
    messages = list(Tapped(log).entries())
    for sample in shown:
        seen_ms = sample.at_ms + sample.taken_ms
        here = [(at_ms, speaker, message) for speaker, at_ms, message in messages if sample.at_ms <= at_ms <= seen_ms]
        changed = [
            at_ms
            for at_ms, _, message in here
            if message.get("method") in ("textDocument/didChange", "notebookDocument/didChange")
        ]
        answers = [(at_ms, message["id"]) for at_ms, who, message in here if who == "server" and _items(message)]
        if changed and answers:
            answered_ms, id = answers[-1]
            asked = [at_ms for at_ms, who, message in here if who == "editor" and message.get("id") == id]
            made = [one for one in requests if sample.at_ms < one.first_token_ms <= answered_ms]
            if asked and made:
                request = made[-1]
                times = (changed[-1], request.sent_ms, request.first_token_ms, asked[-1], answered_ms, seen_ms)
                yield Shown([at_ms - sample.at_ms for at_ms in times], request.computed_tokens, request.prefill_ms)


def _items(message):
    result = message.get("result")
    return isinstance(result, dict) and result.get("items")


def _median(values):
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 1) if known else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("editor", choices=EDITORS)
    parser.add_argument("-n", type=int, default=30)
    parser.add_argument(
        "--engine", choices=BACKENDS, default="embedded", help="shared: not private; scripted: without a model"
    )
    parser.add_argument("--rest-s", type=float, default=REST_S, help="rest on the line before it is typed")
    options = parser.parse_args()
    taken = []
    # An editor that was told to end may write for another moment.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, collector() as (spans, tracing):
        os.environ.update(tracing)  # the gateway's, and the language server's through its editor
        with (
            BACKENDS[options.engine](Path(name)) as backend,
            closing(EDITORS[options.editor](Path(name), backend, options.rest_s)) as editor,
        ):
            taken = [editor.sample(*sample, i % 10 in ACCEPTED) for i, sample in enumerate(samples(options.n))]
        seen = [sample for sample in taken if sample.taken_ms is not None and not sample.before]
        if not seen:
            sys.exit(f"{len(taken)} lines were typed in {options.editor}, and nothing was shown after a last key")
        made = list(explained(Path(name) / "tap.jsonl", spans.asked(), seen))
    by_stage = zip(*(one.stages_ms for one in made), strict=True)
    shown = sorted(sample.taken_ms for sample in seen)
    figures = {
        "editor": options.editor,
        "engine": options.engine,
        "rest_s": options.rest_s,
        "asked": len(taken),
        "shown": len(shown),
        "shown_before": sum(sample.before for sample in taken),
        "p50_ms": round(statistics.median(shown), 1),
        "p90_ms": round(shown[int(len(shown) * 0.9)], 1),
        "max_ms": round(shown[-1], 1),
        "stages_ms": dict(zip(STAGES, map(_median, by_stage), strict=False)),
        "by_model": len(made),
        "computed_tokens": _median(one.computed_tokens for one in made),
        "prefill_ms": _median(one.prefill_ms for one in made),
        "load": os.getloadavg()[0],
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "samples_ms": [sample.taken_ms and round(sample.taken_ms, 1) for sample in taken],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
