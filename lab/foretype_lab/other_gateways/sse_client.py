"""The generator's end of completions over SSE: keep-alive connections, one request at a time on each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import httptools
import msgspec
from foretype_wire.errors import GatewayGoneError


class _Choice(msgspec.Struct, frozen=True):
    text: str | None = None


class _Event(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Event).decode


def request_bytes(host: str, prompt: str, *, model: str, max_tokens: int, headers: Mapping[str, str]) -> bytes:
    """A whole request, made before the clock runs."""
    asked = {"prompt": prompt, "model": model, "max_tokens": max_tokens, "temperature": 0, "stream": True}
    body = msgspec.json.encode(asked)
    lines = [
        "POST /v1/completions HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class SseConnection(asyncio.Protocol):
    """Sends one request, and tells of its first text and of its end.

    Attributes:
        on_first: called at the first event with text.
        on_end: called once per request with None, or with what went wrong. The connection may be used again then, if it is
            :attr:`usable`.
    """

    def __init__(self) -> None:
        self.on_first: Callable[[], None] = _nothing
        self.on_end: Callable[[str | None], None] = _nothing_of
        self.usable = True
        self._transport: asyncio.Transport | None = None
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, and is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._busy:
            self._end(f"hung up: {exc or 'closed'}")

    def send(self, request: bytes) -> None:
        self._busy, self._first, self._read, self._text = True, False, 0, bytearray()
        self._parser = httptools.HttpResponseParser(self)
        if self._transport is not None:
            self._transport.write(request)

    def close(self) -> None:
        self._busy = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._busy:  # what comes after the end belongs to nothing
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close()
            self.usable = False
            self.on_end(f"no HTTP: {error}")

    def on_body(self, part: bytes) -> None:
        """Looks for the first text among whole events that were not looked at yet."""
        self._text += part
        if self._first or self._parser.get_status_code() != 200:
            return
        while (end := self._text.find(b"\n\n", self._read)) >= 0:
            event = bytes(self._text[self._read : end]).strip()
            self._read = end + 2
            if event.startswith(b"data: {"):
                try:
                    found = _decode(event[6:])
                except msgspec.DecodeError:
                    continue
                if any(choice.text for choice in found.choices):
                    self._first = True
                    self.on_first()
                    return

    def on_message_complete(self) -> None:
        self.usable = self._parser.should_keep_alive()
        status, said = self._parser.get_status_code(), self._text.decode("utf-8", "replace")
        problem = None if self._first else f"no text came: {said[-200:]}"
        self._end(problem if status == 200 else f"status {status}: {said[:200]}")

    def _end(self, problem: str | None) -> None:
        self._busy = False
        self.on_end(problem)


def _nothing() -> None:
    pass


def _nothing_of(_problem: str | None) -> None:
    pass


async def open_sse(host: str, port: int) -> SseConnection:
    """Connect. Raises GatewayGoneError."""
    try:
        _, connection = await asyncio.get_running_loop().create_connection(SseConnection, host, port)
    except OSError as error:
        raise GatewayGoneError(f"http://{host}:{port}: {error}") from error
    return connection
