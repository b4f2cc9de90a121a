"""Whether git has put other files into a workspace, told from its own files and without running it."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Final

from foretype_context.folder.git import repository_at

_WATCHED: Final = ("HEAD", "index", "logs/HEAD")
"""HEAD changes with the branch, its log with every commit, pull and reset, the index with what else puts files in place."""

_FOLDERS_MAX: Final = 200
"""Looked at for submodules at each call."""


class GitState:
    """Tells whether git has touched the files of a workspace."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: tuple[tuple[int, int], ...] | None = None

    def moved(self) -> bool:
        """Whether a commit, switch, pull, reset, restore or update of a submodule happened since the last call; False at the first."""
        found = repository_at(self._root)
        folders = [] if found is None else [found.git_dir, *_submodules(found.git_dir)]
        now = tuple(_state(folder / name) for folder in folders for name in _WATCHED)
        before, self._seen = self._seen, now
        return before is not None and before != now


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    except OSError:
        return 0, 0


def _submodules(git_dir: Path) -> list[Path]:
    """The git folders of submodules and of theirs. `git submodule update` changes nothing else: not the outer `index` either."""
    found, todo, room = list[Path](), [git_dir / "modules"], _FOLDERS_MAX
    while todo and room > 0:
        try:
            with os.scandir(todo.pop()) as entries:
                folders = [Path(entry.path) for entry in islice(entries, room) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        room -= len(folders)
        for folder in sorted(folders):
            if (folder / "HEAD").is_file():
                found.append(folder)
                todo.append(folder / "modules")
            else:
                todo.append(folder)  # a name with a slash
    return found
