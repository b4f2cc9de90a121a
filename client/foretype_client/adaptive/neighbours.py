"""Files of an open folder that the adaptive model reads once, so that it knows the repository before it was edited.

Reading happens in a thread; learning in small turns on the event loop, so that no key waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from foretype_context.folder.exclude import reason_to_exclude
from foretype_context.folder.ignored import Ignored
from foretype_context.folder.small_files import read_small
from foretype_context.syntax.languages import language_of

_logger = logging.getLogger(__name__)

FILES_MAX: Final = 600
BYTES_MAX: Final = 1_200_000
FILE_BYTES_MAX: Final = 50_000
_VISITED_MAX: Final = 20_000
_TURN_S: Final = 0.005
_SKIPPED_FOLDERS: Final = frozenset(
    {"node_modules", "venv", "site-packages", "__pycache__", "build", "dist", "target", "vendor", "third_party"}
)


def neighbours_of(root: Path) -> Iterator[tuple[Path, str]]:
    """Source files below `root` and their text: most recently changed first, bounded in number and bytes.

    Hidden folders, links, unreadable, secret, generated and minified files, and those that `.gitignore` leaves out, are passed over.
    """
    ignored = Ignored(root)
    found: list[tuple[float, Path]] = []
    visited = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS)
        for name in names:
            visited += 1
            path = Path(folder, name)
            if language_of(name) == "plaintext" or path.is_symlink() or ignored(path):
                continue
            try:
                status = path.stat()
            except OSError:
                continue
            if 0 < status.st_size <= FILE_BYTES_MAX:
                found.append((status.st_mtime, path))
        if visited > _VISITED_MAX:
            break
    found.sort(key=lambda item: (-item[0], item[1]))
    room = BYTES_MAX
    for _, path in found[:FILES_MAX]:
        try:
            data = read_small(path, FILE_BYTES_MAX)
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if len(data) > room:
            return
        if reason_to_exclude(str(path), len(data), data[:8192]) is None:
            room -= len(data)
            yield path, text


def _read(root: Path) -> list[tuple[Path, str]]:
    return list(neighbours_of(root))


async def learn_neighbours(roots: Iterable[Path], learn: Callable[[str, str], None]) -> None:
    """Read the folders, and hand over each file in a turn of its own."""
    for root in roots:
        files = await asyncio.to_thread(_read, root)
        for path, text in reversed(files):  # the latest is learned last, and is remembered longest
            learn(path.as_uri(), text)
            await asyncio.sleep(_TURN_S)
        _logger.info("learned %d files of %s", len(files), root)
