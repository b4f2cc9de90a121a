"""What was retired and purged, on its way to the tiers of other hosts: a Redis stream, written beside the completions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from foretype_wire.tasks import end_tasks

from foretype_backend.prefix.retire_feed import STREAM, STREAM_LENGTH, PurgeNotice, RetireNotice, encode

_BATCH: Final = 500
_PAUSE_S: Final = 1.0
_log = logging.getLogger("foretype.pool")


class SenderStatistics(NamedTuple):
    sent: int
    waiting: int
    dropped: int


class RetireSender:
    """Sends in the background; while Redis is away the newest messages wait, since a lost one only costs room.

    A purge is never dropped for a retired range: it goes first.

    Args:
        client: a `redis.asyncio.Redis`; closed with the sender.
        secret: what messages are authenticated with.
    """

    def __init__(self, client: Any, secret: bytes, *, capacity: int = STREAM_LENGTH) -> None:
        self._client = client
        self._secret = secret
        self._capacity = capacity
        self._purges: deque[PurgeNotice] = deque()
        self._retired: deque[RetireNotice] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sent = self._dropped = 0

    @classmethod
    def to(cls, url: str, secret: bytes) -> RetireSender:
        import redis.asyncio

        pool = redis.asyncio.ConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, socket_timeout=2.0, socket_connect_timeout=2.0
        )
        return cls(redis.asyncio.Redis.from_pool(pool), secret)

    def tell(self, messages: Iterable[RetireNotice | PurgeNotice]) -> None:
        """Never blocks. Call from the event loop."""
        for message in messages:
            if isinstance(message, PurgeNotice):
                self._purges.append(message)
            else:
                self._retired.append(message)
        while len(self._retired) > self._capacity:
            self._retired.popleft()
            self._dropped += 1
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="retire sender")

    async def close(self) -> None:
        await end_tasks(self._task)
        await self._client.aclose()

    def statistics(self) -> SenderStatistics:
        return SenderStatistics(self._sent, len(self._purges) + len(self._retired), self._dropped)

    async def _run(self) -> None:
        import redis

        away = False
        while True:
            await self._wake.wait()
            queue: deque[Any] = self._purges or self._retired
            batch = [queue[at] for at in range(min(_BATCH, len(queue)))]
            if not batch:
                self._wake.clear()
                continue
            try:
                pipeline = self._client.pipeline(transaction=False)
                for message in batch:
                    pipeline.xadd(STREAM, encode(message, self._secret), maxlen=STREAM_LENGTH, approximate=True)
                await pipeline.execute()
            except (redis.RedisError, OSError) as error:
                if not away:
                    _log.warning("retired ranges wait: %s", error)
                away = True
                await asyncio.sleep(_PAUSE_S)
                continue
            away = False
            for message in batch:
                if queue and queue[0] is message:  # else it was dropped meanwhile
                    queue.popleft()
            self._sent += len(batch)
