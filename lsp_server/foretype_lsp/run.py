"""One language server on standard input and output, from the first byte to the last.

It ends when the editor says `exit`, closes the pipe, or is gone (its process id is in `initialize`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from foretype_lsp.connection import Connection
from foretype_lsp.server import Server
from foretype_lsp.stdio import FdWriter, read_forever, watch_process

__all__ = ["run"]

_log: Final = logging.getLogger(__name__)


async def run(server: Server, in_fd: int, out_fd: int) -> int:
    """Serve until the editor is done. Returns the exit code of LSP: 0 after `shutdown`, else 1."""
    server.protocol.set_writer(FdWriter(out_fd))
    read_forever(in_fd, asyncio.get_running_loop(), server.protocol.receive, server.stopped.set)
    background = [asyncio.create_task(_watch(server)), asyncio.create_task(Connection(server).run())]
    try:
        await server.stopped.wait()
    finally:
        for task in background:
            task.cancel()
        for result in await asyncio.gather(*background, return_exceptions=True):
            if isinstance(result, Exception):
                _log.error("at the end: %s", type(result).__name__)
    _log.info("ended, exit code %d", server.exit_code)
    return server.exit_code


async def _watch(server: Server) -> None:
    """End with the editor, also where its death does not close our input (another process may hold the pipe)."""
    await server.initialized.wait()
    if server.editor_pid is not None:
        await watch_process(server.editor_pid, server.stopped.set)
