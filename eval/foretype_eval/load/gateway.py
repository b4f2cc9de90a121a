"""The gateway under load: a scripted one on a core of its own, or one that somebody names."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil
from foretype_client.ports import Endpoint
from foretype_client.private_gateway.finding import find_gateway
from foretype_wire.errors import GatewayGoneError

from foretype_eval.gateway import GatewayOptions, private_gateway, stop_gateway
from foretype_eval.latency.requests import engine_counters

_START_S: Final = 60.0
_REQUESTS: Final = ("running", "waiting", "engine_running", "engine_waiting")
BLOCK_TOKENS: Final = 256
"""Of the scripted engine's cache: coarse, because hashing blocks is the engine's work and not the gateway's."""
_PROFILE = """\
[engine]
name = "scripted"
[engine.options]
decode_s_per_token = {frame_s}
tokens_per_chunk = 1
slots = {slots}
cache_blocks = 65536
block_tokens = {block}
abort_log = {abort_log}
[limits]
max_running = {slots}
max_waiting = {waiting}
{more}
"""


def _profile(*, frame_ms: float, slots: int, waiting: int, abort_log: Path, more: str = "") -> str:
    return _PROFILE.format(
        block=BLOCK_TOKENS,
        frame_s=frame_ms / 1000,
        slots=slots,
        waiting=waiting,
        abort_log=msgspec.json.encode(str(abort_log)).decode(),
        more=more,
    )


class GatewayUnderLoad(NamedTuple):
    """Where to send, the process to watch, and where its scripted engine notes aborts; None where it is not ours.

    With `workers` its children are the gateway's workers, and what they use is the gateway's.
    """

    endpoint: Endpoint
    process: psutil.Process | None
    abort_log: Path | None = None
    workers: bool = False

    def cpu_s(self) -> float | None:
        if self.process is None:
            return None
        watched = [self.process, *(self.process.children(recursive=True) if self.workers else ())]
        return sum(times.user + times.system for times in (process.cpu_times() for process in watched))

    def resident_bytes(self) -> int | None:
        return None if self.process is None else int(self.process.memory_info().rss)

    async def left(self, *more: str, patience_s: float, staying: int = 0) -> dict[str, int]:
        """Requests that it still holds by its own count, once it has had time to notice that those who asked have left.

        Args:
            more: of its other counts, those that have to be at nothing too.
            staying: so many `connections` are to be there.
        """
        deadline = time.monotonic() + patience_s
        while True:
            counters = await engine_counters(self.endpoint)
            held = {name: int(counters.get(f"foretype_{name}", 0)) for name in (*_REQUESTS, *more)}
            if staying:
                held["connections"] = max(0, held["connections"] - staying)
            if not any(held.values()) or time.monotonic() > deadline:
                return held
            await asyncio.sleep(0.1)


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextlib.contextmanager
def pinned(core: int | None) -> Generator[None]:
    """This process on one core; on all of before afterwards."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.asynccontextmanager
async def target(
    options: GatewayOptions, *, frame_ms: float, slots: int, core: int | None, waiting: int = 4096
) -> AsyncGenerator[GatewayUnderLoad]:
    """A running gateway: the one named by `options.url`, or a private one whose engine sends a frame each `frame_ms`.

    Args:
        waiting: of the private one: requests that may wait.

    Raises:
        GatewayStartError: with its last words.
    """
    if options.url is not None:
        yield GatewayUnderLoad(Endpoint(options.url, options.token, options.token_in_clear), None)
        return
    with tempfile.TemporaryDirectory(prefix="foretype-load-") as folder:
        state_dir, abort_log = Path(folder), None
        if options.engine in (None, "scripted") and options.profile is None:
            profile = state_dir / "scripted.toml"
            abort_log = state_dir / "aborts"
            profile.write_text(_profile(frame_ms=frame_ms, slots=slots, waiting=waiting, abort_log=abort_log))
            options = GatewayOptions(profile=profile)
        async with private_gateway(options, state_dir=state_dir) as endpoint:
            record = await find_gateway(state_dir)
            process = None if record is None else psutil.Process(record.pid)
            if process is not None and core is not None:
                for thread in process.threads():
                    os.sched_setaffinity(thread.id, {core})
            yield GatewayUnderLoad(endpoint, process, abort_log)


@contextlib.asynccontextmanager
async def team_target(
    *, frame_ms: float, slots: int, core: int | None, waiting: int, more: str = "", workers: int = 1
) -> AsyncGenerator[GatewayUnderLoad]:
    """A gateway as a team runs it, on loopback: it takes identities and worker processes, which a private one does not.

    Args:
        waiting, more: requests that may wait, and more sections of the configuration.
        workers: processes; with several of them `core` is left alone.

    Raises:
        GatewayGoneError: it did not start; its last words are on standard error.
    """
    with tempfile.TemporaryDirectory(prefix="foretype-load-") as name:
        folder, token = Path(name), secrets.token_hex(16)
        profile, token_file = folder / "team.toml", folder / "token"
        abort_log = folder / "aborts"
        profile.write_text(_profile(frame_ms=frame_ms, slots=slots, waiting=waiting, abort_log=abort_log, more=more))
        token_file.write_text(token)
        arguments = (
            "serve",
            "--profile",
            str(profile),
            "--port",
            "0",
            "--token-file",
            str(token_file),
            "--no-telemetry",
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "foretype_backend",
            *arguments,
            "--workers",
            str(workers),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(_START_S):
                line = (await process.stdout.readline()).decode()
            if not line.startswith("ready "):
                raise GatewayGoneError("the team's gateway did not start")
            if core is not None and workers == 1:
                for thread in psutil.Process(process.pid).threads():
                    os.sched_setaffinity(thread.id, {core})
            url = line.split()[1].replace("http", "ws", 1) + "/v1/stream"
            yield GatewayUnderLoad(Endpoint(url, token), psutil.Process(process.pid), abort_log, workers > 1)
        finally:
            if process.returncode is None:
                await stop_gateway(process.pid, signal.SIGINT)
            await process.wait()
