"""The engine of one replica: `vllm serve` on a port of its own, in the group of the process that spawned it, and gone with it.

Ray ends a worker's process group when the worker dies. Where nobody is left to do that (the node's raylet was killed too), a shell that
waits for the end of its input ends the group: no new session, and no process of the engine outlives the replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from foretype_backend.engines.vllm.metrics import read_metrics
from foretype_backend.errors import EngineUnavailableError

_LOOK_S: Final = 0.1
_ANSWER_S: Final = 5.0
_WARM_S: Final = 120.0
_END_S: Final = 10.0
_TOLD_LINES: Final = 12
_GUARD: Final = "read -r _; kill -KILL 0"


def engine_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """A profile's flags for one replica of several: without cache events, whose port is fixed, and without its own address."""
    return {name: value for name, value in flags.items() if name not in ("host", "port", "kv-events-config")}


class EngineProcess:
    """See the module.

    Args:
        command: `vllm serve`, or whatever takes its flags.
        flags: of a profile.
        model: the name that it must be served under.
        environment: on top of this process's own.
        log: file that it writes to.

    Attributes:
        address: host:port, from the beginning.
        phases: seconds of the start; empty before it is over.
    """

    def __init__(
        self,
        command: Sequence[str],
        flags: Mapping[str, Any],
        *,
        model: str,
        host: str,
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        self._command, self._flags, self._model = command, engine_flags(flags), model
        self._host, self._environment, self._log = host, environment, log
        # Kept for the engine, which takes half a minute until it listens; who shares an address may listen beside it.
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind((host, 0))
        self._port = int(self._kept.getsockname()[1])
        self.address = f"{host}:{self._port}"
        self.phases: dict[str, float] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._guard: asyncio.subprocess.Process | None = None
        # A connection for each look: one that is kept may be closed by the engine in the very moment of the next.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(
            base_url=f"http://{self.address}", timeout=_ANSWER_S, limits=limits, trust_env=False
        )

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, limit_s: float) -> None:
        """Returns when it has completed something. Raises EngineUnavailableError with the end of its log."""
        image_s = max(0.0, time.time() - psutil.Process().create_time())  # noqa: TID251 - compared with a wall time
        began_s = time.monotonic()
        await self._spawn()
        try:
            async with asyncio.timeout(limit_s):
                await self._answers()
                engine_s = time.monotonic() - began_s
                await self._complete()
        except TimeoutError:
            raise EngineUnavailableError(f"not ready after {limit_s:g} s; its log ends: {self._end_of_log()}") from None
        warm_s = time.monotonic() - began_s - engine_s
        log = await asyncio.to_thread(self._log.read_text, "utf-8", "replace")
        self.phases = start_phases(log, image_s=image_s, engine_s=engine_s, warm_s=warm_s)

    async def _spawn(self) -> None:
        # vLLM takes a profile by its file alone, and by its ending; nobody but this user may read what it says of a store.
        profile = self._log.with_suffix(".yaml")
        profile.touch(0o600)
        profile.write_text(json.dumps(self._flags), "utf-8")  # JSON is YAML
        given = ("--config", str(profile), "--host", self._host, "--port", str(self._port))
        with self._log.open("ab") as log:
            if (
                os.getpgrp() == os.getpid()
            ):  # Ray's workers lead groups of their own; a group that we do not lead is not ours to end
                self._guard = await asyncio.create_subprocess_exec("sh", "-c", _GUARD, stdin=asyncio.subprocess.PIPE)
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    *given,
                    *("--served-model-name", self._model),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self._environment},
                )
            except OSError as error:
                raise EngineUnavailableError(
                    f"{self._command[0]} cannot be started ({error.strerror}); name the program in pool.command"
                ) from error

    async def _answers(self) -> None:
        while True:
            if self._process is not None and self._process.returncode is not None:
                raise EngineUnavailableError(
                    f"{self._command[0]} ended with {self._process.returncode}; its log ends: {self._end_of_log()}"
                )
            with contextlib.suppress(httpx.HTTPError):
                answer = await self._http.get("/v1/models")
                if answer.status_code == 200:
                    names = [one["id"] for one in answer.json()["data"]]
                    if self._model not in names:
                        raise EngineUnavailableError(f"serves {', '.join(names)} and not {self._model}")
                    return
            await asyncio.sleep(_LOOK_S)

    async def _complete(self) -> None:
        body = {"model": self._model, "prompt": [1], "max_tokens": 1, "temperature": 0.0, "cache_salt": "foretype"}
        try:
            answer = await self._http.post("/v1/completions", json=body, timeout=_WARM_S)
        except httpx.HTTPError as error:
            raise EngineUnavailableError(f"does not complete ({type(error).__name__}): {self._end_of_log()}") from error
        if answer.status_code != 200:
            raise EngineUnavailableError(f"answers {answer.status_code} to a completion: {answer.text[:300]}")

    async def ended(self) -> int:
        """Waits for its end; the exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def check(self) -> None:
        """Raises EngineUnavailableError where it is not healthy."""
        if not self.runs:
            raise EngineUnavailableError("the engine is gone")
        try:
            answer = await self._http.get("/health")
        except httpx.HTTPError as error:
            raise EngineUnavailableError(f"the engine does not answer ({type(error).__name__})") from error
        if answer.status_code != 200:
            raise EngineUnavailableError(f"the engine answers {answer.status_code} at /health")

    async def requests(self) -> int:
        """Running and waiting ones. Raises EngineUnavailableError where it does not say."""
        try:
            metrics = read_metrics((await self._http.get("/metrics")).text)
        except (httpx.HTTPError, ValueError) as error:
            raise EngineUnavailableError(f"no figures ({type(error).__name__})") from error
        return metrics.running + metrics.waiting

    async def stop(self) -> None:
        """SIGTERM, and after ten seconds SIGKILL, to it and to what it started."""
        if self._process is not None:
            kin: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):
                kin = psutil.Process(self._process.pid).children(recursive=True)
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._process.wait()
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            for one in kin:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            await self._process.wait()
        if self._guard is not None:
            with contextlib.suppress(ProcessLookupError):
                self._guard.kill()
            await self._guard.wait()
        self._kept.close()
        await self._http.aclose()

    def _end_of_log(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return " | ".join(line.strip() for line in lines[-_TOLD_LINES:] if line.strip())[-1500:] or "(nothing)"


def free_port(host: str) -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


PHASES: Final = ("image", "import", "weights", "load", "compile", "init", "warm")
"""In their order: until the replica's process runs; the engine's own imports and processes; reading weights; building the model around
them; compiling, and capturing graphs; the cache and its trial run; the first completion."""

_SECONDS: Final = {
    "weights": re.compile(r"Loading weights took ([0-9.]+) seconds"),
    "loaded": re.compile(r"Model loading took .* ([0-9.]+) seconds"),
    "compile": re.compile(r"torch\.compile took ([0-9.]+) s in total"),
    "graphs": re.compile(r"Graph capturing finished in ([0-9.]+) secs"),
    "init": re.compile(r"init engine \(.*\) took ([0-9.]+) s"),
}


def start_phases(log: str, *, image_s: float, engine_s: float, warm_s: float) -> dict[str, float]:
    """Seconds by phase.

    Args:
        log: what the engine wrote until it was ready. What it does not speak of takes no time; of several workers the slowest counts.
        image_s: from the start of the replica's process until the engine was spawned.
        engine_s: from there until it answered.
        warm_s: the first completion.
    """
    told = {name: max((float(one) for one in found.findall(log)), default=0.0) for name, found in _SECONDS.items()}
    compile_s = told["compile"] + told["graphs"]
    phases = {
        "image": image_s,
        "weights": told["weights"],
        "load": max(0.0, told["loaded"] - told["weights"]),
        "compile": compile_s,
        "init": max(0.0, told["init"] - compile_s),
        "warm": warm_s,
    }
    inside = sum(phases[name] for name in ("weights", "load", "compile", "init"))
    phases["import"] = max(0.0, engine_s - inside)
    return {name: round(phases[name], 3) for name in PHASES}
