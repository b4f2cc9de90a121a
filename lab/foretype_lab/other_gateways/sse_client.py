"""The generator's end of completions over SSE: keep-alive connections, one request at a time on each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

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
        self._forget()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, and is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._busy:
            self._end(f"hung up: {exc or 'closed'}")

    def send(self, request: bytes) -> None:
        self._forget()
        self._busy = True
        if self._transport is not None:
            self._transport.write(request)

    def close(self) -> None:
        self._busy = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._busy:  # what comes after the end belongs to nothing
            return
        self._raw += data
        if self._status == 0 and not self._head():
            return
        if self._chunked:
            over = self._chunks()
        else:
            self._text += self._raw
            over = self._length is not None and len(self._text) >= self._length
            self._raw.clear()
        if self._status == 200 and not self._first:
            self._events()
        if over and self._busy:
            self._end(self._problem())

    def _forget(self) -> None:
        self._busy, self._first, self._status = False, False, 0
        self._chunked, self._length, self._read = False, None, 0
        self._raw, self._text = bytearray(), bytearray()

    _length: int | None

    def _head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = bytes(self._raw[:end]).decode("latin-1").split("\r\n")
        del self._raw[: end + 4]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        status = [*lines[0].split(" "), "", ""][1]
        self._status = int(status) if status.isdigit() else -1
        self._chunked = "chunked" in fields.get("transfer-encoding", "").lower()
        if fields.get("content-length", "").isdigit():
            self._length = int(fields["content-length"])
        if fields.get("connection", "").lower() == "close":
            self.usable = False
        return True

    def _chunks(self) -> bool:
        """Take whole chunks of the raw bytes; True at the last one."""
        raw = self._raw
        while (line := raw.find(b"\r\n")) >= 0:
            try:
                size = int(bytes(raw[:line]).partition(b";")[0], 16)
            except ValueError:
                self.close()
                self.usable = False
                self._busy = True
                self._end("a chunk without a size")
                return False
            if len(raw) < line + 2 + size + 2:
                return False
            self._text += raw[line + 2 : line + 2 + size]
            del raw[: line + 2 + size + 2]
            if not size:
                return True
        return False

    def _events(self) -> None:
        """Look for the first text among whole events that were not looked at yet."""
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

    def _problem(self) -> str | None:
        if self._status != 200:
            return f"status {self._status}: {bytes(self._text[:200]).decode('utf-8', 'replace')}"
        return None if self._first else f"no text came: {bytes(self._text[-200:]).decode('utf-8', 'replace')}"

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
