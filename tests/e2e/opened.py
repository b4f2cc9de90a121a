"""What is opened below a folder, as the system tells it (inotify)."""

import ctypes
import os
import struct
from pathlib import Path

_OPEN, _NONBLOCK = 0x20, os.O_NONBLOCK
_HEAD = struct.Struct("iIII")


class Opened:
    """Tells of every file and folder below `root` that anybody has opened since this was made. Folders must be there already."""

    def __init__(self, root: Path):
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(_NONBLOCK)
        assert self._fd >= 0, os.strerror(ctypes.get_errno())
        folders = [root, *(path for path in sorted(root.rglob("*")) if path.is_dir())]
        self._folders = {libc.inotify_add_watch(self._fd, bytes(one), _OPEN): one for one in folders}
        assert min(self._folders) >= 0, os.strerror(ctypes.get_errno())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._fd)

    def so_far(self) -> set[Path]:
        """Since the last time."""
        found = set()
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                watch, _, _, length = _HEAD.unpack_from(data, at)
                name = data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
                found.add(self._folders[watch] / os.fsdecode(name))
                at += _HEAD.size + length
