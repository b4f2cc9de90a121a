"""What was made of a model's file and is kept for the next time, in a folder of which the newest few stay."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

KEPT_MAX: Final = 3


def name_of(path: Path, made_by: str) -> str:
    """32 hex digits, others for each file, for each change of it, and for each maker. Raises OSError."""
    status = path.stat()
    said = f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0{made_by}"
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def keep(target: Path, need: int, make: Callable[[Path], None], *, patient: bool = True) -> Path:
    """`target`, a file or a folder; where there is none, `make` writes it at another path, and it is moved to its place whole.

    Args:
        need: bytes that it takes, about.
        patient: whether another process is waited for that makes something in this folder.

    Raises:
        OSError: it cannot be written, there is no room, or another process is not waited for.
    """
    import filelock

    folder = target.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not target.exists():
        with filelock.FileLock(folder / "making.lock", -1 if patient else 0, mode=0o600):
            if not target.exists():  # nor has the one that was waited for made it
                _make_whole(target, need, make)
    with contextlib.suppress(OSError):
        os.utime(target)
    return target


def _make_whole(target: Path, need: int, make: Callable[[Path], None]) -> None:
    folder = target.parent
    if shutil.disk_usage(folder).free < need:
        raise OSError(f"{need / 1e6:,.0f} MB are needed")
    _clean(folder)
    making = Path(tempfile.mkdtemp(prefix="making-", dir=folder))
    try:
        make(making / target.name)
        _flush(making / target.name)
        os.replace(making / target.name, target)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _flush(path: Path) -> None:
    """Onto the disk: after a loss of power a file of the right name and size could hold nothing."""
    for file in path.iterdir() if path.is_dir() else (path,):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def discard(path: Path) -> None:
    """Remove what was kept, a file or a folder; what cannot be removed stays."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _clean(folder: Path) -> None:
    """Leave room for one more; those that were used last stay, and nothing of a process that ended while it made one."""
    left = list(folder.glob("making-*"))
    kept = [one for one in folder.iterdir() if one not in left and one.name != "making.lock"]
    kept.sort(key=lambda one: one.stat().st_mtime, reverse=True)
    for one in (*kept[KEPT_MAX - 1 :], *left):
        discard(one)
