"""Snippets that need no index: what the imports at the cursor name, what was edited lately, and what is open.

All three show signatures (:mod:`foretype_context.syntax.outline`), 200 to 300 tokens a file, of texts as they are in the editor. They are
there from the first second on, and where the index finds the same definition it takes their place.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from foretype_context.folder.ignored import Ignored
from foretype_context.prompt.segments import Scope
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Snapshot
from foretype_context.syntax.languages import language_of
from foretype_context.syntax.outline import outline, parts_of
from foretype_context.text.strings import common_prefix
from foretype_context.text.uris import path_of_uri

from foretype_client.ports import Clock
from foretype_client.sources.naming import imports_of, is_followed
from foretype_client.sources.resolving import FileTexts, ImportedFile, Resolver

_NEAR_CHARS: Final = 3_000
_TARGETS_MAX: Final = 24
_EDITED_MAX: Final = 8
_RECENT_MAX: Final = 3
_RECENT_S: Final = 20 * 60.0
_OPEN_MAX: Final = 2
_AROUND_CHARS: Final = 1_500
_WORD: Final = re.compile(r"\w+")


@dataclass(slots=True)
class _Edited:
    """Where a document was edited last, and when."""

    path: Path
    offset: int
    at_s: float


class OwnSource:
    """Imports, recent edits and open documents of the open folders.

    Args:
        dependencies: follow imports into installed packages.
        globs: what is not shown, in the form of `.gitignore`; the folders' own `.gitignore` files count as well.
        clock: monotonic seconds.
    """

    name: Final = "workspace"

    def __init__(self, roots: Sequence[Path], *, dependencies: bool, clock: Clock, globs: Sequence[str] = ()) -> None:
        self._files = FileTexts()
        self._resolver = Resolver(dependencies=dependencies, clock=clock)
        self._clock = clock
        self._opened: OrderedDict[Path, None] = OrderedDict()
        self._edited: OrderedDict[Path, _Edited] = OrderedDict()
        self._globs = tuple(globs)
        self._ignored: dict[Path, Ignored] = {}
        self._left_out: set[Path] = set()
        self.folders(roots)

    def folders(self, roots: Sequence[Path]) -> None:
        self._resolver.roots = tuple(roots)
        self._ignored = {root: Ignored(root, self._globs) for root in roots}
        self._resolver.forget()

    def opened(self, uri: str, text: str) -> None:
        path = path_of_uri(uri)
        if path is not None:
            self._files.hold(path, text)
            self._opened[path] = None
            self._opened.move_to_end(path)

    def changed(self, uri: str, text: str) -> None:
        path = path_of_uri(uri)
        if path is None:
            return
        before = self._files.open.get(path)
        if before is not None and before != text:
            self._edited[path] = _Edited(path, common_prefix(before, text), self._clock())
            self._edited.move_to_end(path)
            if len(self._edited) > _EDITED_MAX:
                self._edited.popitem(last=False)
        self.opened(uri, text)

    def saved(self, uri: str) -> None:
        self._resolver.forget()

    def closed(self, uri: str) -> None:
        path = path_of_uri(uri)
        if path is not None:
            self._files.open.pop(path, None)
            self._opened.pop(path, None)

    def status(self) -> str:
        left_out = ", ".join(sorted(path.name for path in self._left_out))
        return f"{len(self._opened)} open, {len(self._edited)} edited" + (f"; ignored: {left_out}" if left_out else "")

    def snippets(self, snapshot: Snapshot, offset: int, *, limit: int) -> Sequence[Snippet]:
        """At most `limit`: imports first, then edits by age, then open documents."""
        path = path_of_uri(snapshot.uri)
        found: list[Snippet] = []
        seen = {path}
        self._left_out = set[Path]()
        for one, file in (
            *self._imported(path, snapshot, offset),
            *self._recent(path),
            *self._others(path, snapshot.language),
        ):
            if file in seen or len(found) >= limit:
                continue
            seen.add(file)
            # Environments with installed packages are ignored by nearly every repository, and asked for by themselves.
            if one.source_name != "dependencies" and self._is_ignored(file):
                self._left_out.add(file)
            else:
                found.append(one)
        return found

    def _is_ignored(self, path: Path) -> bool:
        root = self._resolver.root_of(path)
        return root is not None and self._ignored[root](path)

    def _imported(self, path: Path | None, snapshot: Snapshot, offset: int) -> list[tuple[Snippet, Path]]:
        if path is None or not is_followed(snapshot.language):
            return []
        text = snapshot.text
        # Finished words alone: an answer that changed with every key would change the prompt as often.
        near = frozenset(_WORD.findall(re.sub(r"\w+$", "", text[max(0, offset - _NEAR_CHARS) : offset])))
        near |= frozenset(_WORD.findall(text[offset : offset + _NEAR_CHARS // 2]))
        imports = imports_of(text, snapshot.language)
        made: list[tuple[Snippet, Path]] = []
        for at, target in enumerate(self._resolver.targets(path, snapshot.language, imports)):
            if at >= _TARGETS_MAX:
                break
            shown, file = self._outlined(target)
            if shown:
                used = len(near.intersection(target.names or (file.stem,)))
                made.append((self._snippet(target, shown, score=min(used, 8) - at / 100), file))
        return sorted(made, key=lambda one: -one[0].score)

    def _outlined(self, target: ImportedFile) -> tuple[str, Path]:
        """The outline of what is imported; where a package only passes it on, of the file that defines it."""
        text = self._files.text(target.path, installed=target.installed)
        language = language_of(target.path.name)
        if target.names and target.path.stem in ("__init__", "index") and not _defines(text, target.names):
            passed_on = [
                one
                for one in imports_of(text, language)
                if not one.names or not set(one.names).isdisjoint(target.names)
            ]
            for inner in self._resolver.targets(target.path, language, passed_on):
                inner_text = self._files.text(inner.path, installed=target.installed)
                if _defines(inner_text, target.names):
                    return _outline(inner_text, language_of(inner.path.name), target.names), inner.path
        return _outline(text, language, target.names), target.path

    def _snippet(self, target: ImportedFile, shown: str, *, score: float) -> Snippet:
        return Snippet(
            path=target.shown,
            text=shown,
            source_name="dependencies" if target.installed else "imports",
            score=score,
            # An installed version is the same for everybody who has it; a working tree is one developer's.
            scope=Scope.GLOBAL if target.installed else Scope.SESSION,
        )

    def _recent(self, path: Path | None) -> Iterator[tuple[Snippet, Path]]:
        """What stands around the latest edits in other files, newest first."""
        now, shown = self._clock(), 0
        for edited in reversed(self._edited.values()):
            age_s = now - edited.at_s
            if edited.path == path or age_s > _RECENT_S or shown >= _RECENT_MAX:
                continue
            text = self._files.text(edited.path)
            around = _around(text, language_of(edited.path.name), edited.offset)
            if around:
                shown += 1
                yield self._plain(edited.path, around, "recent", -age_s / _RECENT_S), edited.path

    def _others(self, path: Path | None, language: str) -> Iterator[tuple[Snippet, Path]]:
        shown = 0
        for other in reversed(self._opened):
            if other == path or shown >= _OPEN_MAX or language_of(other.name) != language:
                continue
            text = _outline(self._files.text(other), language, ())
            if text:
                shown += 1
                yield self._plain(other, text, "open", -shown), other

    def _plain(self, path: Path, text: str, source_name: str, score: float) -> Snippet:
        root = self._resolver.root_of(path)
        shown = path.relative_to(root).as_posix() if root is not None else path.name
        return Snippet(path=shown, text=text, source_name=source_name, score=score, scope=Scope.SESSION)


@lru_cache(maxsize=256)
def _outline(text: str, language: str, names: tuple[str, ...]) -> str:
    return outline(text, language, names=names) if text else ""


def _defines(text: str, names: Sequence[str]) -> bool:
    """Whether a text says of one of the names what it is, rather than that it comes from elsewhere."""
    return any(
        re.search(rf"\b(?:def|class|function|const|let|var|interface|type|enum)\s+{re.escape(name)}\b", text)
        is not None
        or re.search(rf"^{re.escape(name)}\s*[:=]", text, re.MULTILINE) is not None
        for name in names
    )


@lru_cache(maxsize=64)
def _around(text: str, language: str, offset: int) -> str:
    """Signatures of the definitions that an edit lies in or beside."""
    byte = len(text[:offset].encode("utf-8", "replace"))
    parts = [one for one in parts_of(text, language) if not one.is_import and one.name]
    touched = [part.name for part in parts if part.start - _AROUND_CHARS <= byte <= part.end + _AROUND_CHARS]
    inside = [part for part in parts if part.start <= byte <= part.end]
    members = [
        one.name
        for part in inside
        for one in part.members
        if one.start - _AROUND_CHARS <= byte <= one.end + _AROUND_CHARS
    ]
    names = (members or [part.name for part in inside]) if inside else touched
    return outline(text, language, names=names) if names else ""
