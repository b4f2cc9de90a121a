"""What an index costs: making it, holding it, asking it, keeping it up to date. Each step in a fresh process, as in life."""

from __future__ import annotations

import json
import os
import platform
import random
import re
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from foretype_eval.statistics import percentiles
from foretype_retrieval.indexing import open_index, refresh_file, update_workspace
from foretype_retrieval.scan import read_source, wanted
from foretype_retrieval.search import query_at, search
from foretype_retrieval.static_embedder import default_embedder

from foretype_lab.errors import LabError
from foretype_lab.processes import measured_apart
from foretype_lab.retrieval.repositories import load_repositories

AIMS: Final[dict[str, tuple[str, float]]] = {
    "chunks_per_s": ("≥", 2_000),
    "resident_mb": ("≤", 500),
    "search_p50_ms": ("≤", 3),
    "search_p99_ms": ("≤", 3),
    "cold_start_ms": ("≤", 300),
    "update_p50_ms": ("≤", 200),
    "update_p99_ms": ("≤", 200),
}

_DEFINES: Final = re.compile(r"^\s*(async\s+def|def|class|function|func|fn|interface|struct)\b|^\w+ = ", re.MULTILINE)
_DOCUMENTS: Final = 100
_MODULE: Final = "foretype_lab.retrieval.index_bench"
_SNIPPETS: Final = 8


def bench_index(
    sources: Sequence[Path], embedder: Path | None, *, chunks: int, questions: int, saves: int
) -> dict[str, Any]:
    """The report: `figures` with value, aim and whether it is met.

    Raises:
        LabError: nothing to index.
    """
    with tempfile.TemporaryDirectory(prefix="foretype-bench-") as name:
        root, folder = Path(name, "workspace"), Path(name, "index")
        root.mkdir()
        _write(root, sources, chunks)
        table = str(embedder or "")
        made = measured_apart(_MODULE, "make", root, folder, table)
        opened = measured_apart(_MODULE, "ask", root, folder, table, questions, saves)
    values = {
        "chunks_per_s": made["chunks_per_s"],
        "resident_mb": opened["resident_mb"],
        "search_p50_ms": opened["search_ms"]["p50"],
        "search_p99_ms": opened["search_ms"]["p99"],
        "cold_start_ms": opened["open_ms"],
        "update_p50_ms": opened["update_ms"]["p50"],
        "update_p99_ms": opened["update_ms"]["p99"],
    }
    return {
        "chunks": made["chunks"],
        "files": made["files"],
        "embedder": made["embedder"],
        "figures": {
            name: {
                "value": value,
                "at": AIMS[name][0],
                "aim": AIMS[name][1],
                "met": value >= AIMS[name][1] if AIMS[name][0] == "≥" else value <= AIMS[name][1],
            }
            for name, value in values.items()
        },
        "making": made,
        "asking": opened,
        "machine": {
            "cores": os.cpu_count(),
            "load": [round(one, 1) for one in os.getloadavg()] if hasattr(os, "getloadavg") else None,
            "python": platform.python_version(),
        },
    }


def _write(root: Path, sources: Sequence[Path], chunks: int) -> None:
    """Writes a workspace of about so many chunks; names of folders that an index leaves out are changed."""
    left = chunks
    for path, text in _texts(sources):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="replace")
        left -= max(1, len(_DEFINES.findall(text)))
        if left <= 0:
            return
    if left == chunks:
        raise LabError("no source file to index")


def _texts(sources: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for repository in load_repositories(sources):
        for file in repository.files:
            yield f"{repository.name}/{file.path}", file.text
    if sources:
        return
    for key in ("stdlib", "purelib"):
        library = Path(sysconfig.get_path(key))
        for path in sorted(library.rglob("*.py")):
            inner = path.relative_to(library).as_posix()
            if key == "stdlib" and inner.startswith("site-packages/"):
                continue
            read = read_source(library, inner) if wanted(inner, 0) else None
            if read is not None:
                yield f"{key}/{inner}", read[0]


def _embedder(table: str) -> Any:
    return default_embedder(Path(table) if table else None, complain=_note)


def _note(reason: str) -> None:
    sys.stderr.write(reason + "\n")


def _make(root: Path, folder: Path, table: str) -> dict[str, Any]:
    started, used = time.perf_counter(), time.process_time()
    embedder = _embedder(table)
    _, report = update_workspace(root, folder, embedder)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - used
    if report.problem:
        raise LabError(report.problem)
    return {
        "chunks": report.chunks,
        "files": report.files,
        "embedder": embedder.digest if embedder is not None else None,
        "seconds": round(seconds, 2),
        "chunks_per_s": round(report.chunks / seconds),
        "chunks_per_cpu_s": round(report.chunks / max(cpu_s, 1e-9)),
        "saved_mb": round(report.saved_bytes / 1e6, 1),
    }


def _ask(root: Path, folder: Path, table: str, questions: int, saves: int) -> dict[str, Any]:
    process, rng = psutil.Process(), random.Random(1)
    embedder = _embedder(table)
    before = process.memory_info().rss
    started = time.perf_counter()
    index = open_index(folder, embedder)
    opened_ms = (time.perf_counter() - started) * 1e3
    started = time.perf_counter()
    index.prepare()
    prepared_ms = (time.perf_counter() - started) * 1e3
    paths = sorted(index.files())
    documents = [
        (path, read[0].splitlines())
        for path in rng.sample(paths, min(_DOCUMENTS, len(paths)))
        if (read := read_source(root, path)) is not None and read[0].strip()
    ]
    places = [(path, lines, rng.randrange(len(lines))) for path, lines in rng.choices(documents, k=questions)]
    asked_cpu: list[float] = []
    asked = _each(
        lambda place: search(index, query_at(place[1][: place[2]], "", place[0]), embedder, limit=_SNIPPETS),
        places,
        asked_cpu,
    )
    resident = process.memory_info().rss
    updated: list[float] = []
    for path in rng.choices(paths, k=saves):
        with (root / path).open("a", encoding="utf-8") as stream:
            stream.write("\n\ndef saved_just_now(value):\n    return value\n")
        started = time.perf_counter()
        index = refresh_file(index, root, path, embedder)
        index.prepare()
        updated.append((time.perf_counter() - started) * 1e3)
    after = _each(
        lambda place: search(index, query_at(place[1][: place[2]], "", place[0]), embedder, limit=_SNIPPETS), places, []
    )
    return {
        "open_ms": round(opened_ms, 1),
        "prepare_ms": round(prepared_ms, 1),
        "first_question_ms": round(asked[0], 1),
        "search_ms": percentiles(asked)._asdict(),
        "search_cpu_ms": percentiles(asked_cpu)._asdict(),
        "search_after_saves_ms": percentiles(after)._asdict(),
        "update_ms": percentiles(updated)._asdict(),
        "resident_mb": round(resident / 1e6),
        "resident_of_index_mb": round((resident - before) / 1e6),
        "file_mb": round((folder / "index.ftx").stat().st_size / 1e6, 1),
    }


def _each(ask: Callable[[Any], object], places: Sequence[Any], cpu: list[float]) -> list[float]:
    spent: list[float] = []
    for place in places:
        used, started = time.process_time(), time.perf_counter()
        ask(place)
        spent.append((time.perf_counter() - started) * 1e3)
        cpu.append((time.process_time() - used) * 1e3)
    return spent


def main(step: str, root: str, folder: str, table: str, *counts: str) -> None:
    """One step in a process of its own; prints its figures as JSON."""
    if step == "make":
        figures = _make(Path(root), Path(folder), table)
    else:
        figures = _ask(Path(root), Path(folder), table, *(int(one) for one in counts))
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
