"""The corpus pipeline: sources in, shards and a manifest out."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretype_models.corpus import duplicates, filters, sources
from foretype_models.corpus.languages import PYTHON, language_of
from foretype_models.corpus.never import ContentCheck, NeverTrain
from foretype_models.corpus.terms import Terms, refused_header

DUPLICATE_SIMILARITY = 0.8
SHARD_BYTES = 32_000_000
READ_AHEAD = 3


@dataclass
class Entry:
    """What the manifest says about one project."""

    name: str
    version: str
    origin: str
    sha256: str
    licence: str
    split: str
    kind: str = "wheel"
    files: int = 0
    bytes: int = 0
    languages: Counter[str] = field(default_factory=Counter[str])
    dropped: Counter[str] = field(default_factory=Counter[str])

    def as_json(self) -> dict[str, Any]:
        """The entry as plain data: bytes by language, drop reasons in name order."""
        return {
            **self.__dict__,
            "languages": dict(self.languages.most_common()),
            "dropped": dict(sorted(self.dropped.items())),
        }


@dataclass(frozen=True)
class Document:
    """One kept file with what the duplicate checks need."""

    path: str
    language: str
    text: str
    tokens: duplicates.Hashes
    signature: duplicates.Hashes


@dataclass(frozen=True)
class Job:
    """One project to read, and by which rules."""

    source: sources.Source
    terms: Terms
    never: NeverTrain
    skip: frozenset[str]
    limit: int
    order: str


def _reason(job: Job, path: str, raw: bytes) -> tuple[str, str | None]:
    """The text, and why the file is left out, if it is."""
    text = ""
    reason = job.never.refuses_path(path)
    if reason is None and not job.terms.allows(path):
        reason = "licence"
    if reason is None:
        text, reason = filters.decode(raw)
    if reason is None:
        reason = filters.rejection(path, text)
    if reason is None and job.source.kind not in ("wheel", "library") and refused_header(text):
        reason = "licence_header"
    return text, reason


def _folder_digest(item: tuple[str, str, int]) -> tuple[str, str]:
    folder = item[0].rpartition("/")[0]
    return hashlib.sha256(folder.encode()).hexdigest(), item[0]


def _read(job: Job) -> tuple[list[Document], Counter[str]]:
    """Reads and filters one project (runs in a worker process)."""
    dropped: Counter[str] = Counter()
    candidates: list[tuple[str, str, int]] = []
    for path, raw in sources.files(job.source, job.skip):
        text, reason = _reason(job, path, raw)
        if reason is not None:
            dropped[reason] += 1
        else:
            candidates.append((path, text, len(raw)))
    candidates.sort(key=_folder_digest if job.order == "folder" else None)
    taken: Counter[str] = Counter()
    kept: list[tuple[str, str, str]] = []
    for path, text, size in candidates:
        language = language_of(path) or PYTHON
        if taken[language] + size > job.limit:
            dropped["project_limit"] += 1
            continue
        taken[language] += size
        kept.append((path, language, text))
    documents: list[Document] = []
    # In path order again: rows put neighbours into each other's prompts.
    for path, language, text in sorted(kept):
        tokens = duplicates.lexical_tokens(text, language)
        documents.append(Document(path, language, text, tokens, duplicates.signature(tokens)))
    return documents, dropped


def _in_order(pool: ProcessPoolExecutor, jobs: list[Job]) -> Iterator[tuple[list[Document], Counter[str]]]:
    """Results in the order of the jobs, a few ahead of the reader and no more: a project can be some 100 MB."""
    waiting = [pool.submit(_read, job) for job in jobs[:READ_AHEAD]]
    for number in range(len(jobs)):
        result = waiting.pop(0).result()
        if number + READ_AHEAD < len(jobs):
            waiting.append(pool.submit(_read, jobs[number + READ_AHEAD]))
        yield result


def never_train_texts(found: Iterable[sources.Source], benchmark_folder: Path | None) -> Iterator[tuple[str, str, str]]:
    """Yields (name, text, language) of everything the content check is made from."""
    for source in found:
        for path, raw in sources.files(source, frozenset()):
            yield f"{source.name}:{path}", raw.decode("utf-8", "replace"), language_of(path) or PYTHON
    if benchmark_folder is not None:
        for path in sorted(benchmark_folder.rglob("*.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                seen: set[str] = set()
                for line in stream:
                    task = json.loads(line)
                    text = str(task["prompt"]) + str(task["canonical_solution"]) + str(task["suffix"])
                    if text not in seen:
                        seen.add(text)
                        yield f"{path.name}:{task['task_id']}", text, PYTHON


def build(
    plan: sources.Plan,
    never: NeverTrain,
    wheels: Path,
    never_wheels: Path,
    benchmarks: Path | None,
    output: Path,
    *,
    others: Sequence[sources.Source] = (),
    never_others: Sequence[sources.Source] = (),
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
        others: sources of other kinds than wheels.
        never_others: never-train repositories, for the content check alone.

    Raises:
        ValueError: a project on the never-train list is in the source list.
    """
    named = [*plan.projects, *plan.sdists, *plan.npm, *plan.debian, *(item.name for item in plan.commits)]
    for project in named:
        if never.refuses_project(project.split("=")[0]):
            raise ValueError(f"the source list names {project}, which is on the never-train list; remove it there")
    started = time.monotonic()
    check = ContentCheck.build(never_train_texts([*sources.open_wheels(never_wheels), *never_others], benchmarks))
    near = duplicates.NearIndex(DUPLICATE_SIMILARITY)
    entries: list[Entry] = []
    refused: list[dict[str, str]] = []
    matches: list[str] = []
    accepted: list[tuple[Entry, Job]] = []
    found = [sources.standard_library()] if plan.standard_library else []
    wanted = {sources.normalise(project.split("==")[0]) for project in plan.projects}
    found += [source for source in sources.open_wheels(wheels) if source.name in wanted]
    for source in [*found, *others]:
        terms = sources.terms_of(source)
        if terms.passes and not never.refuses_project(source.name):
            split = "validation" if source.name in plan.validation else "train"
            known = (source.name, source.version, source.origin, source.sha256, terms.licence, split, source.kind)
            skip = {"wheel": frozenset[str](), "library": plan.standard_library_skip}.get(
                source.kind, plan.skip_folders
            )
            accepted.append((Entry(*known), Job(source, terms, never, skip, plan.project_bytes, plan.order)))
        else:
            refused.append({"name": source.name, "version": source.version, "licence": terms.licence})
    # Held-out projects first: where a file is in both, training loses it, not validation.
    accepted.sort(key=lambda pair: (pair[0].split != "validation", pair[0].name))
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("*.jsonl.gz"):
        old.unlink()
    with ProcessPoolExecutor(2) as pool, ExitStack() as stack:
        writers = {split: _Shards(output, split, stack) for split in ("train", "validation")}
        for (entry, _), (documents, dropped) in zip(
            accepted, _in_order(pool, [job for _, job in accepted]), strict=True
        ):
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
                size = len(document.text.encode())
                entry.bytes += size
                entry.languages[document.language] += size
                writers[entry.split].write(entry.name, document)
            entries.append(entry)
    return {
        "sources": [entry.as_json() for entry in sorted(entries, key=lambda entry: entry.name)],
        "refused": sorted(refused, key=lambda item: item["name"]),
        "never_train": {
            "runs": check.runs,
            "benchmarks_checked": ["HumanEval"] if benchmarks is not None else [],
            "repositories_checked": [f"{source.origin}@{source.version}" for source in never_others],
            "matched_files": sorted(matches),
        },
        "totals": _totals(entries),
        "build_seconds": round(time.monotonic() - started, 1),
    }


def _totals(entries: list[Entry]) -> dict[str, Any]:
    dropped: Counter[str] = Counter()
    licence_bytes: Counter[str] = Counter()
    languages: dict[str, dict[str, int]] = {}
    kinds: Counter[str] = Counter()
    splits: dict[str, dict[str, int]] = {}
    for entry in entries:
        dropped += entry.dropped
        licence_bytes[entry.licence] += entry.bytes
        split = splits.setdefault(entry.split, {"projects": 0, "files": 0, "bytes": 0})
        split["projects"] += 1
        split["files"] += entry.files
        split["bytes"] += entry.bytes
        kinds[entry.kind] += entry.bytes
        for language, size in entry.languages.items():
            of = languages.setdefault(language, {"bytes": 0, "projects": 0, "validation_projects": 0})
            of["bytes"] += size
            of["projects"] += 1
            of["validation_projects"] += entry.split == "validation"
    return {
        "splits": dict(sorted(splits.items())),
        "languages": dict(sorted(languages.items(), key=lambda item: -item[1]["bytes"])),
        "bytes_by_kind": dict(kinds.most_common()),
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
        line = {"repo": repo, "path": document.path, "language": document.language, "text": document.text}
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        self._stream.write(data)
        self._written += len(data)


def read_shards(folder: Path, split: str) -> Iterator[dict[str, str]]:
    """Yields the lines of a split's shards in order; files of one project are next to each other."""
    for path in sorted(folder.glob(f"{split}-*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                yield json.loads(line)
