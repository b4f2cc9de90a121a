"""JupyterLab and Notebook 7 with the extension, in a headless Chromium."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from e2e.browser import Browser
from e2e.editors.session_support import Tapped, tapping, whole
from e2e.editors.terminal_support import DEADLINE_S, ROOT, environment
from e2e.lsp_support import server_command
from foretype_lab.processes import free_ports
from foretype_lsp.documents.documents import Documents
from foretype_lsp.documents.notebook_messages import DidChangeNotebook, DidOpenNotebook
from foretype_lsp.documents.notebooks import Notebooks
from foretype_lsp.messages import read

MODULES = ROOT / "editors" / "jupyter"
VENV = Path(os.environ.get("FORETYPE_JUPYTER") or ROOT / ".venv-jupyter")
CHROMIUM = os.environ.get("FORETYPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
TOKEN = "let-me-in-please"
BASE = "/team/lab-7/"
KERNEL = """
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

class Silent(Kernel):
    implementation, implementation_version, banner = "silent", "1", ""
    language_info = {{"name": {language!r}, "mimetype": "text/plain", "file_extension": ".txt"}}

    async def do_execute(self, code, silent, *args, **kwargs):
        return {{"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {{}}}}

IPKernelApp.launch_instance(kernel_class=Silent)
"""
NAMES = (f"n{index}.ipynb" for index in itertools.count())
MISSING = None
if not (VENV / "share/jupyter/labextensions/foretype-jupyter/package.json").exists():
    MISSING = "needs JupyterLab with the extension: make jupyter-env (or FORETYPE_JUPYTER)"
elif not (MODULES / "node_modules/playwright-core").is_dir():
    MISSING = "needs playwright-core: make jupyter-env"
elif CHROMIUM is None or shutil.which("node") is None:
    MISSING = "needs node and Chromium on the path (or FORETYPE_CHROMIUM)"

OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"codeCellConfig": {"autoClosingBrackets": False}},
}
# Neither is ours: they come on a page without the extension, too.
NOT_OURS = (
    "_runOnIdleTime",
    "reading 'schema'",
    "reading 'id'",
    "filebrowser:open-path",
    "Failed to load resource",
    "404 (Not Found)",
)


def notebook(*cells, language="python", kernel="python3"):
    """A notebook's file; a cell is the text of code, or (type, text)."""
    made = []
    for index, cell in enumerate(cells):
        kind, text = ("code", cell) if isinstance(cell, str) else cell
        own = {"execution_count": None, "outputs": []} if kind == "code" else {}
        made.append({"cell_type": kind, "id": f"c{index}", "metadata": {}, "source": text, **own})
    spec = {
        "kernelspec": {"name": kernel, "display_name": kernel, "language": language},
        "language_info": {"name": language},
    }
    return json.dumps({"cells": made, "metadata": spec, "nbformat": 4, "nbformat_minor": 5})


class Jupyter:
    """A Jupyter server with both pages, at a base URL and behind a token.

    `command` is the language server; without one it is the extension's own choice. `settings` are of JupyterLab's plugins.
    """

    def __init__(self, folder: Path, *, command=None, settings=None, arguments=()):
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        config = folder / "config"
        (config / "labconfig").mkdir(parents=True)
        own = {"JupyterNotebookApp": {"expose_app_in_browser": True}}
        if command is not None:
            own["Foretype"] = {"command": [str(part) for part in command]}
        (config / "jupyter_server_config.json").write_text(json.dumps(own))
        (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(OVERRIDES | (settings or {})))
        places = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
        env = environment(folder, **places, PATH=f"{VENV / 'bin'}:{os.environ['PATH']}")
        [self.port] = free_ports(1)
        self._log = (folder / "jupyter.log").open("w")
        self.process = subprocess.Popen(
            [
                VENV / "bin/python",
                "-m",
                "jupyterlab",
                "--no-browser",
                "--allow-root",
                "--expose-app-in-browser",
                "--ServerApp.ip=127.0.0.1",
                f"--ServerApp.port={self.port}",
                "--ServerApp.port_retries=0",
                f"--ServerApp.base_url={BASE}",
                f"--IdentityProvider.token={TOKEN}",
                f"--ServerApp.root_dir={self.work}",
                *arguments,
            ],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        end_s = time.monotonic() + DEADLINE_S
        while not self._is_up():
            if self.process.poll() is not None or time.monotonic() > end_s:
                self.close()
                raise RuntimeError(f"Jupyter did not start:\n{self.log()}")
            time.sleep(0.1)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}{BASE}"

    def _is_up(self):
        try:
            with urllib.request.urlopen(f"{self.url}api?token={TOKEN}", timeout=1):
                return True
        except OSError:
            return False

    def add_kernel(self, name, language):
        """One that runs nothing, completes nothing and says that it speaks that language."""
        spec = self.folder / "data" / "kernels" / name
        spec.mkdir(parents=True)
        (spec / "kernel.py").write_text(KERNEL.format(language=language))
        argv = [str(VENV / "bin/python"), str(spec / "kernel.py"), "-f", "{connection_file}"]
        (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name, "language": language}))

    def log(self):
        return (self.folder / "jupyter.log").read_text()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()


class Page(Browser):
    """Driven by drive_jupyter.mjs."""

    def __init__(self, jupyter: Jupyter):
        super().__init__(Path(__file__).parent / "drive_jupyter.mjs", CHROMIUM, FORETYPE_PLAYWRIGHT=str(MODULES))
        self.jupyter = jupyter

    def open(self, name, *cells, app="lab/tree", focus=None, **more):
        """Write a notebook, open it in a fresh page, and put the cursor at the end of a cell (the last)."""
        if cells:
            (self.jupyter.work / name).write_text(notebook(*cells, **more))
        reset = "reset&" if app.startswith("lab") else ""
        self.do("open", url=f"{self.jupyter.url}{app}/{name}?{reset}token={TOKEN}", cells=max(1, len(cells)))
        self.focus(len(cells) - 1 if focus is None else focus)

    def focus(self, cell):
        self.do("focus", cell=cell)

    def type(self, text, delay_ms=0):
        self.do("type", text=text, delay=delay_ms)

    def cells(self):
        return [tuple(cell) for cell in self.do("cells")]

    def active(self):
        return self.do("active")["text"]

    def ghost(self):
        return self.do("ghost")

    def drawn(self):
        """Lines with anything of a next edit: the cell and the line from 0, pieces, what comes below, the hint."""
        return [
            line
            for line in self.do("lines")
            if line["gone"] or line["below"] or line["hint"] or any(kind != "kept" for kind, _ in line["pieces"])
        ]

    def pieces(self, cell, line):
        """What of a line is struck and added."""
        found = [one["pieces"] for one in self.drawn() if (one["cell"], one["line"]) == (cell, line)]
        return [(kind, text) for kind, text in (found[0] if found else []) if kind != "kept"]

    def hint(self):
        return "".join(line["hint"] for line in self.drawn())

    def promised(self, cell):
        """The text of a cell, as the screen says that it will be."""
        made = []
        for line in self.do("lines"):
            if line["cell"] == cell:
                text = "".join(text for kind, text in line["pieces"] if kind != "struck")
                made += [*([] if line["gone"] else [text]), *(line["below"].split("\n") if line["below"] else [])]
        return "\n".join(made)

    def execute(self, id, **args):
        self.do("execute", id=id, args=args)

    def until(self, satisfied, what, deadline_s=DEADLINE_S):
        end_s = time.monotonic() + deadline_s
        while not satisfied():
            if time.monotonic() > end_s:
                if pictures := os.environ.get("FORETYPE_SCREENSHOTS"):
                    self.do("screenshot", path=f"{pictures}/jupyter-never-{time.time_ns()}.png")
                raise TimeoutError(f"never: {what}; ghost text {self.ghost()!r}, cells {self.cells()!r}")
            time.sleep(0.02)

    def kernel(self):
        """The id of the notebook's kernel, which is waited for: a cell that is run before there is one is not run, and nothing says so."""
        running = "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.id ?? ''"
        self.until(lambda: self.do("evaluate", expression=running) != "", "a kernel")
        return self.do("evaluate", expression=running)

    def until_ghost(self, text):
        self.until(lambda: self.ghost() == text, f"ghost text {text!r}")

    def complaints(self):
        return [said for said in self.do("complaints") if not any(part in said for part in NOT_OURS)]


class Lab:
    """A Jupyter server whose language server is tapped, and a page."""

    def __init__(self, folder, url, *, command=None, settings=None):
        self.tap, self.log = folder / "tap.jsonl", folder / "lsp.log"
        server = command or server_command("--gateway", url, "--no-retrieval", log=self.log)
        self.jupyter = Jupyter(folder, command=tapping(self.tap, server), settings=settings)
        self.page = Page(self.jupyter)
        self.tapped = Tapped(self.tap)

    def open(self, *cells, name="", ready=True, **more):
        name = name or next(NAMES)
        self.page.open(name, *cells, **more)
        if ready:
            self.page.until(self.is_ready, "the gateway is reached")
            self.page.until(lambda: self.of(name), "the server has the notebook")
        return name

    def is_ready(self):
        """Whether the last server that was started is."""
        state = ""
        for message in self.tapped.messages() if self.tap.exists() else ():
            if message.get("method") == "initialize":
                state = ""
            elif message.get("method") == "foretype/didChangeStatus":
                state = message["params"]["state"]
        return state == "ready"

    def said(self, who, method):
        messages = self.tapped.messages(who) if self.tap.exists() else ()
        return [message for message in messages if message.get("method") == method]

    def told(self, method):
        """Parameters of what the page said."""
        return [message["params"] for message in self.said("editor", method)]

    def of(self, name):
        """Messages about a notebook, in order."""
        return [
            message
            for message in self.tapped.messages("editor")
            if name in str(message.get("params", {}).get("notebookDocument", {}).get("uri", ""))
        ]

    def server_cells(self, name):
        """The cells that whoever followed the messages about a notebook has: (kind, text) of each."""
        notebooks = Notebooks(Documents())
        cells = {}
        for message in self.of(name):
            match message["method"]:
                case "notebookDocument/didOpen":
                    opened = read(message["params"], DidOpenNotebook)
                    uri = opened.notebook_document.uri
                    notebooks.open(uri, opened.notebook_document.cells, opened.cell_text_documents)
                case "notebookDocument/didChange":
                    changed = read(message["params"], DidChangeNotebook)
                    told = notebooks.change(changed.notebook_document.uri, changed.change.cells)
                    assert isinstance(told, list), told
            cells = notebooks._open[next(iter(notebooks._open))].joined.cells
        return [("text" if cell.markup else "code", cell.lines.text) for cell in cells]

    def agrees(self, name):
        """Wait until the server's cells are the page's."""

        def same():
            page = [("code" if kind == "code" else "text", text) for kind, text in self.page.cells()]
            return page == self.server_cells(name)

        self.page.until(same, f"the server's cells are the page's; the server's are {self.server_cells(name)}")

    def accepted(self):
        return [message["params"]["arguments"] for message in self.said("editor", "workspace/executeCommand")]

    def close(self):
        self.page.close()
        self.jupyter.close()


class Stubbed(Lab):
    """One whose language server answers what the test says."""

    def __init__(self, folder, settings=None):
        self._answer = folder / "answer.json"
        self.answer("", 0)
        command = (sys.executable, Path(__file__).parent / "stub_lsp.py", self._answer)
        super().__init__(folder, "", command=command, settings=settings)

    def answer(self, text=None, replaces=0, next=()):
        """A suggestion, or none, and the next edits (`stub_lsp.py`)."""
        suggestion = {} if text is None else {"text": text, "replaces": replaces}
        whole(self._answer, {**suggestion, "next": next})
