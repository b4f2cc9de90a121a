"""Which files of a workspace are indexed, and reading one of them, whatever state the disk is in.

Links are never followed: what a link inside the workspace points to is found by its own name, and what lies outside is not
part of the workspace; so no loop can form.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from foretype_context.folder.exclude import MAX_CONTEXT_BYTES, reason_to_exclude
from foretype_context.folder.git import is_another_work_tree, repository_at
from foretype_context.folder.ignore_rules import Rules, is_ignored, rules_of_user
from foretype_context.folder.ignored import Ignored, rules_at, rules_below
from foretype_context.folder.small_files import read_small
from foretype_context.syntax.languages import PLAINTEXT, language_of
from foretype_context.text.strings import plain_line_ends, well_formed

from foretype_retrieval.errors import WorkspaceGoneError
from foretype_retrieval.index import FileState

MAX_CODE_BYTES: Final = 400_000
"""Definitions are worth finding in files larger than what is sent as context, for only the definition is sent."""

_HEAD_BYTES: Final = 8_192


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FOLDERS: Final = _words(
    "node_modules bower_components site-packages __pycache__ venv env dist build target out vendor third_party coverage "
    "htmlcov Pods DerivedData"
)
_PLAIN_SUFFIXES: Final = _words(
    ".kt .kts .swift .scala .lua .ex .exs .erl .hs .jl .r .sql .proto .graphql .vue .svelte .dart .zig .m .mm .pl .clj .fs "
    ".ml .nim .cr .groovy .tf"
)


@dataclass(slots=True)
class Scan:
    """What was found.

    Attributes:
        files: path relative to the root, with slashes, to state.
        unreadable: folders that could not be listed.
        complete: False where it was cancelled; what is missing in `files` may then still exist.
    """

    files: dict[str, FileState] = field(default_factory=dict[str, FileState])
    unreadable: list[str] = field(default_factory=list[str])
    complete: bool = True


def wanted(path: str, size_bytes: int, head: bytes = b"") -> bool:
    """Whether a file is indexed, by its name, size and first bytes."""
    language = language_of(path)
    if language == PLAINTEXT and os.path.splitext(path)[1].lower() not in _PLAIN_SUFFIXES:
        return False
    limit = MAX_CONTEXT_BYTES if language == PLAINTEXT else MAX_CODE_BYTES
    return reason_to_exclude(path, size_bytes, head, limit_bytes=limit, vendored=True) is None


def scan(
    root: Path,
    globs: Sequence[str] = (),
    *,
    cancelled: Callable[[], bool] = lambda: False,
    pause: Callable[[], None] = lambda: None,
    pause_every: int = 500,
) -> Scan:
    """Lists the files to index.

    Args:
        globs: of the user, in the form of `.gitignore`; what they match is left out.
        cancelled: asked once per folder.
        pause: called every `pause_every` entries, so that a scan beside the event loop can step aside.

    Raises:
        WorkspaceGoneError: there is no such folder.
    """
    if not root.is_dir():
        raise WorkspaceGoneError(f"{root} is not a folder (any more); open another one")
    found = Scan()
    own, repository = rules_of_user(globs), repository_at(root)
    above = rules_at(root, own)
    stack: list[tuple[str, Rules]] = [] if above is None else [("", above)]
    seen = 0
    while stack:
        if cancelled():
            found.complete = False
            return found
        folder, rules = stack.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError:
            found.unreadable.append(folder or ".")
            continue
        names = {entry.name for entry in entries}
        if ".git" in names and folder and is_another_work_tree(root / folder, repository):
            continue
        if not names.isdisjoint((".git", ".gitignore")):
            rules = rules_below(rules, root, folder, own)
        for entry in entries:
            seen += 1
            if seen % pause_every == 0:
                pause()
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if (
                        not entry.name.startswith(".")
                        and entry.name not in _FOLDERS
                        and not is_ignored(path + "/", rules)
                    ):
                        stack.append((path, rules))
                    continue
                if not entry.is_file(follow_symlinks=False) or not wanted(path, 0) or is_ignored(path, rules):
                    continue
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            # What cannot be written as UTF-8 cannot be shown either.
            if wanted(path, status.st_size) and well_formed(path) == path:
                found.files[path] = FileState(status.st_size, status.st_mtime_ns)
    return found


def is_scanned(root: Path, path: PurePosixPath, ignored: Ignored) -> bool:
    """Whether :func:`scan` would come to this path and list it, as far as folders, links and rules go.

    Args:
        path: relative to the root.
        ignored: of the root.
    """
    if ignored(root / path):
        return False
    repository = repository_at(root)
    folder = root
    for name in path.parts[:-1]:
        folder /= name
        if name.startswith(".") or name in _FOLDERS or folder.is_symlink() or is_another_work_tree(folder, repository):
            return False
    return not (root / path).is_symlink()


def read_source(root: Path, path: str) -> tuple[str, FileState] | None:
    """Text and state of a file, or None where it is gone, unreadable, or no plain file of a size that is wanted.

    What is not wanted by its content (generated, binary) is an empty text, so that it is remembered and not read again.

    The state is taken before the content: a file that changes while it is read is seen as changed by the next scan.
    Invalid UTF-8 is replaced character by character.
    """
    target = root / path
    try:
        status = os.lstat(target)
        if not stat.S_ISREG(status.st_mode) or not wanted(path, status.st_size):
            return None
        data = read_small(target, MAX_CODE_BYTES)
    except (OSError, ValueError):
        return None
    text = plain_line_ends(data.decode("utf-8", "replace")) if wanted(path, len(data), data[:_HEAD_BYTES]) else ""
    return text, FileState(status.st_size, status.st_mtime_ns)
