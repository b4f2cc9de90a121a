"""The repository part of a prompt: what is equal for everybody at one commit, and so stands first.

A pure function of committed files builds it: language, a guess at the framework, the imports that the package shares, and the heads
of its outer definitions. Who can read commits implements :class:`CommittedFiles`; :class:`RepositorySource` remembers one part
per commit and package, and is a snippet source like any other.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, Protocol

from foretype_context.folder.exclude import MAX_CONTEXT_BYTES, reason_to_exclude
from foretype_context.prompt.segments import Scope
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Snapshot
from foretype_context.syntax.languages import PLAINTEXT, language_of, language_spec
from foretype_context.syntax.outline import OutlinePiece, parts_of

REPOSITORY_CHARS: Final = 1_200
"""About 300 tokens: it is computed once for everybody, but it takes room in every prompt."""

MANIFESTS: Final = (
    "pyproject.toml",
    "requirements.txt",
    "setup.cfg",
    "package.json",
    "go.mod",
    "Cargo.toml",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "Gemfile",
    "composer.json",
    "CMakeLists.txt",
)
"""Files at a repository's root that name what it is built on."""

_FRAMEWORKS: Final = {
    "fastapi": "FastAPI",
    "django": "Django",
    "flask": "Flask",
    "starlette": "Starlette",
    "pydantic": "pydantic",
    "sqlalchemy": "SQLAlchemy",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "pandas": "pandas",
    "typer": "Typer",
    "click": "Click",
    "pytest": "pytest",
    "react": "React",
    "next": "Next.js",
    "vue": "Vue",
    "svelte": "Svelte",
    "@angular/core": "Angular",
    "express": "Express",
    "@nestjs/core": "NestJS",
    "vitest": "Vitest",
    "jest": "Jest",
    "mocha": "Mocha",
    "github.com/gin-gonic/gin": "Gin",
    "github.com/labstack/echo": "Echo",
    "github.com/spf13/cobra": "Cobra",
    "google.golang.org/grpc": "gRPC",
    "axum": "axum",
    "actix-web": "Actix",
    "tokio": "Tokio",
    "serde": "Serde",
    "clap": "clap",
    "spring-boot": "Spring Boot",
    "junit": "JUnit",
    "rails": "Rails",
    "sinatra": "Sinatra",
    "rspec": "RSpec",
    "laravel/framework": "Laravel",
    "symfony": "Symfony",
    "phpunit": "PHPUnit",
    "gtest": "GoogleTest",
    "catch2": "Catch2",
}
_FRAMEWORKS_SHOWN: Final = 6
_FILES_MAX: Final = 200
_IMPORT_LINES: Final = 12
_IMPORT_FILES_MIN: Final = 2
_HEAD_BYTES: Final = 4_096
_REMEMBERED: Final = 16


class CommittedFiles(Protocol):
    """The files of one repository as they were committed. Answers from memory; the repository is read elsewhere."""

    def commit(self) -> str:
        """Identity of the commit that is checked out; empty while it is not known."""
        ...

    def files(self, folder: str) -> Mapping[str, str] | None:
        """Texts by path, all as of :meth:`commit`; None while they are not read yet.

        Of the files directly in `folder` (relative to the root, `/` between names), and of :data:`MANIFESTS` at the root.
        """
        ...


def package_of(path: str) -> str:
    """The folder whose files see each other: that of the file."""
    folder = str(PurePosixPath(path.replace("\\", "/")).parent)
    return "" if folder == "." else folder


def repository_part(files: Mapping[str, str], package: str, *, limit_chars: int = REPOSITORY_CHARS) -> str:
    """The text that a package's files have in common, whole lines; empty where nothing can be said.

    A function of its arguments alone, whatever their order: no working tree, no time, no user.

    Args:
        files: of the package and the root's manifests, by path.
        package: the folder; files elsewhere count as manifests or not at all.
    """
    own = {path: text for path, text in sorted(files.items()) if package_of(path) == package and _shown(path, text)}
    sources = {path: text for path, text in list(own.items())[:_FILES_MAX] if language_of(path) != PLAINTEXT}
    if not sources:
        return ""
    language = min(Counter(map(language_of, sources)).items(), key=lambda one: (-one[1], one[0]))[0]
    sources = {path: text for path, text in sources.items() if language_of(path) == language}
    mark = language_spec(language).line_comment
    named = ", ".join(_frameworks(files))
    # No count of files: a commit that adds one would void the part from its first block on.
    head = f"{mark} {language}{f' with {named}' if named else ''}\n"
    parts = {path: parts_of(text, language) for path, text in sources.items()}
    shown = head + "".join(f"{line}\n" for line in _shared_imports(parts))
    if len(shown) > limit_chars:
        shown = head if len(head) <= limit_chars else ""
    return shown + "".join(_definitions(parts, mark, limit_chars - len(shown)))


def _shown(path: str, text: str) -> bool:
    data = text[:_HEAD_BYTES].encode("utf-8", "replace")
    return reason_to_exclude(path, len(text), data, limit_bytes=MAX_CONTEXT_BYTES, vendored=True) is None


def _frameworks(files: Mapping[str, str]) -> list[str]:
    """Frameworks that the root's manifests name, in the order of the table: most telling first."""
    manifests = "\n".join(files[name][:MAX_CONTEXT_BYTES] for name in MANIFESTS if name in files).lower()
    found = [
        shown
        for name, shown in _FRAMEWORKS.items()
        if name in manifests and re.search(rf"(?<![\w.@/-]){re.escape(name)}(?![\w/])", manifests)
    ]
    return found[:_FRAMEWORKS_SHOWN]


def _shared_imports(parts: Mapping[str, Sequence[OutlinePiece]]) -> list[str]:
    """Imports of one line that at least two files have: the most frequent, by name, so that one use more moves none."""
    counted = Counter(
        head
        for found in parts.values()
        for head in {part.head for part in found if part.is_import and "\n" not in part.head}
    )
    frequent = [(head, count) for head, count in counted.items() if count >= _IMPORT_FILES_MIN]
    return sorted(head for head, _ in sorted(frequent, key=lambda one: (-one[1], one[0]))[:_IMPORT_LINES])


def _definitions(parts: Mapping[str, Sequence[OutlinePiece]], mark: str, limit_chars: int) -> Iterator[str]:
    """First lines of the public outer definitions, file by file; each file gets its part of the room, the rest goes on."""
    left, files_left = limit_chars, len(parts)
    for path, found in parts.items():
        heads = [part.head.split("\n") for part in found if not part.is_import and part.name and part.public]
        room, files_left = left // files_left, files_left - 1
        block = [f"{mark} {PurePosixPath(path).name}\n"]
        for head in heads:
            # Decorators and templates stand on lines of their own; the definition is the last one that begins at the margin.
            line = next((line for line in reversed(head) if line[:1].strip() and line[0] not in ")]}>"), head[0]) + "\n"
            if sum(map(len, block)) + len(line) > room:
                break
            block.append(line)
        if len(block) > 1:
            left -= sum(map(len, block))
            yield "".join(block)


class RepositorySource:
    """The repository part as a snippet source. Builds a part once per commit and package.

    Args:
        committed: where committed text comes from.
    """

    name: Final = "repository"

    def __init__(self, committed: CommittedFiles) -> None:
        self._committed = committed
        self._built: OrderedDict[tuple[str, str], str] = OrderedDict()

    def snippets(self, snapshot: Snapshot, offset: int, *, limit: int) -> Sequence[Snippet]:
        """The part of the package that the document belongs to, or nothing. `snapshot.path` is relative to the root."""
        commit = self._committed.commit()
        if not commit or limit <= 0:
            return ()
        package = package_of(snapshot.path)
        key = (commit, package)
        text = self._built.get(key)
        if text is None:
            files = self._committed.files(package)
            if files is None:
                return ()
            text = self._built[key] = repository_part(files, package)
            if len(self._built) > _REMEMBERED:
                self._built.popitem(last=False)
        if not text:
            return ()
        path = f"{package}/" if package else "./"
        return (Snippet(path=path, text=text, end=len(text), source_name=self.name, scope=Scope.REPOSITORY),)
