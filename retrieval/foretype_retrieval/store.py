"""The index on disk: one file per workspace, versioned, checksummed, replaced as a whole, readable by its owner alone.

Layout: 8 bytes of magic, header length and CRC-32 (both u32), the header as JSON, then arrays at multiples of 64 bytes. The header
tells sizes and checksums and is written last, so blanks fill it up to the place of the first array.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from foretype_retrieval.array_file import ArrayFile, Pieces, Place, aligned, end_of, let_go, places_of
from foretype_retrieval.errors import (
    AbsentIndexError,
    BusyIndexError,
    DamagedIndexError,
    OutdatedIndexError,
    UnsavedIndexError,
)
from foretype_retrieval.segment import ARRAYS, IndexSegment
from foretype_retrieval.vectors import EXACT_CHUNKS, faiss_bytes, write_faiss

Array = NDArray[Any]

FORMAT: Final = 2
"""Goes up with every change of this layout, of the chunks or of the terms: an older index is made anew."""

_MAGIC: Final = b"FTINDEX\0"
_ARRAYS_AT: Final = 4_096
_NAME: Final = "index.ftx"
_TEMPORARY: Final = ".index-"
_FAISS: Final = "faiss"
_LARGE_CHUNKS: Final = 5_000
"""A smaller segment is not worth a file."""

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


def save(folder: Path, source: Pieces, embedder_digest: str) -> int:
    """Replaces the stored index and returns its size in bytes. The caller holds :func:`writing`.

    Of the arrays no more than a piece is held here, and FAISS holds its lists.

    Raises:
        UnsavedIndexError: nothing was replaced.
    """
    places = places_of(source.shapes, ARRAYS)
    count, dimensions = places["vectors"].shape
    approximate = bool(dimensions) and count > EXACT_CHUNKS
    needed_bytes = _ARRAYS_AT + end_of(places) + (faiss_bytes(count, dimensions) if approximate else 0)
    temporary: str | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in folder.glob(_TEMPORARY + "*"):
            left.unlink(missing_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=_TEMPORARY)  # created with mode 0600
        with os.fdopen(handle, "wb") as stream:
            file = ArrayFile(stream, _ARRAYS_AT, places)
            file.write_all(source)
            if approximate:
                stream.flush()
                rows = _rows(Path(temporary), places["vectors"])
                file.append(_FAISS, end_of(places))
                write_faiss((count, dimensions), rows, lambda data: file.write_bytes(_FAISS, data))
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            stream.write(_header(file.described(), embedder_digest))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, folder / _NAME)
        temporary = None
        return max(size, _ARRAYS_AT)
    except OSError as error:
        raise UnsavedIndexError(_not_saved(folder, error, needed_bytes)) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _header(described: Mapping[str, list[Any]], embedder_digest: str) -> bytes:
    length = _ARRAYS_AT - len(_MAGIC) - 8
    header = json.dumps({"format": FORMAT, "embedder": embedder_digest, "arrays": described}).encode().ljust(length)
    if len(header) != length:
        raise ValueError(f"a header of {len(header)} bytes")
    return _MAGIC + np.array([length, zlib.crc32(header)], "<u4").tobytes() + header


def _rows(path: Path, vectors: Place) -> Callable[[int, int], Array]:
    """Reads vectors of the file that is being written."""
    row_bytes = vectors.shape[1] * vectors.kind.itemsize

    def read(first: int, last: int) -> Array:
        offset = _ARRAYS_AT + vectors.offset + first * row_bytes
        rows = np.fromfile(path, vectors.kind, (last - first) * vectors.shape[1], offset=offset)
        return rows.reshape(last - first, vectors.shape[1])

    return read


def put_aside(folder: Path, segment: IndexSegment) -> IndexSegment:
    """A large segment with its arrays in a file that has no name and ends with the process; as it is where that cannot be.

    The caller holds :func:`writing`.
    """
    if segment.chunk_count < _LARGE_CHUNKS or sys.platform == "win32":  # which deletes no mapped file
        return segment
    places = places_of(segment.shapes, ARRAYS)
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=_TEMPORARY) as stream:
            ArrayFile(stream, 0, places).write_all(segment)
            stream.flush()
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        return segment
    raw = np.frombuffer(mapped, np.uint8)
    return IndexSegment({name: place.of(raw) for name, place in places.items()}, mapped)


def load(folder: Path, embedder_digest: str) -> Stored:
    """Opens the stored index: mapped where the system lets a mapped file be replaced, every byte checked.

    Raises:
        UnusableIndexError: see its subclasses.
    """
    path = folder / _NAME
    try:
        raw, mapped = _opened(path)
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
    arrays: dict[str, Array] = {}
    first = aligned(base + length)
    for name, (kind, shape, offset, size, crc) in cast("Mapping[str, list[Any]]", described["arrays"]).items():
        place = Place(np.dtype(kind), tuple(shape), first + offset, size)
        data = raw[place.offset : place.offset + size]
        if len(data) != size or zlib.crc32(data.data) != crc:
            raise DamagedIndexError(f"{name} in {path} is damaged")
        arrays[name] = place.of(raw)
        if name == "texts":  # of which a question reads what it shows, and of all others what it finds that in
            let_go(mapped, place)
    if not set(ARRAYS) <= set(arrays):
        raise DamagedIndexError(f"{path} lacks {', '.join(sorted(set(ARRAYS) - set(arrays)))}")
    faiss = arrays.pop(_FAISS, None)
    return Stored(IndexSegment(arrays, mapped), faiss, len(raw))


def _opened(path: Path) -> tuple[Array, mmap.mmap | None]:
    if sys.platform == "win32":  # a mapped file cannot be replaced there
        return np.fromfile(path, np.uint8), None
    with path.open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, np.uint8), mapped


def _not_saved(folder: Path, error: OSError, needed_bytes: int = 0) -> str:
    if error.errno in _FULL:
        needs = f"{needed_bytes / 1e6:.0f} MB are needed; " if needed_bytes else ""
        return f"the disk is full: the index was not saved in {folder}; {needs}it goes on in memory until then"
    return f"the index was not saved in {folder} ({error.strerror}); choose another folder with --cache-dir"
