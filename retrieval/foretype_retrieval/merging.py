"""What is alive in several segments as one, array by array and in pieces: whoever stores it never holds the whole.

Rows are taken from where they lie, in the order of their files' paths. Postings are sorted runs, and are merged by ranges of terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.array_file import in_pieces
from foretype_retrieval.postings import chunks_and_counts, packed
from foretype_retrieval.segment import ARRAYS, IndexSegment

Array = NDArray[Any]

_ROWS: Final = 10_000
_POSTINGS: Final = 500_000
_HELD_BYTES: Final = 1 << 23
"""So much is read of mapped files before its memory is given back."""

_OF_FILES: Final = ("file_sizes", "file_mtimes_ns")
_OF_CHUNKS: Final = ("kinds", "starts", "ends", "lines", "lengths", "vectors")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Of each row of the whole: number of its segment, and its row there."""

    segments: Array
    rows: Array

    def __len__(self) -> int:
        return len(self.rows)

    def gathered(self, sources: Sequence[Array], first: int, last: int) -> Array:
        """Rows `first` to `last` of the whole, of one array of each segment."""
        segments, rows = self.segments[first:last], self.rows[first:last]
        result = np.empty((len(rows), *sources[0].shape[1:]), sources[0].dtype)
        for at in np.unique(segments).tolist():
            own = segments == at
            result[own] = sources[at][rows[own]]
        return result

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Segment, first and last row there of what follows each other here and there: a file's chunks, or all of a segment."""
        if len(self):
            breaks = np.flatnonzero((np.diff(self.segments) != 0) | (np.diff(self.rows) != 1)) + 1
            firsts, lasts = np.append(0, breaks), np.append(breaks, len(self)) - 1
            yield from zip(
                self.segments[firsts].tolist(), self.rows[firsts].tolist(), self.rows[lasts].tolist(), strict=True
            )


class Merged:
    """The arrays of what is alive, as :class:`foretype_retrieval.array_file.Pieces`.

    Args:
        parts: segments, each with a boolean per file: whether it is alive. A path is alive in one of them at most.
    """

    def __init__(self, parts: Sequence[tuple[IndexSegment, Array]]) -> None:
        self._segments = [segment for segment, _ in parts]
        self._files = _files_in_order(parts)
        sizes = self._lengths("file_chunks", self._files)
        self._file_chunks = np.cumsum(sizes)
        self._chunks = self._chunks_in_order(sizes)
        self._blobs = {
            "paths": (self._files, "path_ends", np.cumsum(self._lengths("path_ends", self._files))),
            "names": (self._chunks, "name_ends", np.cumsum(self._lengths("name_ends", self._chunks))),
            "texts": (self._chunks, "text_ends", np.cumsum(self._lengths("text_ends", self._chunks))),
        }
        self._postings = _Postings(self._segments, self._renumbered())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        files, chunks, postings = len(self._files), len(self._chunks), self._postings
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*_OF_FILES, "file_chunks"), (files,))
        shapes |= {name: (chunks, *self._segments[0].arrays[name].shape[1:]) for name in _OF_CHUNKS}
        for blob, (_, ends, bounds) in self._blobs.items():
            shapes |= {blob: (int(bounds[-1]) if len(bounds) else 0,), ends: bounds.shape}
        shapes |= {"terms": (len(postings.terms),), "posting_ends": postings.ends.shape}
        count = int(postings.ends[-1]) if len(postings.ends) else 0
        return shapes | {"posting_chunks": (count,), "posting_counts": (count,)}

    def pieces(self) -> Iterator[tuple[str, Array]]:
        """Every array, a few megabytes at a time."""
        held_bytes = 0
        for name, piece in self._made():
            yield name, piece
            held_bytes += piece.nbytes
            if held_bytes > _HELD_BYTES:
                self._let_go()
                held_bytes = 0
        self._let_go()

    def segment(self) -> IndexSegment:
        """All of it in memory."""
        arrays = {name: np.empty(shape, ARRAYS[name]) for name, shape in self.shapes.items()}
        filled = dict.fromkeys(arrays, 0)
        for name, piece in self.pieces():
            arrays[name][filled[name] : filled[name] + len(piece)] = piece
            filled[name] += len(piece)
        return IndexSegment(arrays)

    def _let_go(self) -> None:
        for segment in self._segments:
            segment.let_go()

    def _made(self) -> Iterator[tuple[str, Array]]:
        yield "file_chunks", self._file_chunks
        for names, rows in ((_OF_FILES, self._files), (_OF_CHUNKS, self._chunks)):
            for name in names:
                sources = [segment.arrays[name] for segment in self._segments]
                for first in range(0, len(rows), _ROWS):
                    yield name, rows.gathered(sources, first, first + _ROWS)
        for blob, (rows, ends, bounds) in self._blobs.items():
            yield ends, bounds
            for at, first, last in rows.runs():
                arrays = self._segments[at].arrays
                begin = int(arrays[ends][first - 1]) if first else 0
                yield from in_pieces(blob, arrays[blob], begin, int(arrays[ends][last]))
        yield "terms", self._postings.terms
        yield "posting_ends", self._postings.ends
        yield from self._postings.pieces()

    def _lengths(self, ends: str, rows: _Rows) -> Array:
        sources = [np.diff(segment.arrays[ends], prepend=0) for segment in self._segments]
        return rows.gathered(sources, 0, len(rows))

    def _chunks_in_order(self, sizes: Array) -> _Rows:
        """Chunks of the files in their order, which have so many each."""
        before = [
            segment.arrays["file_chunks"] - np.diff(segment.arrays["file_chunks"], prepend=0)
            for segment in self._segments
        ]
        firsts = self._files.gathered(before, 0, len(self._files))
        shift = np.repeat(firsts - (self._file_chunks - sizes), sizes)
        return _Rows(np.repeat(self._files.segments, sizes), (shift + np.arange(len(shift))).astype(np.int32))

    def _renumbered(self) -> list[Array]:
        """By segment, the number of each of its chunks in the whole; -1 where it is dead."""
        numbers = [np.full(segment.chunk_count, -1, np.int32) for segment in self._segments]
        for at, own in enumerate(numbers):
            places = np.flatnonzero(self._chunks.segments == at)
            own[self._chunks.rows[places]] = places
        return numbers


def _files_in_order(parts: Sequence[tuple[IndexSegment, Array]]) -> _Rows:
    keys = sorted(
        (segment.paths[file], at, file)
        for at, (segment, alive) in enumerate(parts)
        for file in np.flatnonzero(alive).tolist()
    )
    return _Rows(np.array([at for _, at, _ in keys], np.int32), np.array([file for _, _, file in keys], np.int32))


class _Postings:
    """Postings of what is alive, by term and chunk. Terms that only dead chunks had are forgotten, as if they had never been.

    Args:
        numbers: by segment, the new number of each chunk; -1 where it is dead.

    Attributes:
        terms, ends: as in a segment.
    """

    def __init__(self, segments: Sequence[IndexSegment], numbers: Sequence[Array]) -> None:
        self._segments = segments
        self._numbers = numbers
        counts = [_alive_postings(segment, own) for segment, own in zip(segments, numbers, strict=True)]
        texts = [segment.sorted_terms() for segment in segments]
        alive = sorted(
            {term for own, of in zip(texts, counts, strict=True) for term, n in zip(own, of.tolist(), strict=True) if n}
        )
        places = {term: at for at, term in enumerate(alive)}
        # Of each term of each segment its place among all, in ascending order; -1 where it is forgotten.
        self._ranks = [np.fromiter((places.get(term, -1) for term in own), np.int64, len(own)) for own in texts]
        self.terms: Array = np.frombuffer("\n".join(alive).encode(), np.uint8)
        totals = np.zeros(len(alive), np.int64)
        for ranks, of in zip(self._ranks, counts, strict=True):
            totals[ranks[ranks >= 0]] += of[ranks >= 0]
        self.ends: Array = np.cumsum(totals)

    def pieces(self) -> Iterator[tuple[str, Array]]:
        """Chunks and counts, by turns."""
        remembered = [np.flatnonzero(ranks >= 0) for ranks in self._ranks]
        for first, last in _ranges(self.ends):
            runs: list[Array] = []
            for at, own in enumerate(remembered):
                begin, end = np.searchsorted(self._ranks[at][own], (first, last)).tolist()
                if begin < end:
                    runs.append(self._run(at, int(own[begin]), int(own[end - 1]) + 1))
            numbers = np.concatenate(runs)
            numbers.sort()
            chunks, counts = chunks_and_counts(numbers)
            yield "posting_chunks", chunks
            yield "posting_counts", counts

    def _run(self, at: int, first: int, last: int) -> Array:
        """Packed postings of a range of a segment's terms; those that are forgotten have dead chunks alone."""
        arrays = self._segments[at].arrays
        ends = arrays["posting_ends"]
        begin, end = int(ends[first - 1]) if first else 0, int(ends[last - 1])
        terms = np.repeat(self._ranks[at][first:last], np.diff(ends[first:last], prepend=begin))
        chunks = self._numbers[at][arrays["posting_chunks"][begin:end]]
        kept = chunks >= 0
        return packed(terms[kept], chunks[kept], arrays["posting_counts"][begin:end][kept])


def _alive_postings(segment: IndexSegment, numbers: Array) -> Array:
    """How many postings of each term are of chunks that are alive."""
    ends = segment.arrays["posting_ends"]
    lengths = np.diff(ends, prepend=0)
    if (numbers >= 0).all():
        return lengths
    result = np.zeros(len(ends), np.int64)
    for first, last in _ranges(ends):
        begin, end = int(ends[first - 1]) if first else 0, int(ends[last - 1])
        alive = numbers[segment.arrays["posting_chunks"][begin:end]] >= 0
        result[first:last] = np.add.reduceat(alive, ends[first:last] - lengths[first:last] - begin, dtype=np.int64)
    return result


def _ranges(ends: Array) -> Iterator[tuple[int, int]]:
    """Ranges of terms with some hundred thousand postings together, or of one term with more."""
    first = 0
    while first < len(ends):
        begin = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, begin + _POSTINGS, side="right")))
        yield first, last
        first = last
