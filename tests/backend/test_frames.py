"""Frames by callback: pieces, bad text, sizes, a peer that asks and does not listen, and what came before anybody listened."""

from __future__ import annotations

import gc
import weakref

import msgspec
import pytest
from backend.world import Delta, gateway, until
from foretype_backend.frames import EXTENSION, channel_of
from foretype_client.wire import Hello, Profile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

HELLO = msgspec.msgpack.encode(Hello(v=1, client="test"))


async def test_a_message_in_pieces_is_one_message() -> None:
    async with gateway() as world, world.peer(hello=False) as peer:
        await peer.socket.send([HELLO[:3], HELLO[3:9], HELLO[9:]])
        assert isinstance(await peer.receive(), Profile)


async def test_text_that_is_none_ends_the_connection_as_the_protocol_wants() -> None:
    async with gateway() as world, world.peer(hello=False) as peer:
        with pytest.raises(ConnectionClosed) as closed:
            await peer.socket.send(b"\xff\xfe", text=True)
            await peer.socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1007


@pytest.mark.parametrize("size", [1, 60, 125, 126, 300, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("json", [False, True])
async def test_a_message_of_any_size_arrives_whole(size: int, json: bool) -> None:
    async with gateway() as world, world.peer(json=json) as peer:
        [connection] = world.app.state.stream.connections
        connection.send(Delta(id="d", text="x" * size))
        answer = await peer.receive()
        assert isinstance(answer, Delta) and answer.text == "x" * size


class FullChannel:
    """A peer that takes nothing until it is told to."""

    def __init__(self) -> None:
        self.ready = False
        self.reading = True
        self.written: list[bytes] = []

    def write(self, payload: bytes, *, text: bool) -> None:
        self.written.append(payload)

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True


async def test_who_asks_and_does_not_listen_is_not_read_until_it_does() -> None:
    async with gateway() as world, world.peer():
        [connection] = world.app.state.stream.connections
        full = connection._channel = FullChannel()
        asked = 0
        while full.reading:
            connection._came(msgspec.msgpack.encode({"type": "nonsense"}))
            asked += 1
        assert asked == 512 and not full.written
        full.ready = True
        connection._flush()
        assert len(full.written) == asked and full.reading
        assert b"nonsense" not in b"".join(full.written)


async def test_what_came_before_anybody_listened_is_heard() -> None:
    async with gateway() as world, connect(world.ws_url, compression=None, proxy=None) as socket:
        await socket.send(HELLO)
        answer = msgspec.msgpack.decode(await socket.recv())
        assert answer["type"] == "profile"


async def test_what_a_connection_knew_is_gone_with_it_and_not_with_the_collectors_next_round() -> None:
    async with gateway() as world:
        async with world.peer() as peer:
            [connection] = world.app.state.stream.connections
            await peer.ask("a")
            gone = weakref.ref(connection)
            del connection
        gc.disable()
        try:
            await until(lambda: gone() is None)
        finally:
            gc.enable()


def test_a_server_without_the_extension_is_named() -> None:
    with pytest.raises(RuntimeError, match=EXTENSION):
        channel_of({"type": "websocket", "extensions": {}})
