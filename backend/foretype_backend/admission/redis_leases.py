"""The shell of `leases`: a ledger in Redis, asked in the background. A request waits for it only where it would be refused else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from foretype_wire.tasks import end_tasks
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from foretype_backend.admission.leases import LeaseRequest, Leases
from foretype_backend.admission.limits import Denied

_log = logging.getLogger("foretype.gateway")

_ANSWER_S: Final = 0.25
_REACH_S: Final = 3 * _ANSWER_S
"""To connect, to log in and to answer."""
_PREFIX: Final = "foretype:budget:"

_TAKE: Final = """
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1e6
local rate, burst, want, owed = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local kept = redis.call('HMGET', KEYS[1], 'level', 'at')
local level, at = tonumber(kept[1]) or burst, tonumber(kept[2]) or now
level = level + math.max(0, now - at) * rate - owed
level = math.max(-burst, math.min(burst, level))
local grant = want
if want > 0 then grant = math.max(0, math.min(want, level)) end
level = math.min(burst, level - grant)
redis.call('HSET', KEYS[1], 'level', level, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(60, 2 * burst / rate) * 1000))
return tostring(grant)
"""
"""A bucket on the server's own clock: gateways whose clocks differ share it all the same.

Numbers are given to a command as they are: it writes 17 digits, `tostring` 14, which ends a time at a tenth of a millisecond.

What is owed is taken off what filled meanwhile, before the bucket is cut to its burst, and a debt is no deeper than one burst: a
server that lost its memory must not lock anybody out.
"""


class RedisLeases:
    """Renews leases every half slice.

    Args:
        clock: monotonic seconds, the one that `leases` was made with.
    """

    def __init__(self, url: str, leases: Leases, *, slice_s: float, clock: Callable[[], float]) -> None:
        self.leases = leases
        self._every_s = slice_s / 2
        self._clock = clock
        # Nothing is asked that need not be: Redis may be in another region, a fifth of a second away.
        self._redis: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            socket_timeout=_ANSWER_S,
            socket_connect_timeout=_ANSWER_S,
            protocol=2,
            driver_info=None,
            retry=Retry(NoBackoff(), 0),
        )
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self._waited_for = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def away_s(self) -> float:
        """Seconds since the ledger answered; zero while it does, and while nothing is asked of it."""
        return self.leases.statistics(self._clock()).away_s if self._failing else 0.0

    def may_have(self, denied: Denied) -> bool:
        return self.leases.may_have(denied)

    async def more(self, denied: Denied) -> bool:
        """Ask at once for what a request lacks; returns when there was an answer, or none in time.

        Returns:
            whether it was asked: not where it is known to have no more.
        """
        if self._task is None or self._task.done() or not self.leases.may_have(denied):
            return False
        self.leases.want(denied)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self._waited_for.set()
        await answered
        return True

    async def close(self) -> None:
        await end_tasks(self._task)
        _tell(self._waiting)
        await self._redis.aclose()

    async def renew(self) -> bool:
        """Ask once; False when Redis did not answer, or refused."""
        asks = self.leases.asks(self._clock())
        if not asks:
            self._failing = False
            self.leases.idle(self._clock())
            return True
        try:
            async with asyncio.timeout(_REACH_S):
                grants = await self._ask(asks)
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            if not self._failing:
                _log.warning("the ledger of budgets does not answer (%s); the last leases go on", type(error).__name__)
            self._failing = True
            self.leases.away(asks, self._clock())
            return False
        self._failing = False
        self.leases.answered(asks, grants, self._clock())
        return True

    async def _ask(self, asks: Sequence[LeaseRequest]) -> dict[str, float]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for ask in asks:
                await pipe.eval(_TAKE, 1, _PREFIX + ask.name, *ask[1:])
            answers: list[bytes] = await pipe.execute()
        return {ask.name: float(answer) for ask, answer in zip(asks, answers, strict=True)}

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            self._waited_for.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self.renew()
            finally:
                _tell(waiting)
            await self._rest(max(0.0, self._every_s - (loop.time() - began_s)))

    async def _rest(self, seconds: float) -> None:
        """Until the next slice, or until somebody waits."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._waited_for.wait()


def _tell(waiting: Sequence[asyncio.Future[None]]) -> None:
    for one in waiting:
        if not one.done():  # its request may be gone
            one.set_result(None)
