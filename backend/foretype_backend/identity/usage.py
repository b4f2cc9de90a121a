"""The task that takes usage from the meter to the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from foretype_client.faults import log_fault

from foretype_backend.admission.metering import Meter
from foretype_backend.identity.store import IdentityStore

__all__ = ["UsageWriter"]

_log = logging.getLogger("foretype.gateway")
_EVERY_S: Final = 2.0
_ANSWER_S: Final = 5.0


class UsageWriter:
    """Stores what the meter has, every two seconds. While the store is away it adds up in memory; nothing waits for it.

    Args:
        gateway: unique to this process and start.
    """

    def __init__(
        self, meter: Meter, store: IdentityStore, *, gateway: str, wall_ms: Callable[[], int], every_s: float = _EVERY_S
    ) -> None:
        self._meter = meter
        self._store = store
        self._gateway = gateway
        self._wall_ms = wall_ms
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Store what is left; what cannot be stored within five seconds is lost, and logged as lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while self._meter.batch() is not None:
            if not await self.flush():
                _log.error("usage that was not stored is lost: %r", self._meter)
                break
        await self._store.close()

    async def flush(self) -> bool:
        """Store one batch; False when the store did not take it, which keeps it."""
        batch = self._meter.batch()
        if batch is None:
            return True
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._store.add_usage(self._gateway, batch.seq, list(batch.rows.items()), self._wall_ms())
        except Exception as error:  # noqa: BLE001 - whatever a driver raises, the batch stays and is sent again
            if not self._failing:  # once, not every two seconds of an outage
                log_fault(_log, "usage is not stored; it is kept", error)
            self._failing = True
            return False
        self._failing = False
        self._meter.stored(batch.seq)
        return True

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.flush()
