"""Several gateways for one session: measures them, connects to the nearest, and leaves it within a second when it is silent.

Gateways are asked `/readyz` now and then. The one in use is besides asked for a WebSocket pong while somebody types, and only then: a
thousand editors that rest cost nothing. What is decided is decided by :mod:`.nearest`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from foretype_wire.errors import GatewayGoneError
from foretype_wire.tasks import end_tasks

from foretype_client.ports import Clock, Endpoint
from foretype_client.session.connecting import http_base, http_client, without_credentials
from foretype_client.session.nearest import Nearest, Standing
from foretype_client.session.session import Session

_logger = logging.getLogger(__name__)

_TURN_S: Final = 0.4
_PONG_S: Final = 0.5
_LAG_S: Final = 0.25
_TYPING_S: Final = 5.0
_PROBE_TIMEOUT_S: Final = 1.0
_LOST_GRACE_S: Final = 1.0
_NEARER_GRACE_S: Final = 30.0
"""Requests under way may take so long before their gateway is left: one that serves is not left in the middle of an answer."""
_OTHERS_S: Final = 0.05
"""So long the others may take after the first one has answered, before one of those that have is chosen."""


class Regions:
    """Keeps a session on the nearest healthy gateway.

    Args:
        urls: of `/v1/stream`.
        token, token_in_clear: for all of them, since they share one identity store.
    """

    def __init__(self, urls: Sequence[str], token: str | None, token_in_clear: bool, *, clock: Clock) -> None:
        self._endpoints = {url: Endpoint(url, token, token_in_clear) for url in urls}
        self._nearest = Nearest(urls)
        self._clock = clock
        self._given: str | None = None
        self._moving = False
        self._calls = 0
        self._called_s = float("-inf")
        self._probes: dict[str, asyncio.Task[None]] = {}

    @property
    def standings(self) -> list[Standing]:
        return self._nearest.standings()

    async def measure(self) -> list[Standing]:
        """Ask all of them, and wait for the last answer."""
        await asyncio.gather(*(self._probe(url) for url in self._endpoints))
        return self.standings

    async def locate(self) -> Endpoint:
        """Where to connect now; every call but the first says that the last connection has ended.

        Raises:
            GatewayGoneError: none of them answers.
        """
        if self._given is not None and not self._moving:
            self._nearest.lost(self._given, "the connection ended", self._clock())
        self._given, self._moving = None, False
        if not self._nearest.any_healthy:
            await self._first()
        if not self._nearest.any_healthy:
            told = "; ".join(f"{without_credentials(one.url)} {one.why}" for one in self.standings)
            raise GatewayGoneError(f"no gateway answers: {told}")
        self._given = self._nearest.choose(self._clock())
        return self._endpoints[self._given]

    async def watch(self, session: Session) -> None:
        """Measure, and have `session` leave a gateway that is silent or far, until cancelled."""
        try:
            while True:
                begun_s = self._clock()
                if session.connected and self._typing(session, begun_s):
                    await self._pong(session)
                for url in self._nearest.due(self._clock()):
                    self._probe(url)
                better = self._nearest.better(self._clock())
                if better is not None and session.connected and not self._moving:
                    serves = any(one.chosen and one.healthy for one in self.standings)
                    why = "it is nearer" if serves else "the one in use does not serve"
                    _logger.info("moving to %s: %s", without_credentials(better), why)
                    self._moving = True
                    session.move(_NEARER_GRACE_S if serves else _LOST_GRACE_S)
                await asyncio.sleep(max(0.0, _TURN_S - (self._clock() - begun_s)))
        finally:
            await end_tasks(*self._probes.values())

    def _typing(self, session: Session, now_s: float) -> bool:
        calls = session.statistics().calls
        if calls != self._calls:
            self._calls, self._called_s = calls, now_s
        return now_s - self._called_s < _TYPING_S

    async def _pong(self, session: Session) -> None:
        asked_s = self._clock()
        if await session.ping(_PONG_S):
            return
        late_s = self._clock() - asked_s - _PONG_S
        if late_s < _LAG_S and session.connected:  # else it was this process that stood still
            session.abandon("the gateway is silent")

    async def _first(self) -> None:
        """Ask all of them; back when one has answered, and those that are as near."""
        pending = {self._probe(url) for url in self._endpoints}
        while pending and not self._nearest.any_healthy:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if pending:
            await asyncio.wait(pending, timeout=_OTHERS_S)

    def _probe(self, url: str) -> asyncio.Task[None]:
        running = self._probes.get(url)
        if running is None or running.done():
            running = asyncio.get_running_loop().create_task(self._ask(url), name="foretype gateway probe")
            self._probes[url] = running
        return running

    async def _ask(self, url: str) -> None:
        why = await self._unready(url)
        if why and url == self._given:  # it serves us: one answer that is late proves nothing
            why = await self._unready(url)
        if why:
            self._nearest.lost(url, why, self._clock())

    async def _unready(self, url: str) -> str:
        """Why a gateway does not serve; "" where it does, and it is noted how far it is. It is shown no credential."""
        import httpx  # an editor with one gateway does without it

        ready = f"{without_credentials(http_base(url))}/readyz"
        try:
            async with http_client(url, _PROBE_TIMEOUT_S) as http:
                await http.get(ready)  # pays for the connection
                asked_s = self._clock()
                answer = await http.get(ready)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return f"cannot be reached ({type(error).__name__})"
        if answer.status_code != 200:
            return f"is not ready (answers {answer.status_code})"
        self._nearest.answered(url, (self._clock() - asked_s) * 1e3, self._clock())
        return ""
