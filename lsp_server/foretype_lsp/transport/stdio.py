"""The server on standard input and output.

Input is read by a thread straight from the file descriptor, so that the process can end while a read is waiting, and so
that an editor which writes a large file before it reads an answer never blocks against us. The real standard output is kept
aside for messages; whatever prints goes to standard error instead and cannot break the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from foretype_lsp.transport.framing import Framing

_log: Final = logging.getLogger(__name__)

PARENT_POLL_S: Final = 3.0
_READ_BYTES: Final = 1 << 16


class FdWriter:
    """Writes whole messages to a file descriptor; pygls' writer interface."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: bytes) -> None:
        """Write all of `data`. Raises OSError when the reader is gone."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)


def keep_stdout() -> int:
    """A descriptor for messages; file descriptor 1 is standard error from here on."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(kept, False)
    return kept


def read_forever(
    fd: int, loop: asyncio.AbstractEventLoop, on_body: Callable[[bytes], None], on_end: Callable[[], None]
) -> threading.Thread:
    """Read messages in a thread and hand each to the loop; at the end of input call `on_end` there."""

    def read() -> None:
        framing = Framing()
        skipped = 0
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            while data := _read(fd):
                for body in framing.feed(data):
                    loop.call_soon_threadsafe(on_body, body)
                if framing.skipped > skipped:
                    skipped = framing.skipped
                    _log.warning("skipped input that is not an LSP message (%d so far)", skipped)
            loop.call_soon_threadsafe(on_end)

    thread = threading.Thread(target=read, name="foretype-lsp-stdin", daemon=True)
    thread.start()
    return thread


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""


async def watch_process(pid: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` when a process is no longer there."""
    ended = _process_descriptor(pid)
    if ended is None:
        while process_alive(pid):  # noqa: ASYNC110 - such a system tells nobody but the parent
            await asyncio.sleep(PARENT_POLL_S)
    else:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(ended, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(ended)
            os.close(ended)
    on_gone()


def _process_descriptor(pid: int) -> int | None:
    """Readable once the process has ended, so that nothing wakes up before (Linux since 5.3); None where there is none to be had."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


def process_alive(pid: int) -> bool:
    """Whether a process exists (POSIX; elsewhere always true: the end of input must do)."""
    if os.name != "posix" or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
