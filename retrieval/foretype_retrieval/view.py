"""What is alive in an index at one moment, and what it answers.

Chunks are numbered through all segments, so that a question handles arrays of numbers: a key, which says in words where a
chunk lies, is made for what is shown and for what ties.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.definitions import ChunkKind
from foretype_retrieval.segment import IndexSegment
from foretype_retrieval.terms import symbol_term
from foretype_retrieval.vectors import VectorPart, widened

Array = NDArray[Any]

_K1: Final = 1.2
_B: Final = 0.6
_MAX_TERMS: Final = 16
_DIGITS: Final = 4
_COLUMNS: Final = 1_024
"""Of a table of scores whose columns' maxima are looked at first."""

Key = tuple[str, int, int, int]  # path, start, part, chunk: what orders equal scores
Ranking = list[tuple[float, Key]]


class FoundChunk(NamedTuple):
    """A chunk of the index."""

    path: str
    name: str
    kind: ChunkKind
    line: int
    start: int
    end: int
    text: str
    score: float


@dataclass(eq=False)
class Part:
    """A segment, and which of its files and chunks are alive."""

    segment: IndexSegment
    alive_files: Array
    alive: Array
    vectors: VectorPart

    @classmethod
    def of(cls, segment: IndexSegment) -> Part:
        """A part that is all alive."""
        files, chunks = np.ones(segment.file_count, np.bool_), np.ones(segment.chunk_count, np.bool_)
        return cls(segment, files, chunks, VectorPart(segment.arrays["vectors"]))


class Definitions(NamedTuple):
    """Chunks that define one of several names.

    Attributes:
        chunks: their numbers.
        names: which of the names each defines, by its place.
        counts: of each name, how many there are.
    """

    chunks: Array
    names: Array
    counts: Array


class View:
    """Answers while no part changes.

    Attributes:
        count: chunks alive.
        dimensions: columns of the vectors; 0 without an embedder.
    """

    def __init__(self, parts: Sequence[Part], dimensions: int) -> None:
        self._parts = tuple(parts)
        self.dimensions = dimensions
        segments = [part.segment for part in parts]
        self._chunk_starts = list(itertools.accumulate((one.chunk_count for one in segments), initial=0))
        self._file_starts = list(itertools.accumulate((one.file_count for one in segments), initial=0))
        self._dead = [part.segment.chunk_count - int(part.alive.sum()) for part in parts]
        self.count = self._chunk_starts[-1] - sum(self._dead)
        terms = sum(int(part.segment.arrays["lengths"][part.alive].sum()) for part in parts)
        mean = terms / self.count if terms else 1.0
        # What the length of each chunk adds in BM25.
        self._norms = [(_K1 * (1 - _B + _B / mean * one.arrays["lengths"])).astype("f4") for one in segments]
        started = zip(segments, self._file_starts, strict=False)
        files = [one.file_of + start if start else one.file_of for one, start in started]
        self._file_of: Array = files[0] if len(files) == 1 else np.concatenate(files)

    def files_of(self, chunks: Array) -> Array:
        """The number of each chunk's file."""
        return self._file_of[chunks]

    def file(self, path: str) -> int:
        """The number of a file, -1 where it is not in the index."""
        for part, start in zip(self._parts, self._file_starts, strict=False):
            file = part.segment.files.get(path)
            if file is not None and part.alive_files[file]:
                return file + start
        return -1

    def paths(self, files: Array) -> list[str]:
        """Of files by their numbers."""
        if len(self._parts) == 1:
            paths = self._parts[0].segment.paths
            return [paths[file] for file in files.tolist()]
        found: list[str] = []
        numbers: list[int] = files.tolist()
        for file in numbers:
            at = bisect.bisect_right(self._file_starts, file) - 1
            found.append(self._parts[at].segment.paths[file - self._file_starts[at]])
        return found

    def keys(self, chunks: Array) -> list[Key]:
        """What chunks are called, in their order."""
        keys: list[Key] = []
        for number in chunks.tolist():
            at = bisect.bisect_right(self._chunk_starts, number) - 1
            chunk, segment = number - self._chunk_starts[at], self._parts[at].segment
            keys.append((segment.path(chunk), int(segment.arrays["starts"][chunk]), at, chunk))
        return keys

    def found(self, key: Key, score: float) -> FoundChunk:
        """What a key stands for."""
        path, start, at, chunk = key
        segment = self._parts[at].segment
        kind, line, end = (int(segment.arrays[name][chunk]) for name in ("kinds", "lines", "ends"))
        return FoundChunk(path, segment.name(chunk), ChunkKind(kind), line, start, end, segment.text(chunk), score)

    def ranking(self, chunks: Array, scores: Array, limit: int) -> Ranking:
        """The best of these chunks, best first; ties by path and place."""
        if len(chunks) > limit:
            kept = scores >= np.partition(scores, -limit)[-limit]
            chunks, scores = chunks[kept], scores[kept]
        ordered = sorted(zip(scores.tolist(), self.keys(chunks), strict=True), key=lambda one: (-one[0], one[1]))
        return ordered[:limit]

    def definitions(self, names: Sequence[str], limit: int) -> Definitions:
        """Definitions of exactly these names; none of a name with more than `limit`."""
        terms = [symbol_term(name) for name in names]
        counts = np.zeros(len(names), np.int64)
        chunks: list[Array] = []
        owners: list[Array] = []
        for at, part in enumerate(self._parts):
            which, begins, ends = part.segment.spans(terms)
            # A list that is too long even without all that is dead is not read.
            few = ends - begins <= limit + self._dead[at]
            counts[which[~few]] += limit + 1
            which, begins, ends = which[few], begins[few], ends[few]
            if not len(which):
                continue
            found = _joined(part.segment.arrays["posting_chunks"], begins, ends)
            owner = np.repeat(which, ends - begins)
            if self._dead[at]:
                alive = part.alive[found]
                found, owner = found[alive], owner[alive]
            counts += np.bincount(owner, minlength=len(names))
            chunks.append(found + self._chunk_starts[at])
            owners.append(owner)
        if not chunks:
            return Definitions(np.zeros(0, np.int64), np.zeros(0, np.int64), counts)
        every, owner = np.concatenate(chunks), np.concatenate(owners)
        kept = counts[owner] <= limit
        return Definitions(every[kept], owner[kept], counts)

    def holding(self, terms: Collection[str], limit: int) -> list[str]:
        """Paths of at most `limit` files that hold all these terms in one chunk, in their order."""
        paths: set[str] = set()
        for part in self._parts:
            common: Array | None = None
            for term in terms:
                postings = part.segment.postings(term)
                chunks = np.zeros(0, np.int32) if postings is None else postings[0]
                common = chunks if common is None else np.intersect1d(common, chunks, assume_unique=True)
            if common is not None:
                files: list[int] = distinct(part.segment.file_of[common[part.alive[common]]]).tolist()
                paths.update(part.segment.paths[file] for file in files)
        return sorted(paths)[:limit]

    def word_scores(self, terms: Mapping[str, float]) -> Array:
        """BM25 over sub-words of every chunk.

        Args:
            terms: weight of each; the rarest `_MAX_TERMS` are used.
        """
        words, dead = sorted(terms), sum(self._dead)
        spans = [part.segment.spans(words) for part in self._parts]
        totals = np.zeros(len(words), np.int64)
        for which, begins, ends in spans:
            totals[which] += ends - begins
        if dead:
            # What is dead makes a word rarer than its list is long. What cannot be among the rarest even so is not looked at.
            sure = np.sort(totals[totals > dead])
            bound = sure[_MAX_TERMS - 1] if len(sure) >= _MAX_TERMS else self._chunk_starts[-1]
            may = totals - dead <= bound
            totals[:] = 0
            for at, (which, begins, ends) in enumerate(spans):
                own = may[which]
                totals[which[own]] += self._alive_in(at, begins[own], ends[own])
        used = np.flatnonzero(totals)
        used = used[np.argsort(totals[used], kind="stable")[:_MAX_TERMS]]
        chosen, weights = np.zeros(len(words), np.bool_), np.zeros(len(words), np.float32)
        chosen[used] = True
        for at, total in zip(used.tolist(), totals[used].tolist(), strict=True):
            weights[at] = terms[words[at]] * math.log1p((self.count - total + 0.5) / (total + 0.5)) * (_K1 + 1)
        scores: list[Array] = []
        for at, ((which, begins, ends), norms) in enumerate(zip(spans, self._norms, strict=True)):
            own = chosen[which]
            lengths, chunks, times = self._read(at, begins[own], ends[own])
            values = np.repeat(weights[which[own]], lengths) * times / (times + norms[chunks])
            scores.append(np.bincount(chunks, values, len(norms)))
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def _alive_in(self, at: int, begins: Array, ends: Array) -> Array:
        """How many chunks are alive in each of these lists of postings of a part."""
        if not self._dead[at]:
            return ends - begins
        chunks = _joined(self._parts[at].segment.arrays["posting_chunks"], begins, ends)
        return _kept_of_each(self._parts[at].alive[chunks], ends - begins)

    def _read(self, at: int, begins: Array, ends: Array) -> tuple[Array, Array, Array]:
        """Postings that are alive, list by list: how many there are in each, of which chunks of the part, and how often."""
        arrays, alive, lengths = self._parts[at].segment.arrays, self._parts[at].alive, ends - begins
        chunks = _joined(arrays["posting_chunks"], begins, ends).astype(np.int64)
        times = _joined(arrays["posting_counts"], begins, ends).astype(np.float32)
        if self._dead[at]:
            kept = alive[chunks]
            lengths, chunks, times = _kept_of_each(kept, lengths), chunks[kept], times[kept]
        return lengths, chunks, times

    def best(self, scores: Array, limit: int) -> tuple[Array, Array]:
        """Chunks with the highest positive scores, in no order, and these rounded; ties by path and place."""
        least, rows = 10.0**-_DIGITS, len(scores) // _COLUMNS
        if rows > 1 and limit < _COLUMNS:
            # So many columns have a maximum of so much or more: nothing smaller, but for rounding, is among the best.
            table, rest = scores[: rows * _COLUMNS].reshape(rows, _COLUMNS), scores[rows * _COLUMNS :]
            maxima = table.max(axis=0)
            least = max(least, np.partition(maxima, -limit)[-limit] - 2 * 10.0**-_DIGITS)
            columns = np.flatnonzero(maxima > least)
            row, column = np.nonzero(table[:, columns] > least)
            chunks = np.concatenate((row * _COLUMNS + columns[column], np.flatnonzero(rest > least) + rows * _COLUMNS))
        else:
            chunks = np.flatnonzero(scores > least)
        return self._highest(chunks, np.round(scores[chunks], _DIGITS), limit)

    def by_vector(self, vector: NDArray[np.float32], limit: int) -> tuple[Array, Array]:
        """Nearest chunks, in no order, and their cosines. Above some thousand chunks the large segment's answer is approximate."""
        chunks, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        for part, start in zip(self._parts, self._chunk_starts, strict=False):
            if part.segment.chunk_count and part.segment.dimensions:
                found, cosines = part.vectors.nearest(vector, part.alive, limit)
                chunks.append(found + start)
                scores.append(cosines)
        return self._highest(np.concatenate(chunks), np.round(np.concatenate(scores), _DIGITS), limit)

    def _highest(self, chunks: Array, scores: Array, limit: int) -> tuple[Array, Array]:
        if len(chunks) <= limit:
            return chunks, scores
        bound = np.partition(scores, -limit)[-limit]
        above = np.flatnonzero(scores > bound)
        tied, free = np.sort(chunks[scores == bound]), limit - len(above)
        if len(tied) > free and len(self._parts) > 1:
            # In one part the order of numbers is that of keys, so only the first of each part may come first of all.
            groups = np.split(tied, np.searchsorted(tied, self._chunk_starts[1:-1]))
            tied = np.concatenate([group[:free] for group in groups])
            keys = self.keys(tied)
            tied = tied[sorted(range(len(keys)), key=keys.__getitem__)]
        best = np.concatenate((chunks[above], tied[:free]))
        return best, np.concatenate((scores[above], np.full(len(best) - len(above), bound, scores.dtype)))

    def best_inside(self, files: Array, scores: Array, limit: int) -> Array:
        """Chunks of these files with the highest scores; those that score nothing come last."""
        # Files in the order of their paths, and chunks in that of their places: ties are settled by these, as keys do.
        if len(self._parts) > 1:
            paths = self.paths(files)
            files = files[sorted(range(len(paths)), key=paths.__getitem__)]
        begins, ends = self._spans(files)
        lengths = ends - begins
        chunks: Array = np.arange(int(lengths.sum())) + np.repeat(ends - np.cumsum(lengths), lengths)
        if len(chunks) <= limit:
            return chunks
        rounded = np.round(scores[chunks], _DIGITS)
        bound = np.partition(rounded, -limit)[-limit]
        above = np.flatnonzero(rounded > bound)
        return chunks[np.concatenate((above, np.flatnonzero(rounded == bound)[: limit - len(above)]))]

    def _spans(self, files: Array) -> tuple[Array, Array]:
        """Where the chunks of each file begin and end."""
        begins, ends = np.zeros(len(files), np.int64), np.zeros(len(files), np.int64)
        for at, part in enumerate(self._parts):
            own = np.flatnonzero((files >= self._file_starts[at]) & (files < self._file_starts[at + 1]))
            if len(own):
                inner, bounds = files[own] - self._file_starts[at], part.segment.arrays["file_chunks"]
                begins[own] = np.where(inner > 0, bounds[inner - 1], 0) + self._chunk_starts[at]
                ends[own] = bounds[inner] + self._chunk_starts[at]
        return begins, ends

    def cosines(self, vector: NDArray[np.float32], chunks: Array) -> Array:
        """Exact cosines of chunks whose numbers ascend."""
        result = np.zeros(len(chunks), np.float32)
        if not self.dimensions:
            return result
        bounds = np.searchsorted(chunks, self._chunk_starts).tolist()
        for at, part in enumerate(self._parts):
            own = slice(bounds[at], bounds[at + 1])
            if own.stop > own.start:
                rows = part.segment.arrays["vectors"].take(chunks[own] - self._chunk_starts[at], axis=0)
                result[own] = widened(rows) @ vector
        return np.round(result, _DIGITS)


def distinct(numbers: Array) -> Array:
    """Each number once, ascending. A third of what `np.unique` takes for a few hundred."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _joined(values: Array, begins: Array, ends: Array) -> Array:
    pieces = [values[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    return np.concatenate(pieces) if pieces else values[:0]


def _kept_of_each(kept: Array, lengths: Array) -> Array:
    """Of lists one behind the other, none of them empty, how many are kept of each."""
    if not len(lengths):
        return lengths
    return np.add.reduceat(kept, np.cumsum(lengths) - lengths, dtype=np.int64)
