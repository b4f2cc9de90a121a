"""The corpus pipeline: sources in, shards and a manifest out."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretype_models.corpus import duplicates, filters, licences, sources
from foretype_models.corpus.never import ContentCheck, NeverTrain

DUPLICATE_SIMILARITY = 0.8
SHARD_BYTES = 32_000_000


@dataclass
class Entry:
    """What the manifest says about one project."""

    name: str
    version: str
    origin: str
    sha256: str
    licence: str
    split: str
    files: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])

    def as_json(self) -> dict[str, Any]:
        """The entry as plain data, drop reasons in name order."""
        return {**self.__dict__, "dropped": dict(sorted(self.dropped.items()))}


@dataclass(frozen=True)
class Document:
    """One kept file with what the duplicate checks need."""

    path: str
    text: str
    tokens: duplicates.Hashes
    signature: duplicates.Hashes


def _read(job: tuple[sources.Source, NeverTrain, frozenset[str], int]) -> tuple[list[Document], Counter[str]]:
    """Reads and filters one project (runs in a worker process)."""
    source, never, skip, limit = job
    kept: list[Document] = []
    dropped: Counter[str] = Counter()
    taken = 0
    for path, raw in sources.files(source, skip):
        text, reason = "", never.refuses_path(path)
        if reason is None:
            text, reason = filters.decode(raw)
        if reason is None:
            reason = filters.rejection(path, text)
        if reason is None and taken + len(raw) > limit:
            reason = "project_limit"
        if reason is not None:
            dropped[reason] += 1
            continue
        taken += len(raw)
        tokens = duplicates.lexical_tokens(text)
        kept.append(Document(path, text, tokens, duplicates.signature(tokens)))
    return kept, dropped


def never_train_texts(folder: Path, benchmark_folder: Path | None) -> Iterator[tuple[str, str]]:
    """Yields (name, text) of everything the content check is made from."""
    for source in sources.open_wheels(folder):
        for path, raw in sources.files(source, frozenset()):
            yield f"{source.name}:{path}", raw.decode("utf-8", "replace")
    if benchmark_folder is not None:
        for path in sorted(benchmark_folder.rglob("*.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                seen: set[str] = set()
                for line in stream:
                    task = json.loads(line)
                    text = str(task["prompt"]) + str(task["canonical_solution"]) + str(task["suffix"])
                    if text not in seen:
                        seen.add(text)
                        yield f"{path.name}:{task['task_id']}", text


def build(
    plan: sources.Plan, never: NeverTrain, wheels: Path, never_wheels: Path, benchmarks: Path | None, output: Path
) -> dict[str, Any]:
    """Builds the shards and returns the manifest.

    Args:
        plan: the source list.
        never: the never-train rules.
        wheels: folder of downloaded wheels.
        never_wheels: folder of the never-train projects' wheels, for the content check alone.
        benchmarks: folder of HumanEval-Infilling files, for the content check alone; None leaves it out, and the
            manifest says so.
        output: folder that receives ``train-NNN.jsonl.gz`` and ``validation-NNN.jsonl.gz``.

    Raises:
        ValueError: a project on the never-train list is in the source list.
    """
    for project in plan.projects:
        if never.refuses_project(project.split("==")[0]):
            raise ValueError(f"sources.toml names {project}, which is on the never-train list; remove it there")
    started = time.monotonic()
    check = ContentCheck.build(never_train_texts(never_wheels, benchmarks))
    near = duplicates.NearIndex(DUPLICATE_SIMILARITY)
    entries: list[Entry] = []
    refused: list[dict[str, str]] = []
    matches: list[str] = []
    accepted: list[tuple[Entry, sources.Source]] = []
    found = [sources.standard_library()] if plan.standard_library else []
    wanted = {sources.normalise(project.split("==")[0]) for project in plan.projects}
    found += [source for source in sources.open_wheels(wheels) if source.name in wanted]
    for source in found:
        licence, passes = ("PSF-2.0", True) if source.metadata is None else licences.decide(source.metadata)
        if passes and not never.refuses_project(source.name):
            split = "validation" if source.name in plan.validation else "train"
            accepted.append((Entry(source.name, source.version, source.origin, source.sha256, licence, split), source))
        else:
            refused.append({"name": source.name, "version": source.version, "licence": licence})
    # Held-out projects first: where a file is in both, training loses it, not validation.
    accepted.sort(key=lambda pair: (pair[0].split != "validation", pair[0].name))
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("*.jsonl.gz"):
        old.unlink()
    jobs = [(source, never, plan.standard_library_skip, plan.project_bytes) for _, source in accepted]
    with ProcessPoolExecutor(2) as pool, ExitStack() as stack:
        writers = {split: _Shards(output, split, stack) for split in ("train", "validation")}
        for (entry, _), (documents, dropped) in zip(accepted, pool.map(_read, jobs), strict=True):
            entry.dropped += dropped
            for document in documents:
                name = f"{entry.name}:{document.path}"
                reason = check.matches(document.tokens, document.signature)
                if reason is not None:
                    matches.append(name)
                elif near.similar(document.signature) is not None:
                    reason = "near_duplicate"
                if reason is not None:
                    entry.dropped[reason] += 1
                    continue
                near.add(name, document.signature)
                entry.files += 1
                entry.bytes += len(document.text.encode())
                writers[entry.split].write(entry.name, document)
            entries.append(entry)
    return {
        "sources": [entry.as_json() for entry in sorted(entries, key=lambda entry: entry.name)],
        "refused": sorted(refused, key=lambda item: item["name"]),
        "never_train": {
            "runs": check.runs,
            "benchmarks_checked": ["HumanEval"] if benchmarks is not None else [],
            "matched_files": sorted(matches),
        },
        "totals": _totals(entries),
        "build_seconds": round(time.monotonic() - started, 1),
    }


def _totals(entries: list[Entry]) -> dict[str, Any]:
    dropped: Counter[str] = Counter()
    licence_bytes: Counter[str] = Counter()
    splits: dict[str, dict[str, int]] = {}
    for entry in entries:
        dropped += entry.dropped
        licence_bytes[entry.licence] += entry.bytes
        split = splits.setdefault(entry.split, {"projects": 0, "files": 0, "bytes": 0})
        split["projects"] += 1
        split["files"] += entry.files
        split["bytes"] += entry.bytes
    return {
        "splits": dict(sorted(splits.items())),
        "bytes_by_licence": dict(licence_bytes.most_common()),
        "dropped": dict(dropped.most_common()),
    }


class _Shards:
    """Writes ``{repo, path, language, text}`` lines, a new file every ``SHARD_BYTES`` of text."""

    def __init__(self, folder: Path, split: str, stack: ExitStack) -> None:
        self._folder, self._split, self._stack = folder, split, stack
        self._number = -1
        self._written = SHARD_BYTES
        self._stream: gzip.GzipFile | None = None

    def write(self, repo: str, document: Document) -> None:
        if self._stream is None or self._written >= SHARD_BYTES:
            if self._stream is not None:
                self._stream.close()
            self._number += 1
            self._written = 0
            path = self._folder / f"{self._split}-{self._number:03}.jsonl.gz"
            # mtime=0: the same corpus gives the same bytes.
            self._stream = self._stack.enter_context(gzip.GzipFile(path, "wb", compresslevel=4, mtime=0))
        line = {"repo": repo, "path": document.path, "language": "python", "text": document.text}
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        self._stream.write(data)
        self._written += len(data)


def read_shards(folder: Path, split: str) -> Iterator[dict[str, str]]:
    """Yields the lines of a split's shards in order; files of one project are next to each other."""
    for path in sorted(folder.glob(f"{split}-*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                yield json.loads(line)
