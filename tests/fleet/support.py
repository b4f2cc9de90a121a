"""A fleet of a test's own on a Ray of its own: real commands, engines from `engine.py`; nothing of it outlives the test."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
from foretype_lab.processes import free_ports

FORETYPE = Path(sys.executable).parent / "foretype"
ENGINE = Path(__file__).with_name("engine.py")
LIMIT_S = 900.0
"""A busy machine is slow to start twenty processes. Nothing is measured by it: it ends what would never end."""


def until(done: Callable[[], Any], limit_s: float = LIMIT_S, what: str = "") -> Any:
    """What it says as soon as that is something."""
    ends_s = time.monotonic() + limit_s
    while not (found := done()):
        assert time.monotonic() < ends_s, f"not within {limit_s} s: {what}"
        time.sleep(0.05)
    return found


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Fleet:
    """See the module.

    Args:
        pools: TOML behind `[cluster]` and `[directory]`; `{command}` in it is that of the scripted engine.
    """

    name = "tested"

    def __init__(
        self, folder: Path, pools: str, *, cluster: str = "cpus = 4", directory: str = "", fleet: str = ""
    ) -> None:
        self.folder = folder
        # Ray's sockets lie below it, and a path of theirs has 107 characters at most.
        self.sockets = Path(tempfile.mkdtemp(prefix="ft", dir="/tmp"))
        self.port, self.dashboard, self.listens = free_ports(3)
        self.file = folder / "fleet.toml"
        self.state = folder / "state"
        self._heads: set[int] = set()
        command = json.dumps([sys.executable, str(ENGINE)])
        self.file.write_text(
            f'[fleet]\nname = "{self.name}"\n{fleet}\n[cluster]\nport = {self.port}\ndashboard_port = {self.dashboard}\n'
            f'folder = "{self.sockets}"\n{cluster}\n[directory]\nport = {self.listens}\n{directory}\n'
            + pools.replace("{command}", command)
        )

    # Commands

    def command(self, *words: str) -> list[str]:
        state = () if words[0] == "config" else ("--state-dir", str(self.state))
        return [str(FORETYPE), "fleet", *words, "--config", str(self.file), *state]

    def run(self, *words: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=limit_s, check=False)
        finally:
            self._remember()

    def ok(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr[-3000:])
        return done.stdout

    @contextlib.contextmanager
    def up(self) -> Iterator[Fleet]:
        """While it is there; whatever happened, nothing is left."""
        try:
            began_s = time.monotonic()
            self.ok("up")
            print(f"fleet up in {time.monotonic() - began_s:.1f} s")
            yield self
        finally:
            self.close()

    @contextlib.contextmanager
    def coming_up(self) -> Iterator[subprocess.Popen[str]]:
        """`up`, which has started the head."""
        # Who starts the tests in the background has Ctrl-C ignored, and what they start would inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        with subprocess.Popen(self.command("up"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            signal.signal(signal.SIGINT, before)
            try:
                until(lambda: self._remember() or process.poll() is not None, what="the head")
                yield process
            finally:
                process.kill()

    def status(self) -> dict[str, Any]:
        done = self.run("status", "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def token(self) -> str:
        return (self.state / "fleet" / f"{self.name}.token").read_text()

    # What runs

    def asks(self, path: str = "/replicas") -> Any:
        """The directory, once; None while it is away."""
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(f"http://127.0.0.1:{self.listens}{path}", timeout=20.0, trust_env=False, verify=False)
            return answer.json() if answer.status_code == 200 else None
        return None

    def directory(self, path: str = "/replicas") -> Any:
        """What it says as soon as it says something."""
        return until(lambda: [said] if (said := self.asks(path)) is not None else [], what=f"{path} of the directory")[
            0
        ]

    def replicas(self) -> list[dict[str, Any]]:
        return self.directory("/fleet")["replicas"]

    def ready(self) -> list[dict[str, Any]]:
        return [one for one in self.replicas() if one["state"] == "ready"]

    def has_ready(self, count: int) -> Callable[[], list[dict[str, Any]]]:
        """Exactly so many, and nobody else."""

        def look() -> list[dict[str, Any]]:
            found = self.replicas()
            return found if len(found) == count and all(one["state"] == "ready" for one in found) else []

        return look

    def processes(self) -> list[psutil.Process]:
        """Of its heads' sessions, whoever their parents are."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) in self._heads and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def those(self, said: str) -> list[psutil.Process]:
        """With this in their command line."""
        found: list[psutil.Process] = []
        for one in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [one] if said in " ".join(one.cmdline()) else []
        return found

    def kill(self, said: str) -> None:
        """The one process with this in its command line. Returns when it is gone."""
        [found] = until(lambda: len(those := self.those(said)) == 1 and those, what=f"one process {said}")
        found.kill()
        until(lambda: not alive(found.pid), what=f"{said} is killed")

    def _remember(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            self._heads.add(json.loads((self.state / "fleet" / f"{self.name}.json").read_text())["pid"])
            return True
        return False

    def close(self) -> None:
        """Whatever a test left behind."""
        self._remember()
        for _ in range(3):  # one that is ended may have started another meanwhile
            left = self.processes()
            for one in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.send_signal(signal.SIGKILL)
            psutil.wait_procs(left, timeout=10)
        shutil.rmtree(self.sockets, ignore_errors=True)
