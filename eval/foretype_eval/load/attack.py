"""The worst that a gateway's doors accept, from one tenant, for a while: the other process of `--scenario hostile`.

`python -m foretype_eval.load.attack`, with :class:`Orders` as JSON on standard input; prints a :class:`Report`. It stands apart so that what it
costs to attack does not count as a latency of the measured tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from foretype_eval.load.connection import frame, handshake

_encode = msgspec.msgpack.encode
_TINY: Final = 1024
_LONG_CHARS: Final = 500_000
_PAUSE_S: Final = 0.001
_REFUSALS: Final = (b"invalid_request", b"rate_limited", b"overloaded", b"expired")


class Orders(msgspec.Struct, frozen=True):
    """Where, with whose token, for how long; `idle` connections of each sort that say nothing."""

    url: str
    token: str
    seconds: float
    idle: int


class Report(msgspec.Struct):
    """What was sent (messages, requests), by kind, and how much of it all was refused."""

    sent: dict[str, int] = {}
    refused: int = 0
    connections: int = 0


class _Attacker:
    def __init__(self, orders: Orders) -> None:
        url = urlsplit(orders.url)
        self._host, self._port = url.hostname or "127.0.0.1", url.port or 80
        self._orders = orders
        self._until = time.monotonic() + orders.seconds
        self._reading: set[asyncio.Task[None]] = set()
        self.report = Report(sent={})

    @property
    def left_s(self) -> float:
        return self._until - time.monotonic()

    @property
    def on(self) -> bool:
        return self.left_s > 0

    def count(self, kind: str, sent: int = 1) -> None:
        self.report.sent[kind] = self.report.sent.get(kind, 0) + sent

    async def stream(self, *, reads: bool = True) -> asyncio.StreamWriter:
        """A WebSocket that has said hello."""
        plain = socket.socket()
        if not reads:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, (self._host, self._port))
        reader, writer = await asyncio.open_connection(sock=plain, limit=1 << 16)
        writer.write(handshake(urlsplit(self._orders.url), {"Authorization": f"Bearer {self._orders.token}"}))
        async with asyncio.timeout(30):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(frame(_encode({"type": "hello", "v": 1, "client": "hostile"})))
        self.report.connections += 1
        if reads:
            task = asyncio.create_task(self._read(reader))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        return writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(1 << 16):
                self.report.refused += sum(map(part.count, _REFUSALS))

    async def post(self, kind: str, path: str, body: bytes) -> None:
        """One request on a connection of its own."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._orders.token}\r\n"
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        self.count(kind)
        async with asyncio.timeout(60):
            answer = await reader.read(64)
            self.report.refused += not answer.startswith(b"HTTP/1.1 200")
            while await reader.read(1 << 16):
                pass
        writer.close()


def _complete(id: str, segments: list[dict[str, Any]], **fields: Any) -> bytes:
    asked = {"type": "complete", "id": id, "segments": segments, "max_tokens": 8, "deadline_ms": 5000.0}
    return frame(_encode(asked | fields))


def _segment(kind: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "scope": "file", "source": {"path": "a"}, "text": text}


async def many_segments(to: _Attacker) -> None:
    writer, number = await to.stream(), 0
    while to.on:
        tiny = [_segment("file", f"{number} {at}") for at in range(_TINY)]
        writer.write(_complete(f"m{number}", tiny))
        await writer.drain()
        to.count("many segments")
        number += 1
        await asyncio.sleep(_PAUSE_S)


async def huge_texts(to: _Attacker) -> None:
    writer, number = await to.stream(), 0
    while to.on:
        writer.write(_complete(f"h{number}", [_segment("prefix", f"{number}{' ' * _LONG_CHARS}")]))
        await writer.drain()
        to.count("huge texts")
        number += 1
        await asyncio.sleep(_PAUSE_S)


async def endless_changed(to: _Attacker) -> None:
    writer = await to.stream()
    allowed, beyond = (
        frame(_encode({"type": "changed", "reason": "pull", "documents": ["d"] * count})) for count in (1024, 500_000)
    )
    while to.on:
        writer.write(allowed * 20 + beyond)
        await writer.drain()
        to.count("changed", 21)
        await asyncio.sleep(_PAUSE_S)


async def pings(to: _Attacker, *, reads: bool) -> None:
    writer = await to.stream(reads=reads)
    flood = frame(b"", 0x89) * 20_000
    while to.on:
        writer.write(flood)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await writer.drain()
                to.count("pings", 20_000)
        await asyncio.sleep(_PAUSE_S)


async def fragments(to: _Attacker) -> None:
    while to.on:
        writer = await to.stream()
        with contextlib.suppress(OSError):
            writer.write(frame(b"", 0x02) + frame(b"", 0x00) * 20_000)
            await writer.drain()
        to.count("fragments", 20_000)
        await asyncio.sleep(0.05)
        writer.close()


async def cancel_storm(to: _Attacker) -> None:
    writer, number = await to.stream(), 0
    unknown = frame(_encode({"type": "cancel", "id": "nobody"})) * 5000
    while to.on:
        burst = b""
        for _ in range(100):
            number += 1
            burst += _complete(f"c{number}", [_segment("prefix", f"x = {number}\n")], document=str(number % 7))
            burst += frame(_encode({"type": "cancel", "id": f"c{number}"}))
        writer.write(burst + unknown)
        await writer.drain()
        to.count("cancels", 5100)
        await asyncio.sleep(_PAUSE_S)


async def slow_readers(to: _Attacker) -> None:
    writers = [await to.stream(reads=False) for _ in range(10)]
    number = 0
    while to.on:
        for writer in writers:
            number += 1
            writer.write(_complete(f"s{number}", [_segment("prefix", "x = 1\n")], max_tokens=300))
            to.count("slow readers")
        await asyncio.sleep(1.0)  # the engine's slots are what `fairness` is about


async def idle_connections(to: _Attacker) -> None:
    held: list[asyncio.StreamWriter] = []
    for number in range(2 * to._orders.idle):  # pyright: ignore[reportPrivateUsage]
        if not to.on:
            break
        if number % 2:
            _, silent = await asyncio.open_connection(to._host, to._port)  # pyright: ignore[reportPrivateUsage]
            held.append(silent)
        else:
            held.append(await to.stream())
        to.count("idle connections")
    await asyncio.sleep(max(0.0, to.left_s))


def over_http(kind: str, path: str, body: bytes) -> Callable[[_Attacker], Awaitable[None]]:
    async def attack(to: _Attacker) -> None:
        while to.on:
            await to.post(kind, path, body)
            await asyncio.sleep(_PAUSE_S)

    return attack


_json = msgspec.json.encode
KINDS: Final[tuple[Callable[[_Attacker], Awaitable[None]], ...]] = (
    many_segments,
    huge_texts,
    endless_changed,
    lambda to: pings(to, reads=True),
    lambda to: pings(to, reads=False),
    fragments,
    cancel_storm,
    slow_readers,
    idle_connections,
    over_http("infill, 1,000 files", "/infill", _json({"input_extra": [{}] * 1000})),
    over_http("infill, 300,000 files", "/infill", _json({"input_extra": [{}] * 300_000})),
    over_http("deep JSON", "/infill", b'{"x":' + b"[" * 500_000 + b"]" * 500_000 + b"}"),
    over_http("huge prompt", "/v1/completions", _json({"prompt": " " * _LONG_CHARS})),
    over_http("very many ids", "/v1/completions", _json({"prompt": [5] * _LONG_CHARS})),
)


async def _main(orders: Orders) -> Report:
    to = _Attacker(orders)

    async def again(attack: Callable[[_Attacker], Awaitable[None]]) -> None:
        while to.on:  # a gateway that closes a connection sees the next one
            try:
                await attack(to)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                to.report.refused += 1
                await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(again(attack)) for attack in KINDS]
    await asyncio.wait(tasks, timeout=orders.seconds + 1)
    return to.report


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(10)  # who is measured comes first
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    sys.stdout.buffer.write(_json(asyncio.run(_main(given))))
    sys.stdout.flush()
    os._exit(0)  # what is still open ends as that of a laptop that is shut
