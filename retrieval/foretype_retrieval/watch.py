"""Keeping the index of one workspace true to the disk while somebody works in it.

A thread owns the index and replaces it as a whole; readers take what is there. A saved file is read again at once; the whole
tree is compared by size and time every minute, and at once when `.git/HEAD` moves. Few changes are taken in here; many (a
branch switch, a pull, a first index) go to the indexing process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import platformdirs

from foretype_retrieval.embed import Embedder
from foretype_retrieval.index import Index
from foretype_retrieval.indexing import Cancelled, Progress, Report, changes, open_index, refresh_file, update_workspace
from foretype_retrieval.scan import Scan, WorkspaceGone, scan
from foretype_retrieval.store import IndexAbsent, IndexUnusable, folder_of
from foretype_retrieval.worker import WorkerFailed, run_worker

__all__ = ["Workspace", "default_cache_dir"]

_logger = logging.getLogger(__name__)

_POLL_S: Final = 2.0
_SCAN_EVERY_S: Final = 60.0
_FEW: Final = 40
_STEP_ASIDE_S: Final = 0.002


def default_cache_dir() -> Path:
    """Where indexes are kept unless told otherwise."""
    return Path(platformdirs.user_cache_dir("foretype"))


class Workspace:
    """One folder and its index.

    Args:
        clock: monotonic seconds.
        on_progress: called from the thread while a first index or a large update runs.
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
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.root = root
        self.folder = folder_of(cache_dir, root)
        self.index: Index | None = None
        self.generation = 0
        self._embedder = embedder
        self._table = table
        self._globs = globs
        self._clock = clock
        self._on_progress = on_progress
        self._problem = ""
        self._doing = "starting"
        self._touched: dict[str, None] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"foretype index {root.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def touched(self, path: str) -> None:
        """A file was saved, made or deleted."""
        with self._lock:
            self._touched[path] = None
            self._idle.clear()
        self._wake.set()

    def wait_idle(self, timeout_s: float) -> bool:
        """Waits until everything known so far is in the index; for tests and the command line."""
        return self._idle.wait(timeout_s)

    def status(self) -> str:
        index = self.index
        size = "no index yet" if index is None else f"{len(index):,} definitions"
        return f"{self.root.name}: {size}, {self._doing}" + (f" ({self._problem})" if self._problem else "")

    def close(self, timeout_s: float = 10.0) -> None:
        self._closed.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._compare()
        except Cancelled:
            return
        head, scanned_s = self._head(), self._clock()
        while not self._closed.is_set():
            with self._lock:
                touched, self._touched = list(self._touched), {}
                if not touched:
                    self._wake.clear()
                    self._idle.set()
            try:
                if touched:
                    self._doing = "updating"
                    self._take_in(touched)
                elif (now_head := self._head()) != head or self._clock() - scanned_s >= _SCAN_EVERY_S:
                    head, scanned_s = now_head, self._clock()
                    self._compare()
                else:
                    self._doing = "ready"
                    self._wake.wait(_POLL_S)
            except Cancelled:
                return

    def _swap(self, index: Index) -> None:
        index.prepare()
        self.index = index
        self.generation += 1

    def _load(self) -> None:
        self._doing = "opening"
        try:
            self._swap(open_index(self.folder, self._embedder()))
        except IndexAbsent:
            pass
        except IndexUnusable as error:
            _logger.warning("the index is made anew: %s", error)

    def _take_in(self, paths: Sequence[str]) -> None:
        index = self.index
        if index is None or len(paths) > _FEW:
            self._compare()
            return
        for path in paths:
            if self._closed.is_set():
                raise Cancelled
            index = refresh_file(index, self.root, path, self._embedder())
            self._swap(index)

    def _compare(self) -> None:
        """Compares the tree with the index and takes in what differs."""
        self._doing = "comparing"
        try:
            found = self._scan()
        except WorkspaceGone as error:
            self._tell(str(error))
            self._swap(Index(dimensions=0))
            return
        if self.index is None:
            self._load()
        again, gone = changes(self.index.files() if self.index is not None else {}, found.files)
        if self.index is not None and len(again) + len(gone) <= _FEW:
            self._tell("")
            if again or gone:
                self._take_in([*again, *gone])
            return
        self._doing = "indexing"
        try:
            report = run_worker(
                self.root,
                self.folder,
                table=self._table,
                globs=self._globs,
                progress=self._on_progress,
                cancelled=self._closed,
            )
            self._tell(report.problem)
            self._adopt(report)
        except WorkerFailed as error:
            self._tell(str(error))

    def _adopt(self, report: Report) -> None:
        if not report.problem:
            self._load()
            return
        # What the process made went with it: without room on disk the index is made here, and kept in memory.
        index, _ = update_workspace(
            self.root, self.folder, self._embedder(), globs=self._globs, cancelled=self._closed.is_set
        )
        self._swap(index)

    def _scan(self) -> Scan:
        found = scan(
            self.root,
            self._globs,
            cancelled=self._closed.is_set,
            # Listing holds the lock in short pieces; stepping aside lets a completion in between.
            pause=lambda: time.sleep(_STEP_ASIDE_S),
            pause_every=100,
        )
        if not found.complete:
            raise Cancelled
        return found

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            _logger.warning("%s", problem)
        self._problem = problem

    def _head(self) -> tuple[int, int]:
        try:
            status = (self.root / ".git" / "HEAD").stat()
            return status.st_mtime_ns, status.st_size
        except OSError:
            return 0, 0
