"""The task that takes usage from the meter to the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from foretype_wire.redaction import log_fault
from foretype_wire.tasks import end_tasks

from foretype_backend.admission.metering import Meter
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.usage_journal import UsageJournal

_log = logging.getLogger("foretype.gateway")
_EVERY_S: Final = 2.0
_ANSWER_S: Final = 5.0


class UsageWriter:
    """Stores what the meter has, every two seconds. While the store is away it adds up in memory; nothing waits for it.

    Args:
        gateway: unique to this process and start.
        journal: keeps what is not stored yet, and finds what processes left that were killed; closed with the writer.
    """

    def __init__(
        self,
        meter: Meter,
        store: IdentityStore,
        *,
        gateway: str,
        wall_ms: Callable[[], int],
        every_s: float = _EVERY_S,
        journal: UsageJournal | None = None,
    ) -> None:
        self._journal = meter.journal = journal
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
        """Store what is left; what cannot be stored within five seconds stays in the journal, or is lost and logged as lost."""
        await end_tasks(self._task)
        while self._meter.batch() is not None:
            if not await self.flush():
                what = "is lost" if self._journal is None else "waits in the state directory for the next start"
                _log.error("usage that was not stored %s: %r", what, self._meter)
                break
        if self._journal is not None:
            self._journal.close()
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

    async def recover(self) -> bool:
        """Store what killed processes left; False where the store did not take it, which leaves it there."""
        if self._journal is None:
            return True
        try:
            for left in self._journal.leftovers(self._wall_ms()):
                async with asyncio.timeout(_ANSWER_S):
                    await self._store.add_usage(left.gateway, left.seq, list(left.rows.items()), self._wall_ms())
                left.path.unlink(missing_ok=True)
        except Exception as error:  # noqa: BLE001 - as above
            log_fault(_log, "usage of a process that was killed is not stored yet; it is kept", error)
            return False
        return True

    async def _run(self) -> None:
        recovered = await self.recover()
        while True:
            await asyncio.sleep(self._every_s)
            recovered = recovered or await self.recover()
            await self.flush()
