"""VS Code: code-server with the built extension, in a headless Chromium."""

import json
import os
import shlex
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

from e2e.browser import CHROMIUM, DEADLINE_S, Browser, ended, until_up
from e2e.editors.session_support import tapping
from e2e.editors.terminal_support import INSTALLED, ROOT, environment
from e2e.lsp_support import server_command
from foretype_lab.processes import free_ports

EXTENSION = ROOT / "editors" / "vscode" / "foretype.vsix"
TOOLS = Path(os.environ.get("FORETYPE_VSCODE") or INSTALLED / "vscode")
NODE = TOOLS / "node/node_modules/node/bin/node"
SERVER = TOOLS / "node_modules/code-server/out/node/entry.js"
MISSING = None
if not all(file.exists() for file in (NODE, SERVER, TOOLS / "node_modules/playwright-core/package.json")):
    MISSING = "needs code-server: editors/install-vscode.sh (or FORETYPE_VSCODE)"
elif CHROMIUM is None:
    MISSING = "needs Chromium on the path (or FORETYPE_CHROMIUM)"
elif not EXTENSION.exists():
    MISSING = "needs the extension: (cd editors/vscode && npm install && npm run package)"

QUIET = {
    "workbench.startupEditor": "none",
    "security.workspace.trust.enabled": False,
    "chat.commandCenter.enabled": False,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    "editor.autoClosingBrackets": "never",
    "remote.autoForwardPorts": False,  # it says so in a notification where other programs open many
}
SAVED_BY_HAND = {"files.autoSave": "off"}  # in a browser VS Code saves by itself, whenever it has time
TABS_ARE_TABS = {
    "editor.autoIndent": "none",
    "editor.insertSpaces": False,
    "editor.detectIndentation": False,
    "editor.useTabStops": False,
}
_FIRST_MS, _TRIES = 20_000, 6
_CLEAN_S, _LOST_S = 1.5, 10.0


def launcher(folder: Path, command):
    """A program that takes `lsp`, as `foretype` does, and runs this command; its path."""
    file = folder / "foretype"
    file.write_text(f'#!/bin/sh\nshift\nexec {shlex.join(map(str, command))} "$@"\n')
    file.chmod(0o755)
    return str(file)


def tapped_launcher(folder: Path, url):
    """The same of our own server with this gateway; `tap.jsonl` is what it says and hears."""
    return launcher(folder, tapping(folder / "tap.jsonl", server_command("--gateway", url)))


class VsCode(Browser):
    """VS Code with one file open, its cursor at the start; driven by drive_vscode.mjs.

    `files` are written into the open folder before, by their paths; with `trust` VS Code trusts every folder.
    """

    NAME = "vscode"

    def __init__(
        self, folder: Path, source: str, settings: dict, *, name="a.py", env_more=None, files=None, trust=True
    ):
        self.work = folder / "work"
        (self.work / ".git").mkdir(parents=True)
        self.file = self.work / name
        self.file.write_text(source)
        for path, text in (files or {}).items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).write_text(text)
            (self.work / path).chmod(0o755)
        data, extensions = folder / "data", folder / "extensions"
        (data / "User").mkdir(parents=True)
        self._data = data
        (data / "User/settings.json").write_text(json.dumps({**SAVED_BY_HAND, **settings}))
        env = environment(folder, FORETYPE_PLAYWRIGHT=str(TOOLS))
        own = env | {"PATH": f"{NODE.parent}:{env['PATH']}", **(env_more or {})}
        places = ("--user-data-dir", data, "--extensions-dir", extensions)
        install = [NODE, SERVER, *places, "--install-extension", EXTENSION]
        subprocess.run(install, env=own, check=True, capture_output=True, timeout=DEADLINE_S)
        [port] = free_ports(1)
        quiet = ("--disable-telemetry", "--disable-update-check", *(("--disable-workspace-trust",) if trust else ()))
        self._log = (folder / "code-server.log").open("w")
        self._server = subprocess.Popen(
            [NODE, SERVER, *places, "--auth", "none", "--bind-addr", f"127.0.0.1:{port}", *quiet],
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        driver = Path(__file__).parent / "drive_vscode.mjs"
        super().__init__(driver, NODE, env=own | {"PATH": env["PATH"]}, stderr=self._log, start_new_session=True)
        try:
            until_up(f"http://127.0.0.1:{port}/healthz", self._server)
            payload = quote(json.dumps([["openFile", f"vscode-remote://127.0.0.1:{port}{self.file}"]]))
            url = f"http://127.0.0.1:{port}/?folder={quote(str(self.work))}&payload={payload}"
            self.do("open", url=url, browser=CHROMIUM, profile=str(folder / "chromium"))
        except BaseException:
            self.close()
            raise

    @staticmethod
    def missing():
        """Why it cannot be tried here, or None."""
        return MISSING

    def configure(self, settings: dict):
        """Give this machine settings and load the window anew: those of programs are not taken from the user's once it runs."""
        (self._data / "Machine").mkdir(exist_ok=True)
        (self._data / "Machine/settings.json").write_text(json.dumps(settings))
        self.do("reload")
        self.do("focus")

    def status(self):
        """What the status item says."""
        return self.do("status") or ""

    def until_ready(self):
        self.do("focus")
        self.until(lambda: "ready" in self.status(), "the status item says ready")

    def complaints(self):
        """Notifications that popped up."""
        return self.do("notifications")

    def run(self, title):
        """Run a command by its title, through the command palette."""
        self.pick("F1", title, title)

    def open(self, file: Path):
        """Open a file by its path."""
        self.pick("Control+p", str(file), file.name)
        self.until(lambda: self.do("tab") == file.name, f"{file.name} is open")

    def show(self, file: Path):
        """Open a file: keys go to it, and it is the one that is saved."""
        self.file = file
        self.open(file)
        self.do("focus")

    def edit(self, file: Path, text: str):
        """Write a file and show it."""
        file.write_text(text)
        self.show(file)

    def pick(self, key, text, row="", *, opens=False):
        """Enter takes the first row, which on a busy machine is that of a moment ago. A palette that is filled while somebody types
        loses what was typed: its user types anew then. `opens`: what is taken shows rows of its own."""
        for _ in range(_TRIES):
            self.press(key)
            self.do("palette", shown=True)
            self.do("insert", text=text)
            found = not row or self.do("first", text=row, timeout=_FIRST_MS)
            rows = self.do("rows")
            self.press("Enter" if found else "Escape")
            self.do("palette", shown=found and opens)
            if found:
                return
        raise TimeoutError(f"never the palette's first row: {row!r}; there are {rows[:3]}")

    def state(self):
        return f"ghost text {self.ghost()!r}, status {self.do('status')!r}"

    def saved(self, file=None):
        """The buffer, through the file: `self.file`, if no other.

        It is saved when the file was written and the tab is clean, or was clean for so long that what was typed would have
        shown in it: nothing is written where nothing changed. A window that was loaded anew may not hear the first key.
        """
        file = file or self.file
        before, pressed_s, clean_s = file.stat().st_mtime_ns, float("-inf"), 0.0

        def lies_on_disk():
            nonlocal pressed_s, clean_s
            now_s = time.monotonic()
            if now_s - pressed_s > _LOST_S:
                self.press("Control+s")
                pressed_s = clean_s = time.monotonic()
            if self.do("dirty"):
                clean_s = now_s
                return False
            return file.stat().st_mtime_ns != before or now_s - clean_s > _CLEAN_S

        self.until(lies_on_disk, "saved")
        text = None
        while text != (text := file.read_text()):  # a file is emptied first and written then
            time.sleep(0.1)
        return text

    def saves(self, wanted, file=None):
        """The buffer becomes this text, and is saved. What a key does may come later than the key."""

        def saved():
            self.press("Control+s")
            time.sleep(0.2)
            return (file or self.file).read_text() == wanted

        self.until(saved, f"saved as {wanted!r}")

    def cells(self, notebook):
        """Save, and the text of each cell as it lies on disk; none while the file is being written."""
        self.press("Control+s")
        try:
            return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"]]
        except json.JSONDecodeError:
            return []

    def close(self):
        super().close()
        if self._server.poll() is None:
            self._server.terminate()
        ended(self._server)
        self._log.close()
