"""Repositories to measure on: folders of them, or a shard of a corpus."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from foretype_context.syntax.languages import language_of
from foretype_context.text.strings import well_formed
from foretype_retrieval.chunks import Chunk, chunk_text
from foretype_retrieval.embedder import Embedder
from foretype_retrieval.index import FileState, Index
from foretype_retrieval.indexing import make_entry
from foretype_retrieval.scan import read_source, scan
from foretype_retrieval.segment import build

from foretype_lab.errors import LabError


@dataclass(frozen=True)
class File:
    """A file of a repository, chunked when it is first asked for."""

    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def chunks(self) -> list[Chunk]:
        return chunk_text(self.text, language_of(self.path))


@dataclass(frozen=True)
class Repository:
    """A name, and files in the order of their paths."""

    name: str
    files: list[File]


def load_repositories(sources: Iterable[Path]) -> Iterator[Repository]:
    """Repositories of each source.

    Args:
        sources: a repository (it holds `.git` or files), a folder whose sub-folders are repositories, or a `.jsonl.gz` of rows
            `{repo, path, text}`.

    Raises:
        LabError: a source is not there, or is none of these.
    """
    for source in sources:
        if source.is_dir():
            yield from _folders(source)
        elif source.name.endswith(".jsonl.gz"):
            yield from _shard(source)
        else:
            raise LabError(f"{source}: expected a repository, a folder of repositories, or a .jsonl.gz shard")


def _folders(source: Path) -> Iterator[Repository]:
    inner = sorted(entry for entry in source.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    one = (source / ".git").exists() or any(entry.is_file() for entry in source.iterdir()) or not inner
    for root in [source] if one else inner:
        files = [
            File(path, well_formed(read[0]))
            for path in sorted(scan(root).files)
            if (read := read_source(root, path)) is not None and read[0]
        ]
        yield Repository(root.name, files)


def _shard(source: Path) -> Iterator[Repository]:
    grouped: dict[str, list[File]] = defaultdict(list)
    try:
        with gzip.open(source, "rt", encoding="utf-8") as stream:
            for line in stream:
                row = cast("dict[str, Any]", json.loads(line))
                grouped[str(row["repo"])].append(File(str(row["path"]), well_formed(str(row["text"]))))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{source}: no shard of rows {{repo, path, text}} ({type(error).__name__}: {error})") from error
    for name, files in grouped.items():
        yield Repository(name, sorted(files, key=lambda file: file.path))


def index_of(repository: Repository, embedder: Embedder | None) -> Index:
    """An index of these files in memory."""
    dimensions = embedder.dimensions if embedder is not None else 0
    entries = [make_entry(file.path, file.text, FileState(0, 0), embedder) for file in repository.files]
    return Index(build(entries, dimensions))
