"""Places whose line needs a definition of another file: what recall and training pairs are made of."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from foretype_retrieval.chunks import Chunk
from foretype_retrieval.definitions import ChunkKind
from foretype_retrieval.terms import identifiers, import_names

from foretype_lab.retrieval.repositories import File

_MIN_NAME_CHARS: Final = 5
_NEAR_LINES: Final = 24
_DEFINES: Final = re.compile(
    r"^\s*(async\s+|export\s+|public\s+|pub\s+)*(def|class|function|func|fn|interface|struct)\b"
)
_IMPORTS: Final = re.compile(r"^\s*(from|import|use|using|#\s*include)\b")
_COMMENTS: Final = ("#", "//", "*", "/*")


@dataclass(frozen=True, slots=True)
class Site:
    """Line `line` (from 0) of `path` uses `name`, which `target` in `target_path` alone defines in this repository.

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


def sites(files: Sequence[File]) -> Iterator[Site]:
    """Every such place, in the order of files and lines; one per line at most."""
    defined: dict[str, list[tuple[str, Chunk]]] = defaultdict(list)
    for file in files:
        for chunk in file.chunks:
            if chunk.kind in (ChunkKind.FUNCTION, ChunkKind.CLASS):
                defined[chunk.name].append((file.path, chunk))
    unique = {
        name: found[0]
        for name, found in defined.items()
        if len(found) == 1 and len(name) >= _MIN_NAME_CHARS and not name.startswith("__")
    }
    for file in files:
        imported, _ = import_names(file.lines)
        for at, line in enumerate(file.lines):
            if at < 3 or line.lstrip().startswith(_COMMENTS) or _DEFINES.match(line) or _IMPORTS.match(line):
                continue
            for name in identifiers(line):
                found = unique.get(name)
                if found is None or found[0] == file.path or (name not in imported and f".{name}(" not in line):
                    continue
                word = re.compile(rf"\b{re.escape(name)}\b")
                near = word.search("\n".join(file.lines[max(0, at - _NEAR_LINES) : at])) is not None
                known = name in imported
                yield Site(file.path, at, name, found[0], found[1], not near and not known, known)
                break
