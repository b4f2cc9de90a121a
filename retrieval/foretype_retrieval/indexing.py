"""From files to an index: reading, chunking and embedding what changed since the stored one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from foretype_context.syntax.languages import language_of

from foretype_retrieval.chunks import chunk_text
from foretype_retrieval.embedder import Embedder
from foretype_retrieval.errors import (
    AbsentIndexError,
    DamagedIndexError,
    IndexingCancelledError,
    UnreadableVectorsError,
    UnsavedIndexError,
    UnusableIndexError,
)
from foretype_retrieval.index import FileState, Index
from foretype_retrieval.scan import read_source, scan
from foretype_retrieval.segment import FileEntry, IndexSegment
from foretype_retrieval.store import load, put_aside, save, writing

_logger = logging.getLogger(__name__)

MAX_CHUNKS: Final = 300_000
"""An index stops growing here: 1.5 GB of resident memory would be no help to anybody."""

_BATCH_CHUNKS: Final = 10_000


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """How far indexing is."""

    files_done: int
    files_total: int
    chunks: int


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What an update did.

    Attributes:
        files, chunks: in the index now.
        indexed, removed: files read anew, and files forgotten.
        unreadable: folders that could not be listed.
        saved_bytes: of the file; 0 where nothing changed.
        full: files left out because the index is full.
        problem: why the index was not saved; empty if it was.
    """

    files: int
    chunks: int
    indexed: int
    removed: int
    unreadable: int
    saved_bytes: int
    full: int = 0
    problem: str = ""


def make_entry(path: str, text: str, state: FileState, embedder: Embedder | None) -> FileEntry:
    """One file, chunked and embedded."""
    chunks = chunk_text(text, language_of(path))
    vectors: Any = np.zeros((len(chunks), 0), np.float16)
    if embedder is not None:
        vectors = embedder.embed([f"{chunk.name}\n{chunk.indexed}" for chunk in chunks]).astype(np.float16)
    return FileEntry(path, state.size_bytes, state.mtime_ns, chunks, vectors)


def is_full(index: Index) -> bool:
    """Whether an index takes no file that it does not know yet; those that it knows are kept true."""
    return len(index) > MAX_CHUNKS


def changes(known: Mapping[str, FileState], found: Mapping[str, FileState]) -> tuple[list[str], list[str]]:
    """Paths to read anew and paths to forget."""
    return sorted(path for path, state in found.items() if known.get(path) != state), sorted(set(known) - set(found))


def open_index(folder: Path, embedder: Embedder | None) -> Index:
    """The stored index. Raises UnusableIndexError."""
    stored = load(folder, embedder.digest if embedder is not None else "")
    try:
        return Index(stored.segment, faiss=stored.faiss)
    except UnreadableVectorsError as error:
        raise DamagedIndexError(f"the FAISS index of the vectors in {folder} cannot be used ({error})") from error


def refresh_file(index: Index, root: Path, path: str, embedder: Embedder | None) -> Index:
    """A copy of the index with one file as it is on disk now, or without it where it cannot be read."""
    fresh = index.copy()
    read = read_source(root, path)
    if read is None:
        fresh.update([], [path])
    else:
        fresh.update([make_entry(path, *read, embedder)])
    return fresh


def update_workspace(
    root: Path,
    folder: Path,
    embedder: Embedder | None,
    *,
    globs: Sequence[str] = (),
    progress: Callable[[IndexingProgress], None] = lambda progress: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[Index, UpdateReport]:
    """Brings the stored index up to date, or makes it.

    Raises:
        IndexingCancelledError: the stored index is as it was.
        BusyIndexError: another process is at it.
        WorkspaceGoneError: the folder is not there.
    """
    found = scan(root, globs, cancelled=cancelled)
    if not found.complete:
        raise IndexingCancelledError
    with ExitStack() as held:
        problem = ""
        try:
            held.enter_context(writing(folder))
            index = _opened(folder, embedder)
        except UnsavedIndexError as error:
            problem, index = str(error), _empty(embedder)
        again, gone = changes(index.files(), found.files)
        unreadable, fresh = len(found.unreadable), not index.file_count
        del found  # states of all files, which nobody asks for any more
        aside = None if problem else partial(put_aside, folder)
        full = _refresh(index, root, again, gone, embedder, progress, cancelled, aside)
        indexed = len(again) - full
        done = UpdateReport(index.file_count, len(index), indexed, len(gone), unreadable, 0, full, problem)
        if problem or not (indexed or gone or fresh):
            return index, done
        del again, gone
        if cancelled():
            raise IndexingCancelledError
        digest = embedder.digest if embedder is not None else ""
        merged = index.merged()
        try:
            return index, replace(done, saved_bytes=save(folder, merged, digest))
        except UnsavedIndexError:
            whole = merged.segment()
        del index, merged  # what was put aside takes room on the disk too: once more without it
        try:
            return Index(whole), replace(done, saved_bytes=save(folder, whole, digest))
        except UnsavedIndexError as error:
            return Index(whole), replace(done, problem=str(error))


def _empty(embedder: Embedder | None) -> Index:
    return Index(dimensions=embedder.dimensions if embedder is not None else 0)


def _opened(folder: Path, embedder: Embedder | None) -> Index:
    try:
        return open_index(folder, embedder)
    except AbsentIndexError:
        pass
    except UnusableIndexError as error:
        # Words alone: a record that holds the error keeps the mapped file open.
        _logger.warning("the index is made anew: %s", str(error))
    return _empty(embedder)


def _refresh(
    index: Index,
    root: Path,
    again: Sequence[str],
    gone: Iterable[str],
    embedder: Embedder | None,
    progress: Callable[[IndexingProgress], None],
    cancelled: Callable[[], bool],
    put_aside: Callable[[IndexSegment], IndexSegment] | None,
) -> int:
    """Reads `again` into the index, the files that it knows first; returns how many new ones found no room."""
    index.update([], gone)
    new = [path for path in again if path not in index]
    paths = [*(path for path in again if path in index), *new]
    first_new = len(paths) - len(new)
    entries: list[FileEntry] = []
    missing: list[str] = []
    held = left_out = 0
    for at, path in enumerate(paths):
        if cancelled():
            raise IndexingCancelledError
        if (
            held >= _BATCH_CHUNKS or at == first_new
        ):  # what is read again has taken its own room before others look for some
            index.update(entries, missing, put_aside)
            entries, missing, held = [], [], 0
        if at >= first_new and len(index) + held > MAX_CHUNKS:
            left_out = len(paths) - at
            _logger.warning("the index is full at %d chunks; %d files are left out", MAX_CHUNKS, left_out)
            break
        read = read_source(root, path)
        if read is None:
            missing.append(path)
        else:
            entry = make_entry(path, *read, embedder)
            entries.append(entry)
            held += len(entry.chunks)
        if at % 20 == 19:
            progress(IndexingProgress(at + 1, len(paths), len(index) + held))
    index.update(entries, missing, put_aside)
    if not left_out:
        progress(IndexingProgress(len(paths), len(paths), len(index)))
    return left_out
