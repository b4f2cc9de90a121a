"""Files in the form of `.gitignore`: reading one, and what several of them say about a path."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from foretype_context.errors import NotSmallError
from foretype_context.folder.globs import PATTERNS_MAX, STARS_MAX, Globs
from foretype_context.folder.small_files import read_small

_logger = logging.getLogger(__name__)

IGNORE_FILE: Final = ".gitignore"
_IGNORE_BYTES: Final = 128 << 10
_FOR_ALL_FOLDERS: Final = (("info", "exclude"), ("git", "ignore"))


class FileRules(NamedTuple):
    """The rules of one file, for paths relative to a root.

    Attributes:
        inside: the folder below the root that the rules are about, with a slash behind it; empty for the root itself.
        above: for rules about a folder above the root, the root's path from that folder, with a slash behind it.
    """

    globs: Globs
    inside: str = ""
    above: str = ""

    def says(self, path: str) -> bool | None:
        return self.globs.says(self.above + path[len(self.inside) :])


Rules = tuple[FileRules, ...]
"""Weakest first."""


def is_ignored(path: str, rules: Rules) -> bool:
    """Whether `rules` leave out a path relative to the root; a folder's path ends in a slash. The path's parents are not looked at."""
    # The innermost file that says anything about a path decides, as git has it.
    return next((said for one in reversed(rules) if (said := one.says(path)) is not None), False)


def rules_of_user(globs: Sequence[str]) -> Rules:
    """Globs in the form of `.gitignore`, for the whole root."""
    return (FileRules(Globs(globs)),) if globs else ()


def with_file(rules: Rules, path: Path, inside: str = "", *, links: bool = False) -> Rules:
    """`rules`, followed by those of a file about the folder `inside`. An unreadable file adds none.

    A path meets at most :data:`PATTERNS_MAX` patterns, weakest first; that some are left out is logged once.

    Args:
        links: the file may be a link.
    """
    try:
        data = read_small(path, _IGNORE_BYTES, links=links)
    except NotSmallError as error:
        _warn_once(str(path), str(error))
        return rules
    except OSError:
        return rules
    globs = _read(str(path), data, PATTERNS_MAX - sum(len(one.globs) for one in rules))
    return (*rules, FileRules(globs, inside)) if len(globs) else rules


def is_ignore_file(path: PurePath) -> bool:
    """Whether a file is, by its name, one that says what git leaves out."""
    return path.name == IGNORE_FILE or path.parts[-2:] in _FOR_ALL_FOLDERS


@lru_cache(maxsize=64)
def _read(path: str, data: bytes, room: int) -> Globs:
    """The rules of a file; kept, since a folder is gone through again and again."""
    globs = Globs(data.decode("utf-8-sig", "surrogateescape").split("\n"), room=room)
    if globs.left_out:
        bounds = f"a path meets at most {PATTERNS_MAX:,} patterns of at most {STARS_MAX} stars each"
        _warn_once(path, f"{globs.left_out:,} of its patterns are left out: {bounds}")
    return globs


@lru_cache(maxsize=256)
def _warn_once(path: str, problem: str) -> None:
    """Log a problem of a file once."""
    _logger.warning("%r: %s", path, problem)
