"""Several worker processes on one port: a parent that binds, starts, replaces the dead, and hands signals on.

Workers share nothing but the socket and leases: each has its own scheduler and its own p99; metrics and status are told for all of them
(:mod:`.worker_peers`). One that dies is started again after a pause that doubles up to ten seconds, and begins afresh once it was ready. Each holds a pipe from the parent, so that
a parent that is killed leaves nobody behind on its port. uvicorn's own workers (0.54) have no slot, no
pause before the next start, and go on when the parent is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from foretype_backend.operations.worker_peers import WorkerAddress

_log = logging.getLogger("foretype.gateway")

_FIRST_S: Final = 0.1
_LONGEST_S: Final = 10.0


class _Workers:
    def __init__(
        self,
        count: int,
        arguments: Sequence[str],
        listener: socket.socket,
        folder: Path,
        metrics: socket.socket | None = None,
    ) -> None:
        self._count = count
        self._folder = folder
        self._arguments = [*arguments, "--workers", "1", "--listen-fd", str(listener.fileno())]
        self._inherited = [listener.fileno()]
        if metrics is not None:
            self._arguments += ["--metrics-fd", str(metrics.fileno())]
            self._inherited.append(metrics.fileno())
        self._processes: set[asyncio.subprocess.Process] = set()
        self._ready = 0
        self.all_ready = asyncio.Event()
        self.ending = False

    async def keep(self, slot: int) -> int:
        """The worker of a slot, again and again until the end; returns the exit code that ends all."""
        pause_s, fresh = _FIRST_S, True
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # `-m` would import from the working directory first, which may hold anything
                "-m",
                "foretype_backend",
                "serve",
                *self._arguments,
                "--place",
                str(WorkerAddress(self._folder, slot, self._count)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=self._inherited,
            )
            self._processes.add(process)
            if self.ending:  # said while this one was being made, so that nobody has told it
                _tell(process, signal.SIGTERM)
            assert process.stdout is not None
            if (await process.stdout.readline()).startswith(b"ready "):
                pause_s = _FIRST_S
                if fresh:
                    fresh, self._ready = False, self._ready + 1
                    if self._ready == self._count:
                        self.all_ready.set()
            code = await process.wait()
            self._processes.discard(process)
            if self.ending or code == 2:
                return 2 if code == 2 else 0
            level = logging.ERROR if code else logging.INFO
            _log.log(level, "worker %d ended with %d; another one starts in %.1f s", process.pid, code, pause_s)
            await asyncio.sleep(pause_s)
            if self.ending:
                return 0
            pause_s = min(2 * pause_s, _LONGEST_S)

    def hand_on(self, number: int) -> None:
        self.ending |= number in (signal.SIGTERM, signal.SIGINT)
        for process in self._processes:
            _tell(process, number)


def _tell(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


async def run_workers(
    count: int,
    arguments: Sequence[str],
    listener: socket.socket,
    ready: Callable[[], None],
    metrics: socket.socket | None = None,
) -> int:
    """Serve with `count` workers until told to end; returns the exit code: that of the first worker that cannot start.

    Args:
        arguments: of `serve`, as this process got them.
        listener: bound; workers inherit it.
        ready: called when every worker is ready for the first time.
        metrics: bound, for the port that metrics have of their own; whichever worker takes a scrape tells of all.
    """
    loop = asyncio.get_running_loop()
    listener.listen(2048)
    listener.set_inheritable(True)
    folder = Path(tempfile.mkdtemp(prefix="foretype-"))  # nobody else may read it
    workers = _Workers(count, arguments, listener, folder, metrics)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, workers.hand_on, number)
    tasks = [loop.create_task(workers.keep(slot)) for slot in range(count)]
    announce = loop.create_task(workers.all_ready.wait())
    announce.add_done_callback(lambda task: None if task.cancelled() else ready())
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not workers.ending:
            workers.hand_on(
                signal.SIGTERM
            )  # one cannot start: the others would fail alike, or serve half a configuration
        await asyncio.gather(*tasks)
        return max(task.result() for task in done)
    finally:
        announce.cancel()
        listener.close()
        if metrics is not None:
            metrics.close()
        shutil.rmtree(folder, ignore_errors=True)


def end_with_parent() -> None:
    """In a worker: end as on SIGTERM when the parent is gone, which closes the pipe that is this process's standard input."""
    loop, pipe = asyncio.get_running_loop(), sys.stdin.fileno()

    def readable() -> None:
        if not os.read(pipe, 1024):
            loop.remove_reader(pipe)
            os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(pipe, readable)
