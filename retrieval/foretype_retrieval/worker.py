"""Indexing in a process of its own: parsing holds the interpreter lock, and a completion must never wait for it.

`python -m foretype_retrieval.worker ROOT FOLDER` brings one index up to date. It prints JSON lines: `{"files_done": …,
"files_total": …, "chunks": …}` while it works and `{"report": {…}}` or `{"error": …}` at its end. It ends when its parent does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

from foretype_retrieval.errors import BusyIndexError, IndexingCancelledError, WorkerError, WorkspaceGoneError
from foretype_retrieval.indexing import IndexingProgress, UpdateReport, update_workspace
from foretype_retrieval.static_embedder import default_embedder

_NICE: Final = 10
_STOP_S: Final = 5.0


def run_worker(
    root: Path,
    folder: Path,
    *,
    table: Path | None = None,
    globs: Sequence[str] = (),
    progress: Callable[[IndexingProgress], None] = lambda progress: None,
    cancelled: threading.Event | None = None,
) -> UpdateReport:
    """Runs the indexing process and waits for it; for a thread that may wait.

    Raises:
        WorkerError: it could not do its work, or died.
        IndexingCancelledError: `cancelled` was set; the process is gone when this is raised.
    """
    # -P: `-m` would import from the working directory first, which may be a workspace and hold anything.
    module = ["-P", "-m", "foretype_retrieval.worker"]
    command = [sys.executable, *module, str(root), str(folder), str(table or ""), *globs]
    # Its standard input is closed when this process dies, however it dies.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            if cancelled is not None and cancelled.is_set():
                process.terminate()
                return

    watcher = threading.Thread(target=watch, name="foretype index cancel", daemon=True)
    watcher.start()
    report: UpdateReport | None = None
    problem = ""
    try:
        for line in process.stdout or ():
            with contextlib.suppress(ValueError):
                said = cast("dict[str, Any]", json.loads(line))
                if "report" in said:
                    report = UpdateReport(**said["report"])
                elif "error" in said:
                    problem = str(said["error"])
                else:
                    progress(IndexingProgress(**said))
    finally:
        ended.set()
        _end(process)
    if cancelled is not None and cancelled.is_set() and report is None:
        raise IndexingCancelledError
    if report is None:
        raise WorkerError(problem or f"the indexing process ended with status {process.returncode}")
    return report


def _end(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(arguments: Sequence[str]) -> int:
    """The indexing process."""
    root, folder, table, *globs = arguments
    stop = threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, asked_to_stop)
    signal.signal(signal.SIGINT, asked_to_stop)
    threading.Thread(target=_until_orphaned, args=(stop,), daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_NICE)
    # What its report says, and that a stored index could not be used, is logged once, by the process that started this one.
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="%(message)s")
    try:
        _, report = update_workspace(
            Path(root),
            Path(folder),
            default_embedder(Path(table) if table else None),
            globs=globs,
            progress=lambda progress: _say(asdict(progress)),
            cancelled=stop.is_set,
        )
    except IndexingCancelledError:
        return 130
    except (BusyIndexError, WorkspaceGoneError) as error:
        _say({"error": str(error)})
        return 1
    _say({"report": asdict(report)})
    return 0


def _until_orphaned(stop: threading.Event) -> None:
    # Not `sys.stdin`: its lock, held here when the process ends by itself, is a fatal error to the interpreter.
    while os.read(0, 4096):
        pass
    stop.set()


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
