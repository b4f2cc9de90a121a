"""The file by which a user's processes find their own gateway: `gateway.json` in the state directory.

It holds the token, so it is 0600 from its first byte, appears by rename only when the gateway is ready, and goes with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from foretype_wire.announcement import FILE_NAME, Announcement


def new_token() -> str:
    """A token for one start of a private gateway: 256 random bits."""
    return secrets.token_urlsafe(32)


@contextlib.contextmanager
def announced(directory: Path, *, host: str, port: int, token: str, version: str) -> Generator[Path]:
    """Keep `gateway.json` in `directory` while the block runs. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / FILE_NAME
    announcement = Announcement(
        pid=os.getpid(), host=host, port=port, token=token, version=version, started=datetime.now(UTC).isoformat()
    )
    _write(path, msgspec.json.encode(announcement))
    try:
        yield path
    finally:
        _remove_own(path, token)


class StillAnnounced:
    """Whether `gateway.json` still leads to the gateway of a token: another may have taken its place, or the folder is gone.

    Cheap enough for an event loop: the file is read only where it was written since.
    """

    def __init__(self, directory: Path, token: str) -> None:
        self._path = directory / FILE_NAME
        self._token = token
        self._own: tuple[int, int] | None = None  # of the file when it was seen to be ours

    def __call__(self) -> bool:
        try:
            status = os.stat(self._path)
            written = status.st_ino, status.st_mtime_ns
            if written != self._own:
                if msgspec.json.decode(self._path.read_bytes(), type=Announcement).token != self._token:
                    return False
                self._own = written
        except FileNotFoundError:
            return False
        except (OSError, msgspec.DecodeError, UnicodeError):
            return True  # a disk that fails for a moment ends nobody's gateway
        return True


def _write(path: Path, data: bytes) -> None:
    """Write beside and rename, so that a reader sees a whole file or none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _remove_own(path: Path, token: str) -> None:
    """Remove the file unless another gateway has taken its place."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Announcement)
    except (OSError, msgspec.DecodeError):
        return
    if found.token == token:
        path.unlink(missing_ok=True)
