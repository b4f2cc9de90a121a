"""This checkout and a commit as sides of a comparison: the commit in a folder and an environment of its own, and a bench run on either.

What measures is this checkout's, `eval` and `lab`, whichever side is measured: what is measured are the rooms that ship. A bench
that reaches into a room of a commit in which that was elsewhere fails there, and says so.
"""

from __future__ import annotations

import compileall
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import psutil
from foretype_context.errors import GitError
from foretype_context.folder.git import repository_at

from foretype_lab.all_rows.table import Bench
from foretype_lab.errors import BenchFailedError

HERE: Final = Path(__file__).parents[3]
_SHIPPED: Final = ("wire", "client", "lsp_server", "context", "retrieval", "backend", "models", "plan")
_MEASURING: Final = ("eval", "lab")
_LOCK: Final = Path("requirements/lock.txt")
_ARCHIVE_S: Final = 60.0
_INSTALL_S: Final = 600.0
_NAMED: Final = re.compile(r"\{(\w+)\}")
_PATIENCE: Final = 3.0
_AT_LEAST_S: Final = 60.0
"""A short bench on a machine that does much else waits as long as a long one."""
_GOODBYE_S: Final = 20.0
_LAST_WORDS: Final = 300


class Side(NamedTuple):
    """A tree, its commit where that is another, and the Python that has what it needs and knows its entry points."""

    root: Path
    python: str
    commit: str | None = None


HERE_SIDE: Final = Side(HERE, sys.executable)


@contextmanager
def checked_out(commit: str, repository: Path = HERE) -> Generator[Side]:
    """A commit in a temporary folder, installed into an environment of its own with the versions that its lock names.

    Raises:
        GitError: no such commit, or this is no checkout.
        BenchFailedError: it cannot be installed.
    """
    found = repository_at(repository)
    if found is None:
        raise GitError(f"{repository} is no git checkout, so that there is no commit to compare with")
    id = found.run("rev-parse", "--verify", f"{found.commit(commit)}^{{commit}}").decode("ascii").strip()
    files = found.run("archive", "--format=tar", id, time_s=_ARCHIVE_S)
    with tempfile.TemporaryDirectory(prefix="foretype-bench-", ignore_cleanup_errors=True) as name:
        root = Path(name) / "tree"
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(root, filter="data")
            else:  # before Python 3.11.4, which Debian 12 has; the archive is our own
                archive.extractall(root)
        yield Side(root, _installed(root, Path(name) / "environment"), id)


def _installed(root: Path, folder: Path) -> str:
    """The Python of a new environment with the tree in it.

    Where the tree's lock is this checkout's, its dependencies are not installed again: the environment reads ours.
    """
    venv.create(folder, symlinks=True)
    python = str(folder / "bin" / "python")
    if _versions(root) == _versions(HERE):
        own = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
        (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
        what = ["--no-deps", "-e", str(root)]
    else:
        what = ["-c", str(root / _LOCK), "-e", f"{root}[dev]"]
    pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "-q", *what]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = _ran(pip, environment, _INSTALL_S)
    if ran.returncode:
        raise BenchFailedError(f"the commit cannot be installed: {_last_words(ran)}")
    return python


def _versions(root: Path) -> bytes:
    return (root / _LOCK).read_bytes() if (root / _LOCK).is_file() else b""


def run_bench(bench: Bench, command: Sequence[str], side: Side, given: Mapping[str, Path | None]) -> dict[str, Any]:
    """The report of a bench's command on the rooms of a side.

    Args:
        command: the bench's own, or the one beside it.
        given: what a command may name: `recording`.

    Raises:
        BenchFailedError: with the reason: something is not on this machine, or the bench failed, or took too long.
    """
    if missing := [one for one in bench.needs if shutil.which(one) is None]:
        raise BenchFailedError(f"not on this machine: {', '.join(missing)}")
    if nameless := [name for name, path in given.items() if path is None and f"{{{name}}}" in " ".join(command)]:
        raise BenchFailedError(f"needs a {nameless[0]}: name one with --{nameless[0]} FILE")
    filled = {"python": side.python, "here": str(HERE), **{name: str(path) for name, path in given.items()}}
    words = [_NAMED.sub(lambda name: filled.get(name[1], name[0]), part) for part in command]
    _compile(side.root)
    limit_s = _AT_LEAST_S + bench.minutes * 60 * _PATIENCE
    try:
        ran = _ran(words, _environment(side.root), limit_s)
    except OSError as error:
        raise BenchFailedError(f"cannot be started: {error}") from error
    if ran.returncode:
        raise BenchFailedError(f"ended with status {ran.returncode}: {_last_words(ran)}")
    try:
        return msgspec.json.decode(ran.stdout, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BenchFailedError(f"printed no JSON object: {error}") from error


def _last_words(ran: subprocess.CompletedProcess[str]) -> str:
    return " ".join((ran.stderr or ran.stdout).split())[-_LAST_WORDS:]


def _ran(command: Sequence[str], environment: dict[str, str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Runs it to its end. What it started ends with it where it took too long, or where we are interrupted."""
    pipe, me = subprocess.PIPE, psutil.Process()
    others = set(me.children())
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        ) as it:
            try:
                out, err = it.communicate(timeout=limit_s)
            except BaseException as error:
                _end(it)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise BenchFailedError(f"took longer than {limit_s:.0f} s") from error
                raise
    except KeyboardInterrupt:
        for child in set(me.children()) - others:  # that began while we were interrupted: nobody has its handle
            child.kill()
        raise
    return subprocess.CompletedProcess(command, it.returncode, out, err)


def _end(it: subprocess.Popen[str]) -> None:
    it.send_signal(signal.SIGINT)  # so that it ends what it started, in its order
    with suppress(subprocess.TimeoutExpired):
        it.communicate(timeout=_GOODBYE_S)
    with suppress(ProcessLookupError):
        os.killpg(it.pid, signal.SIGKILL)


def _environment(root: Path) -> dict[str, str]:
    """In which the rooms that ship are imported from `root`: they stand before an installed checkout."""
    rooms = [root / name for name in _SHIPPED] + [HERE / name for name in _MEASURING]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, rooms))}


@cache
def _compile(root: Path) -> None:
    """Bytecode of the rooms, as an installed package has it: no start may measure Python's compiler."""
    for name in _SHIPPED:
        compileall.compile_dir(root / name, quiet=2)
