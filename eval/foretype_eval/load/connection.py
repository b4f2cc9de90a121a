"""One WebSocket of a simulated developer, as thin as it can be.

A generator that shares a core with what it measures would measure itself. This end knows no more of RFC 6455 than a client of
our gateway needs: whole frames, no extensions, and a mask of zeroes, which is a legal mask and costs nothing.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import SplitResult, urlsplit

from foretype_client.ports import Endpoint
from foretype_wire.credentials import without_credentials
from foretype_wire.errors import GatewayGoneError, TokenInClearError

_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_FINAL = 0x80


class LoadConnection(asyncio.Protocol):
    """Calls `on_message` with the payload of every data frame, and `on_lost` once, when the connection ends."""

    def __init__(self) -> None:
        self.on_message: Callable[[bytes], None] = lambda _payload: None
        self.on_lost: Callable[[str], None] = lambda _reason: None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, and is no subclass

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def send(self, payload: bytes) -> None:
        """One binary frame; dropped when the connection is gone."""
        self.write(frame(payload))

    def close(self) -> None:
        self.write(frame((1000).to_bytes(2), _FINAL | _CLOSE))
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Leave without a word, as a laptop that is shut does."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc is not None else "closed"
        if not self.opened.done():
            self.opened.set_exception(GatewayGoneError(f"the gateway hung up before the handshake was over: {reason}"))
        self.on_lost(reason)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open and not self._handshake():
            return
        self._frames()

    def _handshake(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        status = bytes(self._buffer[: self._buffer.find(b"\r\n")]).decode("latin-1")
        del self._buffer[: end + 4]
        if " 101 " not in status + " ":
            self.opened.set_exception(GatewayGoneError(f"the gateway answered {status!r}; is this a /v1/stream URL?"))
            self.abort()
            return False
        self._open = True
        self.opened.set_result(None)
        return True

    def _frames(self) -> None:
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 2:
            size, start = buffer[at + 1], at + 2
            if size == 126:
                if len(buffer) < at + 4:
                    break
                size, start = int.from_bytes(buffer[at + 2 : at + 4]), at + 4
            elif size == 127:
                if len(buffer) < at + 10:
                    break
                size, start = int.from_bytes(buffer[at + 2 : at + 10]), at + 10
            if len(buffer) < start + size:
                break
            opcode = buffer[at] & 15
            payload = bytes(buffer[start : start + size])
            at = start + size
            if opcode == _PING:
                self.write(frame(payload, _FINAL | _PONG))
            elif opcode == _CLOSE:
                self.close()
            elif opcode <= _BINARY:
                self.on_message(payload)
        del buffer[:at]


def frame(payload: bytes, first: int = _FINAL | _BINARY) -> bytes:
    """Of a client, with a mask of zeroes; `first` is its first byte."""
    size = len(payload)
    if size < 126:
        return bytes((first, 128 | size)) + bytes(4) + payload
    if size < 1 << 16:
        return bytes((first, 254)) + size.to_bytes(2) + bytes(4) + payload
    return bytes((first, 255)) + size.to_bytes(8) + bytes(4) + payload


def handshake(url: SplitResult, headers: Mapping[str, str]) -> bytes:
    """The request that makes a WebSocket of a connection."""
    lines = [
        f"GET {url.path or '/v1/stream'} HTTP/1.1",
        f"Host: {url.netloc}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
        "Sec-WebSocket-Version: 13",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def open_connection(endpoint: Endpoint) -> LoadConnection:
    """Connect and shake hands.

    Raises:
        GatewayGoneError: nobody listens, or it is no gateway.
    """
    url = urlsplit(endpoint.url)
    if url.scheme != "ws" or url.hostname is None:
        raise GatewayGoneError(
            f"{without_credentials(endpoint.url)}: a load test speaks ws:// to a gateway without TLS in front"
        )
    try:
        headers = endpoint.headers()
    except TokenInClearError as error:
        raise GatewayGoneError(str(error)) from error
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(LoadConnection, url.hostname, url.port or 80)
    except OSError as error:
        raise GatewayGoneError(f"{without_credentials(endpoint.url)}: {error}") from error
    connection.write(handshake(url, headers))
    async with asyncio.timeout(30):
        await connection.opened
    return connection
