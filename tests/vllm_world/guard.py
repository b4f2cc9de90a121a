"""What a test starts ends with the test run, however that ends: no `finally` runs after SIGKILL, nor after SIGTERM."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

__all__ = ["Guard"]

_WAITS: Final = "import os, signal, sys; sys.stdin.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"


class Guard:
    """A process that kills a group as soon as this process is gone: its input ends then. `close` sends it away."""

    def __init__(self, group: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WAITS, str(group)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a group that has ended is no matter
            start_new_session=True,  # what is sent to our group as one, as by `timeout`, must not end it first
        )

    def close(self) -> None:
        """Of a group that has ended: its number may be another's soon."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.stdin.close()
        self._process.wait()
