"""WebSocket frames of an open connection without the detour through ASGI: callbacks in, one write out.

ASGI takes a coroutine for every message sent and a queue, a task switch and two calls to stop and resume reading for every
message received; under load that was a third of what a request cost the gateway. This is uvicorn's own protocol: handshake,
pings, closing and whatever is wrong with a frame are its. It offers an application the extension :data:`EXTENSION` (ASGI's
`scope["extensions"]`) with two shorter ways, for whole messages of a connection that was accepted: :meth:`FrameProtocol.listen` and
:meth:`FrameProtocol.write`. Closing, and learning of the end, stay with ASGI.

No read holds the event loop longer than a turn (:mod:`foretype_backend.serving.fair_turns`): a quarter of a megabyte of tiny frames would take
seconds. What is left of it waits, and so does what comes next, with which reading stops. Pings of a peer that does not read are answered once, when it reads.

A message that is one frame is unmasked here; its library reads every frame through five generators. All else goes to it, frame by
frame: see :meth:`FrameProtocol.data_received`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final, Protocol, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.frames import Frame as LibraryFrame
from websockets.http11 import Request
from websockets.protocol import State

from foretype_backend.serving.fair_turns import TURN_S, Turn

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was built without its C code
    from websockets.utils import apply_mask

EXTENSION: Final = "foretype.frames"
_TEXT: Final = 0x81
_BINARY: Final = 0x82
_CONTROL: Final = frozenset((0x89, 0x8A))
_ALONE: Final = frozenset((_TEXT, _BINARY)) | _CONTROL
"""First bytes of frames that need no memory of others: whole messages without extensions, pings and pongs."""
_UNMASKED: Final = 0
_HEAD_END: Final = b"\r\n\r\n"
_PIECE_BYTES: Final = 128
"""Given to the library at once: 18 frames of nothing, some 0.4 ms."""
_FRAGMENTS_MAX: Final = 1024
"""Of one message. Empty ones count for nothing in its size, and would be kept without end."""
_SHORT = struct.Struct("!BB").pack
_MEDIUM = struct.Struct("!BBH").pack
_LONG = struct.Struct("!BBQ").pack

Frame = bytes | str


class FrameChannel(Protocol):
    """Both directions of an accepted connection."""

    def listen(
        self, on_frame: Callable[[Frame], None], on_writable: Callable[[], None], turn: Turn | None = None
    ) -> None:
        """Hand over every whole message as it arrives, those included that wait already.

        Args:
            on_writable: called when the peer has taken what was too much for it.
            turn: whose time on the event loop it takes; without one it counts for this connection alone.
        """
        ...

    def later(self, work: Callable[[], None]) -> None:
        """Do `work` in a turn to come, before any further message is handed over."""
        ...

    def write(self, payloads: Sequence[bytes], *, text: bool) -> None:
        """Whole messages, in one piece; dropped when the connection is over."""
        ...

    @property
    def ready(self) -> bool:
        """False while the peer takes less than it gets; what is written all the same is kept in memory."""
        ...

    def pause(self) -> None:
        """Stop reading, so that a peer that asks and does not listen waits."""
        ...

    def resume(self) -> None: ...


def channel_of(scope: Any) -> FrameChannel:
    """The channel of a connection's scope. Raises RuntimeError under a server without the extension."""
    channel = scope.get("extensions", {}).get(EXTENSION)
    if channel is None:
        raise RuntimeError(f"the server offers no {EXTENSION}; serve with foretype_backend.transport.server.running")
    return cast(FrameChannel, channel)


class FrameProtocol(WebSocketsSansIOProtocol):
    """See the module."""

    _library_reads = False
    """The library reads everything to the end: it has had a part of a frame, or something that it alone knows what to do with."""
    _on_frame: Callable[[Frame], None] | None = None
    _on_writable: Callable[[], None] | None = None
    _turn: Turn | None = None
    _waits = False
    """For a turn, or for the peer to take what it got; what came and was not read is in `_part`."""
    _stopped = False
    """Nothing is read while it waits: more has come than the first read brought."""
    _pong = b""
    """Owed to a peer that does not read; the latest alone (RFC 6455, section 5.5.3)."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._later: deque[Callable[[], None]] = deque()
        self._extensions: dict[str, object] = {}
        self._part = bytearray()  # of a frame, and before that of the handshake
        self._wanted = 0
        self._max_bytes = self.config.ws_max_size
        self.ready = True

    def data_received(self, data: bytes) -> None:
        """Read what came, for one turn.

        A whole message is unmasked and handed over at once. Pings and pongs go to the library as they are. From the first frame on that
        is neither (a fragment, an extension, one that is too large or not masked, a close) it reads all that follows.
        """
        if self._waits:
            self._part += data
            if (
                not self._stopped
            ):  # only now: stopping and going on are four calls of the kernel, and mostly nothing more comes
                self._stopped = True
                self.transport.pause_reading()
            return
        left_s = TURN_S if self._turn is None else self._turn.left_s()
        if left_s <= 0 and not self._part:
            self._hold(data)
            return
        self._read(data, left_s)

    def _read(self, data: bytes, left_s: float) -> None:
        """At least one frame of `data`, and others while there is time."""
        began = perf_counter()
        until = began + left_s
        if not self._library_reads and self.conn.state is State.OPEN:
            data = self._by_hand(data, until)
        at = 0
        while at < len(data) and not self._waits and not self.transport.is_closing():
            self._handshake(data[at : at + _PIECE_BYTES])
            at += _PIECE_BYTES
            if at < len(data) and self.handshake_initiated and self._over(until):
                self._hold(data[at:])
        if self._later and not self._waits:
            self._hold(b"")
        if self._turn is not None:
            self._turn.spend(perf_counter() - began)

    def _by_hand(self, data: bytes, until: float) -> bytes:
        """Read whole messages; returns what the library has to read."""
        if self._part:
            self._part += data
            if len(self._part) < self._wanted:
                return b""
            data = bytes(self._part)
        at, self._wanted = 0, 0
        while (frame := _frame_at(data, at)) is not None:
            first, start, end = frame
            if first not in _ALONE or end - start > self._max_bytes or self.conn.state is not State.OPEN:
                self._library_reads = True
                self._part.clear()
                return data[at:]
            if end > len(data):
                self._wanted = end - at
                break
            if first in _CONTROL:
                super().data_received(data[at:end])
            else:
                self.curr_msg_data_type = "text" if first == _TEXT else "bytes"
                self.frames = [apply_mask(data[start:end], data[start - 4 : start])]
                self.send_receive_event_to_app()
            at = end
            if (at < len(data) or self._later) and self._over(until):
                self._hold(data[at:])
                return b""
        self._part = bytearray(data[at:])
        return b""

    def _over(self, until: float) -> bool:
        return perf_counter() >= until or bool(self._later) or (self._on_frame is not None and self.read_paused)

    def _hold(self, rest: bytes) -> None:
        """Keep what was not read for a later turn; what comes until then waits behind it."""
        self._part, self._wanted, self._waits = bytearray(rest), 0, True
        if not self.read_paused:
            self._again()

    def _again(self) -> None:
        if self._turn is None:
            self.loop.call_soon(self._go_on)
        else:
            self._turn.again(self._go_on)

    def _go_on(self) -> None:
        if not self._waits or self.transport.is_closing() or (self._on_frame is not None and self.read_paused):
            return  # where the peer has to take something first, resume() comes back to it
        began = perf_counter()
        if self._later:
            self._later.popleft()()
            if self._turn is not None:
                self._turn.spend(perf_counter() - began)
        if self._later:
            self._again()
            return
        data, self._waits = bytes(self._part), False
        self._part.clear()
        if self._stopped and not self.read_paused:
            self._stopped = False
            self.transport.resume_reading()
        self._read(data, max(0.0, TURN_S if self._turn is None else self._turn.left_s()))

    def later(self, work: Callable[[], None]) -> None:
        self._later.append(work)

    def _handshake(self, data: bytes) -> None:
        """Nothing may follow a client's handshake before the answer; where something does, the library goes on reading."""
        if not self._library_reads:
            self._library_reads = self.handshake_initiated
            self._part += data
        super().data_received(data)
        if self.handshake_initiated and self._part:
            self._library_reads |= not self._part.endswith(_HEAD_END) or self._part.count(_HEAD_END) > 1
            self._part.clear()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self._extensions = cast("dict[str, object]", self.scope.setdefault("extensions", {}))
            self._extensions[EXTENSION] = self

    def listen(
        self, on_frame: Callable[[Frame], None], on_writable: Callable[[], None], turn: Turn | None = None
    ) -> None:
        self._on_frame, self._on_writable, self._turn = on_frame, on_writable, turn
        for _ in range(self.queue.qsize()):
            event = self.queue.get_nowait()
            if event["type"] == "websocket.receive":
                frame = event.get("bytes")
                on_frame(frame if frame is not None else event.get("text") or "")
            else:
                self.queue.put_nowait(event)
        self.resume()

    def send_receive_event_to_app(self) -> None:
        if self._on_frame is None or self.close_sent:
            super().send_receive_event_to_app()
            return
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.curr_msg_data_type == "bytes":
            self._on_frame(data)
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.conn.send_close(1007)
            self.handle_parser_exception()
            return
        self._on_frame(text)

    def write(self, payloads: Sequence[bytes], *, text: bool) -> None:
        if self.close_sent or self.conn.state is not State.OPEN or self.transport.is_closing():
            return
        if len(payloads) == 1:
            self.transport.write(_head(len(payloads[0]), text) + payloads[0])
        else:
            self.transport.write(b"".join([_head(len(one), text) + one for one in payloads]))

    def shutdown(self) -> None:
        """The server ends. A peer that has just closed is not told: a second close raises, and nobody after it would be told."""
        if not self.transport.is_closing():
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # No cycles: what a connection holds of its client's source text is freed now, not at the collector's next round.
        self._on_frame = self._on_writable = self._turn = None
        self.ready, self._waits, self._pong = True, False, b""
        self._part.clear()
        self._later.clear()
        self._extensions.pop(EXTENSION, None)

    def pause(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            if self._waits:
                self._stopped = True
                self._again()
            else:
                self._stopped = False
                self.transport.resume_reading()

    def handle_ping(self) -> None:
        pong = b"".join(self.conn.data_to_send())
        if self.ready:
            self.transport.write(pong)
        else:
            self._pong = pong

    def handle_cont(self, event: LibraryFrame) -> None:
        if self.close_sent:
            return
        if len(self.frames) < _FRAGMENTS_MAX:
            super().handle_cont(event)
        else:
            self.frames = []
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, "a message in too many fragments")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.close()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # who takes nothing would hold up the close for ever

    def pause_writing(self) -> None:
        super().pause_writing()
        self.ready = False

    def resume_writing(self) -> None:
        super().resume_writing()
        self.ready = True
        if self._pong:
            self.transport.write(self._pong)
            self._pong = b""
        if self._on_writable is not None:
            self._on_writable()


def _frame_at(data: bytes, at: int) -> tuple[int, int, int] | None:
    """First byte, begin and end of the payload of a client's frame (RFC 6455, section 5.2); None where its head is not all there.

    The first byte of one without a mask, which no client may send, counts as :data:`_UNMASKED`. Two bytes say that a frame is for the
    library; it is told without an end, since the library may refuse it before there is more.
    """
    if len(data) < at + 2:
        return None
    first, size, start = data[at] if data[at + 1] & 0x80 else _UNMASKED, data[at + 1] & 0x7F, at + 6
    if first not in _ALONE:
        return first, at, at
    if size > 125:
        start += 2 if size == 126 else 8
        if len(data) < start - 4:
            return None
        size = int.from_bytes(data[at + 2 : start - 4])
    return first, start, start + size


def _head(size: int, text: bool) -> bytes:
    """Of a whole frame that a server sends: unmasked (RFC 6455, section 5.2)."""
    kind = _TEXT if text else _BINARY
    if size < 126:
        return _SHORT(kind, size)
    return _MEDIUM(kind, 126, size) if size < 1 << 16 else _LONG(kind, 127, size)
