"""Places in a corpus whose next line needs a definition of another file: what training pairs and recall are made of."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from foretype_retrieval.chunks import Chunk, chunk_text
from foretype_retrieval.definitions import Kind
from foretype_retrieval.terms import identifiers, import_names

__all__ = ["File", "Site", "repositories", "sites"]

_MIN_NAME_CHARS: Final = 5
_DEFINES: Final = re.compile(r"^\s*(async\s+)?(def|class)\b")
_IMPORTS: Final = re.compile(r"^\s*(from|import)\b")


@dataclass(frozen=True, slots=True)
class File:
    path: str
    text: str
    lines: list[str]
    chunks: list[Chunk]


@dataclass(frozen=True, slots=True)
class Site:
    """Line `line` of `path` uses `name`, which `target` in `target_path` alone defines in this repository.

    Attributes:
        unseen: the name stands neither in the 24 lines above nor on an import line.
        imported: the name stands on an import line of the file.
    """

    path: str
    line: int
    name: str
    target_path: str
    target: Chunk
    unseen: bool
    imported: bool


def repositories(path: Path) -> Iterator[tuple[str, list[File]]]:
    """Repositories of one corpus file `{repo, path, language, text}`, chunked."""
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for row in map(json.loads, stream):
            grouped[row["repo"]].append(row)
    for name, rows in grouped.items():
        yield (
            name,
            [
                File(row["path"], row["text"], row["text"].splitlines(), chunk_text(row["text"], row["language"]))
                for row in rows
            ],
        )


def sites(files: Sequence[File]) -> Iterator[Site]:
    """Every such place, in the order of files and lines; one per line at most."""
    defined: dict[str, list[tuple[str, Chunk]]] = defaultdict(list)
    for file in files:
        for chunk in file.chunks:
            if chunk.kind in (Kind.FUNCTION, Kind.CLASS):
                defined[chunk.name].append((file.path, chunk))
    unique = {
        name: found[0]
        for name, found in defined.items()
        if len(found) == 1 and len(name) >= _MIN_NAME_CHARS and not name.startswith("__")
    }
    for file in files:
        imported, _ = import_names(file.lines)
        for at, line in enumerate(file.lines):
            if at < 3 or _DEFINES.match(line) or _IMPORTS.match(line) or line.lstrip().startswith("#"):
                continue
            for name in identifiers(line):
                found = unique.get(name)
                if found is None or found[0] == file.path:
                    continue
                if name not in imported and f".{name}(" not in line:
                    continue
                above = "\n".join(file.lines[max(0, at - 24) : at])
                near = re.search(rf"\b{re.escape(name)}\b", above) is not None
                yield Site(file.path, at, name, found[0], found[1], not near and name not in imported, name in imported)
                break
