"""Keeping the index of one workspace true while somebody works in it: to the disk, and to the texts that are open.

A thread owns the index and replaces it as a whole; readers take what is there. A saved file is read again at once, the text of
an open document stands in for its file, saved or not, and the whole tree is compared by size and time every minute, and soon
after git moves. Few changes are taken in here; many (a branch switch, a pull, a first index) go to the indexing process. What
is stored on disk never holds a text that was not saved.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import platformdirs
from foretype_context.folder.ignore_rules import IGNORE_FILE, is_ignore_file
from foretype_context.folder.ignored import Ignored
from foretype_context.text.strings import well_formed

from foretype_retrieval.embedder import Embedder
from foretype_retrieval.errors import (
    AbsentIndexError,
    IndexingCancelledError,
    UnusableIndexError,
    WorkerError,
    WorkspaceGoneError,
)
from foretype_retrieval.git import GitState
from foretype_retrieval.index import FileState, Index
from foretype_retrieval.indexing import (
    IndexingProgress,
    UpdateReport,
    changes,
    is_full,
    make_entry,
    open_index,
    update_workspace,
)
from foretype_retrieval.scan import MAX_CODE_BYTES, Scan, is_scanned, read_source, scan, wanted
from foretype_retrieval.segment import FileEntry
from foretype_retrieval.store import folder_of
from foretype_retrieval.worker import run_worker

_logger = logging.getLogger(__name__)

_POLL_S: Final = 2.0
_SELDOM_S: Final = 10.0
_LIVELY_S: Final = 20.0
"""So long after the last change of a file, a branch or a rule the folder is looked at every two seconds, then every ten."""
_SCAN_EVERY_S: Final = 60.0
_REST: Final = 10.0
"""After a scan the thread rests this many times as long before it follows git again: at most a tenth of its time."""

_FEW: Final = 40
_STEP_ASIDE_S: Final = 0.002
_HEAD_CHARS: Final = 8_192
_AFTER_FAULT_S: Final = 10.0
_AFTER_FAILURE_S: Final = 5.0
"""The indexing process usually fails because that of another editor is at the same folder."""


def default_cache_dir() -> Path:
    """Where indexes are kept unless told otherwise."""
    return Path(platformdirs.user_cache_dir("foretype"))


class IndexedFolder:
    """One folder and its index.

    Args:
        clock: monotonic seconds.
        on_progress: called from the thread while a first index or a large update runs; with None when it has ended.

    Attributes:
        ignored: what is left out now, for the one thread that reads the index: rules may be newer than it.
    """

    def __init__(
        self,
        root: Path,
        cache_dir: Path,
        embedder: Callable[[], Embedder | None],
        *,
        table: Path | None = None,
        globs: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        on_progress: Callable[[IndexingProgress | None], None] = lambda progress: None,
    ) -> None:
        self.root = root
        self.folder = folder_of(cache_dir, root)
        self.index: Index | None = None
        self.generation = 0
        self._embedder = embedder
        self._table = table
        self._globs = globs
        self.ignored = Ignored(root, globs)
        self._left_out = Ignored(root, globs)  # for the thread here
        self._rules_seen = 0
        self._clock = clock
        self._on_progress = on_progress
        self._problem = self._fault = ""
        self._unread: dict[str, FileState] = {}  # what the indexing process saw as it was then, and could not read
        self._later: dict[str, float] = {}  # paths whose change could not be taken in, and when they are tried again
        self._doing = "starting"
        self._touched: dict[str, None] = {}
        self._open: dict[str, str] = {}
        self._git = GitState(root)
        self._lively_s = clock()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._stop_worker = threading.Event()
        self._refused = self._failed = self._rules_moved = False
        self._scan_took_s = 0.0
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"foretype index {root.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def touched(self, path: str) -> None:
        """A file was saved, made or deleted."""
        if is_ignore_file(PurePosixPath(path)):
            self._rules_moved = True  # what it leaves out is told by the tree alone
        with self._lock:
            self._touched[path] = None
            self._idle.clear()
        self._wake.set()

    def edited(self, path: str, text: str | None) -> None:
        """An open document has this text, whatever its file says; None: it is not open any more."""
        with self._lock:
            known = self._open.get(path)
            if text is None:
                self._open.pop(path, None)
            else:
                self._open[path] = well_formed(text)
        if text != known:
            self.touched(path)

    def cancel(self) -> None:
        """Stop a large update that runs, and start no other: what is indexed stays, and small changes are still taken in."""
        self._refused = True
        self._stop_worker.set()

    def wait_idle(self, timeout_s: float) -> bool:
        """Waits until everything known so far is in the index; for tests and the command line."""
        return self._idle.wait(timeout_s)

    def status(self) -> str:
        index = self.index
        size = "no index yet" if index is None else f"{len(index):,} definitions"
        problem = self._fault or self._problem
        return f"{self.root.name}: {size}, {self._doing}" + (f" ({problem})" if problem else "")

    def close(self, timeout_s: float = 10.0) -> None:
        self._closed.set()
        self._stop_worker.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self.index = None  # its file is mapped

    def _run(self) -> None:
        compared_s, next_s = float("-inf"), float("-inf")
        moved = True
        while not self._closed.is_set():
            touched = self._take_touched() if self.index is not None else []
            try:
                now = self._clock()
                moved = self._git.moved() or moved
                if self._rules_changed():
                    self._rules_moved = True
                if touched or moved or self._rules_moved:
                    self._lively_s = now
                if self._rules_moved and self.index is not None:
                    self._rules_moved, compared_s = False, float("-inf")
                if touched:
                    self._doing = "updating"
                    self._take_in(touched)
                elif (moved and now >= next_s) or now - compared_s >= _SCAN_EVERY_S or self.index is None:
                    moved = False
                    self._compare()
                    compared_s = self._clock()
                    next_s = compared_s + _REST * self._scan_took_s
                    if self._failed:
                        self._failed = False
                        compared_s += _AFTER_FAILURE_S - _SCAN_EVERY_S
                else:
                    self._rest()
                if not self._later:
                    self._fault = ""
            except IndexingCancelledError:
                return
            except Exception as error:
                # A fault here must cost fresh answers alone, and must not be a busy loop.
                _logger.debug("indexing failed", exc_info=error)
                self._postpone(touched, error)
                if self.index is None:
                    self._swap(self._empty())
                if not touched:
                    moved = True
                    self._closed.wait(_AFTER_FAULT_S)

    def _rules_changed(self) -> bool:
        """Whether what git leaves out of the whole folder was changed, of which no editor need tell: it may lie outside of it."""
        self._left_out(self.root / IGNORE_FILE)
        before, self._rules_seen = self._rules_seen, self._left_out.changes
        return before != self._rules_seen

    def _take_touched(self) -> list[str]:
        now = self._clock()
        due = [path for path, at in self._later.items() if at <= now]
        with self._lock:
            touched, self._touched = list(self._touched | dict.fromkeys(due)), {}
            if not touched:
                self._wake.clear()
        for path in touched:
            self._later.pop(path, None)
        return touched

    def _postpone(self, paths: Iterable[str], error: Exception) -> None:
        """Nobody says a second time that these changed: they are tried again until they are taken in."""
        self._later |= dict.fromkeys(paths, self._clock() + _AFTER_FAULT_S)
        fault = f"{type(error).__name__} while indexing; tried again in {_AFTER_FAULT_S:.0f} s"
        if fault != self._fault:
            _logger.warning("%s: %s", self.root.name, fault)
        self._fault = fault

    def _rest(self) -> None:
        self._doing = "ready"
        with self._lock:
            if not self._touched and not self._later:
                self._idle.set()
        lively = self._clock() - self._lively_s < _LIVELY_S
        self._wake.wait(_POLL_S if lively else _SELDOM_S)

    def _swap(self, index: Index) -> None:
        index.prepare()
        self.index = index
        self.generation += 1

    def _empty(self) -> Index:
        embedder = self._embedder()
        return Index(dimensions=embedder.dimensions if embedder is not None else 0)

    def _load(self, found: Scan) -> None:
        self._doing = "opening"
        try:
            index = open_index(self.folder, self._embedder())
        except AbsentIndexError:
            return
        except UnusableIndexError as error:
            _logger.warning("the index is made anew: %s", str(error))
            return
        self._show(index, found)

    def _show(self, index: Index, found: Scan) -> None:
        """An index of files in place of the one before.

        First the texts that are open, which it does not know, are taken in, and what is left out by now goes.
        """
        with self._lock:
            paths = list(self._open)
        entries, gone = self._read(index, paths)
        unseen = [path for path in index.files() if path not in found.files]
        index.update(entries, [*gone, *(path for path in unseen if not self._is_scanned(path))])
        self._swap(index)

    def _take_in(self, paths: Sequence[str]) -> None:
        """Changes that were told. Where many files changed, the tree tells which; of texts that are open it knows nothing."""
        if len(paths) > _FEW:
            with self._lock:
                paths, files = [path for path in paths if path in self._open], len(paths)
            if len(paths) < files:
                self._compare()
        self._take_in_here(paths)

    def _take_in_here(self, paths: Sequence[str]) -> None:
        for at in range(0, len(paths), _FEW):
            if self.index is not None:
                fresh = self.index.copy()
                entries, gone = self._read(fresh, paths[at : at + _FEW])
                fresh.update(entries, gone)
                self._swap(fresh)

    def _read(self, index: Index, paths: Sequence[str]) -> tuple[list[FileEntry], list[str]]:
        """Files as they are now, chunked; and those that are not to be found any more."""
        embedder = self._embedder() if index.dimensions else None
        entries: list[FileEntry] = []
        gone: list[str] = []
        for path in paths:
            if self._closed.is_set():
                raise IndexingCancelledError
            try:
                found = self._content(path)
                if found is None:
                    gone.append(path)
                else:
                    entries.append(make_entry(path, *found, embedder))
            except Exception as error:  # a fault in one file is its own: the others are taken in
                _logger.debug("indexing failed", exc_info=error)
                self._postpone([path], error)
        return entries, gone

    def _content(self, path: str) -> tuple[str, FileState] | None:
        if not self._is_scanned(path):
            return None  # a save tells of files that a scan would leave out, and what was indexed may be left out since
        with self._lock:
            text = self._open.get(path)
        if text is None:
            return read_source(self.root, path)
        head = text[:_HEAD_CHARS].encode("utf-8", "replace")
        if len(text) > MAX_CODE_BYTES or not wanted(path, len(text), head):
            return None
        try:
            status = (self.root / path).stat()
        except (OSError, ValueError):
            return text, FileState(-1, 0)  # not saved yet
        return text, FileState(status.st_size, status.st_mtime_ns)

    def _is_scanned(self, path: str) -> bool:
        return is_scanned(self.root, PurePosixPath(path), self._left_out)

    def _compare(self) -> None:
        """Compares the tree with the index and takes in what differs."""
        self._doing = "comparing"
        try:
            found = self._scan()
        except WorkspaceGoneError as error:
            self._tell(str(error))
            if self.index is None or len(self.index):
                self._swap(self._empty())
            return
        if self.index is None:
            self._load(found)
        index = self.index
        again, gone = changes(index.files() if index is not None else {}, found.files)
        left_out = 0
        if index is not None and is_full(index):
            # Else the process would be started at every comparison, for files that it would leave out once more.
            left_out = len(again)
            again = [path for path in again if path in index]
            left_out -= len(again)
        # As above, for files that this user may list and not read.
        again = [path for path in again if self._unread.get(path) != found.files[path]]
        with self._lock:
            open_paths = set(self._open)
        gone = [path for path in gone if path not in open_paths or not self._is_scanned(path)]
        if index is not None and len(again) + len(gone) <= _FEW:
            if not self._refused:
                self._tell(_no_room(left_out))
            if again or gone:
                self._take_in([*again, *gone])
        elif not self._refused:
            self._update(index, found)
        if self.index is None:
            # Nothing stored and nothing made: what is open or saved from now on is indexed all the same.
            self._swap(self._empty())

    def _update(self, index: Index | None, found: Scan) -> None:
        """A large change, by the indexing process."""
        self._doing = "indexing"
        try:
            self._on_progress(IndexingProgress(0, 0, 0 if index is None else len(index)))
            report = run_worker(
                self.root,
                self.folder,
                table=self._table,
                globs=self._globs,
                progress=self._on_progress,
                cancelled=self._stop_worker,
            )
            self._tell(report.problem or _no_room(report.full))
            self._adopt(report, found)
        except WorkerError as error:
            self._failed = True
            self._tell(str(error))
        except IndexingCancelledError:
            if self._closed.is_set():
                raise
            self._tell("indexing was cancelled; `foretype index` in the folder makes the index, then start again")
        finally:
            self._on_progress(None)

    def _adopt(self, report: UpdateReport, found: Scan) -> None:
        before = self.index
        if not report.problem:
            self._load(found)
        else:
            # What the process made went with it: without room on disk the index is made here, and kept in memory.
            index, _ = update_workspace(
                self.root, self.folder, self._embedder(), globs=self._globs, cancelled=self._stop_worker.is_set
            )
            self._show(index, found)
        if self.index is not None and self.index is not before and not report.full:
            known = self.index.files()
            self._unread = {path: state for path, state in found.files.items() if path not in known}

    def _scan(self) -> Scan:
        def pause() -> None:
            # Listing holds the lock in short pieces; stepping aside lets a completion in between, and a save waits for no long scan.
            # What was listed before it changed is read once more: nothing is forgotten for what a list says.
            time.sleep(_STEP_ASIDE_S)
            self._take_in_meanwhile()

        began = self._clock()
        found = scan(self.root, self._globs, cancelled=self._closed.is_set, pause=pause, pause_every=100)
        self._scan_took_s = self._clock() - began
        if not found.complete:
            raise IndexingCancelledError
        return found

    def _take_in_meanwhile(self) -> None:
        """What was told since the last look, where it is little; much is taken in after the scan."""
        with self._lock:
            few = 0 < len(self._touched) <= _FEW
        if not few or self.index is None:
            return
        touched = self._take_touched()
        try:
            self._take_in_here(touched)
        except IndexingCancelledError:
            raise
        except Exception as error:  # a fault of the subscriber must not end the scan
            _logger.debug("indexing failed", exc_info=error)
            self._postpone(touched, error)

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            _logger.warning("%s: %s", self.root.name, problem)
        self._problem = problem


def _no_room(files: int) -> str:
    return f"the index is full; {files:,} files are left out" if files else ""
