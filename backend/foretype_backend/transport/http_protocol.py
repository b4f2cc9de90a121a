"""HTTP/1.1 parsed in C, with bounds on heads and connections, and streamed answers without the detour through ASGI.

Neither uvicorn's protocol of this kind nor its library bounds a head, in size or in time; a connection that never says anything stays
open for ever. Here it has :attr:`Connections.idle_s`, and beyond :attr:`Connections.most` the one that has been silent longest makes room. ASGI takes a coroutine for every piece of a body, and somebody who
waits for the next one: a task and a queue between an engine's callback and the socket. The scope of a POST offers the extension
:data:`EXTENSION` instead, see :class:`BodyChannel`. All else is uvicorn's own.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any, Final, TypeVar, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

HEAD_MAX_BYTES: Final = 64 * 1024
"""Of the request line and all headers; more is answered with 400, and the connection ends."""
EXTENSION: Final = "foretype.body"
_TIMER_S: Final = 0.001
"""What a timer of the event loop may come too early."""
_PIPELINED_MAX: Final = 16
"""Requests of one connection that wait for the answer to the one before."""

_T = TypeVar("_T")


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True, eq=False)
class Connections:
    """HTTP connections of one server.

    Attributes:
        most: that may be open.
        idle_s: that one may be open without a request, or with one whose head does not end.
        open: all of them.
        idle: those without a request under way, and since when by the loop's clock, longest ago first.
        clock: for the header with the date.
        dated: the second that it was made in.
    """

    most: int = 4096
    idle_s: float = 30.0
    open: set[HttpProtocol] = field(default_factory=set["HttpProtocol"])
    idle: OrderedDict[HttpProtocol, float] = field(default_factory=OrderedDict["HttpProtocol", float])
    clock: Callable[[], datetime] = _now
    dated: int | None = None


def bounded(connections: Connections) -> type[HttpProtocol]:
    """A protocol of a server with these connections."""
    return type("BoundedHttpProtocol", (HttpProtocol,), {"held": connections})


class HttpProtocol(HttpToolsProtocol):
    """See the module."""

    held: Connections = Connections()
    _silence: asyncio.TimerHandle | None = None  # it runs through, from one request to the next

    _in_head = True
    _raw_bytes = 0  # while a head is under way: a field is only known when it has ended
    _field_bytes = 0
    served: BodyChannel | None = None
    """Of the request that is being worked on, where its door wants to know when the client leaves."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        held = self.held
        held.open.add(self)
        self._date()
        self._idle()
        if len(held.open) > held.most:
            longest, _ = held.idle.popitem(last=False)
            longest.transport.abort()

    def _date(self) -> None:
        """The header that every answer has, as uvicorn makes it once a second whether or not anybody asks."""
        now = int(self.held.clock().timestamp())
        if now != self.held.dated:
            self.held.dated = now
            header = (b"date", formatdate(now, usegmt=True).encode())
            self.server_state.default_headers = [header, *self.config.encoded_headers]

    def _idle(self) -> None:
        """No request is under way: from now on it may be silent for a while."""
        self.held.idle[self] = self.loop.time()
        if self._silence is None:
            self._silence = self.loop.call_later(self.held.idle_s, self._look)

    def _busy(self) -> None:
        self.held.idle.pop(self, None)

    def _end_watch(self) -> None:
        self._busy()
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _look(self) -> None:
        """Whether it has been silent for long enough; the timer is set anew where it has not, and with the next answer where it is busy."""
        self._silence = None
        since = self.held.idle.get(self)
        if since is None:
            return
        rest_s = since + self.held.idle_s - self.loop.time()
        if rest_s > _TIMER_S:
            self._silence = self.loop.call_later(rest_s, self._look)
        else:
            self._silent()

    def _silent(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # who does not take its answer would hold up the close for ever
        else:
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        self._silent()

    def handle_websocket_upgrade(self) -> None:
        self._end_watch()
        self.held.open.discard(self)
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._raw_bytes += len(data)
            if self._raw_bytes > HEAD_MAX_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._idle()

    def on_message_begin(self) -> None:
        self._in_head, self._raw_bytes, self._field_bytes = True, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self.pipeline) >= _PIPELINED_MAX:
            raise ValueError("more requests at once than are taken")  # the parser turns it into a 400
        self._busy()
        self._date()
        super().on_headers_complete()
        if self.scope["method"] == "POST":  # no other answer is streamed
            cast("dict[str, Any]", self.scope)["extensions"] = {EXTENSION: BodyChannel(self, self.cycle)}

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_watch()
        self.held.open.discard(self)
        super().connection_lost(exc)
        if self.served is not None:
            self.served.client_left()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.served is not None:
            self.served.on_writable()

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > HEAD_MAX_BYTES:
            raise ValueError("the head of the request is too large")  # the parser turns it into a 400


class BodyChannel:
    """The answer to one request whose body has been read: written by plain calls, or by ASGI as ever, never by both.

    Attributes:
        started: its head is written.
        on_writable: called when the client has taken what was too much for it.
    """

    def __init__(self, protocol: HttpProtocol, cycle: RequestResponseCycle) -> None:
        self.started = False
        self.on_writable: Callable[[], None] = _nothing
        self._protocol = protocol
        self._cycle = cycle
        self._task: asyncio.Task[Any] | None = None
        self._left = False

    @property
    def asked(self) -> bool:
        """The whole request is here, though its body may not have been read."""
        return not self._cycle.more_body

    async def while_connected(self, work: Awaitable[_T]) -> _T | None:
        """Await `work`; cancel it and return None when the client leaves first."""
        loop = self._protocol.loop
        task = self._task = asyncio.current_task(loop)
        self._protocol.served = self
        self._cycle.flow.resume_reading()  # or nobody would hear that the client leaves
        if self._cycle.disconnected:
            loop.call_soon(self.client_left)
        try:
            return await work
        except asyncio.CancelledError:
            if not self._left or task is None or task.uncancel():
                raise
            return None
        finally:
            self._protocol.served = self._task = None
            self.on_writable = _nothing

    def client_left(self) -> None:
        if self._task is not None and not self._left:
            self._left = True
            self._task.cancel()

    @property
    def ready(self) -> bool:
        """False while the client takes less than it gets; what is written all the same is kept in memory."""
        return not self._cycle.flow.write_paused

    async def drained(self) -> None:
        """Return when the client has taken what was too much for it, or has left; after a while it is made to."""
        try:
            async with asyncio.timeout(self._protocol.held.idle_s):
                await self._cycle.flow.drain()
        except TimeoutError:
            self._cycle.transport.abort()

    def write(self, data: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """A piece of the body, which is not empty; the first one behind a head of status 200 with `headers`."""
        self._send(b"%x\r\n%b\r\n" % (len(data), data), headers)

    def end(self, data: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """As :meth:`write`, the last piece: the connection is free for the next request."""
        self._send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data), headers)
        cycle = self._cycle
        if cycle.disconnected:
            return
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    def _send(self, chunk: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        if self._cycle.disconnected:
            return
        if not self.started:
            self.started = self._cycle.response_started = self._cycle.chunked_encoding = True
            chunk = self._head(headers) + chunk
        self._cycle.transport.write(chunk)

    def _head(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        fields = b"".join(b"%b: %b\r\n" % field for field in (*self._cycle.default_headers, *headers))
        close = b"" if self._cycle.keep_alive else b"connection: close\r\n"
        return b"%b%b%btransfer-encoding: chunked\r\n\r\n" % (STATUS_LINE[200], fields, close)


def all_here(scope: Mapping[str, Any]) -> bool:
    """Whether the body of a POST need not be waited for."""
    channel = scope.get("extensions", {}).get(EXTENSION)
    return channel is not None and channel.asked


def body_channel(scope: Mapping[str, Any]) -> BodyChannel:
    """The channel of a POST's scope, once: it goes with its taker. Raises RuntimeError under a server without the extension."""
    channel = scope.get("extensions", {}).pop(EXTENSION, None)
    if channel is None:
        raise RuntimeError(f"the server offers no {EXTENSION}; serve with foretype_backend.transport.server.running")
    return channel


def _nothing() -> None:
    pass
