"""Runs candidate programs in throw-away processes, several at a time.

A program is a whole Python source; it passes when it runs to its end without an exception. What confines it, and how well on
this machine, is told by :attr:`Sandbox.isolation`. A program cannot pass by leaving early: the verdict carries a number that
is written only after the last line was run. It is a sandbox for what models write by accident, not for an adversary who
studies it: the verdict and the program share a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from foretype_eval.errors import EvalError

_ZYGOTE: Final = Path(__file__).with_name("zygote.py")
_GRACE_S: Final = 10.0


class Status(StrEnum):
    """What became of a program."""

    PASSED = "passed"
    FAILED = "failed"
    SYNTAX_ERROR = "syntax_error"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """Limits of one program (3 s and 512 MB).

    Attributes:
        output_bytes: a program that prints more is killed.
        kept_output_bytes: how much of its output is kept.
    """

    wall_s: float = 3.0
    memory_bytes: int = 512 << 20
    file_bytes: int = 1 << 20
    open_files: int = 64
    processes: int = 64
    output_bytes: int = 4 << 20
    kept_output_bytes: int = 64 << 10


class Program(NamedTuple):
    """A program, and what it reads from standard input."""

    source: str
    stdin: str = ""


class Isolation(NamedTuple):
    """How network, files and processes are kept from a program on this machine."""

    network: str
    files: str
    processes: str


@dataclass(frozen=True, slots=True)
class ProgramResult:
    status: Status
    detail: str
    output: str
    wall_ms: float

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


class _Worker:
    """One zygote, and the thread-safe talk with it; restarted when it was lost."""

    def __init__(self, limits: ProgramLimits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self.isolation = self._start()

    def _start(self) -> Isolation:
        environment = {"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}
        for name in ("TMPDIR", "SYSTEMROOT"):
            if name in os.environ:
                environment[name] = os.environ[name]
        self._buffer = b""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_ZYGOTE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        try:
            return Isolation(**self._ask(asdict(self._limits), _GRACE_S))
        except _Lost as lost:
            self.close()
            raise EvalError(f"the sandbox process did not start: {lost}") from lost

    def _ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise _Lost("closed")
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise _Lost(f"exit code {process.poll()}") from error
        while b"\n" not in self._buffer:
            if not select.select([process.stdout], [], [], timeout_s)[0]:
                raise _Lost("no answer")
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                raise _Lost(f"exit code {process.wait()}")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def run(self, program: Program) -> ProgramResult:
        try:
            reply = self._ask(program._asdict(), self._limits.wall_s + _GRACE_S)
        except _Lost as lost:
            # For instance the kernel's out-of-memory killer; the program is to blame, the next is not.
            self.close()
            self._start()
            return ProgramResult(Status.CRASHED, f"took the sandbox with it ({lost})", "", 0.0)
        return ProgramResult(Status(reply["status"]), reply["detail"], reply["output"], reply["wall_ms"])

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(1.0)  # it ends at the end of its input, and removes its folder
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


class _Lost(Exception):
    """A zygote died or does not answer."""


class Sandbox:
    """A pool of `workers` sandboxed processes. Use as a context manager.

    Raises:
        EvalError: the zygote does not start.
    """

    def __init__(self, limits: ProgramLimits | None = None, *, workers: int = 2) -> None:
        self._limits = limits or ProgramLimits()
        self._count = max(1, workers)
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if sys.platform == "win32":
            raise EvalError("programs are run on Linux and macOS only; use --no-execute for exact match alone")
        self._workers = [_Worker(self._limits) for _ in range(self._count)]
        for worker in self._workers:
            self._idle.put(worker)
        self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="sandbox")
        # All of its threads now: whoever opens it is to see what it holds, not whoever asks first.
        together = threading.Barrier(self._count)
        for begun in [self._pool.submit(together.wait) for _ in range(self._count)]:
            begun.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    @property
    def isolation(self) -> Isolation:
        return self._workers[0].isolation

    @property
    def limits(self) -> ProgramLimits:
        return self._limits

    def process_ids(self) -> list[int]:
        """Ids of the fork servers, for a look at them."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def submit(self, program: Program) -> Future[ProgramResult]:
        """Run one program as soon as a process is free."""
        if self._pool is None:
            raise EvalError("enter the sandbox first: with Sandbox() as sandbox")
        return self._pool.submit(self._run, program)

    def run(self, programs: Iterable[Program], *, ahead: int = 64) -> Iterator[ProgramResult]:
        """Verdicts in the order of `programs`, at most `ahead` of them under way."""
        window = threading.Semaphore(ahead)
        pending: list[Future[ProgramResult]] = []
        source = iter(programs)
        while True:
            while window.acquire(blocking=False):
                program = next(source, None)
                if program is None:
                    break
                pending.append(self.submit(program))
            if not pending:
                return
            yield pending.pop(0).result()
            window.release()

    def _run(self, program: Program) -> ProgramResult:
        worker = self._idle.get()
        try:
            return worker.run(program)
        finally:
            self._idle.put(worker)
