"""Speed and memory of an index of about N chunks: `python retrieval/training/speed.py N CORPUS.jsonl.gz... [--embedder F]`.

The corpus is written out as a workspace, indexed, opened anew in a fresh process, and asked at random places.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from foretype_context.document import Document
from foretype_eval.statistics import percentiles
from foretype_retrieval.embed import default_embedder
from foretype_retrieval.indexing import open_index, refresh_file, update_workspace
from foretype_retrieval.source import RetrievalSource

QUESTIONS = 400


class Opened:
    """What a source sees of a workspace, without the thread."""

    generation = 0

    def __init__(self, root: Path, index: object) -> None:
        self.root, self.index = root, index


def write_workspace(root: Path, corpora: list[Path], files: int) -> None:
    written = 0
    for corpus in corpora:
        with gzip.open(corpus, "rt", encoding="utf-8") as stream:
            for row in map(json.loads, stream):
                if written >= files:
                    return
                path = root / row["repo"] / row["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(row["text"], encoding="utf-8", errors="replace")
                written += 1


def asked(root: Path, folder: Path, table: Path | None) -> dict[str, object]:
    process = psutil.Process()
    embedder = default_embedder(table)
    before = process.memory_info().rss
    started = time.perf_counter()
    index = open_index(folder, embedder)
    opened_s = time.perf_counter() - started
    source, rng = RetrievalSource([Opened(root, index)], lambda: embedder), random.Random(1)  # type: ignore[list-item]
    paths = sorted(index.files())
    documents = [
        Document((root / path).as_uri(), (root / path).read_text("utf-8", "replace"), path=path).snapshot()
        for path in rng.sample(paths, min(60, len(paths)))
    ]
    started = time.perf_counter()
    source.snippets(documents[0], 0, limit=8)
    first_s = time.perf_counter() - started
    elapsed: list[float] = []
    cpu: list[float] = []
    for _ in range(QUESTIONS):
        snapshot = rng.choice(documents)
        offset = rng.randrange(len(snapshot.text) + 1)
        started, used = time.perf_counter(), time.process_time()
        source.snippets(snapshot, offset, limit=8)
        elapsed.append((time.perf_counter() - started) * 1e3)
        cpu.append((time.process_time() - used) * 1e3)
    started = time.perf_counter()
    index = refresh_file(index, root, paths[len(paths) // 2], embedder)
    return {
        "chunks": len(index),
        "open_ms": round(opened_s * 1e3, 1),
        "first_question_ms": round(first_s * 1e3, 1),
        "search_ms": percentiles(elapsed)._asdict(),
        "search_cpu_ms": percentiles(cpu)._asdict(),
        "update_one_file_ms": round((time.perf_counter() - started) * 1e3, 1),
        "rss_mb": round(process.memory_info().rss / 1e6),
        "rss_of_index_mb": round((process.memory_info().rss - before) / 1e6),
        "index_mb": round((folder / "index.ftx").stat().st_size / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=int)
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--embedder", type=Path)
    parser.add_argument("--asked", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.asked is not None:
        sys.stdout.write(json.dumps(asked(options.asked / "w", options.asked / "i", options.embedder)))
        return
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_workspace(root / "w", options.corpora, options.files)
        started, used = time.perf_counter(), time.process_time()
        _, report = update_workspace(root / "w", root / "i", default_embedder(options.embedder))
        elapsed, cpu = time.perf_counter() - started, time.process_time() - used
        command = [sys.executable, *sys.argv, "--asked", name]
        inner = subprocess.run(command, check=True, capture_output=True, text=True)
        result = {
            "index_s": round(elapsed, 2),
            "chunks_per_s": round(report.chunks / elapsed),
            "chunks_per_cpu_s": round(report.chunks / cpu),
            **json.loads(inner.stdout),
            "load": [round(one, 1) for one in os.getloadavg()],
        }
        sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
