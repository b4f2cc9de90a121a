"""What a repository of 200,000 files costs: its first index, what an editor holds of it, and a save until it is found.

The files are generated, alike on every machine: modules of one small function that calls into another, for an index ends at 300,000
chunks. Each step is a process of its own.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import psutil
from foretype_context.terminal import say_json
from foretype_eval.statistics import percentiles
from foretype_retrieval.index import Index
from foretype_retrieval.indexing import update_workspace
from foretype_retrieval.search import query_of_words, search
from foretype_retrieval.static_embedder import default_embedder
from foretype_retrieval.watch import IndexedFolder

from foretype_lab.errors import LabError
from foretype_lab.processes import measured_apart

_WORDS: Final = tuple(
    word
    for line in (
        "account ledger invoice cargo vessel sensor turbine parcel tenant policy session token region planner",
        "matrix kernel socket stream buffer parser printer router worker queue cache index shard replica",
    )
    for word in line.split()
)
_FILES_IN_FOLDER: Final = 50
_MODULE: Final = "foretype_lab.retrieval.large_repository"
_MIB: Final = 1 << 20
_FOUND_S: Final = 120.0


def bench_large_repository(*, files: int, saves: int) -> dict[str, Any]:
    """The report.

    Raises:
        LabError: a step failed.
    """
    with tempfile.TemporaryDirectory(prefix="foretype-bench-") as name:
        root, cache = Path(name, "workspace"), Path(name, "cache")
        _generate(root, files)
        made = measured_apart(_MODULE, "make", root, cache, 0)
        return {"files": files, "first_index": made, "kept": measured_apart(_MODULE, "keep", root, cache, saves)}


def _generate(root: Path, files: int) -> None:
    rng = random.Random(1)
    for number in range(files):
        folder = number // _FILES_IN_FOLDER
        place = root / f"part_{folder // 100:02d}" / f"{_WORDS[folder % len(_WORDS)]}_{folder:04d}"
        place.mkdir(parents=True, exist_ok=True)
        a, b, c = rng.choices(_WORDS, k=3)
        (place / f"{a}_{number}.py").write_text(
            f"from {b} import {c}_{max(0, number - 7)}\n\n\n"
            f"def {a}_{number}({b}, {c}):\n    if not {b}:\n        return {c}_{max(0, number - 7)}({c}, {b})\n"
            f"    return [{c}.{a} for {c} in {b}.{c}s]\n",
            encoding="utf-8",
        )


def _make(root: Path, cache: Path) -> dict[str, Any]:
    began, used = time.perf_counter(), time.process_time()
    workspace = IndexedFolder(root, cache, lambda: None)
    peak = _Peak()
    _, report = update_workspace(root, workspace.folder, default_embedder())
    if report.problem:
        raise LabError(report.problem)
    return {
        "chunks": report.chunks,
        "left_out_files": report.full,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - used, 1),
        "peak_mib": peak.mib(),
        "saved_mib": round(report.saved_bytes / _MIB, 1),
    }


def _keep(root: Path, cache: Path, saves: int) -> dict[str, Any]:
    """As the editor's own process holds it: opened, compared with the tree, and told of saves."""
    embedder = default_embedder()
    process, before = psutil.Process(), psutil.Process().memory_info().rss
    peak = _Peak()
    workspace = IndexedFolder(root, cache, lambda: embedder)
    began, used = time.perf_counter(), time.process_time()
    workspace.start()
    if not workspace.wait_idle(_FOUND_S) or workspace.index is None:
        raise LabError(f"it was not opened within {_FOUND_S:.0f} s: {workspace.status()}")
    opened_s, opened_cpu_s = time.perf_counter() - began, time.process_time() - used
    paths = random.Random(2).sample(sorted(workspace.index.files()), saves)
    waited: list[float] = []
    spent: list[float] = []
    for number, path in enumerate(paths):
        name = f"saved_just_now_{number}"
        with (root / path).open("a", encoding="utf-8") as stream:
            stream.write(f"\n\ndef {name}(value):\n    return value\n")
        began, used = time.perf_counter(), time.process_time()
        workspace.touched(path)
        while not _finds(workspace.index, name):
            if time.perf_counter() - began > _FOUND_S:
                raise LabError(f"a save was not found within {_FOUND_S:.0f} s")
            time.sleep(0.001)
        waited.append((time.perf_counter() - began) * 1e3)
        spent.append((time.process_time() - used) * 1e3)
    resident = process.memory_info().rss
    workspace.close()
    return {
        "opened_s": round(opened_s, 2),
        "opened_cpu_s": round(opened_cpu_s, 2),
        "resident_mib": round(resident / _MIB, 1),
        "of_it_index_mib": round((resident - before) / _MIB, 1),
        "peak_mib": peak.mib(),
        "save_to_searchable_ms": percentiles(waited)._asdict(),
        "save_cpu_ms": percentiles(spent)._asdict(),
    }


def _finds(index: Index | None, name: str) -> bool:
    return index is not None and any(
        hit.found.name == name for hit in search(index, query_of_words(name), None, limit=4)
    )


class _Peak:
    """The most memory that this process had since, looked at ten times a second."""

    def __init__(self) -> None:
        self._most = 0
        self._process = psutil.Process()
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._most = max(self._most, self._process.memory_info().rss)

    def mib(self) -> float:
        self._over.set()
        return round(max(self._most, self._process.memory_info().rss) / _MIB, 1)


def main(step: str, root: str, cache: str, saves: str) -> None:
    """One step in a process of its own; prints its figures as JSON."""
    figures = _make(Path(root), Path(cache)) if step == "make" else _keep(Path(root), Path(cache), int(saves))
    say_json(figures)


if __name__ == "__main__":
    main(*sys.argv[1:])
