"""One language server for all pages of a Jupyter server: started with the first page, ended some time after the last.

It is a process of its own: the Jupyter server's loop serves the kernels, and its packages are the user's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from foretype_lsp.transport.framing import Framing, frame

from foretype_jupyter.routing import Message, Routing

_READ_BYTES: Final = 1 << 16
_CAPABILITIES: Final[Message] = {
    "general": {"positionEncodings": ["utf-16"]},
    "notebookDocument": {"synchronization": {}},
    "textDocument": {"inlineCompletion": {}},
}


class Page(Protocol):
    """A page at the other end of a WebSocket."""

    def send(self, message: Message) -> None: ...

    def end(self, reason: str) -> None:
        """Close its connection; it connects again by itself."""
        ...


class Relay:
    """Passes messages on.

    Args:
        command: the language server, on standard input and output.
        root: the folder that notebooks' paths begin at; None where they are no files of this machine.
        linger_s: how long the language server waits for another page when the last is gone.
    """

    def __init__(
        self, command: Sequence[str], root: Path | None, *, version: str, linger_s: float, log: logging.Logger
    ) -> None:
        self._command = list(command)
        self._root = root
        self._version = version
        self._linger_s = linger_s
        self._log = log
        self._routing = Routing[Page]()
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._starting = asyncio.Lock()

    async def join(self, page: Page) -> None:
        """A page is there; the language server is started where it does not run."""
        self._routing.join(page)
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        async with self._starting:
            if self._process is None and page in self._routing.pages:
                try:
                    await self._start()
                except OSError as error:
                    why = f"{self._command[0]}: {error.strerror}"
                    self._log.error(
                        "Foretype: the language server does not start (%s): correct c.Foretype.command", why
                    )
                    self._routing.leave(page)
                    page.end("the language server does not start: see the Jupyter server's log")
                    return
        root = "jupyter:/" if self._root is None else self._root.as_uri()
        page.send({"jsonrpc": "2.0", "method": "foretype/hello", "params": {"rootUri": root}})

    def leave(self, page: Page) -> None:
        for message in self._routing.leave(page):
            self._write(message)
        if not self._routing.pages and self._process is not None and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(self._linger_s, self._end)

    def receive(self, page: Page, text: str | bytes) -> None:
        """A message of a page."""
        try:
            message: object = json.loads(text)
        except ValueError:
            message = None
        on, back = self._routing.from_page(page, message)
        if on is not None:
            self._write(on)
        if back is not None:
            page.send(back)

    async def _start(self) -> None:
        # A session of its own: Ctrl+C in the Jupyter server's terminal asks a question there, and ends nothing yet.
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, cwd=Path.home(), start_new_session=True
        )
        self._log.info("Foretype: the language server runs, process %d", self._process.pid)
        folders = [] if self._root is None else [{"uri": self._root.as_uri(), "name": self._root.name}]
        params: dict[str, Any] = {
            "processId": None,
            "clientInfo": {"name": "foretype-jupyter", "version": self._version},
            "capabilities": _CAPABILITIES,
            "workspaceFolders": folders if self._root not in (Path.home(), Path("/")) else [],
            "initializationOptions": {"suggestionGrew": True},
        }
        self._write({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self._write({"jsonrpc": "2.0", "method": "initialized", "params": {}})
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: Process) -> None:
        framing, output = Framing(), process.stdout
        assert output is not None
        while data := await output.read(_READ_BYTES):
            for body in framing.feed(data):
                to_pages, back = self._routing.from_server(json.loads(body))
                for page, message in to_pages:
                    page.send(message)
                if back is not None:
                    self._write(back)
        code = await process.wait()
        if self._process is process:
            self._log.warning("Foretype: the language server ended (%d); it is started again with the next page", code)
            self._process = None
            for page in self._routing.pages:
                self._routing.leave(page)
                page.end("the language server ended")

    def _write(self, message: Message) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(frame(json.dumps(message, separators=(",", ":")).encode()))

    def _end(self) -> None:
        """Close its input, by which it knows that it is done."""
        process, self._process, self._ending = self._process, None, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
