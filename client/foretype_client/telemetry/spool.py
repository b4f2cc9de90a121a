"""Batches that wait for the gateway on disk, one file each, in the state directory. Blocking: call it in a thread.

A file appears whole, by rename, with mode 0600, and goes when the gateway has committed it, so a batch survives the end of the
process and of the machine. Any client of the user may send what another left behind: the store takes each event once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

_SUFFIX: Final = ".batch"
_BATCH_BYTES: Final = 1 << 20
_NAME_CHARS: Final = 64


class Spool:
    """The folder `directory`, made when it is first needed.

    Args:
        bytes_most: beyond this the oldest batches leave.
    """

    def __init__(self, directory: Path, *, bytes_most: int = 16 << 20) -> None:
        self.directory = directory
        self._bytes_most = bytes_most

    def write(self, name: str, content: bytes) -> None:
        """Keep a batch. Raises OSError: no room, or not allowed."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(name)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes | None:
        """A batch; None if it is gone (another process sent it) or cannot be one."""
        try:
            path = self._path(name)
            return path.read_bytes() if path.stat().st_size <= _BATCH_BYTES else None
        except OSError:
            return None

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def left_behind(self, *, older_than_s: float, wall_s: float) -> list[str]:
        """Batches that no process has sent for so long, oldest first; those over the limit are removed.

        Args:
            wall_s: the wall clock, Unix seconds, as file times have it.
        """
        found: list[tuple[float, int, str]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.directory):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                        found.append((status.st_mtime, status.st_size, entry.name.removesuffix(_SUFFIX)))
                    elif entry.name.endswith(".part") and wall_s - status.st_mtime > 3600:
                        os.unlink(entry.path)  # of a process that ended while it wrote
        found.sort(reverse=True)
        kept_bytes, names = 0, list[str]()
        for at_s, size, name in found:
            kept_bytes += size
            if kept_bytes > self._bytes_most:
                self.remove(name)
            # A file from the future (the clock was set back) has no known age; sending it twice does no harm.
            elif wall_s - at_s >= older_than_s or at_s > wall_s + 1:
                names.append(name)
        names.reverse()
        return names

    def names(self) -> list[str]:
        """All batches."""
        return sorted(path.name.removesuffix(_SUFFIX) for path in self.directory.glob(f"*{_SUFFIX}"))

    def _path(self, name: str) -> Path:
        if not 0 < len(name) <= _NAME_CHARS or not all(c.isascii() and (c.isalnum() or c == "-") for c in name):
            raise OSError(f"{name!r} is no name of a batch")
        return self.directory / f"{name}{_SUFFIX}"


def user_of(directory: Path) -> str:
    """The user's pseudonym: random, made once and kept in `directory`; "" where it cannot be kept."""
    path = directory / "user"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            temporary = directory / f".user.{os.getpid()}"
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(16))
            try:
                os.link(temporary, path)  # whole or not at all, and never over one that is there
            finally:
                temporary.unlink(missing_ok=True)
    except OSError:
        return ""
    return user_in(directory)


def user_in(directory: Path) -> str:
    """The user's pseudonym if there is one already, else ""."""
    try:
        user = (directory / "user").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return user if len(user) == 32 and user.isalnum() else ""
