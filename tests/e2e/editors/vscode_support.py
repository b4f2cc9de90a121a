"""VS Code: code-server with the built extension, in a headless Chromium."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

from e2e.editors.terminal_support import DEADLINE_S, INSTALLED, ROOT, environment
from foretype_lab.processes import free_ports

EXTENSION = ROOT / "editors" / "vscode" / "foretype.vsix"

# In a browser VS Code saves by itself, whenever it has time; and a window that is loaded anew while it saves may begin with the
# copy of a moment ago, whose save would be refused since the file is newer.
SAVED_BY_HAND = {"files.autoSave": "off", "files.saveConflictResolution": "overwriteFileOnDisk"}
_FIRST_MS, _TRIES = 20_000, 6
_CLEAN_S, _LOST_S = 1.5, 10.0


class Missing(Exception):
    """A part of VS Code that is not installed; says how to get it."""


def parts():
    """Paths of node, code-server, playwright-core's folder and Chromium. Raises Missing."""
    folder = Path(os.environ.get("FORETYPE_VSCODE") or INSTALLED / "vscode")
    node = folder / "node/node_modules/node/bin/node"
    server = folder / "node_modules/code-server/out/node/entry.js"
    chromium = os.environ.get("FORETYPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    for file in (node, server, folder / "node_modules/playwright-core/package.json"):
        if not file.exists():
            raise Missing("needs code-server: editors/install-vscode.sh (or FORETYPE_VSCODE)")
    if chromium is None:
        raise Missing("needs Chromium on the path (or FORETYPE_CHROMIUM)")
    if not EXTENSION.exists():
        raise Missing("needs the extension: (cd editors/vscode && npm install && npm run package)")
    return node, server, folder, chromium


class VsCode:
    """VS Code with one file open, its cursor at the start.

    `files` are written into the open folder before, by their paths; with `trust` VS Code trusts every folder.
    """

    def __init__(
        self, folder: Path, source: str, settings: dict, *, name="a.py", env_more=None, files=None, trust=True
    ):
        node, server, tools, chromium = parts()
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
        env = environment(folder, FORETYPE_PLAYWRIGHT=str(tools))
        env |= {"PATH": f"{node.parent}:{env['PATH']}", **(env_more or {})}
        places = ("--user-data-dir", data, "--extensions-dir", extensions)
        install = [node, server, *places, "--install-extension", EXTENSION]
        subprocess.run(install, env=env, check=True, capture_output=True, timeout=DEADLINE_S)
        [port] = free_ports(1)
        quiet = ("--disable-telemetry", "--disable-update-check", *(("--disable-workspace-trust",) if trust else ()))
        self._log = (folder / "code-server.log").open("w")
        self._server = subprocess.Popen(
            [node, server, *places, "--auth", "none", "--bind-addr", f"127.0.0.1:{port}", *quiet],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._browser = None
        try:
            _until_up(f"http://127.0.0.1:{port}/healthz")
            self._browser = subprocess.Popen(
                [node, Path(__file__).parent / "drive_vscode.mjs"],
                env={**env, "PATH": os.environ["PATH"]},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                start_new_session=True,
            )
            payload = quote(json.dumps([["openFile", f"vscode-remote://127.0.0.1:{port}{self.file}"]]))
            url = f"http://127.0.0.1:{port}/?folder={quote(str(self.work))}&payload={payload}"
            self.do("open", url=url, browser=chromium, profile=str(folder / "chromium"))
        except BaseException:
            self.close()
            raise

    def configure(self, settings: dict):
        """Give this machine settings and load the window anew: those of programs are not taken from the user's once it runs."""
        (self._data / "Machine").mkdir(exist_ok=True)
        (self._data / "Machine/settings.json").write_text(json.dumps(settings))
        self.do("reload")
        self.do("focus")

    def do(self, command, **options):
        """One command of drive_vscode.mjs."""
        self._browser.stdin.write(json.dumps({"command": command, **options}) + "\n")
        self._browser.stdin.flush()
        line = self._browser.stdout.readline()
        if not line:
            raise RuntimeError(f"the browser's driver ended with {self._browser.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer["result"]

    def run(self, title):
        """Run a command by its title, through the command palette."""
        self._pick("F1", title, title)

    def open(self, file: Path):
        """Open a file by its path."""
        self._pick("Control+p", str(file), file.name)
        self.until(lambda: self.do("tab") == file.name, f"{file.name} is open")

    def _pick(self, key, text, row=""):
        """Enter takes the first row, which on a busy machine is that of a moment ago. A palette that is filled while somebody types
        loses what was typed: its user types anew then."""
        for _ in range(_TRIES):
            self.press(key)
            self.do("palette", shown=True)
            self.do("insert", text=text)
            found = not row or self.do("first", text=row, timeout=_FIRST_MS)
            rows = self.do("rows")
            self.press("Enter" if found else "Escape")
            self.do("palette", shown=False)
            if found:
                return
        raise TimeoutError(f"never the palette's first row: {row!r}; there are {rows[:3]}")

    def type(self, text, delay_ms=0):
        self.do("type", text=text, delay=delay_ms)

    def press(self, *keys):
        self.do("press", keys=keys)

    def ghost(self):
        return self.do("ghost")

    def until(self, satisfied, what, deadline_s=DEADLINE_S):
        end_s = time.monotonic() + deadline_s
        while not satisfied():
            if time.monotonic() > end_s:
                if pictures := os.environ.get("FORETYPE_SCREENSHOTS"):
                    self.do("screenshot", path=f"{pictures}/vscode-never-{time.time_ns()}.png")
                shown = (
                    f"ghost text {self.ghost()!r}, status {self.do('status')!r}, messages {self.do('notifications')}"
                )
                raise TimeoutError(f"never: {what}; {shown}, unsaved {self.do('dirty')}")
            time.sleep(0.05)

    def saved(self):
        """The buffer, through the file.

        It is saved when the file was written and the tab is clean, or was clean for so long that what was typed would have
        shown in it: nothing is written where nothing changed. A window that was loaded anew may not hear the first key.
        """
        before, pressed_s, clean_s = self.file.stat().st_mtime_ns, float("-inf"), 0.0

        def lies_on_disk():
            nonlocal pressed_s, clean_s
            now_s = time.monotonic()
            if now_s - pressed_s > _LOST_S:
                self.press("Control+s")
                pressed_s = clean_s = time.monotonic()
            if self.do("dirty"):
                clean_s = now_s
                return False
            return self.file.stat().st_mtime_ns != before or now_s - clean_s > _CLEAN_S

        self.until(lies_on_disk, "saved")
        text = None
        while text != (text := self.file.read_text()):  # a file is emptied first and written then
            time.sleep(0.1)
        return text

    def cells(self, notebook):
        """Save, and the text of each cell as it lies on disk; none while the file is being written."""
        self.press("Control+s")
        try:
            return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"]]
        except json.JSONDecodeError:
            return []

    def close(self):
        for process in (self._browser, self._server):
            if process is not None and process.poll() is None:
                if process is self._browser:
                    process.stdin.write('{"command": "close"}\n')
                    process.stdin.close()
                else:
                    process.terminate()
                try:
                    process.wait(DEADLINE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if self._browser is not None:
            self._browser.stdout.close()
        self._log.close()


def _until_up(url):
    end_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urlopen(url, timeout=1):
                return
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)
