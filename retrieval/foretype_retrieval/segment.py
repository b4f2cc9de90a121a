"""A segment: an immutable searchable set of files, held in flat arrays so that it can be mapped from disk.

Everything is sorted (files by path, terms by text, postings by term and chunk), so equal content gives equal arrays whatever
the order of events that led to it: a :class:`foretype_retrieval.merging.Merged` of any history equals :func:`build` of the
final files.
"""

from __future__ import annotations

import itertools
import mmap
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.array_file import in_pieces, let_go
from foretype_retrieval.chunks import Chunk
from foretype_retrieval.postings import chunks_and_counts, ends_of_terms, packed
from foretype_retrieval.terms import count_terms, identifiers, subwords, symbol_term

Array = NDArray[Any]

_NAME_WEIGHT: Final = 3
_MAX_FREQUENCY: Final = 255
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
    """Files, their chunks, and postings of their terms; see :data:`ARRAYS`.

    Attributes:
        mapped: the file that the arrays lie in, where they lie in one.
    """

    arrays: Mapping[str, Array] = field(repr=False)
    mapped: mmap.mmap | None = field(default=None, repr=False)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: self.arrays[name].shape for name in ARRAYS}

    def pieces(self) -> Iterator[tuple[str, Array]]:
        """See :class:`foretype_retrieval.array_file.Pieces`."""
        for name in ARRAYS:
            yield from in_pieces(name, self.arrays[name])

    def let_go(self) -> None:
        """See :func:`foretype_retrieval.array_file.let_go`."""
        let_go(self.mapped)

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
        return {term: at for at, term in enumerate(self.sorted_terms())}

    def sorted_terms(self) -> list[str]:
        """Every term, in the order of its postings."""
        blob = self.arrays["terms"].tobytes().decode()
        return blob.split("\n") if blob else []

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
    numbers = np.zeros(0, np.uint64)
    if terms:
        found = np.frombuffer(chunks, dtype=np.int32), np.frombuffer(counts, dtype=np.uint8)
        numbers = packed(rank[np.frombuffer(term_ids, dtype=np.int32)], *found)
    numbers.sort()
    sorted_chunks, sorted_counts = chunks_and_counts(numbers)
    return {
        "terms": np.frombuffer("\n".join(terms[at] for at in order).encode(), dtype=np.uint8),
        "posting_ends": ends_of_terms(numbers, len(terms)),
        "posting_chunks": sorted_chunks,
        "posting_counts": sorted_counts,
    }
