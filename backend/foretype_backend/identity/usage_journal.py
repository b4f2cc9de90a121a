"""Usage that was answered and is not stored yet, in a file: a process that is killed loses none of it.

A batch of the meter is a file of its own, named by its number; the store counts a number once, so that nobody needs to know how far the
process had come. Each row is written before the answer's end is, which survives a process though not a machine. Beside the files
lies one that the process holds locked: where the lock is free the process is gone, and who finds the files stores them.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec

from foretype_backend.admission.metering import UsageKey, UsageRow

_log = logging.getLogger("foretype.gateway")
_ROWS: Final = ".rows"
_LOCK: Final = ".lock"
_COMPACT_BYTES: Final = 1 << 20
_LOCK_KEPT_S: Final = 3600.0

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[UsageKey, UsageRow]).decode


class Leftover(NamedTuple):
    """A batch that a process left when it was killed. `path` is removed when it is stored."""

    gateway: str
    seq: int
    rows: Mapping[UsageKey, UsageRow]
    path: Path


class UsageJournal:
    """The files of one process.

    Args:
        folder: made where it is not there; the same for all processes of a gateway.
        gateway: unique to this process and start.

    Raises:
        OSError: the folder cannot be written to.
    """

    def __init__(self, folder: Path, gateway: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._gateway = gateway
        lock = os.open(folder / f"{gateway}{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        self._lock: int | None = lock
        _locked(lock)
        self._seq = 0
        self._file: IO[bytes] | None = None
        self._bytes = 0
        self._next_bytes = _COMPACT_BYTES
        self._behind = False

    def note(self, seq: int, key: UsageKey, row: UsageRow, rows: Mapping[UsageKey, UsageRow]) -> None:
        """Another row of a batch. A disk that is full costs what a kill would lose, and nobody's answer.

        Args:
            rows: all of the batch, this one with it.
        """
        try:
            if self._file is None or seq != self._seq or self._behind or self._bytes > self._next_bytes:
                self._write_anew(seq, rows)
            else:
                line = _encode((key, row)) + b"\n"
                self._behind = True  # until the line is whole
                self._file.write(line)
                self._bytes += len(line)
                self._behind = False
        except OSError as error:
            if not self._behind:
                _log.warning("usage is kept in memory alone: %s", error.strerror)
            self._behind = True

    def drop(self, seq: int) -> None:
        """The batch is stored."""
        if self._file is not None and seq == self._seq:
            self._file.close()
            self._file = None
        with contextlib.suppress(OSError):
            self._path(seq).unlink(missing_ok=True)

    def leftovers(self, wall_ms: int) -> Iterator[Leftover]:
        """Batches of processes that are gone, the oldest of each first. What is not removed meanwhile is found again."""
        found: dict[str, list[int]] = {}
        for path in self._folder.glob(f"*{_ROWS}"):
            gateway, _, seq = path.name.removesuffix(_ROWS).rpartition(".")
            if gateway and gateway != self._gateway and seq.isdigit():
                found.setdefault(gateway, []).append(int(seq))
        for gateway, numbers in found.items():
            with _if_gone(self._folder / f"{gateway}{_LOCK}") as gone:
                for seq in sorted(numbers) if gone else ():
                    path = self._folder / f"{gateway}.{seq}{_ROWS}"
                    if path.exists():  # another process may have been here first
                        yield Leftover(gateway, seq, _read(path), path)
        self._tidy(found, wall_ms / 1000)

    def close(self) -> None:
        """Leave: what was not dropped stays for the next process."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            if not any(self._folder.glob(f"{self._gateway}.*{_ROWS}")):
                (self._folder / f"{self._gateway}{_LOCK}").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _write_anew(self, seq: int, rows: Mapping[UsageKey, UsageRow]) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        path = self._path(seq)
        temporary = path.with_suffix(".new")
        data = b"".join(_encode((key, row)) + b"\n" for key, row in rows.items())
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
        self._file = path.open("ab", buffering=0)
        self._seq, self._bytes, self._behind = seq, len(data), False
        self._next_bytes = max(_COMPACT_BYTES, 2 * len(data))

    def _path(self, seq: int) -> Path:
        return self._folder / f"{self._gateway}.{seq}{_ROWS}"

    def _tidy(self, held: Mapping[str, object], now_s: float) -> None:
        """Locks of processes that left nothing."""
        for path in self._folder.glob(f"*{_LOCK}"):
            gateway = path.name.removesuffix(_LOCK)
            with contextlib.suppress(OSError):
                if gateway in held or gateway == self._gateway or now_s - path.stat().st_mtime < _LOCK_KEPT_S:
                    continue
                with _if_gone(path) as gone:
                    if gone:
                        path.unlink()


def _read(path: Path) -> dict[UsageKey, UsageRow]:
    """What is whole of it: the last line may be half a line."""
    rows: dict[UsageKey, UsageRow] = {}
    for line in path.read_bytes().split(b"\n"):
        try:
            key, row = _decode(line)
        except msgspec.DecodeError:
            continue
        former = rows.get(key)
        rows[key] = row if former is None else former.plus(row)
    return rows


@contextlib.contextmanager
def _if_gone(path: Path) -> Generator[bool]:
    """Whether nobody holds the lock; while it is asked, this process does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Whether the lock was free, and is held from now on until the descriptor is closed."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
