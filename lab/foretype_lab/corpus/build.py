"""The corpus pipeline: sources in, shards and a manifest out."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretype_lab.corpus import duplicates, filters, sources
from foretype_lab.corpus.languages import PYTHON, language_of
from foretype_lab.corpus.never_train import ContentCheck, NeverTrain
from foretype_lab.corpus.shards import Journal
from foretype_lab.corpus.terms import Terms, refused_header

DUPLICATE_SIMILARITY = 0.8
READ_AHEAD = 3
_RULES = 1
"""Raised with every change of a filter or of the checks: what was built by other rules is not gone on with."""


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

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Entry:
        """The entry that gave this plain data."""
        counted: dict[str, Any] = {name: Counter[str](data[name]) for name in ("languages", "dropped")}
        return cls(**{**data, **counted})


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


def _folder_digest(item: tuple[str, bytes]) -> tuple[str, str]:
    """By folders in the order of their digest: a project over its limit gives whole folders from everywhere."""
    folder = item[0].rpartition("/")[0]
    return hashlib.sha256(folder.encode()).hexdigest(), item[0]


def _read(job: Job) -> tuple[list[Document], Counter[str]]:
    """Reads and filters one project (runs in a worker process)."""
    dropped: Counter[str] = Counter()
    found = sorted(sources.files(job.source, job.skip), key=_folder_digest)
    taken: Counter[str] = Counter()
    kept: list[tuple[str, str, str]] = []
    for path, raw in found:
        language = language_of(path) or PYTHON
        # Before the filters, which are most of the work: of a giant, most files are over the limit.
        if len(raw) <= filters.MAX_FILE_BYTES and taken[language] + len(raw) > job.limit:
            dropped["project_limit"] += 1
            continue
        text, reason = _reason(job, path, raw)
        if reason is not None:
            dropped[reason] += 1
            continue
        taken[language] += len(raw)
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
    """Builds the shards and returns the manifest. Stopped, and called again with the same arguments, it goes on.

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
            accepted.append((Entry(*known), Job(source, terms, never, skip, plan.project_bytes)))
        else:
            refused.append({"name": source.name, "version": source.version, "licence": terms.licence})
    # Held-out projects first: where a file is in both, training loses it, not validation.
    accepted.sort(key=lambda pair: (pair[0].split != "validation", pair[0].name))
    journal = Journal(output, _key(plan, never, check, [entry for entry, _ in accepted]))
    signatures = journal.signatures()
    for about in journal.done:
        entry = Entry.from_json(about["entry"])
        entries.append(entry)
        matches += about["matches"]
        for _ in range(entry.files):
            near.add(entry.name, next(signatures))
    todo = accepted[len(journal.done) :]
    with ProcessPoolExecutor(2) as pool:
        for (entry, _), (documents, dropped) in zip(todo, _in_order(pool, [job for _, job in todo]), strict=True):
            entry.dropped += dropped
            kept, matched = _kept(entry, documents, check, near)
            matches += matched
            entries.append(entry)
            lines = (_line(entry.name, document) for document in kept)
            about = {"entry": entry.as_json(), "matches": matched}
            journal.add(entry.split, lines, [document.signature for document in kept], about)
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
    }


def _key(plan: sources.Plan, never: NeverTrain, check: ContentCheck, entries: Sequence[Entry]) -> str:
    """A digest of all that decides what the shards hold."""
    listed = [(entry.name, entry.version, entry.sha256, entry.split, entry.licence) for entry in entries]
    limits = (plan.project_bytes, sorted(plan.skip_folders), sorted(plan.standard_library_skip))
    rules = (_RULES, limits, sorted(never.projects), sorted(never.packages), sorted(never.vendor_folders))
    return hashlib.sha256(repr((rules, check.digest(), listed)).encode()).hexdigest()


def _kept(
    entry: Entry, documents: Iterable[Document], check: ContentCheck, near: duplicates.NearIndex
) -> tuple[list[Document], list[str]]:
    """What passes the checks across projects, counted in the entry, and the names that the never-train check refused."""
    kept: list[Document] = []
    matched: list[str] = []
    for document in documents:
        reason = check.matches(document.tokens, document.signature)
        if reason is not None:
            matched.append(f"{entry.name}:{document.path}")
        elif near.similar(document.signature) is not None:
            reason = "near_duplicate"
        if reason is not None:
            entry.dropped[reason] += 1
            continue
        near.add(entry.name, document.signature)
        kept.append(document)
        size = len(document.text.encode())
        entry.files += 1
        entry.bytes += size
        entry.languages[document.language] += size
    return kept, matched


def _line(repo: str, document: Document) -> bytes:
    line = {"repo": repo, "path": document.path, "language": document.language, "text": document.text}
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


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


def write_manifest(manifest: dict[str, Any], path: Path) -> None:
    """Writes a manifest with a line for each source, so that a change of it is read source by source."""

    def listed(items: Iterable[object]) -> str:
        return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in items) + "\n ]"

    parts = {
        "totals": json.dumps(manifest["totals"]),
        "sources": listed(manifest["sources"]),
        "refused": listed(manifest["refused"]),
        "never_train": json.dumps(manifest["never_train"]),
    }
    path.write_text("{\n" + ",\n".join(f' "{name}": {text}' for name, text in parts.items()) + "\n}\n", "utf-8")
