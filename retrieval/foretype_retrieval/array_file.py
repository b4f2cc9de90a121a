"""Arrays in one file, written piece by piece: whoever writes them holds no more than one piece."""

from __future__ import annotations

import math
import mmap
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ALIGN: Final = 64
_PIECE_BYTES: Final = 1 << 22


class Pieces(Protocol):
    """Arrays whose shapes are known, and which are made or read one piece after the other."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def pieces(self) -> Iterator[tuple[str, Array]]:
        """Name of an array, and its next rows; pieces of several arrays may take turns."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array lies.

    Attributes:
        offset: from the first array, in bytes; a multiple of `ALIGN`.
        size_bytes: of all of it.
    """

    kind: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    size_bytes: int

    def of(self, raw: Array) -> Array:
        """The array, of the bytes that it lies in."""
        return raw[self.offset : self.offset + self.size_bytes].view(self.kind).reshape(self.shape)


def places_of(shapes: Mapping[str, tuple[int, ...]], kinds: Mapping[str, str]) -> dict[str, Place]:
    """Where arrays of these shapes and types lie, in the order of `kinds`."""
    places: dict[str, Place] = {}
    offset = 0
    for name, kind in kinds.items():
        stored = np.dtype(kind)
        size_bytes = math.prod(shapes[name]) * stored.itemsize
        places[name] = Place(stored, tuple(shapes[name]), offset, size_bytes)
        offset = aligned(offset + size_bytes)
    return places


def end_of(places: Mapping[str, Place]) -> int:
    """Where the next array would lie."""
    return max((aligned(place.offset + place.size_bytes) for place in places.values()), default=0)


def aligned(offset: int) -> int:
    """The next multiple of `ALIGN`."""
    return -(-offset // ALIGN) * ALIGN


class ArrayFile:
    """What is written of the arrays, and its checksums.

    Args:
        start: of the first array in the stream.
    """

    def __init__(self, stream: BinaryIO, start: int, places: Mapping[str, Place]) -> None:
        self._stream = stream
        self._start = start
        self._places = dict(places)
        self._written = dict.fromkeys(places, 0)
        self._checksums = dict.fromkeys(places, 0)

    def write(self, name: str, piece: Array) -> None:
        """The next rows of an array."""
        self._put(name, np.ascontiguousarray(piece, dtype=self._places[name].kind))

    def write_all(self, source: Pieces) -> None:
        """All of what a source is made of."""
        for name, piece in source.pieces():
            self.write(name, piece)

    def append(self, name: str, offset: int) -> None:
        """Begins an array of bytes whose length shows when it is written."""
        self._places[name] = Place(np.dtype("u1"), (0,), offset, 0)
        self._written[name] = self._checksums[name] = 0

    def write_bytes(self, name: str, data: bytes) -> None:
        """More of an array that was begun by :meth:`append`."""
        self._put(name, np.frombuffer(data, np.uint8))
        place = self._places[name]
        length = place.size_bytes + len(data)
        self._places[name] = Place(place.kind, (length,), place.offset, length)

    def _put(self, name: str, piece: Array) -> None:
        if piece.nbytes:
            data = piece.data.cast("B")
            self._stream.seek(self._start + self._places[name].offset + self._written[name])
            self._stream.write(data)
            self._checksums[name] = zlib.crc32(data, self._checksums[name])
            self._written[name] += piece.nbytes

    def described(self) -> dict[str, list[Any]]:
        """Type, shape, offset, size and CRC-32 of each array. Raises ValueError: one was not written to its end."""
        if short := [name for name, place in self._places.items() if self._written[name] != place.size_bytes]:
            raise ValueError(f"not all of {', '.join(short)} was written")
        return {
            name: [place.kind.str, list(place.shape), place.offset, place.size_bytes, self._checksums[name]]
            for name, place in self._places.items()
        }


def in_pieces(name: str, values: Array, first: int = 0, last: int | None = None) -> Iterator[tuple[str, Array]]:
    """Rows of an array that is there, a few megabytes at a time."""
    row_bytes = max(1, values[:1].nbytes)
    step = max(1, _PIECE_BYTES // row_bytes)
    stop = len(values) if last is None else last
    for at in range(first, stop, step):
        yield name, values[at : min(stop, at + step)]


def let_go(mapped: mmap.mmap | None, place: Place | None = None) -> None:
    """Gives back the memory of what was read of a mapped file, or of one array in it; it is there again when it is asked for."""
    if mapped is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    if place is None:
        mapped.madvise(mmap.MADV_DONTNEED)
    elif place.size_bytes:
        start = place.offset // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, start, place.offset + place.size_bytes - start)
