"""One language server on standard input and output, from the first byte to the last.

It ends when the editor says `exit`, closes the pipe, or is gone (its process id is in `initialize`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from foretype_wire.garbage_collection import calm_collector, collect_when_idle
from foretype_wire.redaction import keep_texts_out, log_fault

from foretype_lsp.gateway_client import GatewayClient
from foretype_lsp.server import Server
from foretype_lsp.transport.stdio import FdWriter, read_forever, watch_process

_log: Final = logging.getLogger(__name__)


async def run(server: Server, in_fd: int, out_fd: int) -> int:
    """Serve until the editor is done. Returns the exit code of LSP: 0 after `shutdown`, else 1."""
    server.protocol.set_writer(FdWriter(out_fd))
    received = 0

    def receive(body: bytes) -> None:
        nonlocal received
        received += 1
        server.protocol.receive(body)

    loop = asyncio.get_running_loop()
    keep_texts_out(loop, _log)
    read_forever(in_fd, loop, receive, server.stopped.set)
    jobs = [_watch(server), GatewayClient(server).run(), collect_when_idle(lambda: received)]
    background = [asyncio.create_task(job) for job in jobs]
    for task in background:
        task.add_done_callback(partial(_ended, server))
    with calm_collector(full=False):
        try:
            await server.stopped.wait()
        finally:
            for task in background:
                task.cancel()
            server.next_edits.close()
            await server.suggestions.close()
            await asyncio.gather(*background, return_exceptions=True)
    _log.info("ended, exit code %d", server.exit_code)
    return server.exit_code


async def _watch(server: Server) -> None:
    """End with the editor, also where its death does not close our input (another process may hold the pipe)."""
    await server.editor.initialized.wait()
    if server.editor.pid is not None:
        await watch_process(server.editor.pid, server.stopped.set)


def _ended(server: Server, task: asyncio.Task[None]) -> None:
    """A fault of ours in the background must be seen somewhere: without it the server would be silent for ever."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log_fault(_log, "background task failed", error)
        server.status.lost("a fault in the language server; see its log, then restart it")
