"""The built wheels through the installers that people use: pipx, uvx, and pip into an environment with JupyterLab.

The installers come from the package index, each into an environment of its own.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from foretype_lab.processes import free_ports
from packaging_support import ROOT, pip
from websockets.sync.client import connect

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(900)]

DEADLINE_S = 600.0
TOKEN = "let-me-in"
FIRST_STEPS = ("quickstart", "--no-stay", "--keys", "5")
IN_UVS_WORDS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheels")
    pip("wheel", "--no-deps", "--wheel-dir", out, ROOT)
    return out


def made(folder: Path, *wanted: str) -> Path:
    """An environment with these packages of the index; where its programs are."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip("--python", folder / "bin" / "python", "install", "-q", *wanted)
    return folder / "bin"


def run(*command: object, **environment: str) -> str:
    """What a command prints; it ends with 0. Away from the checkout."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd="/",
        env=environment,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextmanager
def users_own(folder: Path) -> Generator[tuple[str, ...]]:
    """The first command of a new user, with an empty folder for its state; what it started ends."""
    state = folder / "state"
    try:
        yield (*FIRST_STEPS, "--state-dir", str(state))
    finally:
        if (announced := state / "gateway.json").exists():
            os.kill(json.loads(announced.read_bytes())["pid"], signal.SIGTERM)


def pips_configuration() -> dict[str, str]:
    """Where pip gets packages from on this machine, which uv does not read, in uv's words."""
    said = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    lines = (line.partition("=") for line in said.stdout.splitlines())
    settings = {name.rpartition(".")[2]: shlex.split(value)[0] for name, _, value in lines}
    found = {ours: settings[name] for name, ours in IN_UVS_WORDS.items() if name in settings}
    if "UV_FIND_LINKS" in found:
        found["UV_FIND_LINKS"] = ",".join(found["UV_FIND_LINKS"].split())
    return found


def test_pipx_installs_it_and_its_command_works_and_goes_again(wheels: Path, tmp_path: Path) -> None:
    pipx = made(tmp_path / "pipx", "pipx") / "pipx"
    folders = {"PIPX_HOME": str(tmp_path / "home of pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    env = {**os.environ, **folders, "PIPX_DEFAULT_PYTHON": sys.executable, "PIPX_DEFAULT_BACKEND": "pip"}
    run(pipx, "install", f"--pip-args=--find-links {wheels}", "foretype[local]", **env)
    command = tmp_path / "bin" / "foretype"
    with users_own(tmp_path) as first_steps:
        said = run(command, *first_steps, HOME=str(tmp_path), PATH="/usr/bin:/bin")
    assert "Attach an editor" in said and "suggestions shown" in said
    assert not list((tmp_path / "home of pipx").rglob("torch-*.dist-info")), "a gigabyte that nobody asked for"
    run(pipx, "uninstall", "foretype", **env)
    assert not command.exists()


def test_uvx_runs_quickstart_without_anything_installed(wheels: Path, tmp_path: Path) -> None:
    uvx = made(tmp_path / "uv", "uv") / "uvx"
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "UV_PYTHON": sys.executable, **pips_configuration()}
    with users_own(tmp_path) as first_steps:
        said = run(
            uvx, "--find-links", wheels, "--with", "pip", "--from", "foretype[local]", "foretype", *first_steps, **env
        )
    assert "Attach an editor" in said and "suggestions shown" in said
    installed = tmp_path / ".cache" / "uv"
    assert list(installed.rglob("openvino-*.dist-info")), "installed elsewhere"
    assert not list(installed.rglob("torch-*.dist-info")), "a gigabyte that nobody asked for"


def test_the_extra_for_jupyter_switches_itself_on_beside_jupyterlab(wheels: Path, tmp_path: Path) -> None:
    if not (ROOT / "editors/jupyter/labextension/package.json").exists():
        pytest.skip("needs the page's part of the extension: make jupyter-env (or npm run build in editors/jupyter)")
    pip("wheel", "--no-deps", "--wheel-dir", wheels, ROOT / "editors" / "jupyter")
    wanted = (
        "--find-links",
        str(wheels),
        "-c",
        str(ROOT / "requirements/jupyter.txt"),
        "jupyterlab",
        "foretype[jupyter]",
    )
    programs = made(tmp_path / "venv", *wanted)
    env = {"HOME": str(tmp_path), "PATH": f"{programs}:/usr/bin:/bin"}
    listed = run(programs / "jupyter-labextension", "list", **env)
    (line,) = [line for line in listed.splitlines() if "foretype-jupyter" in line]
    assert "enabled" in line and "OK" in line
    with jupyter_server(programs, env) as url:
        assert version_of_the_language_server(url) == version_of(wheels)


@contextmanager
def jupyter_server(programs: Path, env: dict[str, str]) -> Generator[str]:
    """A Jupyter server that nobody configured for us; the URL of our WebSocket."""
    [port] = free_ports(1)
    where = ("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0")
    command = [programs / "python", "-m", "jupyterlab", "--no-browser", "--allow-root", *where]
    process = subprocess.Popen(
        [*command, f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={env['HOME']}"],
        env=env,
        cwd=env["HOME"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"ws://127.0.0.1:{port}/foretype/ws?token={TOKEN}"
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def version_of_the_language_server(url: str) -> str:
    end_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            page = connect(url, proxy=None)
            break
        except OSError:
            assert time.monotonic() < end_s, "the Jupyter server does not start"
            time.sleep(0.2)
    with page:
        assert json.loads(page.recv(timeout=DEADLINE_S))["method"] == "foretype/hello"
        page.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "foretype/status", "params": {}}))
        answer: dict[str, Any] = {}
        while answer.get("id") != 1:
            answer = json.loads(page.recv(timeout=DEADLINE_S))
        return answer["result"]["version"]


def version_of(wheels: Path) -> str:
    (wheel,) = wheels.glob("foretype-*.whl")
    return wheel.name.split("-")[1]
