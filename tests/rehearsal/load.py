"""Work on a gateway while something is done to it: completions over HTTP, and senders of events who count what was acknowledged."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from foretype_wire.messages import Ack, Feedback, GatewayMessage, Hello
from foretype_wire.telemetry import Typing
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from rehearsal.http import completion
from rehearsal.steps import LIMIT_S, check, told
from rehearsal.stories import memory
from rehearsal.team import Team

__all__ = ["Load", "under_load"]

_ASKING, _SENDERS, _BATCH, _AGAIN_S = 4, 2, 5, 4.0
_NOBODY: Final = 0
"""In place of a status where nobody answered."""


@dataclass
class Sender:
    """One session's events: a batch is sent again until it is acknowledged, as clients do."""

    url: str
    key: str
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    sent: int = 0
    acked: set[int] = field(default_factory=set[int])
    refused: int = 0
    waiting: dict[int, float] = field(default_factory=dict[int, float])

    async def work(self, ended: asyncio.Event) -> None:
        """Until `ended` and nothing waits any more."""
        while self.waiting or not ended.is_set():
            try:
                headers = {"Authorization": f"Bearer {self.key}"}
                address = self.url.replace("http", "ws", 1) + "/v1/stream"
                async with connect(address, additional_headers=headers, proxy=None, open_timeout=10) as socket:
                    await socket.send(msgspec.msgpack.encode(Hello(v=1, client="rehearsal")))
                    self.waiting = dict.fromkeys(self.waiting, 0.0)
                    await self._connected(socket, ended)
            except (WebSocketException, OSError):
                await asyncio.sleep(0.3)

    async def _connected(self, socket: ClientConnection, ended: asyncio.Event) -> None:
        while self.waiting or not ended.is_set():
            if not ended.is_set():
                self.waiting[self.sent] = 0.0
                self.sent += 1
            for batch, since in list(self.waiting.items()):
                if time.monotonic() - since > _AGAIN_S:
                    self.waiting[batch] = time.monotonic()
                    events = [self._event(batch * _BATCH + at) for at in range(_BATCH)]
                    await socket.send(msgspec.msgpack.encode(Feedback(batch=str(batch), events=events)))
            ends = time.monotonic() + 0.2
            while (left := ends - time.monotonic()) > 0:
                try:
                    data = await asyncio.wait_for(socket.recv(decode=False), left)
                except TimeoutError:
                    break
                message = msgspec.msgpack.decode(bytes(data), type=GatewayMessage)
                if isinstance(message, Ack) and self.waiting.pop(int(message.batch), None) is not None:
                    self.acked.add(int(message.batch))
                    self.refused += message.refused

    def _event(self, seq: int) -> dict[str, Any]:
        event = Typing(
            session=self.session,
            seq=seq,
            t_ms=time.time_ns() // 1_000_000,
            at_ms=seq * 190.0,
            language="python",
            keys=3,
            deletions=0,
        )
        made: dict[str, Any] = msgspec.to_builtins(event)
        return made


class Load:
    """Attributes:
    said: completions by their status.
    memory_mb: of the gateway, when everything flows again.
    """

    def __init__(self, url: str, key: str) -> None:
        self.said: Counter[int] = Counter()
        self.slowest_s = self.memory_mb = 0.0
        self.senders = [Sender(url, key) for _ in range(_SENDERS)]
        self._url, self._key, self._heard = url, key, asyncio.Condition()

    async def asks(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            began = time.monotonic()
            try:
                status, _ = await asyncio.to_thread(completion, self._url, self._key)
            except OSError:
                status = _NOBODY
            self.said[status] += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            async with self._heard:
                self._heard.notify_all()
            await asyncio.sleep(0.05)

    @property
    def acked(self) -> int:
        return sum(len(sender.acked) for sender in self.senders)

    async def flows(self) -> None:
        """Everything is answered and acknowledged now."""
        answered, acked = self.said[200], self.acked
        async with asyncio.timeout(LIMIT_S):
            async with self._heard:
                await self._heard.wait_for(lambda: self.said[200] >= answered + 20 and self.acked >= acked + 6)


async def _loaded(team: Team, key: str, work: Callable[[Load], None]) -> Load:
    ended = asyncio.Event()
    load = Load(team.url, key)
    async with asyncio.TaskGroup() as group:
        try:
            for sender in load.senders:
                group.create_task(sender.work(ended))
            for _ in range(_ASKING):
                group.create_task(load.asks(ended))
            await load.flows()
            await asyncio.to_thread(work, load)
            await load.flows()
            load.memory_mb = await asyncio.to_thread(memory, team, "gateway")
        finally:
            ended.set()
    return load


def under_load(team: Team, key: str, work: Callable[[Load], None]) -> Load:
    """Does `work` beside the load, which must flow before and after. Every acknowledged event must be in PostgreSQL, once."""
    load = asyncio.run(_loaded(team, key, work))
    for sender in load.senders:
        rows = [int(row) for row in team.sql(f"select seq from events where session = '{sender.session}'")]
        wanted = {batch * _BATCH + at for batch in sender.acked for at in range(_BATCH)}
        check(sender.refused == 0, f"{sender.refused} events were refused")
        check(wanted <= set(rows), f"{len(wanted - set(rows))} of {len(wanted)} acknowledged events are lost")
        check(len(rows) == len(set(rows)), f"{len(rows) - len(set(rows))} events are stored twice")
    bad = {status: count for status, count in load.said.items() if status != 200}
    told(
        f"     {load.said[200]} completions, others by status {bad or 'none'} (0: nobody answered), the slowest {load.slowest_s:.1f} s; "
        f"{load.acked * _BATCH} events acknowledged, all stored once; {load.memory_mb:.0f} MB"
    )
    return load
