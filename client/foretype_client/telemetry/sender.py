"""The shell of the client's telemetry: a timer, the disk and the connection around pure parts.

Nothing here is waited for by a suggestion: events gather in memory, the disk is used in a thread, and a gateway that
acknowledges nothing costs a bounded number of files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from foretype_context.folder.git import repository_at
from foretype_context.folder.small_files import read_small
from foretype_context.text.uris import path_of_uri
from foretype_wire.telemetry import Event, Sample

from foretype_client.telemetry.outbox import Outbox, OutboxStatistics
from foretype_client.telemetry.recorder import Recorder
from foretype_client.telemetry.spool import Spool
from foretype_client.telemetry.survival import Due, measure

if TYPE_CHECKING:
    from foretype_client.session.session import Session

_log = logging.getLogger(__name__)

TICK_S: Final = 1.0
REST_S: Final = 30.0
"""Between turns at which there is nothing to do: an idle process wakes for each."""
_BATCH_EVENTS: Final = 200
_BATCH_AGE_S: Final = 5.0
_LEFT_BEHIND_S: Final = 120.0
_LOOK_S: Final = 60.0
_MEMORY_BATCHES: Final = 20
_HEAD_BYTES: Final = 4_096


class Telemetry:
    """Sends what a recorder recorded.

    Args:
        wall_ms: Unix milliseconds.
        head_of: identity of the branch that is checked out around a uri; blocking, called in a thread.
        woken: set where a recorder at rest has something again, or a connection came or went.
    """

    def __init__(
        self,
        recorder: Recorder,
        connection: Session,
        spool: Spool,
        *,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        head_of: Callable[[str], str],
        woken: asyncio.Event,
    ) -> None:
        self.recorder = recorder
        self._connection = connection
        self._spool = spool
        self._clock = clock
        self._wall_ms = wall_ms
        self._head_of = head_of
        self._woken = woken
        self._outbox = Outbox()
        self._pending: list[Event] = []
        self._since_s: float | None = None
        self._count = 0
        self._memory: dict[str, list[dict[str, object]]] = {}  # whole, with the samples, which never go to the disk
        self._heads: dict[str, str] = {}
        self._to_remove: list[str] = []
        self._look_s = 0.0
        self._connected = False
        self._disk_fault = ""

    def statistics(self) -> OutboxStatistics:
        return self._outbox.statistics()

    def acknowledged(self, batch: str) -> None:
        """The gateway has committed `batch`."""
        if self._outbox.acknowledged(batch):
            self._memory.pop(batch, None)
            self._to_remove.append(batch)

    async def run(self) -> None:
        """Work until cancelled. A fault ends telemetry, never anything else."""
        while True:
            self._woken.clear()
            await self.tick()
            if self._at_rest():
                with suppress(TimeoutError):
                    async with asyncio.timeout(REST_S):
                        await self._woken.wait()
            else:
                await asyncio.sleep(TICK_S)

    def _at_rest(self) -> bool:
        """Whether the next turn would find nothing, unless it is woken for."""
        left = self._pending or self._to_remove or len(self._outbox)
        return not left and self.recorder.at_rest and self._connection.connected == self._connected

    async def tick(self) -> None:
        """One turn: measure what is due, batch, keep, send."""
        now = self._clock()
        self.recorder.set_wall(self._wall_ms())
        await self._measure()
        await self._batch(now, everything=False)
        if self._connected and not self._connection.connected:
            self._outbox.lost()
        self._connected = self._connection.connected
        self.recorder.texts = self._connection.store_text
        await self._clean()
        if self._connected:
            await self._adopt(now)
            await self._send(now)

    async def close(self) -> None:
        """Keep what is left for the next process."""
        await self._measure()
        await self._batch(self._clock(), everything=True)
        await self._clean()

    async def _measure(self) -> None:
        """Accepted texts whose age has come; comparing them and asking for the branch is a thread's work."""
        for graft in self.recorder.unseen():
            self._heads[graft.id] = await asyncio.to_thread(self._head_of, graft.uri)
        due = self.recorder.due()
        if not due:
            return
        measured = await asyncio.to_thread(lambda: [measure(one) for one in due])
        uris = {one.graft.uri for one in due}
        heads = await asyncio.to_thread(lambda: {uri: self._head_of(uri) for uri in uris})

        def branch_changed(one: Due) -> bool:
            return self._heads.get(one.graft.id, heads[one.graft.uri]) != heads[one.graft.uri]

        self.recorder.survived(measured, branch_changed=branch_changed)
        live = self.recorder.survival.ids()
        self._heads = {id: head for id, head in self._heads.items() if id in live}

    async def _batch(self, now: float, *, everything: bool) -> None:
        self._pending += self.recorder.take(everything=everything)
        if self._pending and self._since_s is None:
            self._since_s = now
        while self._pending:
            old = self._since_s is not None and now - self._since_s >= _BATCH_AGE_S
            if not everything and not old and len(self._pending) < _BATCH_EVENTS:
                return
            events, self._pending = self._pending[:_BATCH_EVENTS], self._pending[_BATCH_EVENTS:]
            await self._keep(events)
        self._since_s = None

    async def _keep(self, events: list[Event]) -> None:
        """Onto the disk before it is sent; where the disk refuses, in memory."""
        self._count += 1
        name = f"{self.recorder.session}-{self._count}"
        whole = [_builtins(event) for event in events]
        plain = [_builtins(event) for event in events if not isinstance(event, Sample)]
        try:
            if plain:
                await asyncio.to_thread(self._spool.write, name, msgspec.msgpack.encode(plain))
            in_memory = len(plain) < len(whole)
        except asyncio.CancelledError:  # perhaps before the thread began; who takes events takes each of them once
            self._pending = [*events, *self._pending]
            raise
        except OSError as error:
            in_memory = True
            if str(error) != self._disk_fault:
                self._disk_fault = str(error)
                _log.warning("telemetry cannot be kept on disk: %s", error)
        if in_memory:
            self._memory[name] = whole
            while len(self._memory) > _MEMORY_BATCHES:
                self._memory.pop(next(iter(self._memory)))
        self._to_remove += self._outbox.put(name)

    async def _clean(self) -> None:
        names, self._to_remove = self._to_remove, []
        if names:
            await asyncio.to_thread(lambda: [self._spool.remove(name) for name in names])

    async def _adopt(self, now: float) -> None:
        """What other processes left behind is ours to send."""
        if now < self._look_s:
            return
        self._look_s = now + _LOOK_S
        wall_s = self._wall_ms() / 1000
        names = await asyncio.to_thread(lambda: self._spool.left_behind(older_than_s=_LEFT_BEHIND_S, wall_s=wall_s))
        for name in names:
            if name not in self._outbox:
                self._to_remove += self._outbox.put(name)

    async def _send(self, now: float) -> None:
        for name in self._outbox.to_send(now):
            events = self._memory.get(name) or await asyncio.to_thread(self._read, name)
            if not events:
                self._outbox.forget(name)
                self._to_remove.append(name)
                continue
            try:
                if not self._connection.feedback(name, events):
                    self._outbox.lost()
                    return
            except (TypeError, ValueError) as error:
                _log.warning("a batch of telemetry cannot be sent: %s", type(error).__name__)
                self._outbox.forget(name)
                self._memory.pop(name, None)
                self._to_remove.append(name)

    def _read(self, name: str) -> list[dict[str, object]] | None:
        content = self._spool.read(name)
        if content is None:
            return None
        try:
            return msgspec.msgpack.decode(content, type=list[dict[str, object]])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None


def _builtins(event: Event) -> dict[str, object]:
    return msgspec.to_builtins(event)


def head_of(uri: str) -> str:
    """What `HEAD` of the repository around a `file:` uri says: the branch, or the commit of a detached one; else ""."""
    path = path_of_uri(uri)
    if path is None:
        return ""
    found = repository_at(path.parent)
    try:
        return (
            "" if found is None else read_small(found.git_dir / "HEAD", _HEAD_BYTES, links=True).decode("utf-8").strip()
        )
    except (OSError, UnicodeDecodeError):
        return ""
