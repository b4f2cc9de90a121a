"""The index on disk: one file per workspace, versioned, checksummed, replaced as a whole, readable by its owner alone.

Layout: 8 bytes of magic, header length and CRC-32 (both u32), the header as JSON, then arrays at multiples of 64 bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from foretype_retrieval.errors import (
    AbsentIndexError,
    BusyIndexError,
    DamagedIndexError,
    OutdatedIndexError,
    UnsavedIndexError,
)
from foretype_retrieval.segment import ARRAYS, IndexSegment
from foretype_retrieval.vectors import EXACT_CHUNKS, build_faiss

Array = NDArray[Any]

FORMAT: Final = 2
"""Goes up with every change of this layout, of the chunks or of the terms: an older index is made anew."""

_MAGIC: Final = b"FTINDEX\0"
_ALIGN: Final = 64
_NAME: Final = "index.ftx"
_TEMPORARY: Final = ".index-"
_FULL: Final = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read: the segment, and the serialised FAISS index of its vectors where it is large."""

    segment: IndexSegment
    faiss: Array | None
    size_bytes: int


def folder_of(cache_dir: Path, root: Path) -> Path:
    """Where the index of a workspace lies. The name tells nothing about the workspace."""
    digest = hashlib.blake2b(os.fsencode(str(root.resolve())), digest_size=16).hexdigest()
    return cache_dir / "index" / digest


@contextlib.contextmanager
def writing(folder: Path) -> Generator[None]:
    """Holds the right to write an index.

    Raises:
        BusyIndexError: another process holds it.
        UnsavedIndexError: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(folder / "lock", timeout=0, mode=0o600)
        lock.acquire()
    except Timeout as error:
        raise BusyIndexError(f"another process is writing the index in {folder}; wait for it to end") from error
    except OSError as error:
        raise UnsavedIndexError(_not_saved(folder, error)) from error
    try:
        yield
    finally:
        lock.release()


def save(folder: Path, segment: IndexSegment, embedder_digest: str) -> int:
    """Replaces the stored index and returns its size in bytes. The caller holds :func:`writing`.

    Raises:
        UnsavedIndexError: nothing was replaced.
    """
    arrays: dict[str, Array] = {
        name: np.ascontiguousarray(segment.arrays[name], dtype=np.dtype(kind)) for name, kind in ARRAYS.items()
    }
    if segment.dimensions and segment.chunk_count > EXACT_CHUNKS:
        arrays["faiss"] = build_faiss(arrays["vectors"])
    described: dict[str, list[Any]] = {}
    offset = 0
    for name, values in arrays.items():
        described[name] = [
            values.dtype.str,
            list(values.shape),
            offset,
            values.nbytes,
            zlib.crc32(values.data.cast("B") if values.size else b""),
        ]
        offset = -(-(offset + values.nbytes) // _ALIGN) * _ALIGN
    header = json.dumps({"format": FORMAT, "embedder": embedder_digest, "arrays": described}).encode()
    start = -(-(len(_MAGIC) + 8 + len(header)) // _ALIGN) * _ALIGN
    temporary: str | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in folder.glob(_TEMPORARY + "*"):
            left.unlink(missing_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=_TEMPORARY)  # created with mode 0600
        with os.fdopen(handle, "wb") as stream:
            stream.write(_MAGIC + np.array([len(header), zlib.crc32(header)], "<u4").tobytes() + header)
            for name, values in arrays.items():
                stream.seek(start + described[name][2])
                if values.size:
                    stream.write(values.data.cast("B"))
            size = stream.seek(0, os.SEEK_END)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, folder / _NAME)
        return size
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise UnsavedIndexError(_not_saved(folder, error, start + offset)) from error


def load(folder: Path, embedder_digest: str) -> Stored:
    """Opens the stored index: mapped where the system lets a mapped file be replaced, every byte checked.

    Raises:
        UnusableIndexError: see its subclasses.
    """
    path = folder / _NAME
    try:
        # A mapped file cannot be replaced on Windows.
        raw = np.fromfile(path, np.uint8) if sys.platform == "win32" else np.memmap(path, np.uint8, mode="r")
    except FileNotFoundError as error:
        raise AbsentIndexError(f"no index in {folder}") from error
    except (OSError, ValueError) as error:
        raise DamagedIndexError(f"{path} cannot be read ({error})") from error
    base = len(_MAGIC) + 8
    if raw[: len(_MAGIC)].tobytes() != _MAGIC or len(raw) < base:
        raise DamagedIndexError(f"{path} is no index")
    length, checksum = (int(one) for one in np.frombuffer(raw[len(_MAGIC) : base].tobytes(), "<u4"))
    header = raw[base : base + length].tobytes()
    if len(header) != length or zlib.crc32(header) != checksum:
        raise DamagedIndexError(f"the header of {path} is damaged")
    described = cast("dict[str, Any]", json.loads(header))
    if described.get("format") != FORMAT:
        raise OutdatedIndexError(f"{path} has format {described.get('format')}, not {FORMAT}")
    if described.get("embedder") != embedder_digest:
        raise OutdatedIndexError(f"{path} was made with another embedder")
    arrays = _arrays(
        raw, cast("Mapping[str, list[Any]]", described["arrays"]), -(-(base + length) // _ALIGN) * _ALIGN, path
    )
    faiss = arrays.pop("faiss", None)
    return Stored(IndexSegment(arrays), faiss, len(raw))


def _arrays(raw: Array, described: Mapping[str, list[Any]], start: int, path: Path) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    plain = raw.view(np.ndarray)
    for name, (kind, shape, offset, size, checksum) in described.items():
        data = plain[start + offset : start + offset + size]
        if len(data) != size or zlib.crc32(data.data if size else b"") != checksum:
            raise DamagedIndexError(f"{name} in {path} is damaged")
        arrays[name] = data.view(np.dtype(kind)).reshape(shape)
    if not set(ARRAYS) <= set(arrays):
        raise DamagedIndexError(f"{path} lacks {', '.join(sorted(set(ARRAYS) - set(arrays)))}")
    return arrays


def _not_saved(folder: Path, error: OSError, needed_bytes: int = 0) -> str:
    if error.errno in _FULL:
        needs = f"{needed_bytes / 1e6:.0f} MB are needed; " if needed_bytes else ""
        return f"the disk is full: the index was not saved in {folder}; {needs}it goes on in memory until then"
    return f"the index was not saved in {folder} ({error.strerror}); choose another folder with --cache-dir"
