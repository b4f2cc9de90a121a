"""Whether git has put other files into a workspace, told from its own files and without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from foretype_context.folder.git import repository_at

__all__ = ["GitState"]

_WATCHED: Final = ("HEAD", "index", "logs/HEAD")
"""HEAD changes with the branch, its log with every commit, pull and reset, the index with what else puts files in place."""


class GitState:
    """Tells whether git has touched the files of a workspace."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: tuple[tuple[int, int], ...] | None = None

    def moved(self) -> bool:
        """Whether a commit, branch switch, pull, reset or restore happened since the last call; False at the first."""
        found = repository_at(self._root)
        now = tuple(_state(found.git_dir / name) for name in _WATCHED) if found is not None else ()
        before, self._seen = self._seen, now
        return before is not None and before != now


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    except OSError:
        return 0, 0
