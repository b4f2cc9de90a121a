"""The index in memory: one large segment, a few small ones in front of it, and which files of them are alive.

An update adds a small segment and lets older versions of its files die; nothing large is rewritten while somebody types.
Scores do not depend on how files are spread over segments: statistics are taken over what is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.merging import Merged
from foretype_retrieval.segment import FileEntry, IndexSegment, build
from foretype_retrieval.view import Part, Ranking, View

Array = NDArray[Any]

MAX_SMALL_SEGMENTS: Final = 8


class FileState(NamedTuple):
    """What tells that a file has changed."""

    size_bytes: int
    mtime_ns: int


class Index:
    """Chunks of a workspace. Not safe for threads: one thread writes it, or a reader keeps the one it was given."""

    def __init__(
        self, base: IndexSegment | None = None, *, dimensions: int | None = None, faiss: Array | None = None
    ) -> None:
        self.dimensions = dimensions if dimensions is not None else (base.dimensions if base is not None else 0)
        self._parts = [Part.of(base if base is not None else build([], self.dimensions))]
        if faiss is not None:
            self._parts[0].vectors.attach(faiss)
        self._view: View | None = None

    def __len__(self) -> int:
        return self.view().count

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

    def view(self) -> View:
        """What it answers until the next update."""
        if self._view is None:
            self._view = View(self._parts, self.dimensions)
        return self._view

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
        other._view = None
        other._parts = [Part(one.segment, one.alive_files.copy(), one.alive.copy(), one.vectors) for one in self._parts]
        return other

    def prepare(self) -> None:
        """Does beforehand what the first question would otherwise wait for."""
        for part in self._parts:
            part.vectors.prepare()
            part.segment.prepare()
        self.view()

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
        self._view = None
        for path in (*removed, *(entry.path for entry in entries)):
            place = self._place(path)
            if place is not None:
                part, file = self._parts[place[0]], place[1]
                part.alive_files[file] = False
                part.alive[part.segment.chunks_of(file)] = False
        if not entries:
            return
        made = build(entries, self.dimensions)
        self._parts.append(Part.of(made if put_aside is None else put_aside(made)))
        if put_aside is None and len(self._parts) > MAX_SMALL_SEGMENTS:
            self._merge_small()

    def _merge_small(self) -> None:
        base, small = self._parts[0], self._parts[1:]
        merged = Merged([(part.segment, part.alive_files) for part in small])
        self._parts = [base, Part.of(merged.segment())]

    def merged(self) -> Merged:
        """Everything alive, to be stored. The same arrays as of a fresh index of the same files."""
        return Merged([(part.segment, part.alive_files) for part in self._parts])

    def holding(self, terms: Collection[str], limit: int) -> list[str]:
        """Paths of at most `limit` files that hold all these terms in one chunk, in their order."""
        return self.view().holding(terms, limit)

    def by_terms(self, terms: Mapping[str, float], limit: int) -> Ranking:
        """BM25 over sub-words, best first; see :meth:`View.word_scores`."""
        view = self.view()
        return view.ranking(*view.best(view.word_scores(terms), limit), limit)

    def by_vector(self, vector: NDArray[np.float32], limit: int) -> Ranking:
        """Nearest chunks by cosine, best first; see :meth:`View.by_vector`."""
        view = self.view()
        return view.ranking(*view.by_vector(vector, limit), limit)
