"""The index in memory: one large segment, a few small ones in front of it, and which files of them are alive.

An update adds a small segment and lets older versions of its files die; nothing large is rewritten while somebody types.
Scores do not depend on how files are spread over segments: statistics are taken over what is alive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.definitions import ChunkKind
from foretype_retrieval.merging import Merged
from foretype_retrieval.segment import FileEntry, IndexSegment, build
from foretype_retrieval.terms import symbol_term
from foretype_retrieval.vectors import VectorPart

Array = NDArray[Any]

_K1: Final = 1.2
_B: Final = 0.6
_MAX_TERMS: Final = 16
_DIGITS: Final = 4
MAX_SMALL_SEGMENTS: Final = 8


class FileState(NamedTuple):
    """What tells that a file has changed."""

    size_bytes: int
    mtime_ns: int


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
class _Part:
    segment: IndexSegment
    alive_files: Array
    alive: Array
    vectors: VectorPart
    whole: bool = True

    @classmethod
    def of(cls, segment: IndexSegment) -> _Part:
        files, chunks = np.ones(segment.file_count, np.bool_), np.ones(segment.chunk_count, np.bool_)
        return cls(segment, files, chunks, VectorPart(segment.arrays["vectors"]))


Key = tuple[str, int, int, int]  # path, start, part, chunk: what orders equal scores
Ranking = list[tuple[float, Key]]


class Index:
    """Chunks of a workspace. Not safe for threads: one thread writes it, or a reader keeps the one it was given."""

    def __init__(
        self, base: IndexSegment | None = None, *, dimensions: int | None = None, faiss: Array | None = None
    ) -> None:
        self.dimensions = dimensions if dimensions is not None else (base.dimensions if base is not None else 0)
        self._parts = [_Part.of(base if base is not None else build([], self.dimensions))]
        if faiss is not None:
            self._parts[0].vectors.attach(faiss)
        self._statistics: tuple[int, float, list[Array]] | None = None

    def __len__(self) -> int:
        return self._counted()[0]

    def __contains__(self, path: str) -> bool:
        """Whether a file is in the index."""
        return self._place(path) is not None

    def _place(self, path: str) -> tuple[int, int] | None:
        """Number of the part where this file is alive, and its number there.

        The parts are asked one after the other: a table of all paths would be copied at every save.
        """
        for at, part in enumerate(self._parts):
            file = part.segment.files.get(path)
            if file is not None and part.alive_files[file]:
                return at, file
        return None

    def _counted(self) -> tuple[int, float, list[Array]]:
        """Chunks alive, their mean length in terms, and by segment what the length of each chunk adds in BM25."""
        if self._statistics is None:
            count = sum(int(part.alive.sum()) for part in self._parts)
            terms = sum(int(part.segment.arrays["lengths"][part.alive].sum()) for part in self._parts)
            mean = terms / count if terms else 1.0
            norms = [(_K1 * (1 - _B + _B / mean * part.segment.arrays["lengths"])).astype("f4") for part in self._parts]
            self._statistics = count, mean, norms
        return self._statistics

    @property
    def file_count(self) -> int:
        """Of files that are in the index."""
        return sum(int(part.alive_files.sum()) for part in self._parts)

    def files(self) -> Mapping[str, FileState]:
        """State of every file, as it was read."""
        result: dict[str, FileState] = {}
        for part in self._parts:
            paths, arrays, alive = part.segment.paths, part.segment.arrays, np.flatnonzero(part.alive_files)
            sizes, times = arrays["file_sizes"][alive].tolist(), arrays["file_mtimes_ns"][alive].tolist()
            for file, size_bytes, mtime_ns in zip(alive.tolist(), sizes, times, strict=True):
                result[paths[file]] = FileState(size_bytes, mtime_ns)
        return result

    def copy(self) -> Index:
        """An index that shares the segments and can be changed while this one is read. Takes a byte for each file and each chunk."""
        other = Index.__new__(Index)
        other.dimensions = self.dimensions
        other._statistics = self._statistics
        other._parts = [
            _Part(one.segment, one.alive_files.copy(), one.alive.copy(), one.vectors, one.whole) for one in self._parts
        ]
        return other

    def prepare(self) -> None:
        """Does beforehand what the first question would otherwise wait for."""
        for part in self._parts:
            part.vectors.prepare()
            part.segment.prepare()
        self._counted()

    def update(
        self,
        entries: Sequence[FileEntry],
        removed: Iterable[str] = (),
        put_aside: Callable[[IndexSegment], IndexSegment] | None = None,
    ) -> None:
        """Adds or replaces files, and forgets others.

        Args:
            put_aside: moves a large segment out of memory; it stays as it is until all is merged.
        """
        self._statistics = None
        for path in (*removed, *(entry.path for entry in entries)):
            place = self._place(path)
            if place is not None:
                part, file = self._parts[place[0]], place[1]
                part.whole = False
                part.alive_files[file] = False
                part.alive[part.segment.chunks_of(file)] = False
        if not entries:
            return
        made = build(entries, self.dimensions)
        if put_aside is not None:
            self._parts.append(_Part.of(put_aside(made)))
            return
        self._parts.append(_Part.of(made))
        if len(self._parts) > MAX_SMALL_SEGMENTS:
            self._merge_small()

    def _merge_small(self) -> None:
        base, small = self._parts[0], self._parts[1:]
        merged = Merged([(part.segment, part.alive_files) for part in small])
        self._parts = [base, _Part.of(merged.segment())]

    def merged(self) -> Merged:
        """Everything alive, to be stored. The same arrays as of a fresh index of the same files."""
        return Merged([(part.segment, part.alive_files) for part in self._parts])

    def defining(self, name: str, limit: int = 50) -> list[Key]:
        """Definitions of exactly this name, in the order of their paths; none of a name with more than `limit`."""
        hits: list[Key] = []
        for at, part in enumerate(self._parts):
            postings = part.segment.postings(symbol_term(name))
            if postings is not None:
                alive = postings[0] if part.whole else postings[0][part.alive[postings[0]]]
                if len(hits) + len(alive) > limit:
                    return []
                hits += self._keys(at, alive)
        return sorted(hits)

    def holding(self, terms: Collection[str], limit: int) -> list[str]:
        """Paths of at most `limit` files that hold all these terms in one chunk, in their order."""
        paths: set[str] = set()
        for at, part in enumerate(self._parts):
            common: Array | None = None
            for term in terms:
                postings = part.segment.postings(term)
                chunks = np.zeros(0, np.int32) if postings is None else postings[0]
                common = chunks if common is None else np.intersect1d(common, chunks, assume_unique=True)
            if common is not None:
                alive = common if part.whole else common[part.alive[common]]
                paths.update(key[0] for key in self._keys(at, alive))
        return sorted(paths)[:limit]

    def by_terms(self, terms: Mapping[str, float], limit: int) -> Ranking:
        """BM25 over sub-words, best first; see :meth:`word_scores`."""
        return self.best(self.word_scores(terms), limit)

    def word_scores(self, terms: Mapping[str, float]) -> list[Array]:
        """BM25 over sub-words of every chunk, one array per segment.

        Args:
            terms: weight of each; the rarest `_MAX_TERMS` are used.
        """
        scores = [np.zeros(part.segment.chunk_count, np.float32) for part in self._parts]
        count, _, norms = self._counted()
        if not count or not terms:
            return scores
        looked: list[tuple[int, str, list[tuple[int, Array, Array]]]] = []
        for term in sorted(terms):
            lists: list[tuple[int, Array, Array]] = []
            for at, part in enumerate(self._parts):
                postings = part.segment.postings(term)
                if postings is not None:
                    chunks, counts = postings
                    if not part.whole:
                        kept = part.alive[chunks]
                        chunks, counts = chunks[kept], counts[kept]
                    lists.append((at, chunks, counts))
            total = sum(len(chunks) for _, chunks, _ in lists)
            if total:
                looked.append((total, term, lists))
        for total, term, lists in sorted(looked, key=lambda one: one[:2])[:_MAX_TERMS]:
            weight = np.float32(terms[term] * math.log1p((count - total + 0.5) / (total + 0.5)) * (_K1 + 1))
            for at, chunks, counts in lists:
                times = counts.astype(np.float32)
                scores[at][chunks] += weight * times / (times + norms[at][chunks])
        return scores

    def by_vector(self, vector: NDArray[np.float32], limit: int) -> Ranking:
        """Nearest chunks by cosine, best first. Above some thousand chunks the large segment's answer is approximate."""
        scored: Ranking = []
        for at, part in enumerate(self._parts):
            if part.segment.chunk_count and part.segment.dimensions:
                chunks, scores = part.vectors.nearest(vector, part.alive, limit)
                rounded = np.round(scores, _DIGITS).tolist()
                scored += zip(rounded, self._keys(at, chunks), strict=True)
        return _ordered(scored, limit)

    def found(self, key: Key, score: float) -> FoundChunk:
        """What a key of a ranking stands for."""
        path, start, at, chunk = key
        segment = self._parts[at].segment
        arrays = segment.arrays
        return FoundChunk(
            path,
            segment.name(chunk),
            ChunkKind(int(arrays["kinds"][chunk])),
            int(arrays["lines"][chunk]),
            start,
            int(arrays["ends"][chunk]),
            segment.text(chunk),
            score,
        )

    def cosines(self, vector: NDArray[np.float32], keys: Sequence[Key]) -> Array:
        """Exact cosines of these chunks, in their order."""
        result = np.zeros(len(keys), np.float32)
        for at, part in enumerate(self._parts):
            own = [place for place, key in enumerate(keys) if key[2] == at]
            if own and part.segment.dimensions:
                rows = part.segment.arrays["vectors"][[keys[place][3] for place in own]].astype(np.float32)
                result[own] = rows @ vector
        return np.round(result, _DIGITS)

    def best_inside(self, paths: Iterable[str], scores: Sequence[Array], limit: int) -> list[Key]:
        """Chunks of these files with the highest scores; those that score nothing come last."""
        # Files in the order of their paths, and chunks in that of their places: a stable sort then settles ties as keys do.
        spans = [
            (place[0], self._parts[place[0]].segment.chunks_of(place[1]))
            for path in sorted(paths)
            if (place := self._place(path)) is not None
        ]
        if not spans:
            return []
        values = np.concatenate([scores[at][span] for at, span in spans])
        parts = np.concatenate([np.full(span.stop - span.start, at) for at, span in spans])
        chunks: Array = np.concatenate([np.arange(span.start, span.stop, dtype=np.int64) for _, span in spans])
        first = np.argsort(-np.round(values, _DIGITS), kind="stable")[:limit]
        keys: list[Key | None] = [None] * len(first)
        for at in range(len(self._parts)):
            own = np.flatnonzero(parts[first] == at)
            for place, key in zip(own.tolist(), self._keys(at, chunks[first][own]), strict=True):
                keys[place] = key
        return [key for key in keys if key is not None]

    def values(self, scores: Sequence[Array], keys: Sequence[Key]) -> Array:
        """The scores of these chunks, in their order."""
        result = np.zeros(len(keys), np.float32)
        parts = np.fromiter((key[2] for key in keys), np.int64, len(keys))
        chunks = np.fromiter((key[3] for key in keys), np.int64, len(keys))
        for at in range(len(self._parts)):
            own = np.flatnonzero(parts == at)
            result[own] = scores[at][chunks[own]]
        return result

    def best(self, scores: Sequence[Array], limit: int) -> Ranking:
        """The highest positive scores, best first; ties by path and place."""
        scored: Ranking = []
        for at, values in enumerate(scores):
            candidates = np.flatnonzero(values > 10.0**-_DIGITS)
            rounded = np.round(values[candidates], _DIGITS)
            if len(candidates) > limit:
                # All that tie with the last one stay, so that the order below decides, not the partition.
                kept = rounded >= np.partition(rounded, -limit)[-limit]
                candidates, rounded = candidates[kept], rounded[kept]
            scored += zip(rounded.tolist(), self._keys(at, candidates), strict=True)
        return _ordered(scored, limit)

    def _keys(self, at: int, chunks: Array) -> list[Key]:
        segment = self._parts[at].segment
        starts = segment.arrays["starts"][chunks].tolist()
        files = segment.file_of[chunks].tolist()
        return [
            (segment.paths[file], start, at, chunk)
            for file, start, chunk in zip(files, starts, chunks.tolist(), strict=True)
        ]


def _ordered(scored: Iterable[tuple[float, Key]], limit: int) -> Ranking:
    return sorted(scored, key=lambda one: (-one[0], one[1][:2], one[1][3]))[:limit]
