"""The embedded engine's process as the gateway sees it: start, frames, log, end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections import deque

from foretype_backend.engines.embedded.config import EmbeddedConfig
from foretype_backend.engines.embedded.ipc import (
    Command,
    Configure,
    Failed,
    FrameDecoder,
    Preparing,
    Ready,
    Report,
    decode_report,
    encode,
)
from foretype_backend.errors import EngineStartError

_logger = logging.getLogger("foretype.engine")
_WORKER = "foretype_backend.engines.embedded.worker"


class EngineProcess:
    """One run of the process. Make it with `open`, or with `begin` before its model is known."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._decoder = FrameDecoder()
        self._last_lines: deque[str] = deque(maxlen=20)
        self._log_task = asyncio.create_task(self._log(), name="embedded engine log")
        self._configured = False

    @classmethod
    async def begin(cls, library: str = "") -> EngineProcess:
        """Start the process, which imports its library while nobody has told it a model yet: a quarter of a second."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # `-m` would import from the working directory first, which may be a repository and hold anything
            "-X",
            "utf8",
            "-m",
            _WORKER,
            *([library] if library else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process)

    @classmethod
    async def open(cls, config: EmbeddedConfig, begun: EngineProcess | None = None) -> tuple[EngineProcess, Ready]:
        """Start the process, or go on with one that was begun, and wait until its model is loaded. Raises EngineStartError."""
        self = begun or await cls.begin(config.library)
        try:
            return self, await self._handshake(config)
        except BaseException:
            await self.close()
            raise

    async def _handshake(self, config: EmbeddedConfig) -> Ready:
        self._configured = True
        self.send(
            Configure(
                model=str(config.model.absolute()),
                library=config.library,
                device=config.device,
                cache_bytes=config.cache_bytes,
                chunk_tokens=config.chunk_tokens,
                max_sequences=config.max_sequences,
                max_overtakes=config.max_overtakes,
                head_start_tokens=config.head_start_tokens,
                threads=config.threads,
                nice=config.nice,
                prompt_lookup_tokens=config.prompt_lookup_tokens,
                prepared_dir=None if config.prepared_dir is None else str(config.prepared_dir.absolute()),
            )
        )
        waits_s = config.start_timeout_s
        while True:
            try:
                async with asyncio.timeout(waits_s):
                    reports = await self.reports()
            except TimeoutError:
                raise EngineStartError(
                    f"{config.model}: not loaded within {waits_s:g} s; raise start_timeout_s"
                ) from None
            if not reports:
                raise EngineStartError(f"{config.model}: {await self.reason()}")
            for report in reports:
                match report:
                    case Ready() as ready:
                        return ready
                    case Failed(message=message):
                        raise EngineStartError(message)
                    case Preparing(message=message, within_s=within_s):
                        _logger.info("%s", message)
                        waits_s = config.start_timeout_s + within_s
                    case other:
                        raise EngineStartError(f"unexpected first report {type(other).__name__}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        """Send a command; on a process that is gone it is lost, which `reports` will tell."""
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(encode([command]))

    async def reports(self) -> list[Report]:
        """The next reports; empty once the process is gone. Safe to cancel."""
        if self._process.stdout is None:
            return []
        while data := await self._process.stdout.read(1 << 16):
            if reports := [decode_report(body) for body in self._decoder.feed(data)]:
                return reports
        return []

    async def reason(self) -> str:
        """Why the process ended, for people; ends it should it still run."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._process.wait()
                await self._log_task
        code = self._process.returncode
        last = f"; last words: {self._last_lines[-1]}" if self._last_lines else ""
        if code is None:
            return f"the engine process closed its pipe{last}"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            hint = " (out of memory? use a smaller model, or less cache_bytes)" if name == "SIGKILL" else ""
            return f"the engine process was ended by {name}{hint}{last}"
        return f"the engine process ended with code {code}{last}"

    async def close(self) -> None:
        """End the process: the end of its input first, then a kill; one that has no model yet at once. Safe to call twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1 if self._configured else 0):
                        await self._process.wait()
            finally:  # also where nobody waits any more: one that hangs would be left behind
                if self._process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        self._process.kill()
            await self._process.wait()
        await self._log_task

    async def _log(self) -> None:
        """What the process writes to its standard error goes to the log, line by line."""
        if self._process.stderr is None:
            return
        while line := await self._read_line(self._process.stderr):
            text = line.decode(errors="replace").rstrip()
            if text:
                self._last_lines.append(text)
                _logger.log(logging.INFO if text.startswith("INFO ") else logging.WARNING, "%s", text)

    @staticmethod
    async def _read_line(stream: asyncio.StreamReader) -> bytes:
        try:
            return await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        except asyncio.LimitOverrunError as error:
            return await stream.readexactly(max(error.consumed, 1))
