"""What a repository's `.gitignore` files and the user's globs leave out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from foretype_context.errors import NotSmallError
from foretype_context.folder.git import is_repository
from foretype_context.folder.globs import PATTERNS_MAX, STARS_MAX, Globs
from foretype_context.folder.small_files import read_small

_logger = logging.getLogger(__name__)

IGNORE_FILE: Final = ".gitignore"
_IGNORE_BYTES: Final = 128 << 10

Rules = tuple[tuple[str, Globs], ...]
"""Outermost first: the folder that a file of rules stands in (with a slash behind it, or empty), and its rules."""


def rules_of_user(globs: Sequence[str]) -> Rules:
    """Globs in the form of `.gitignore`, for the whole root."""
    return (("", Globs(globs)),) if globs else ()


def rules_below(rules: Rules, root: Path, folder: str, own: Rules = ()) -> Rules:
    """The rules that hold inside `folder` (relative to `root`), given those that hold for it. Unreadable files say nothing.

    A path meets at most :data:`PATTERNS_MAX` patterns, outermost first; that some are left out is logged once.

    Args:
        own: rules of the user. They alone reach into a repository inside of another, a submodule say: git's end where it begins.
    """
    path = root / folder / IGNORE_FILE
    if folder and is_repository(root / folder):
        rules = own
    try:
        data = read_small(path, _IGNORE_BYTES)
    except NotSmallError as error:
        _tell(str(path), str(error))
        return rules
    except OSError:
        return rules
    globs = _read(str(path), data, PATTERNS_MAX - sum(len(one) for _, one in rules))
    return (*rules, (folder + "/" if folder else "", globs)) if len(globs) else rules


@lru_cache(maxsize=64)
def _read(path: str, data: bytes, room: int) -> Globs:
    """The rules of a file; kept, since a folder is gone through again and again."""
    globs = Globs(data.decode("utf-8-sig", "surrogateescape").split("\n"), room=room)
    if globs.left_out:
        bounds = f"a path meets at most {PATTERNS_MAX:,} patterns of at most {STARS_MAX} stars each"
        _tell(path, f"{globs.left_out:,} of its patterns are left out: {bounds}")
    return globs


@lru_cache(maxsize=256)
def _tell(path: str, problem: str) -> None:
    """Says it once."""
    _logger.warning("%r: %s", path, problem)


def is_ignored(path: str, rules: Rules) -> bool:
    """Whether `rules` leave out a path relative to the root; a folder's ends in a slash. Its parents are not looked at."""
    # The innermost file that says anything about a path decides, as git has it.
    for prefix, globs in reversed(rules):
        said = globs.says(path[len(prefix) :])
        if said is not None:
            return said
    return False


class Ignored:
    """Answers for single files of a root, and remembers the rules of the folders it came through, for as long as they stand.

    Args:
        root: of the workspace.
        globs: of the user.

    Attributes:
        changes: how often rules were found changed.
    """

    def __init__(self, root: Path, globs: Sequence[str] = ()) -> None:
        self.root = root
        self._own = rules_of_user(globs)
        self._rules: dict[str, Rules | None] = {}
        self._stamps: dict[str, tuple[int, int] | None] = {}
        self.changes: int = 0

    def look(self) -> None:
        """Forget what is not on disk any more: a stat for each folder that was asked about."""
        if any(stamp != self._stamp(name) for name, stamp in self._stamps.items()):
            self.changes += 1
            self._rules.clear()
            self._stamps.clear()

    def __call__(self, path: Path) -> bool:
        """Whether a file is left out. Files outside of the root are not."""
        if not path.is_relative_to(self.root):
            return False
        inside = PurePosixPath(path.relative_to(self.root).as_posix())
        self.look()
        rules = self._inside(inside.parent)
        return rules is None or is_ignored(inside.as_posix(), rules)

    def _inside(self, folder: PurePosixPath) -> Rules | None:
        """The rules inside a folder; None: it is left out itself, and git looks at nothing in it."""
        name = "" if folder == PurePosixPath() else folder.as_posix()
        if name not in self._rules:
            if name:
                rules = self._inside(folder.parent)
                if rules is not None and is_ignored(f"{name}/", rules):
                    rules = None
            else:
                rules = self._own
            self._stamps[name] = self._stamp(name)
            self._rules[name] = None if rules is None else rules_below(rules, self.root, name, self._own)
        return self._rules[name]

    def _stamp(self, folder: str) -> tuple[int, int] | None:
        try:
            status = (self.root / folder / IGNORE_FILE).lstat()
        except (OSError, ValueError):
            return None
        return status.st_mtime_ns, status.st_size
