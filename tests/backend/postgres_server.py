"""Debian's PostgreSQL for a test: own folder, own socket, unprivileged user, gone at the end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

__all__ = ["Postgres", "PostgresUnavailableError", "available", "postgres", "server"]

_PATIENCE_S: Final = 300.0
"""A busy machine takes longer to start a server, and to end one, than a quiet one."""

BIN = next(
    (p for p in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True) if (p / "postgres").exists()), None
)


class PostgresUnavailableError(Exception):
    """There is no PostgreSQL server here, or it does not start."""


def available() -> bool:
    return BIN is not None


class Postgres:
    """A server of one empty database: started, killed and started again as often as wanted; what was committed survives.

    Args:
        options: settings, `name=value`.
        of: a server that this one is a copy of, for reading, which follows it.
    """

    def __init__(self, folder: Path, *options: str, of: Postgres | None = None) -> None:
        if BIN is None:
            raise PostgresUnavailableError("there is no PostgreSQL in /usr/lib/postgresql; apt-get install postgresql")
        self.url = f"postgresql://foretype@/foretype?host={folder}"
        self._bin, self._folder, self._data = BIN, folder, folder / "data"
        self._settings = [part for one in ("listen_addresses=", *options) for part in ("-c", one)]
        user: dict[str, Any] = {}
        if os.getuid() == 0:  # it refuses to run as root
            name = "postgres" if _exists("postgres") else "nobody"
            shutil.chown(folder, name)
            user = {"user": name, "extra_groups": []}
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(folder)}
        self._options: dict[str, Any] = {"env": environment, "cwd": folder, **user}
        self._process: subprocess.Popen[str] | None = None
        if of is not None:
            source = ("-h", of._folder, "-U", "foretype", "--checkpoint=fast", "--write-recovery-conf", "--no-sync")
            copied = self._run("pg_basebackup", "-D", self._data, *source)
            if copied.returncode != 0:
                raise PostgresUnavailableError(f"pg_basebackup: {copied.stderr}")
            self.start()
            return
        made = self._run("initdb", "-D", self._data, "-U", "foretype", "-A", "trust", "-E", "UTF8", "--no-sync")
        if made.returncode != 0:
            raise PostgresUnavailableError(f"initdb: {made.stderr}")
        self.start()
        created = self._run("createdb", "-h", folder, "-U", "foretype", "foretype")
        if created.returncode != 0:
            raise PostgresUnavailableError(f"createdb: {created.stderr}")

    def start(self) -> None:
        """Returns when it takes connections."""
        command = [self._bin / "postgres", "-D", self._data, "-k", self._folder, *self._settings]
        with (self._folder / "log").open("a") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, text=True, **self._options)
        self._process = process
        ends = time.monotonic() + _PATIENCE_S
        while time.monotonic() < ends:
            if self._run("pg_isready", "-h", self._folder, "-U", "foretype", "-t", "1").returncode == 0:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise PostgresUnavailableError(f"it ended: {process.wait(0.05)}: {(self._folder / 'log').read_text()}")
        raise PostgresUnavailableError(f"it is not ready: {(self._folder / 'log').read_text()}")

    def kill(self) -> None:
        """SIGKILL to the server and to every process of its own."""
        if self._process is not None:
            pids = [self._process.pid, *_children(self._process.pid)]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(_PATIENCE_S)
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # at once: SIGTERM waits for every client
            self._process.wait(_PATIENCE_S)
            self._process = None

    def _run(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [self._bin / program, *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, **self._options)


@contextlib.contextmanager
def postgres(*options: str, of: Postgres | None = None) -> Generator[Postgres]:
    """A server that may be killed; with `of` a copy of that one. Raises PostgresUnavailableError; `.ci/run` installs the server where it is missing."""
    folder = Path(tempfile.mkdtemp(prefix="ftpg"))  # a socket's path has at most 107 characters
    made = None
    try:
        made = Postgres(folder, *options, of=of)
        yield made
    finally:
        if made is not None:
            made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def server() -> Generator[str]:
    """The URL of an empty database."""
    with postgres() as one:
        yield one.url


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")  # of Linux alone; elsewhere they end by themselves
    return [int(one) for one in found.read_text().split()] if found.exists() else []


def _exists(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())
