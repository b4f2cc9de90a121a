"""A raw JSON-RPC client over stdio: what an editor does, and nothing that would hide a delay."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from foretype_eval.errors import EvalError

_COMMAND: Final = (sys.executable, "-c", "from foretype_client.commands.cli import main; main()", "lsp")
_EXIT_TIMEOUT_S: Final = 5.0
_LAST_WORDS_TIMEOUT_S: Final = 2.0


class LspClient:
    """A language server in a process of its own, spoken to over stdio."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._log = bytearray()
        self._log_reader = asyncio.create_task(self._read_log())
        self._reader = asyncio.create_task(self._read())
        self._tasks = [self._reader, self._log_reader]

    @classmethod
    async def start(cls, command: Sequence[str] = _COMMAND) -> Self:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 22,
        )
        return cls(process)

    async def initialize(self, options: dict[str, Any], *, root: str | None = None) -> dict[str, Any]:
        """Handshake as an editor with inline completion does it; `root` is the URI of the open folder.

        It is asked on a busy machine as well, unless `options` say otherwise.
        """
        options = options | {"policies": {"spare": False} | options.get("policies", {})}
        result = await self.request(
            "initialize",
            {
                "processId": None,
                "rootUri": root,
                "capabilities": {
                    "general": {"positionEncodings": ["utf-32", "utf-16"]},
                    "textDocument": {"inlineCompletion": {"dynamicRegistration": False}},
                },
                "initializationOptions": options,
            },
        )
        self.notify("initialized", {})
        return result

    @property
    def pid(self) -> int:
        return self._process.pid

    def work_ms(self) -> float | None:
        """Processor time that the server's main thread has used, in milliseconds; None where the system does not tell.

        Unlike elapsed time it does not contain the wait for a processor that other programs hold.
        """
        pid = self._process.pid
        try:
            return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii").split()[0]) / 1e6
        except (OSError, ValueError, IndexError):
            return None

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, params: dict[str, Any] | None) -> asyncio.Future[Any]:
        """Send now; the future resolves in the turn in which the answer is read."""
        number = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            message["params"] = params
        if not self._reader.done() and self._process.returncode is None:
            self._send(message)
        else:
            self._tasks.append(asyncio.create_task(self._fail_what_waits()))
        return future

    async def stop(self) -> None:
        """Shut down as the protocol asks; kill what does not leave."""
        with contextlib.suppress(EvalError, TimeoutError, ConnectionError):
            await asyncio.wait_for(self.request("shutdown", None), _EXIT_TIMEOUT_S)
            self.notify("exit", {})
            await asyncio.wait_for(self._process.wait(), _EXIT_TIMEOUT_S)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _send(self, message: dict[str, Any]) -> None:
        if self._process.stdin is None or self._process.returncode is not None:
            raise self._gone()
        body = msgspec.json.encode(message)
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def _read(self) -> None:
        stream = self._process.stdout
        if stream is None:
            raise self._gone()
        try:
            while True:
                header = await stream.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in header.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                self._receive(msgspec.json.decode(await stream.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._fail_what_waits()

    async def _fail_what_waits(self) -> None:
        # Its last words are still in the other pipe, which a child of it may hold open.
        await asyncio.wait([self._log_reader], timeout=_LAST_WORDS_TIMEOUT_S)
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._gone())
        self._pending.clear()

    def _receive(self, message: dict[str, Any]) -> None:
        if "method" in message:
            if "id" in message:  # a request of the server: registerCapability, configuration, progress
                # `workspace/configuration` wants a value per item; null is an answer to everything else.
                params: dict[str, Any] = message.get("params") or {}
                result = [None for _ in params["items"]] if "items" in params else None
                self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})
            return
        future = self._pending.pop(message.get("id", -1), None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(EvalError(str(message["error"])))
        else:
            future.set_result(message.get("result"))

    async def _read_log(self) -> None:
        stream = self._process.stderr
        while stream is not None and (data := await stream.read(1 << 16)):
            self._log = (self._log + data)[-4000:]

    def _gone(self) -> EvalError:
        words = self._log.decode("utf-8", "replace").strip()[-600:]
        return EvalError(f"the language server ended with status {self._process.returncode}\n{words}")
