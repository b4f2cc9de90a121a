"""A real redis-server of the test's own, on a Unix socket in a short-lived folder."""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import redis
from foretype_backend.admission import redis_leases

__all__ = ["RedisServer", "patient_ledger", "redis_server"]

_START_S = 300.0


class RedisServer:
    """Start, stop and kill as often as wanted; nothing survives a stop."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = folder / "redis.sock"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self, *options: str) -> None:
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._folder)]
        command += ["--save", "", "--appendonly", "no", *self._options, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        client = redis.Redis(unix_socket_path=str(self.socket))
        ends = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < ends:
            with contextlib.suppress(redis.RedisError):
                client.ping()
                client.close()
                return
            time.sleep(0.02)
        raise AssertionError(f"redis-server did not start: {self._process.poll()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def patient_ledger() -> Iterator[None]:
    """Budgets leased meanwhile wait for a Redis that answers late: a busy machine is no ledger that is away."""
    with patch.object(redis_leases, "_ANSWER_S", 60.0), patch.object(redis_leases, "_REACH_S", 60.0):
        yield


@contextlib.contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """A started server; skips the test where Debian's redis-server is not installed."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    with tempfile.TemporaryDirectory(prefix="ftredis") as folder:  # socket paths must be short
        server = RedisServer(Path(folder), *options)
        server.start()
        try:
            yield server
        finally:
            server.kill()
