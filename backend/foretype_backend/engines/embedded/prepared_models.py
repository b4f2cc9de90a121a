"""Models as the engine's library has made them out of their files, kept so that the next start need not make them again.

A folder per model, named by what it was made from and by whom: the digest of the model file and the versions of the libraries.
It is written beside its place and moved there whole, with a digest of each file; one that does not agree with its digests is
thrown away. Keeping is never needed: whatever fails here costs time at the next start and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from foretype_backend.errors import PipelineError

__all__ = ["MODEL_BYTES_MAX", "PreparedModels"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")

MODEL_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger model is not kept twice on somebody's disk: reading it takes most of its start anyway."""

_FORMAT: Final = "1"
_DIGESTS: Final = "digests.json"
_KEPT_MAX: Final = 4
_ROOM: Final = 3
"""Free space that there must be, in sizes of the model."""
_ABANDONED_S: Final = 3600.0
_BROKEN: Final = (OSError, msgspec.MsgspecError, PipelineError)


class PreparedModels:
    """The kept models in one folder.

    Args:
        folder: made when something is to be kept.
        made_by: versions of what makes and reads them.
    """

    def __init__(self, folder: Path, made_by: str) -> None:
        self._folder = folder
        self._made_by = made_by

    def open(self, model: Path, load: Callable[[Path, bool], T]) -> T:
        """Open a model from what is kept of it; or make it, and keep that.

        Args:
            load: opens a kept folder or a model file; told to save, it writes what is to be kept beside the file.

        Raises:
            PipelineError: `model` itself cannot be opened; nothing about the keeping.
        """
        try:
            place = self._place(model)
        except OSError as error:
            _logger.warning("the prepared model is not kept in %s: %s", self._folder, error)
            place = None
        if place is None:
            return load(model, False)
        if place.exists():
            try:
                _verify(place)
                return load(place, False)
            except _BROKEN as error:
                _logger.warning("the prepared model %s is damaged and made again: %s", place, error)
                shutil.rmtree(place, ignore_errors=True)
        return self._make(model, place, load)

    def _place(self, model: Path) -> Path | None:
        """Where a model is kept; None if it is not to be kept. Raises OSError."""
        if model.stat().st_size > MODEL_BYTES_MAX:
            return None
        with model.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        digest.update(f"\0{_FORMAT}\0{self._made_by}".encode())
        return self._folder / digest.hexdigest()[:32]

    def _make(self, model: Path, place: Path, load: Callable[[Path, bool], T]) -> T:
        work: Path | None = None
        made: list[T] = []
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if shutil.disk_usage(self._folder).free < _ROOM * model.stat().st_size:
                raise OSError("the disk is full")
            work = Path(tempfile.mkdtemp(prefix="making-", dir=self._folder))
            self._clean(work.stat().st_mtime)
            link = work / f"model{model.suffix}"
            link.symlink_to(model.absolute())
            made.append(load(link, True))
            link.unlink()
            _seal(work)
            work.rename(place)
        except _BROKEN as error:  # a model that is bad itself fails again below
            if not place.exists():  # else somebody else was quicker
                _logger.warning("the prepared model is not kept in %s: %s", self._folder, error)
            if work is not None:
                shutil.rmtree(work, ignore_errors=True)
        return made[0] if made else load(model, False)

    def _clean(self, now_s: float) -> None:
        """Leave room for one more: what was used last stays, what a killed process left goes."""
        kept: list[tuple[float, Path]] = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):
                used_s = (path / _DIGESTS).stat().st_mtime if not path.name.startswith("making-") else 0.0
                if used_s:
                    kept.append((used_s, path))
                elif now_s - path.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(path, ignore_errors=True)
        for _, path in sorted(kept, reverse=True)[_KEPT_MAX - 1 :]:
            shutil.rmtree(path, ignore_errors=True)


def _seal(folder: Path) -> None:
    digests = {path.name: _digest(path) for path in sorted(folder.iterdir())}
    if not digests:
        raise OSError("nothing was written")
    (folder / _DIGESTS).write_bytes(msgspec.json.encode(digests))


def _verify(folder: Path) -> None:
    """Raise OSError or msgspec.MsgspecError unless the folder is what was written; it counts as used now."""
    digests = msgspec.json.decode((folder / _DIGESTS).read_bytes(), type=dict[str, str])
    for name, digest in digests.items():
        if os.path.basename(name) != name or _digest(folder / name) != digest:
            raise OSError(f"{name} is not what was written")
    with contextlib.suppress(OSError):  # it may be on a disk that is only read
        os.utime(folder / _DIGESTS)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
