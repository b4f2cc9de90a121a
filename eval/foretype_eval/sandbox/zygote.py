"""The fork server of the sandbox: a small interpreter that forks one throw-away child per candidate program.

Run by path with `python -I -S`, so that a child inherits the standard library and nothing of ours. Requests and replies are
JSON, one per line, over the stdin and stdout that it was started with. The child takes the confinement of
:mod:`confine`, runs the program, and reports through a pipe of its own; the zygote watches the clock and the output, then
kills the whole process group, whatever became of the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from foretype_eval.sandbox import confine
else:
    # `-I` leaves the script's folder out of the path; it is taken out again so that no candidate imports ours.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import confine

    del sys.path[0], sys.modules["confine"]

_PR_SET_CHILD_SUBREAPER: Final = 36
_DETAIL_CHARS: Final = 300
_READ_BYTES: Final = 1 << 16
_PRELOADED: Final = (
    "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "hashlib", "heapq", "itertools",
    "math", "operator", "queue", "random", "re", "statistics", "string", "textwrap", "typing", "unittest",
)  # fmt: skip
_SYSTEM_READABLE: Final = ("/usr/lib", "/lib", "/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/urandom")


def _refuse_socket(*_arguments: Any, **_options: Any) -> None:
    raise PermissionError("the sandbox has no network")


class Zygote:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._home = tempfile.mkdtemp(prefix="foretype-sandbox-")
        self._count = 0
        self._seccomp = confine.can_block_syscalls()
        self._namespaces = confine.enter_namespaces()
        readable = [*dict.fromkeys([sys.base_prefix + "/lib", os.path.dirname(os.__file__)]), *_SYSTEM_READABLE]
        self._ruleset = confine.landlock_ruleset(readable, _DEVICES, self._home)
        if sys.platform.startswith("linux"):
            # Orphans of a program that daemonised come back here and are killed, wherever the filter is not available.
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for name in _PRELOADED:
            __import__(name)
        gc.freeze()

    def isolation(self) -> dict[str, str]:
        if self._namespaces and self._seccomp:
            network = "namespace and seccomp"
        else:
            network = "namespace" if self._namespaces else "seccomp" if self._seccomp else "socket refused in Python"
        return {
            "network": network,
            "files": "landlock" if self._ruleset is not None else "empty home and working directory",
            "processes": "seccomp" if self._seccomp else "rlimit and process group",
        }

    def run(self, program: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        folder = os.path.join(self._home, str(self._count))
        os.mkdir(folder, 0o700)
        nonce = secrets.token_hex(8)
        report_read, report_write = os.pipe()
        output_read, output_write = os.pipe()
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            try:
                os.close(report_read)
                os.close(output_read)
                self._child(program, folder, nonce, report_write, output_write)
            finally:
                os._exit(70)
        os.close(report_write)
        os.close(output_write)
        with contextlib.suppress(OSError):  # the child does the same: the first of the two succeeds
            os.setpgid(child, child)
        report, output, ended = self._watch(report_read, output_read, started + self._settings["wall_s"])
        status = self._reap(child)
        wall_ms = (time.monotonic() - started) * 1000
        os.close(report_read)
        os.close(output_read)
        shutil.rmtree(folder, ignore_errors=True)
        verdict = self._verdict(report, nonce, ended, status)
        return {**verdict, "output": output.decode("utf-8", "replace"), "wall_ms": wall_ms}

    def _watch(self, report: int, output: int, deadline: float) -> tuple[bytes, bytes, str]:
        """Read both pipes until both ends are closed; returns what ended it: `closed`, `timeout` or `output`."""
        kept = {report: bytearray(), output: bytearray()}
        total_bytes = 0
        waiting = [report, output]
        while waiting:
            left_s = deadline - time.monotonic()
            ready = select.select(waiting, [], [], max(0.0, left_s))[0]
            if not ready:
                return bytes(kept[report]), bytes(kept[output]), "timeout"
            for descriptor in ready:
                data = os.read(descriptor, _READ_BYTES)
                if not data:
                    waiting.remove(descriptor)
                    continue
                total_bytes += len(data)
                room = self._settings["kept_output_bytes"] - len(kept[descriptor])
                kept[descriptor] += data[: max(0, room)]
            if total_bytes > self._settings["output_bytes"]:
                return bytes(kept[report]), bytes(kept[output]), "output"
        return bytes(kept[report]), bytes(kept[output]), "closed"

    def _reap(self, child: int) -> int:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        while not self._seccomp:  # nothing can have been left behind under the filter
            for orphan in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(orphan, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        return status

    def _verdict(self, report: bytes, nonce: str, ended: str, status: int) -> dict[str, str]:
        if ended == "timeout":
            return {"status": "timed_out", "detail": "wall-clock limit"}
        if ended == "output":
            return {"status": "too_much_output", "detail": f"more than {self._settings['output_bytes']} bytes"}
        text = report.decode("utf-8", "replace")
        if text.startswith(nonce):
            return json.loads(text[len(nonce) :])
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGXCPU:
                return {"status": "timed_out", "detail": "processor-time limit"}
            return {"status": "crashed", "detail": signal.Signals(number).name}
        return {
            "status": "failed",
            "detail": f"left with exit code {os.WEXITSTATUS(status)} before the end of its tests",
        }

    def _child(self, program: dict[str, Any], folder: str, nonce: str, report: int, output: int) -> None:
        os.setpgid(0, 0)
        stdin = os.open("/dev/null", os.O_RDONLY)
        if program.get("stdin"):
            path = os.path.join(folder, "stdin")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program["stdin"])
            stdin = os.open(path, os.O_RDONLY)
            os.unlink(path)
        os.dup2(stdin, 0)
        os.dup2(output, 1)
        os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
        report = os.dup2(report, 3) if report != 3 else report
        ruleset = -1
        if self._ruleset is not None:
            ruleset = os.dup2(self._ruleset, 4) if self._ruleset != 4 else 4
        os.closerange(5, 4096)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update({"HOME": folder, "TMPDIR": folder, "PATH": "", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"})
        tempfile.tempdir = None
        settings = self._settings
        confine.set_limits(
            cpu_s=int(settings["wall_s"]) + 1,
            memory_bytes=settings["memory_bytes"],
            file_bytes=settings["file_bytes"],
            open_files=settings["open_files"],
            processes=settings["processes"],
        )
        if not (self._namespaces or self._seccomp):
            import _socket

            _socket.socket = _refuse_socket  # type: ignore[assignment,misc]
        if ruleset >= 0:
            confined = confine.restrict_files(ruleset)
            os.close(ruleset)
            if not confined:
                os._exit(71)
        if self._seccomp and not confine.block_syscalls():
            os._exit(72)
        verdict = _execute(program["source"])
        os.write(report, (nonce + json.dumps(verdict)).encode())
        os._exit(0)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _execute(source: str) -> dict[str, str]:
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    random.seed(0)
    namespace = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        try:
            code = compile(source, "candidate", "exec", dont_inherit=True)
        except ValueError as error:  # a null character, before Python 3.11.4
            raise SyntaxError(str(error)) from None
        exec(code, namespace)  # noqa: S102 - what a sandbox is for
        sys.stdout.flush()
    except MemoryError:
        return {"status": "out_of_memory", "detail": "MemoryError"}
    except SyntaxError as error:
        return {"status": "syntax_error", "detail": _describe(error)}
    except BaseException as error:  # noqa: BLE001 - SystemExit too: who leaves early has not passed
        return {"status": "failed", "detail": _describe(error)}
    return {"status": "passed", "detail": ""}


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:_DETAIL_CHARS]
    except BaseException:  # noqa: BLE001 - a candidate's own exception may fail to print itself
        return type(error).__name__


def main() -> None:
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    zygote = Zygote(json.loads(requests.readline()))
    try:
        print(json.dumps(zygote.isolation()), file=replies, flush=True)
        for line in requests:
            print(json.dumps(zygote.run(json.loads(line))), file=replies, flush=True)
    finally:
        shutil.rmtree(zygote._home, ignore_errors=True)  # pyright: ignore[reportPrivateUsage]


if __name__ == "__main__":
    main()
