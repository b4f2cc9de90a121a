"""A segment: an immutable searchable set of files, held in flat arrays so that it can be mapped from disk.

Everything is sorted (files by path, terms by text, postings by term and chunk), so equal content gives equal arrays whatever
the order of events that led to it: :func:`merge` of any history equals :func:`build` of the final files.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.chunks import Chunk
from foretype_retrieval.terms import count_terms, identifiers, subwords, symbol_term

Array = NDArray[Any]

_NAME_WEIGHT: Final = 3
_MAX_FREQUENCY: Final = 255
_BITS: Final = 28
"""Of the number of a term and of a chunk in a packed posting: an index ends at 300,000 chunks, and terms are fewer than 2**28."""

ARRAYS: Final[Mapping[str, str]] = {
    "paths": "u1",
    "path_ends": "i8",
    "file_sizes": "i8",
    "file_mtimes_ns": "i8",
    "file_chunks": "i8",
    "kinds": "u1",
    "starts": "i4",
    "ends": "i4",
    "lines": "i4",
    "names": "u1",
    "name_ends": "i8",
    "texts": "u1",
    "text_ends": "i8",
    "lengths": "i4",
    "terms": "u1",
    "posting_ends": "i8",
    "posting_chunks": "i4",
    "posting_counts": "u1",
    "vectors": "f2",
}
"""Every array of a segment and its type on disk. `*_ends` are cumulative; texts are UTF-8."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as it was read.

    Attributes:
        path: relative to the workspace, with slashes.
        mtime_ns, size_bytes: before it was read, so that a later change is seen as one.
        vectors: one float16 row per chunk; no columns without an embedder.
    """

    path: str
    size_bytes: int
    mtime_ns: int
    chunks: Sequence[Chunk]
    vectors: Array


@dataclass(frozen=True)
class IndexSegment:
    """Files, their chunks, and postings of their terms; see :data:`ARRAYS`."""

    arrays: Mapping[str, Array] = field(repr=False)

    @property
    def chunk_count(self) -> int:
        return len(self.arrays["kinds"])

    @property
    def file_count(self) -> int:
        return len(self.arrays["file_sizes"])

    @property
    def dimensions(self) -> int:
        return int(self.arrays["vectors"].shape[1])

    @cached_property
    def paths(self) -> list[str]:
        return self._strings("paths", "path_ends")

    @cached_property
    def files(self) -> dict[str, int]:
        """Path to file number."""
        return {path: at for at, path in enumerate(self.paths)}

    @cached_property
    def terms(self) -> dict[str, int]:
        blob = self.arrays["terms"].tobytes().decode()
        return {term: at for at, term in enumerate(blob.split("\n"))} if blob else {}

    @cached_property
    def file_of(self) -> Array:
        """File number of each chunk."""
        bounds = self.arrays["file_chunks"]
        return np.repeat(np.arange(self.file_count, dtype=np.int32), np.diff(bounds, prepend=0))

    def prepare(self) -> None:
        """Makes the tables of paths, terms and files, which are made once."""
        _ = self.files, self.terms, self.file_of

    def chunks_of(self, file: int) -> slice:
        ends = self.arrays["file_chunks"]
        return slice(int(ends[file - 1]) if file else 0, int(ends[file]))

    def postings(self, term: str) -> tuple[Array, Array] | None:
        """Chunks that hold the term, ascending, and how often."""
        at = self.terms.get(term)
        if at is None:
            return None
        ends = self.arrays["posting_ends"]
        span = slice(int(ends[at - 1]) if at else 0, int(ends[at]))
        return self.arrays["posting_chunks"][span], self.arrays["posting_counts"][span]

    def spans(self, terms: Sequence[str]) -> tuple[Array, Array, Array]:
        """Of those of the terms that are here: their places among them, and where the postings of each begin and end."""
        table = self.terms
        numbers = np.fromiter(map(table.get, terms, itertools.repeat(-1)), np.int64, len(terms))
        which = np.flatnonzero(numbers >= 0)
        numbers, ends = numbers[which], self.arrays["posting_ends"]
        return which, np.where(numbers > 0, ends[numbers - 1], 0), ends[numbers]

    def name(self, chunk: int) -> str:
        return self._string("names", "name_ends", chunk)

    def text(self, chunk: int) -> str:
        return self._string("texts", "text_ends", chunk)

    def path(self, chunk: int) -> str:
        return self.paths[int(self.file_of[chunk])]

    def _string(self, blob: str, ends: str, at: int) -> str:
        bounds = self.arrays[ends]
        return (
            self.arrays[blob][int(bounds[at - 1]) if at else 0 : int(bounds[at])].tobytes().decode("utf-8", "replace")
        )

    def _strings(self, blob: str, ends: str) -> list[str]:
        data, bounds = self.arrays[blob].tobytes(), self.arrays[ends].tolist()
        return [data[a:b].decode("utf-8", "replace") for a, b in itertools.pairwise([0, *bounds])]


def _blob(texts: Sequence[str]) -> tuple[Array, Array]:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), np.cumsum([len(one) for one in encoded], dtype=np.int64)


def _numbers(values: Sequence[int], dtype: Any) -> Array:
    return np.asarray(values, dtype=dtype)


def build(entries: Sequence[FileEntry], dimensions: int) -> IndexSegment:
    """A segment of these files; each path once.

    Args:
        dimensions: columns of the vectors; 0 without an embedder.
    """
    ordered = sorted(entries, key=lambda entry: entry.path)
    chunks = [chunk for entry in ordered for chunk in entry.chunks]
    numbering: dict[str, int] = {}
    chunk_terms, term_ids, counts, lengths = array("i"), array("i"), array("B"), array("i")
    number = -1
    for entry in ordered:
        place = subwords(PurePosixPath(entry.path).stem[:80])
        for chunk in entry.chunks:
            number += 1
            counted = count_terms(identifiers(chunk.indexed))
            for word in subwords(chunk.name):
                counted[word] += _NAME_WEIGHT
            for word in place:
                counted[word] += 1
            lengths.append(sum(counted.values()))
            if chunk.name:
                counted[symbol_term(chunk.name)] = 1
            for term, times in counted.items():
                term_ids.append(numbering.setdefault(term, len(numbering)))
                counts.append(min(times, _MAX_FREQUENCY))
            chunk_terms.extend([number] * len(counted))
    arrays = _postings(list(numbering), chunk_terms, term_ids, counts)
    arrays["paths"], arrays["path_ends"] = _blob([entry.path for entry in ordered])
    arrays["names"], arrays["name_ends"] = _blob([chunk.name for chunk in chunks])
    arrays["texts"], arrays["text_ends"] = _blob([chunk.shown for chunk in chunks])
    arrays["file_sizes"] = _numbers([entry.size_bytes for entry in ordered], np.int64)
    arrays["file_mtimes_ns"] = _numbers([entry.mtime_ns for entry in ordered], np.int64)
    arrays["file_chunks"] = np.cumsum([len(entry.chunks) for entry in ordered], dtype=np.int64)
    arrays["kinds"] = _numbers([chunk.kind for chunk in chunks], np.uint8)
    arrays["starts"] = _numbers([chunk.start for chunk in chunks], np.int32)
    arrays["ends"] = _numbers([chunk.end for chunk in chunks], np.int32)
    arrays["lines"] = _numbers([chunk.line for chunk in chunks], np.int32)
    arrays["lengths"] = np.frombuffer(lengths, dtype=np.int32) if lengths else np.zeros(0, np.int32)
    rows = [entry.vectors for entry in ordered if len(entry.chunks)]
    arrays["vectors"] = np.concatenate(rows) if rows else np.zeros((0, dimensions), np.float16)
    return IndexSegment(arrays)


def _postings(terms: Sequence[str], chunks: array[int], term_ids: array[int], counts: array[int]) -> dict[str, Array]:
    """Sorts postings by term text and chunk; the input comes in the order of chunks."""
    order = sorted(range(len(terms)), key=terms.__getitem__)
    rank = np.empty(len(terms), np.int64)
    rank[order] = np.arange(len(terms))
    if not terms:
        return _sorted_postings(np.zeros(0, np.uint64), [])
    found = np.frombuffer(chunks, dtype=np.int32), np.frombuffer(counts, dtype=np.uint8)
    packed = _packed(rank[np.frombuffer(term_ids, dtype=np.int32)], *found)
    return _sorted_postings(packed, [terms[at] for at in order])


def _packed(ids: Array, chunks: Array, counts: Array) -> Array:
    """Postings as one number each (28 bits of term, 28 of chunk, 8 of count): these sort in place, in a third of the memory of three arrays."""
    packed = ids.astype(np.uint64)
    packed <<= np.uint64(_BITS)
    packed |= chunks.astype(np.uint64)
    packed <<= np.uint64(8)
    packed |= counts
    return packed


def _sorted_postings(packed: Array, terms: Sequence[str]) -> dict[str, Array]:
    """The arrays of postings. Sorts its argument."""
    packed.sort()
    counts = packed.astype(np.uint8)
    packed >>= np.uint64(8)
    chunks = packed.astype(np.uint32)
    chunks &= np.uint32((1 << _BITS) - 1)
    packed >>= np.uint64(_BITS)
    return {
        "terms": np.frombuffer("\n".join(terms).encode(), dtype=np.uint8),
        "posting_ends": np.searchsorted(packed, np.arange(1, len(terms) + 1, dtype=np.uint64)).astype(np.int64),
        "posting_chunks": chunks.view(np.int32),
        "posting_counts": counts,
    }


def merge(parts: Sequence[tuple[IndexSegment, Array]]) -> IndexSegment:
    """One segment of what is alive in several.

    Args:
        parts: segments, each with a boolean per file: whether it is alive. A path is alive in one of them at most.
    """
    keys = sorted(
        (part.paths[file], at, file)
        for at, (part, alive) in enumerate(parts)
        for file in np.flatnonzero(alive).tolist()
    )
    renumbered = [np.full(part.chunk_count, -1, np.int64) for part, _ in parts]
    sizes: list[int] = []
    total = 0
    for _, at, file in keys:
        span = parts[at][0].chunks_of(file)
        renumbered[at][span] = np.arange(total, total + span.stop - span.start)
        total += span.stop - span.start
        sizes.append(total)
    arrays: dict[str, Array] = {"file_chunks": _numbers(sizes, np.int64)}
    arrays["paths"], arrays["path_ends"] = _blob([path for path, _, _ in keys])
    for name in ("file_sizes", "file_mtimes_ns"):
        arrays[name] = _numbers([int(parts[at][0].arrays[name][file]) for _, at, file in keys], np.int64)
    for name in ("kinds", "starts", "ends", "lines", "lengths"):
        arrays[name] = _gathered([part.arrays[name] for part, _ in parts], renumbered, total)
    for blob, ends in (("names", "name_ends"), ("texts", "text_ends")):
        arrays[blob], arrays[ends] = _gathered_blob(
            [(part.arrays[blob], part.arrays[ends]) for part, _ in parts], renumbered, total
        )
    arrays["vectors"] = _gathered([part.arrays["vectors"] for part, _ in parts], renumbered, total)
    return IndexSegment(arrays | _merged_postings([part for part, _ in parts], renumbered))


def _gathered(sources: Sequence[Array], renumbered: Sequence[Array], total: int) -> Array:
    shape = (total, *sources[0].shape[1:])
    result = np.zeros(shape, sources[0].dtype)
    for source, numbers in zip(sources, renumbered, strict=True):
        kept = numbers >= 0
        result[numbers[kept]] = source[kept]
    return result


def _gathered_blob(
    sources: Sequence[tuple[Array, Array]], renumbered: Sequence[Array], total: int
) -> tuple[Array, Array]:
    lengths = np.zeros(total, np.int64)
    for (_, ends), numbers in zip(sources, renumbered, strict=True):
        kept = numbers >= 0
        lengths[numbers[kept]] = np.diff(ends, prepend=0)[kept]
    bounds = np.cumsum(lengths)
    result = np.empty(int(bounds[-1]) if total else 0, np.uint8)
    starts = bounds - lengths
    for (blob, ends), numbers in zip(sources, renumbered, strict=True):
        # What follows each other here and there is one piece: a file's chunks, or all of a part that is whole.
        kept = np.flatnonzero(numbers >= 0)
        for run in np.split(kept, np.flatnonzero((np.diff(kept) != 1) | (np.diff(numbers[kept]) != 1)) + 1):
            if len(run):
                begin = int(ends[run[0] - 1]) if run[0] else 0
                piece = blob[begin : int(ends[run[-1]])]
                at = int(starts[numbers[run[0]]])
                result[at : at + len(piece)] = piece
    return result, bounds


def _merged_postings(parts: Sequence[IndexSegment], renumbered: Sequence[Array]) -> dict[str, Array]:
    pieces: list[Array] = []
    numbering: dict[str, int] = {}
    for part, numbers in zip(parts, renumbered, strict=True):
        local = np.asarray([numbering.setdefault(term, len(numbering)) for term in part.terms], np.int64)
        term_of = np.repeat(local, np.diff(part.arrays["posting_ends"], prepend=0))
        number = numbers[part.arrays["posting_chunks"]] if part.chunk_count else np.zeros(0, np.int64)
        kept = number >= 0
        pieces.append(_packed(term_of[kept], number[kept], part.arrays["posting_counts"][kept]))
    # Terms that only dead chunks had are forgotten, as if they had never been.
    used = np.zeros(len(numbering), np.bool_)
    for piece in pieces:
        used[piece >> np.uint64(_BITS + 8)] = True
    names = list(numbering)
    alive = sorted((names[at], at) for at in np.flatnonzero(used).tolist())
    rank = np.zeros(len(names), np.uint64)
    for place, (_, at) in enumerate(alive):
        rank[at] = place
    rest = np.uint64((1 << (_BITS + 8)) - 1)
    for piece in pieces:
        ids = rank[piece >> np.uint64(_BITS + 8)]
        ids <<= np.uint64(_BITS + 8)
        piece &= rest
        piece |= ids
    return _sorted_postings(np.concatenate(pieces), [term for term, _ in alive])
