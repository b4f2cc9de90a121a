"""Clients that send a byte now and then: each costs its own connection, within bounds, and nobody waits for it."""

from __future__ import annotations

import asyncio
import base64

import pytest
from backend.world import World, gateway, until
from foretype_backend.doors import connection

UPGRADE = (
    "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(b'k' * 16).decode()}\r\n\r\n"
).encode()
HALF_OF_A_FRAME = b"\x82\xff" + (900_000).to_bytes(8, "big") + b"mask" + b"x" * 1000


async def dribble(world: World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has begun a frame of 900 kB, and sent a thousandth of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(UPGRADE)
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(HALF_OF_A_FRAME)
    await writer.drain()
    return reader, writer


async def test_frames_that_never_end_hold_nobody_up_and_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HELLO_S", 0.5)
    async with gateway() as world, world.peer() as peer:
        slow = [await dribble(world) for _ in range(20)]
        assert len(world.app.state.stream.connections) == 21
        await peer.still_works()
        for reader, writer in slow:
            assert b"\x88" in await reader.read(1024)  # half a frame says nothing: they are told so, and closed
            writer.close()
        await until(lambda: len(world.app.state.stream.connections) == 1)
        await peer.still_works()
