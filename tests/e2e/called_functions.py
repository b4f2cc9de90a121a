"""Which functions of ours a process calls, and when. Standard library alone: `sitecustomize` of a traced process imports it.

Each call is one line of a file of the process: nanoseconds on the machine's monotonic clock, which all processes share, and the
function's module and qualified name. A coroutine is called again whenever it goes on.
"""

import atexit
import sys
import threading
import time


def record(path: str) -> None:
    """Write every call from now on into `path`, at the latest when the process ends."""
    lines = []

    def called(frame, event, _argument):
        module = frame.f_globals.get("__name__") or ""  # None while the interpreter goes down
        if event == "call" and module.startswith("foretype_"):
            lines.append(f"{time.monotonic_ns()} {module}.{frame.f_code.co_qualname}\n")

    def write():
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(lines)

    atexit.register(write)
    threading.setprofile(called)
    sys.setprofile(called)
