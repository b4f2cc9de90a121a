"""Clients that send a byte now and then: each costs its own connection, within bounds, and nobody waits for it."""

import asyncio
import base64
import gc
import json
import re

import pytest
from backend.world import World, gateway, scripted, until
from foretype_backend.doors import connection
from foretype_backend.transport.http_protocol import HttpProtocol

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
    monkeypatch.setattr(connection, "HELLO_S", 3)
    async with gateway() as world, world.peer() as peer:
        slow = await asyncio.gather(*(dribble(world) for _ in range(20)))
        assert len(world.gateway.stream.connections) == 21
        await peer.still_works()
        for reader, writer in slow:
            assert b"\x88" in await reader.read(1024)  # half a frame says nothing: they are told so, and closed
            writer.close()
        await until(lambda: len(world.gateway.stream.connections) == 1)
        await peer.still_works()


def asked(text: str = "def f(x):\n", **fields: object) -> bytes:
    body = json.dumps({"prompt": text, "stream": True, "max_tokens": 512} | fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def test_an_event_stream_that_is_not_read_waits_in_memory_as_one_event_and_loses_nothing() -> None:
    # The protocol's own answer to a socket that takes no more is given by hand: the kernel's buffers hold more than a completion.
    line = "".join(f"value_{number} = {number}; " for number in range(30))
    async with gateway(scripted(line, decode_s_per_token=0.001)) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(asked())
        first = await reader.readuntil(b"\n\n\r\n")
        (protocol,) = [
            one for one in gc.get_objects() if issubclass(type(one), HttpProtocol) and one.served is not None
        ]
        protocol.pause_writing()
        await until(lambda: world.engine.statistics().running == 0)
        protocol.resume_writing()
        rest = await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        events = [
            part[6:] for part in re.split(rb"\r\n[0-9a-f]+\r\n|\n\n", first + rest) if part.startswith(b"data: {")
        ]
        texts = [json.loads(event)["choices"][0]["text"] for event in events]
        assert "".join(texts) == line
        assert len(texts) < 12  # of some two hundred tokens


@pytest.mark.parametrize("door", ["/v1/completions", "/infill"])
async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault(
    door: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway() as world, world.http() as http:
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(f"POST {door} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{{".encode())
        await writer.drain()
        await until(lambda: world.gateway.requests.statistics().held)
        writer.close()
        await until(lambda: not world.gateway.requests.statistics().held)
        assert (await http.get("/livez")).status_code == 200
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_requests_on_one_connection_are_answered_in_turn_also_when_they_come_at_once() -> None:
    async with gateway(scripted("x + 1\n")) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(asked("a = ") + asked("b = ", stream=False) + asked("c = "))
        for ending in (b"data: [DONE]\n\n\r\n0\r\n\r\n", b'"cached_tokens":0}}}', b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            assert (await reader.readuntil(ending)).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
