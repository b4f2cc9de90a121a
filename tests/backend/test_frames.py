"""Frames by callback: pieces, bad text, sizes, a peer that asks and does not listen, and what came before anybody listened."""

import gc
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import uvicorn
from backend.world import Delta, gateway, until
from foretype_backend.transport import websocket_frames
from foretype_backend.transport.websocket_frames import EXTENSION, FrameProtocol, channel_of
from foretype_wire.messages import Hello, Profile
from hypothesis import example, given, settings
from hypothesis import strategies as st
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.utils import apply_mask

HELLO = msgspec.msgpack.encode(Hello(v=1, client="test"))


async def test_a_message_in_pieces_is_one_message() -> None:
    async with gateway() as world, world.peer(hello=None) as peer:
        await peer.socket.send([HELLO[:3], HELLO[3:9], HELLO[9:]])
        assert isinstance(await peer.receive(), Profile)


@pytest.mark.parametrize("size", [1, 60, 125, 126, 300, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("json", [False, True])
async def test_a_message_of_any_size_arrives_whole(size: int, json: bool) -> None:
    async with gateway() as world, world.peer(json=json) as peer:
        [connection] = world.gateway.stream.connections
        connection.send(Delta(id="d", text="x" * size))
        answer = await peer.receive()
        assert isinstance(answer, Delta) and answer.text == "x" * size


class FullChannel:
    """A peer that takes nothing until it is told to."""

    def __init__(self) -> None:
        self.ready = False
        self.reading = True
        self.written: list[bytes] = []

    def write(self, payloads: Sequence[bytes], *, text: bool) -> None:
        self.written += payloads

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True


async def test_who_asks_and_does_not_listen_is_not_read_until_it_does() -> None:
    async with gateway() as world, world.peer():
        [connection] = world.gateway.stream.connections
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


async def test_a_server_that_ends_as_one_peer_closes_tells_the_other() -> None:
    async with gateway() as world, world.peer(), world.peer() as stays:
        leaving, staying = (one._channel for one in world.gateway.stream.connections)
        if leaving.transport.get_extra_info("peername") == stays.socket.local_address:
            leaving, staying = staying, leaving
        close = Frame(Opcode.CLOSE, (1000).to_bytes(2)).serialize(mask=True)
        leaving.data_received(close)  # and in the same turn, before its connection is lost
        for protocol in (leaving, staying):
            protocol.shutdown()
        assert (await stays.closed()).code == 1012


async def test_what_came_before_anybody_listened_is_heard() -> None:
    async with gateway() as world, connect(world.ws_url, compression=None, proxy=None, open_timeout=60) as socket:
        await socket.send(HELLO)
        answer = msgspec.msgpack.decode(await socket.recv(decode=False))
        assert answer["type"] == "profile"


async def test_what_a_connection_knew_is_gone_with_it_and_not_with_the_collectors_next_round() -> None:
    async with gateway() as world:
        async with world.peer() as peer:
            [connection] = world.gateway.stream.connections
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


# What is read here, against what the library reads alone

HANDSHAKE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MAX_BYTES = 300


async def nobody(scope: Any, receive: Any, send: Any) -> None: ...


def configured(max_bytes: int) -> uvicorn.Config:
    return uvicorn.Config(nobody, ws_max_size=max_bytes, ws_per_message_deflate=False, log_config=None)


SMALL, LARGE = configured(MAX_BYTES), configured(1 << 17)


class Wire:
    """The transport and the loop of a protocol that nobody runs."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False

    def get_extra_info(self, _name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def create_task(self, work: Coroutine[Any, Any, None]) -> Any:
        work.close()
        return self

    def add_done_callback(self, _done: Any) -> None: ...


# On a busy machine a turn would end in the middle, and nobody is here to begin the next one.
@patch.object(websocket_frames, "TURN_S", 60.0)
def heard(
    kind: type[WebSocketsSansIOProtocol],
    pieces: list[bytes],
    *,
    after_handshake: bytes = b"",
    config: uvicorn.Config = SMALL,
) -> tuple[Any, ...]:
    """Messages, what was answered, and whether the connection is over."""
    wire: Any = Wire()
    protocol = kind(config, ServerState(), {}, wire)
    protocol.connection_made(wire)
    protocol.data_received(HANDSHAKE[:50])
    protocol.data_received(HANDSHAKE[50:] + after_handshake)
    protocol.conn.send_response(protocol.response)
    protocol.handshake_complete = True
    protocol.conn.data_to_send()
    for piece in pieces:
        if not wire.closed:
            try:
                protocol.data_received(piece)
            except InvalidState:
                # The library alone: it answers a text that is none although the same piece closed already. asyncio ends it then.
                assert kind is WebSocketsSansIOProtocol
                wire.close()
    events = [protocol.queue.get_nowait() for _ in range(protocol.queue.qsize())]
    return events, wire.sent, wire.closed


def messages_of(found: tuple[Any, ...]) -> list[Any]:
    return [event for event in found[0] if event["type"] == "websocket.receive"]


def byte_by_byte(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def masked(
    opcode: Opcode, data: bytes, *, fin: bool = True, rsv1: bool = False, mask: bytes = b"\x01\x80\xff\x0a"
) -> bytes:
    """A client's frame; without a mask one that no client may send."""
    plain = Frame(opcode, data, fin=fin).serialize(mask=False)
    head = len(plain) - len(data)
    first = bytes([plain[0] | (0x40 if rsv1 else 0)])
    if not mask:
        return first + plain[1:]
    return first + bytes([plain[1] | 0x80]) + plain[2:head] + mask + apply_mask(data, mask)


_payloads = st.one_of(
    st.binary(max_size=140), st.sampled_from([0, 125, 126, MAX_BYTES]).map(bytes), st.just(b"\r\n\r\n")
)
_whole = st.builds(masked, st.sampled_from([Opcode.TEXT, Opcode.BINARY]), _payloads)
_control = st.builds(masked, st.sampled_from([Opcode.PING, Opcode.PONG]), st.binary(max_size=125))
_TOO_LARGE = masked(Opcode.BINARY, bytes(MAX_BYTES + 1))
_TOO_LARGE_PING = b"\x89\xfe\x00\x7e" + bytes(4 + 126)
_CLOSE = masked(Opcode.CLOSE, b"\x03\xe8")
_NO_TEXT = masked(Opcode.TEXT, b"\xff\xfe")
_odd = st.one_of(
    st.sampled_from([_TOO_LARGE, _TOO_LARGE_PING, _CLOSE, _NO_TEXT]),
    st.builds(masked, st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT]), _payloads, fin=st.booleans()),
    st.builds(masked, st.just(Opcode.BINARY), _payloads, rsv1=st.just(True)),
    st.builds(masked, st.just(Opcode.BINARY), _payloads, mask=st.just(b"")),
    st.binary(min_size=1, max_size=20),
)


@example(frames=[_NO_TEXT, _CLOSE], at=[])
@example(frames=[b"\x00~"], at=[])  # refused for its two bytes, before its length is there
@example(frames=[b"\x03\xfe"], at=[])
@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(_whole, _whole, _control, _odd), max_size=8), st.lists(st.floats(0, 1), max_size=8))
def test_whatever_comes_in_whatever_pieces_is_heard_as_the_library_hears_it(
    frames: list[bytes], at: list[float]
) -> None:
    stream = b"".join(frames)
    cuts = sorted(int(one * len(stream)) for one in at)
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]
    exact = heard(WebSocketsSansIOProtocol, byte_by_byte(stream))
    assert heard(FrameProtocol, byte_by_byte(stream)) == exact
    # Of a piece with something wrong in it the library hands over nothing; what was good before it may come here.
    found, least = heard(FrameProtocol, pieces), heard(WebSocketsSansIOProtocol, pieces)
    assert messages_of(found) == messages_of(exact)[: len(messages_of(found))]
    assert len(messages_of(found)) >= len(messages_of(least)) and found[2] == least[2]


@pytest.mark.parametrize("early", [1, 2, 6, 8, 9, 20])
def test_who_does_not_wait_for_the_handshakes_answer_is_heard_all_the_same(early: int) -> None:
    stream = masked(Opcode.BINARY, b"one\r\n\r\n") + masked(Opcode.TEXT, b"two")
    found = heard(FrameProtocol, [stream[early:]], after_handshake=stream[:early])
    assert found == heard(WebSocketsSansIOProtocol, [stream[early:]], after_handshake=stream[:early])
    assert [event.get("bytes") or event.get("text") for event in found[0][1:]] == [b"one\r\n\r\n", "two"]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 1 << 17, (1 << 17) + 1])
def test_a_frame_of_any_size_in_any_pieces_is_heard_as_the_library_hears_it(size: int) -> None:
    stream = masked(Opcode.BINARY, bytes(size)) + masked(Opcode.TEXT, b"after")
    for step in (len(stream), 1000, 1):
        pieces = [stream[at : at + step] for at in range(0, len(stream), step)][-70_000:]
        pieces[0] = stream[: len(stream) - sum(map(len, pieces[1:]))]
        found = heard(FrameProtocol, pieces, config=LARGE)
        assert found == heard(WebSocketsSansIOProtocol, pieces, config=LARGE)
        assert (size <= 1 << 17) == (found[0][-1].get("text") == "after")
