"""llama.cpp's own server as a child process, as `make peer-env` builds it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from foretype_lab.errors import LlamaServerError
from foretype_lab.processes import free_ports

BINARY: Final = Path(__file__).resolve().parents[3] / ".venv-peer" / "bin" / "llama-server"
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 5.0


def find_llama_server() -> Path:
    """The binary: `FORETYPE_LLAMA_SERVER`, else what `make peer-env` built. Raises LlamaServerError if there is none."""
    named = os.environ.get("FORETYPE_LLAMA_SERVER")
    path = Path(named) if named else BINARY
    if not os.access(path, os.X_OK):
        raise LlamaServerError(f"{path} is not there; `make peer-env` builds it (10 to 20 minutes, once)")
    return path


class LlamaServer:
    """One server on a loopback port, from entering the context to leaving it.

    Args:
        model: GGUF file.
        threads: of computation, for prompts and for generation.
        arguments: more of `llama-server`'s own.
        port: of loopback; 0 takes a free one.
    """

    def __init__(
        self, model: Path, *, threads: int, arguments: tuple[str, ...] = (), binary: Path | None = None, port: int = 0
    ) -> None:
        self._binary = binary or find_llama_server()
        self._model = model
        self._threads = threads
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._port = port

    @property
    def command(self) -> list[str]:
        return [
            str(self._binary),
            *("--model", str(self._model), "--host", "127.0.0.1", "--port", str(self._port)),
            *("--threads", str(self._threads), "--threads-batch", str(self._threads)),
            *self._arguments,
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def version(self) -> str:
        """What the binary was built from."""
        try:
            return " ".join((self._binary.parent.parent / "VERSION").read_text("utf-8").split("\n")[0].split())
        except OSError:
            return "unknown"

    def __enter__(self) -> Self:
        self._port = self._port or free_ports(1)[0]
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(self.command, stdout=self._log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self._tail()
                self.__exit__(None, None, None)
                raise LlamaServerError(f"{self._binary} did not start with {self._model}:\n{tail}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()

    def post(self, path: str, body: dict[str, Any], *, timeout_s: float = 120.0) -> dict[str, Any]:
        """One request on a connection of its own, as `curl` makes it.

        Raises:
            LlamaServerError: no answer, or one that is not 200; the message holds what the server said.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout_s)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LlamaServerError(f"llama-server gave no answer to {path}: {error}\n{self._tail()}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise LlamaServerError(
                f"llama-server answered {response.status} to {path}: {data[:500].decode(errors='replace')}"
            )
        return json.loads(data)

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1.0)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")
