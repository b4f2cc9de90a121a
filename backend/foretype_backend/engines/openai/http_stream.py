"""Streamed answers of one HTTP server: connections that are kept, a parser in C, no task and no layer between socket and reader.

Not a general client, which is used for all that is not a stream: it takes 2 ms of the processor more for a request (decision 0012). HTTP/1.1, TLS where the
URL says so, no redirects, no proxies, no compression. Faults are raised as httpx's, so that the callers know one family.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Final, cast

import httptools
import httpx
from foretype_context.authorities import trusted

from foretype_backend.engines.openai.server_name import ServerName

_HEAD_MAX_BYTES: Final = 64 * 1024
_TEXT_MAX_BYTES: Final = 64 * 1024
_IDLE_MAX: Final = 256
_IDLE_S: Final = 4.0
"""A connection that was idle for longer is not used again: many servers close theirs after five seconds."""
_REST_S: Final = 1.0
"""How long the rest of an answer may take after its reader has enough; then its connection is closed."""
_OWN: Final = frozenset((b"content-length", b"content-type", b"accept-encoding"))
_SENDABLE: Final = re.compile(r"[\t\x20-\x7e]*").fullmatch


class HttpStreams:
    """Asks one URL.

    Args:
        template: what every request has: URL and headers. Its body is replaced.
        connect_timeout_s: for a connection, its TLS included.
        idle_timeout_s: silence within an answer after which it is given up.
        name: of the URL's host, where others connect to it too.
    """

    def __init__(
        self,
        template: httpx.Request,
        *,
        connect_timeout_s: float,
        idle_timeout_s: float,
        name: ServerName | None = None,
    ) -> None:
        url = template.url
        if url.userinfo:
            template = next(httpx.BasicAuth(url.username, url.password).auth_flow(template))
        self._name, self._tls = name or ServerName.of(url), url.scheme == "https"
        self._port = url.port or (443 if self._tls else 80)
        self._context: ssl.SSLContext | None = None
        fields = [field for field in template.headers.raw if field[0].lower() not in _OWN]
        fields.append((b"Content-Type", b"application/json"))
        self._head = b"POST %b HTTP/1.1\r\n" % url.raw_path + b"".join(b"%b: %b\r\n" % field for field in fields)
        self._connect_timeout_s, self.idle_timeout_s = connect_timeout_s, idle_timeout_s
        self._idle: list[StreamedResponse] = []
        self._open: set[StreamedResponse] = set()

    @property
    def connections(self) -> int:
        """Open ones, those included that wait for the next request."""
        return len(self._open)

    def request(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """A whole request, for :meth:`StreamedResponse.ask`. Raises httpx.LocalProtocolError for a header that cannot be sent."""
        head = [self._head]
        for name, value in headers.items():
            if not _SENDABLE(value):
                raise httpx.LocalProtocolError(f"the header {name} has characters that a header cannot carry")
            head.append(f"{name}: {value}\r\n".encode())
        return b"".join((*head, b"Content-Length: %d\r\n\r\n" % len(body), body))

    def close(self) -> None:
        for answer in list(self._open):
            answer.abort()

    def kept(self) -> StreamedResponse | None:
        """A connection that is free; the caller closes it, as one of :meth:`connect`."""
        while self._idle:
            answer = self._idle.pop()
            if answer.fresh:
                return answer
            answer.abort()
        return None

    async def connect(self) -> StreamedResponse:
        """A new connection. Raises httpx.ConnectTimeout, httpx.ConnectError."""
        if self._tls and self._context is None:
            self._context = trusted()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await self._name.connected(self._connect)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("no connection in time") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error

    async def _connect(self, address: str) -> StreamedResponse:
        _, answer = await asyncio.get_running_loop().create_connection(
            lambda: StreamedResponse(self),
            address,
            self._port,
            ssl=self._context,
            server_hostname=self._name.host if self._tls else None,
        )
        return answer

    # What answers tell their pool

    def opened(self, answer: StreamedResponse) -> None:
        self._open.add(answer)

    def over(self, answer: StreamedResponse) -> None:
        """Its connection can be used again."""
        if len(self._idle) < _IDLE_MAX:
            self._idle.append(answer)
        else:
            answer.abort()

    def gone(self, answer: StreamedResponse) -> None:
        self._open.discard(answer)
        if answer in self._idle:
            self._idle.remove(answer)


class StreamedResponse(asyncio.Protocol):
    """One connection, and on it one answer at a time.

    Attributes:
        status: of the answer; 0 until its head is here.
    """

    def __init__(self, pool: HttpStreams) -> None:
        self.status = 0
        self._idle_since = 0.0  # of the loop's clock
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._fault: httpx.TransportError | None = None
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self._parts: list[bytes] = []
        self._head_bytes = 0
        self._framed = False  # it says where it ends
        self._keep = False
        self._surplus = False  # more came than was asked for
        self._whole = False
        self._left = False
        self._heard = 0.0
        self._take: Callable[[bytes], bool] | None = None

    # The reader's side

    @property
    def began(self) -> bool:
        """Whether something of the answer is here."""
        return bool(self.status or self._head_bytes)

    @property
    def fresh(self) -> bool:
        """Whether it was used lately."""
        return self._loop.time() - self._idle_since <= _IDLE_S

    async def ask(self, request: bytes, take: Callable[[bytes], bool] | None = None) -> None:
        """Send, and wait for what follows the head. Raises httpx.TransportError: the connection broke, or is silent.

        Args:
            take: is given the body of an answer that is no error, piece by piece as it comes, until it returns False, which ends the waiting. It
                must not raise.
        """
        self._begin()
        self._take = take
        if self._transport is not None:
            self._transport.write(request)
        self._heard = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._pool.idle_timeout_s, self._silent)
        while not (self._parts or self._whole or self._take is not take):
            await self._more()

    async def read(self) -> bytes:
        """What came since the last call, in the order it came; empty at the end. Raises httpx.TransportError."""
        while not (self._parts or self._whole):
            await self._more()
        return self.here()

    def here(self) -> bytes:
        """As :meth:`read`, of what is here already, if anything is."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def text(self) -> str:
        """What is left of it, or its beginning where that is much."""
        found = b""
        while len(found) < _TEXT_MAX_BYTES and (part := await self.read()):
            found += part
        return found[:_TEXT_MAX_BYTES].decode(errors="replace")

    def leave(self) -> None:
        """The reader has enough, and what is left comes at once: the connection is kept for the next request. Instead of `close`."""
        if self._whole:
            self._free()
        elif self._transport is not None:
            self._left = True
            self._disarm()
            self._timer = self._loop.call_later(_REST_S, self.abort)

    def close(self) -> None:
        """Of an answer that is not whole the connection is closed, which ends the server's work on it."""
        if self._whole:
            self._free()
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection; who reads is told at once."""
        self._left = True
        self._fail(httpx.ReadError("closed from this side"))
        self._disarm()
        if self._transport is not None:
            self._transport.abort()
        self._pool.gone(self)

    def _more(self) -> asyncio.Future[None]:
        if self._fault is not None:
            raise self._fault
        self._waiter = self._loop.create_future()
        return self._waiter

    def _free(self) -> None:
        """Nothing of the answer is left to come. The timer of silence may go on; that of the rest of an answer may not."""
        if self._left:
            self._disarm()
        self._left = True
        if self._fault is None and self._keep and not self._surplus:
            self._idle_since = self._loop.time()
            self._pool.over(self)
        else:
            self.abort()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _silent(self) -> None:
        """The timer runs through, from one answer to the next; only what was heard meanwhile decides."""
        self._timer = None
        if self._left:
            return
        rest_s = self._heard + self._pool.idle_timeout_s - self._loop.time()
        if rest_s > 0.001:
            self._timer = self._loop.call_later(rest_s, self._silent)
        else:
            self._fail(httpx.ReadTimeout("silence"))

    def _fail(self, fault: httpx.TransportError) -> None:
        if self._fault is None:
            self._fault = fault
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, and is no subclass
        self._pool.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.status and not self._framed and exc is None:
            self._whole = True  # it ends where the connection ends
        self._disarm()
        self._pool.gone(self)
        self._fail(httpx.RemoteProtocolError(str(exc or "the server hung up in the middle of an answer")))

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(httpx.RemoteProtocolError(f"no HTTP: {error}"))
            self.abort()
            return
        if self._surplus:
            self.abort()
        elif not self.status:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_MAX_BYTES:
                self._fail(httpx.RemoteProtocolError("a head without end"))
                self.abort()

    # The parser's side

    def on_message_begin(self) -> None:
        self._framed = False
        self._surplus = self._whole

    def on_header(self, name: bytes, value: bytes) -> None:
        self._framed = self._framed or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and not self._surplus:  # what comes before is no answer
            self.status = status
            self._keep = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        if self._left or self._surplus:
            return
        if self._take is None or self.status >= 400:
            self._parts.append(body)
        elif self._take(body):
            return
        else:
            self._take = None
        self._wake()

    def on_message_complete(self) -> None:
        if not self.status or self._surplus:
            return
        self._whole = True
        self._wake()
        if self._left:
            self._free()
