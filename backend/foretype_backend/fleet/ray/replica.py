"""A replica under Ray Serve: one engine, announced while it lives, drained before it goes. No request of a client passes through it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import ray
from ray import serve as ray_serve

from foretype_backend.errors import EngineUnavailableError
from foretype_backend.fleet.ray.engine_process import EngineProcess
from foretype_backend.fleet.ray.register import GONE, HEARTBEAT_S, ReplicaAnnouncement
from foretype_backend.fleet.ray.serve_config import DIRECTORY

serve: Final[Any] = ray_serve  # it tells half of its types
_TOLD_S: Final = 2.0
"""How long the directory may take for a heartbeat."""
_HEARD_S: Final = 10.0
"""How long who drains waits for a directory that does not hear it."""
_UNLISTED_S: Final = 3.0
"""From the moment that the directory knows of `draining` until every gateway does: they ask each second, and a slow one twice."""
_LOOK_S: Final = 0.25
_QUIET_LOOKS: Final = 4


class FleetReplica:
    """See the module.

    Args:
        labels: what is announced of it.
        command, flags, environment: of its engine.
        host: that it listens on; its node's address where it is None.
        start_s, drain_s: how long its start, and its last requests, may take.
    """

    async def __init__(
        self,
        labels: Mapping[str, str],
        command: Sequence[str],
        flags: Mapping[str, Any],
        environment: Mapping[str, str],
        host: str | None,
        start_s: float,
        drain_s: float,
    ) -> None:
        context = serve.get_replica_context()
        self._drain_s = drain_s
        self._state = "starting"
        self._labels = dict(labels)
        self._name = context.replica_id.unique_id
        self._application = context.app_name
        self._directory: Any = None
        self._memory: dict[str, Any] = {}
        self._now = asyncio.Event()
        self._goes = asyncio.Event()
        self._engine = EngineProcess(
            command,
            flags,
            model=labels["model"],
            host=host or str(ray.util.get_node_ip_address()),  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            environment=environment,
            log=_log_folder() / f"foretype-{context.app_name}-{self._name}.log",
        )
        self._beat = asyncio.create_task(self._announce(), name="heartbeat")
        try:
            await self._engine.start(start_s)
        except EngineUnavailableError as error:
            await self._leave()
            raise RuntimeError(f"{labels['model']} cannot be served: {error}") from error
        self._state = "ready"
        self._now.set()
        self._watch = asyncio.create_task(self._end_with_the_engine(), name="engine's end")

    # What Serve asks

    async def ping(self) -> None:
        """Asked once by the directory, whose request router then hears of all replicas."""

    def record_replica_metadata(self) -> dict[str, Any]:
        """What Ray pushes of it when it runs."""
        return msgspec.to_builtins(self._said())

    async def check_health(self) -> None:
        if self._state != "draining":
            await self._engine.check()

    async def __del__(self) -> None:
        """Serve's way to end it: drained by us, since Serve sees none of its requests."""
        if self._state == "ready":
            self._state = "draining"
            self._now.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._drain_s):
                    await self._is_unlisted()
                    await self._is_quiet()
        await self._leave()

    # Life

    async def _is_unlisted(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_S):
                await self._goes.wait()
        await asyncio.sleep(_UNLISTED_S)

    async def _is_quiet(self) -> None:
        quiet = 0
        while quiet < _QUIET_LOOKS:
            try:
                quiet = quiet + 1 if await self._engine.requests() == 0 else 0
            except EngineUnavailableError:
                quiet = 0  # busy, perhaps: only an engine that is gone has no requests for certain
                if not self._engine.runs:
                    return
            await asyncio.sleep(_LOOK_S)

    async def _leave(self) -> None:
        if (watch := getattr(self, "_watch", None)) is not None:
            watch.cancel()
        self._beat.cancel()
        await self._engine.stop()
        self._state = GONE
        with contextlib.suppress(Exception):
            await self._tell()

    async def _end_with_the_engine(self) -> None:
        """An engine that died takes its replica along at once: Ray starts another, and ends what is left of the group."""
        await self._engine.ended()
        self._state = GONE
        with contextlib.suppress(Exception):
            await self._tell()
        os._exit(1)

    async def _announce(self) -> None:
        while True:
            self._now.clear()
            with contextlib.suppress(Exception):  # a directory that is away is told again
                await self._tell()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._now.wait()

    async def _tell(self) -> None:
        if self._directory is None:
            self._directory = serve.get_deployment_handle(DIRECTORY, DIRECTORY)
        async with asyncio.timeout(_TOLD_S):
            said = self._said()
            self._memory = await self._directory.announce.remote(msgspec.to_builtins(said), self._memory)
        if said.state == "draining":
            self._goes.set()

    def _said(self) -> ReplicaAnnouncement:
        return ReplicaAnnouncement(
            replica=self._name,
            application=self._application,
            address=self._engine.address,
            state=self._state,
            labels=self._labels,
            phases=self._engine.phases,
            pid=os.getpid(),
            engine_pid=self._engine.pid,
        )


def _log_folder() -> Path:
    """That of this worker's own output, which Ray's dashboard shows; else the system's for temporary files."""
    with contextlib.suppress(OSError):
        own = Path(os.readlink("/proc/self/fd/1"))
        if own.is_absolute() and own.parent.name == "logs":
            return own.parent
    return Path(tempfile.gettempdir())
