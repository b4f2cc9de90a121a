"""The one reader of files that somebody else wrote and that decide what we do: a folder is data, and may be made to hurt.

Only regular files of a size that the caller names are read: no link is followed, no pipe or device is waited for, and no file
that grows while it is read can fill the memory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from foretype_context.errors import NotSmallError

_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)


def read_small(path: str | Path, limit_bytes: int, *, links: bool = False) -> bytes:
    """The whole of a small file.

    Args:
        limit_bytes: what is larger is refused whole: a part of a file may say the opposite of all of it.
        links: `path` itself may be a link (its folders always may).

    Raises:
        NotSmallError: a link, a pipe, a device, a folder, or too large.
        OSError: it is not there, or cannot be read.
    """
    if not links and not _NO_LINK and os.path.islink(path):
        raise NotSmallError(f"{path} is a link")
    try:
        handle = os.open(path, _FLAGS | (0 if links else _NO_LINK))
    except ValueError as error:  # a NUL in the name
        raise NotSmallError(f"{str(path)!r} is no name of a file") from error
    try:  # no file object: of a folder there can be none, and the descriptor would stay open
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NotSmallError(f"{path} is no regular file")
        parts: list[bytes] = []
        room = limit_bytes + 1
        while status.st_size <= limit_bytes and room > 0 and (part := os.read(handle, min(room, 1 << 20))):
            parts.append(part)
            room -= len(part)
    finally:
        os.close(handle)
    if status.st_size > limit_bytes or room <= 0:
        raise NotSmallError(f"{path} is larger than {limit_bytes:,} bytes")
    return b"".join(parts)
