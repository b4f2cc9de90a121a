"""A `vllm serve` of a test's own, killed and started again as often as wanted."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
from foretype_lab.processes import free_ports
from vllm_world.guard import Guard

__all__ = ["BLOCK", "VllmServe", "image_environment"]

BLOCK = 32
START_S = 600.0
DOCKERFILE = Path(__file__).parents[2] / "deploy/Dockerfile.vllm"


def image_environment() -> dict[str, str]:
    """What the image for processors sets for vLLM, but for its folders."""
    (stage,) = re.findall(r"^FROM \S+ AS cpu$(.*?)^FROM ", DOCKERFILE.read_text(), re.MULTILINE | re.DOTALL)
    pairs = shlex.split(" ".join(re.findall(r"^ENV (.*)$", stage, re.MULTILINE)))
    found = dict(pair.split("=", 1) for pair in pairs)
    return {name: value for name, value in found.items() if not name.endswith(("PATH", "HOME"))}


class VllmServe:
    """A server on a port of its own, which it keeps; ready when `start` returns, and gone with this process at the latest.

    `folder` holds its log; `transfer` is its `--kv-transfer-config`.
    """

    def __init__(self, model: Path, folder: Path, *, transfer: Mapping[str, Any] | None = None) -> None:
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.events = f"ipc://{folder}/events"
        self._log = folder / "log"
        self._command = [
            # What `vllm serve` runs; the command itself looks for a distribution `vllm`, which the CPU build is not.
            *(sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
            *("--served-model-name", "shipped", "--host", "127.0.0.1", "--port", str(port)),
            *("--block-size", str(BLOCK), "--enforce-eager", "--max-num-seqs", "8", "--dtype", "float32"),
            *("--scheduling-policy", "priority", "--enable-prompt-tokens-details", "--enable-scale-out"),
            *("--kv-events-config", f'{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"{self.events}"}}'),
        ]
        if transfer is not None:
            self._command += ["--kv-transfer-config", json.dumps(transfer)]
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    def start(self) -> None:
        """Returns when it is healthy; raises AssertionError with the end of its log."""
        # As in the image, where there is no compiler.
        own = {**image_environment(), "CXX": "/nowhere/c++"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True
            )
        self._guard = Guard(self._process.pid)
        ends_s = time.monotonic() + START_S
        while time.monotonic() < ends_s and self._process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", trust_env=False, verify=False).status_code == 200:
                    return
            time.sleep(0.2)
        raise AssertionError(f"not up after {START_S} s: {self._log.read_text('utf-8', 'replace')[-3000:]}")

    def kill_engine(self) -> None:
        """`kill -9` of the engine's process alone: the server that answers is still there, with nothing behind it."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        engine = max(children, key=lambda child: child.memory_info().rss)  # it holds model and cache
        engine.kill()

    def kill_server(self) -> None:
        """`kill -9` of the process that answers, which leaves the engine's alone."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)

    def clear(self, *, gently: bool = False) -> None:
        """What a supervisor does before it starts another: nothing of the group is left."""
        if self._process is None:
            return
        if gently:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(300)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(300)
        self._process = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None
