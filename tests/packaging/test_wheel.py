"""The wheel in an empty environment, away from the checkout: what is in it, and that each command a user begins with works."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from foretype_lsp.transport.framing import Framing, frame
from foretype_models.artifacts import locate
from packaging_support import ROOT, pip
from stand_in import SHOWN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DEADLINE_S = 600.0
WHEEL_MB_MAX = 20.0
SOURCE = "def total(values):\n    result = 0\n    for value in values:\n        result += \n    return result\n"
LINE, COLUMN = 4, 19  # behind `result += `, from 1

PACKAGES = {"wire", "client", "context", "retrieval", "lsp", "backend", "eval", "models", "plan"}
EVAL = {"ab", "compare", "fim", "gate", "latency", "load", "next_edit", "replay", "report", "sandbox"}
MODELS = {"artifacts", "fetch", "pull", "use"}
LABORATORY = re.compile(r"lab|train|corpus|distill|parity|peer|speculation|fit|configs", re.IGNORECASE)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", out, ROOT)
    (found,) = out.glob("*.whl")
    return found


@dataclass(frozen=True)
class Installed:
    """An environment with nothing but the wheel and what it asks for, and a home with nothing in it."""

    scripts: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        path, network = (
            f"{self.scripts}:/usr/bin:/bin",
            os.environ["XDG_DATA_HOME"],
        )  # that of the tests: 93 MB are not fetched here
        return {"HOME": str(self.home), "XDG_DATA_HOME": network, "COLUMNS": "80", "PATH": path, "PYTHONUTF8": "1"}

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def source(self) -> Path:
        return self.home / "sums.py"

    def run(self, *arguments: str) -> str:
        """What a command prints; it ends with 0."""
        done = subprocess.run(
            [self.scripts / "foretype", *arguments],
            capture_output=True,
            text=True,
            cwd=self.home,
            env=self.environment,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def started(self, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [self.scripts / "foretype", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.home,
            env=self.environment,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)


@contextmanager
def environment_of(wheel: Path, folder: Path) -> Generator[Installed]:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    wanted = f"foretype[local] @ {wheel.as_uri()}"
    python = folder / "venv" / "bin" / "python"
    pip("--python", python, "install", "-q", "-c", ROOT / "requirements" / "lock.txt", wanted)
    home = folder / "home"
    home.mkdir()
    (home / "sums.py").write_text(SOURCE)
    it = Installed(python.parent, home)
    it.state.mkdir()
    (it.state / "private.toml").write_text(SHOWN)
    try:
        yield it
    finally:
        announced = it.state / "gateway.json"  # of the private gateway, which would stay for a minute
        if announced.exists():
            os.kill(json.loads(announced.read_bytes())["pid"], signal.SIGTERM)


def test_what_is_in_the_wheel_is_what_a_team_runs_and_nothing_of_the_laboratory(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == {f"foretype_{package}" for package in PACKAGES}
    rooms = {tuple(name.split("/")[:2]) for name in names if name.count("/") > 1}
    assert {room for package, room in rooms if package == "foretype_eval"} == EVAL
    assert {room for package, room in rooms if package == "foretype_models"} == MODELS
    ours = [name for name in names if name.startswith(("foretype_eval/", "foretype_models/", "foretype_retrieval/"))]
    assert not [name for name in ours if LABORATORY.search(name.partition("/")[2])]
    size_mb = wheel.stat().st_size / 1e6
    assert size_mb < WHEEL_MB_MAX, f"{size_mb:.1f} MB"


async def test_whoever_installs_it_away_from_the_checkout_has_all_that_they_begin_with(
    wheel: Path, tmp_path: Path
) -> None:
    # One test, since installing is most of it: tests of one module may run in several processes.
    with environment_of(wheel, tmp_path / "away from the checkout") as installed:
        nothing_of_the_checkout_is_on_the_way(installed)
        models_are_known_and_shown_in_eighty_columns(installed)
        quickstart_shows_the_model_at_work_and_how_to_attach_an_editor(installed)
        complete_answers_at_a_place_in_a_file(installed)
        doctor_finds_nothing_wrong(installed)
        serve_is_healthy_and_completes(installed)
        await lsp_initializes_and_completes_over_stdio(installed)


def nothing_of_the_checkout_is_on_the_way(installed: Installed) -> None:
    code = "import sys, foretype_client, importlib.util as u; print(foretype_client.__file__, u.find_spec('foretype_lab'), *sys.path)"
    said = subprocess.run(
        [installed.scripts / "python", "-c", code],
        capture_output=True,
        text=True,
        cwd=installed.home,
        env=installed.environment,
        check=True,
    ).stdout
    assert str(ROOT) not in said and " None " in said


def models_are_known_and_shown_in_eighty_columns(installed: Installed) -> None:
    listed = {one["family"]: one for one in json.loads(installed.run("models", "families", "--json"))}
    assert listed["qwen2.5-coder"]["proven"] and not listed["mellum"]["proven"]
    found = json.loads(installed.run("models", "identify", str(locate().path), "--json"))
    assert found.keys() >= {"family", "grammar", "complete", "missing", "chat", "ambiguous"}
    assert found["grammar"].startswith("foretype-") or "foretype-3" in found["ambiguous"]
    for command in (("use", "--list"), ("use",), ("models", "families"), ("models", "servers")):
        said = installed.run(*command)
        assert said and max(map(len, said.splitlines())) <= 80, f"{command}: {said}"


def quickstart_shows_the_model_at_work_and_how_to_attach_an_editor(installed: Installed) -> None:
    said = installed.run("quickstart", "--no-stay", "--keys", "20", "--state-dir", str(installed.state))
    assert "Attach an editor" in said and "vim.lsp.config('foretype'" in said
    assert "Playground in a browser: http://127.0.0.1:" in said


def complete_answers_at_a_place_in_a_file(installed: Installed) -> None:
    said = installed.run(
        "complete", f"{installed.source}:{LINE}:{COLUMN}", "--json", "--state-dir", str(installed.state)
    )
    assert json.loads(said)["text"]


def doctor_finds_nothing_wrong(installed: Installed) -> None:
    findings = json.loads(installed.run("doctor", "--json", "--state-dir", str(installed.state)))["findings"]
    wrong = [one for one in findings if one["status"] != "ok"]
    assert [one["name"] for one in wrong] in ([], ["grammar"]), (
        wrong
    )  # it warns of a model as weak as the one that ships


def serve_is_healthy_and_completes(installed: Installed) -> None:
    with installed.started("serve", "--port", "0", "--no-telemetry") as gateway:
        assert gateway.stdout is not None
        said = ""
        for line in gateway.stdout:
            said += line.decode()
            if (ready := re.search(r"^ready .*:(\d+)", line.decode())) is not None:
                break
        else:
            pytest.fail(said)
        host = f"127.0.0.1:{ready[1]}"
        with urllib.request.urlopen(f"http://{host}/healthz", timeout=DEADLINE_S) as answer:
            assert answer.status == 200
        place, gateway_url = f"{installed.source}:{LINE}:{COLUMN}", f"ws://{host}/v1/stream"
        assert json.loads(installed.run("complete", place, "--json", "--gateway", gateway_url))["text"]


async def lsp_initializes_and_completes_over_stdio(installed: Installed) -> None:
    with installed.started("lsp", "--unsure", "--state-dir", str(installed.state)) as server:
        editor = Editor(server)
        capabilities = (await editor.ask("initialize", processId=os.getpid(), capabilities={}))["capabilities"]
        assert "inlineCompletionProvider" in capabilities
        editor.tell("initialized")
        document = {"uri": installed.source.as_uri(), "languageId": "python", "version": 1, "text": SOURCE}
        editor.tell("textDocument/didOpen", textDocument=document)
        await editor.until("foretype/didChangeStatus", lambda status: status["state"] == "ready")
        found = await editor.ask(
            "textDocument/inlineCompletion",
            textDocument={"uri": document["uri"]},
            position={"line": LINE - 1, "character": COLUMN - 1},
            context={"triggerKind": 1},
        )
        assert all(item["insertText"] for item in found["items"])  # what random weights say may be nothing to show
        await editor.ask("shutdown")
        editor.tell("exit")


class Editor:
    """JSON-RPC over a process's standard input and output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._framing = Framing()
        self._came: list[dict[str, Any]] = []
        self._number = 0

    def tell(self, method: str, id: int | None = None, **params: Any) -> None:
        numbered = {} if id is None else {"id": id}
        message = {"jsonrpc": "2.0", "method": method, "params": params, **numbered}
        self._in.write(frame(json.dumps(message).encode()))
        self._in.flush()

    async def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self.tell(method, self._number, **params)
        answer = await self._next(lambda message: message.get("id") == self._number and "method" not in message)
        assert "error" not in answer, answer
        return answer["result"]

    async def until(self, method: str, wanted: Any) -> None:
        await self._next(lambda message: message.get("method") == method and wanted(message["params"]))

    async def _next(self, wanted: Any) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S):
            while not (found := [message for message in self._came if wanted(message)]):
                data = await asyncio.to_thread(os.read, self._out.fileno(), 1 << 16)
                assert data, f"the server ended; it said {self._came}"
                self._came += map(json.loads, self._framing.feed(data))
        return found[0]
