"""Debian's PostgreSQL for a test or a bench: own folder, own socket, unprivileged user, gone at the end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["NoPostgres", "available", "server"]


class NoPostgres(Exception):
    """There is no PostgreSQL server here, or it does not start."""


BIN = next(
    (p for p in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True) if (p / "postgres").exists()), None
)


def available() -> bool:
    return BIN is not None


@contextlib.contextmanager
def server() -> Generator[str]:
    """The URL of an empty database; `.ci/run` installs the server where it is missing."""
    if BIN is None:
        raise NoPostgres("there is no PostgreSQL in /usr/lib/postgresql; apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="ftpg"))  # a socket's path has at most 107 characters
    user: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to run as root
        name = "postgres" if _exists("postgres") else "nobody"
        shutil.chown(folder, name)
        user = {"user": name, "extra_groups": []}
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(folder)}
    options: dict[str, Any] = {"env": environment, "cwd": folder, **user}
    data = folder / "data"
    made = _run([BIN / "initdb", "-D", data, "-U", "foretype", "-A", "trust", "-E", "UTF8", "--no-sync"], options)
    if made.returncode != 0:
        raise NoPostgres(f"initdb: {made.stderr}")
    command = [BIN / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses="]
    with (folder / "log").open("w") as log:
        postgres = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, **user)
    try:
        for _ in range(200):
            ready = _run([BIN / "pg_isready", "-h", folder, "-U", "foretype", "-t", "1"], options)
            if ready.returncode == 0:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise NoPostgres(f"it ended: {postgres.wait(0.05)}: {(folder / 'log').read_text()}")
        created = _run([BIN / "createdb", "-h", folder, "-U", "foretype", "foretype"], options)
        if created.returncode != 0:
            raise NoPostgres(f"createdb: {created.stderr}")
        yield f"postgresql://foretype@/foretype?host={folder}"
    finally:
        postgres.terminate()
        postgres.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _exists(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())


def _run(command: Sequence[str | Path], options: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)
