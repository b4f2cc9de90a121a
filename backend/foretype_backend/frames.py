"""WebSocket frames of an open connection without the detour through ASGI: callbacks in, one write out.

ASGI takes a coroutine for every message sent and a queue, a task switch and two calls to stop and resume reading for every
message received; under load that was a third of what a request cost the gateway. This is uvicorn's own protocol: handshake,
pings, closing and whatever is wrong with a frame are its. It offers an application the extension :data:`EXTENSION` (ASGI's
`scope["extensions"]`) with two shorter ways, for whole messages of a connection that was accepted: :meth:`FrameProtocol.listen` and
:meth:`FrameProtocol.write`. Closing, and learning of the end, stay with ASGI.

A message that is one frame is unmasked here; its library reads every frame through five generators. All else goes to it, frame by
frame: see :meth:`FrameProtocol.data_received`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was built without its C code
    from websockets.utils import apply_mask

__all__ = ["EXTENSION", "Frame", "FrameChannel", "FrameProtocol", "channel_of"]

EXTENSION: Final = "foretype.frames"
_TEXT: Final = 0x81
_BINARY: Final = 0x82
_CONTROL: Final = frozenset((0x89, 0x8A))
_ALONE: Final = frozenset((_TEXT, _BINARY)) | _CONTROL
"""First bytes of frames that need no memory of others: whole messages without extensions, pings and pongs."""
_UNMASKED: Final = 0
_HEAD_END: Final = b"\r\n\r\n"
_SHORT = struct.Struct("!BB").pack
_MEDIUM = struct.Struct("!BBH").pack
_LONG = struct.Struct("!BBQ").pack

Frame = bytes | str


class FrameChannel(Protocol):
    """Both directions of an accepted connection."""

    def listen(self, on_frame: Callable[[Frame], None], on_writable: Callable[[], None]) -> None:
        """Hand over every whole message in the turn in which it arrives, those included that wait already.

        Args:
            on_writable: called when the peer has taken what was too much for it.
        """
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
        raise RuntimeError(f"the server offers no {EXTENSION}; serve with foretype_backend.server.running")
    return cast(FrameChannel, channel)


class FrameProtocol(WebSocketsSansIOProtocol):
    """See the module."""

    _library_reads = False
    """The library reads everything to the end: it has had a part of a frame, or something that it alone knows what to do with."""
    _on_frame: Callable[[Frame], None] | None = None
    _on_writable: Callable[[], None] | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._extensions: dict[str, object] = {}
        self._part = bytearray()  # of a frame, and before that of the handshake
        self._wanted = 0
        self._max_bytes = self.config.ws_max_size
        self.ready = True

    def data_received(self, data: bytes) -> None:
        """Read what came.

        A whole message is unmasked and handed over at once. Pings and pongs go to the library as they are. From the first frame on that
        is neither (a fragment, an extension, one that is too large or not masked, a close) it reads all that follows.
        """
        if self._library_reads or self.conn.state is not State.OPEN:
            self._handshake(data)
            return
        if self._part:
            self._part += data
            if len(self._part) < self._wanted:
                return
            data = bytes(self._part)
        at, self._wanted = 0, 0
        while (frame := _frame_at(data, at)) is not None:
            first, start, end = frame
            if first not in _ALONE or end - start > self._max_bytes or self.conn.state is not State.OPEN:
                self._library_reads = True
                break
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
        self._part = bytearray() if self._library_reads else bytearray(data[at:])
        if self._library_reads and not self.transport.is_closing():
            super().data_received(data[at:])

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

    def listen(self, on_frame: Callable[[Frame], None], on_writable: Callable[[], None]) -> None:
        self._on_frame, self._on_writable = on_frame, on_writable
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
        self.transport.write(b"".join([part for one in payloads for part in (_head(len(one), text), one)]))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # No cycles: what a connection holds of its client's source text is freed now, not at the collector's next round.
        self._on_frame = self._on_writable = None
        self.ready = True
        self._part.clear()
        self._extensions.pop(EXTENSION, None)

    def pause(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.ready = False

    def resume_writing(self) -> None:
        super().resume_writing()
        self.ready = True
        if self._on_writable is not None:
            self._on_writable()


def _frame_at(data: bytes, at: int) -> tuple[int, int, int] | None:
    """First byte, begin and end of the payload of a client's frame (RFC 6455, section 5.2); None where its head is not all there.

    The first byte of one without a mask, which no client may send, counts as :data:`_UNMASKED`.
    """
    if len(data) < at + 2:
        return None
    first, size, start = data[at], data[at + 1] & 0x7F, at + 6
    if size > 125:
        start += 2 if size == 126 else 8
        if len(data) < start - 4:
            return None
        size = int.from_bytes(data[at + 2 : start - 4])
    return first if data[at + 1] & 0x80 else _UNMASKED, start, start + size


def _head(size: int, text: bool) -> bytes:
    """Of a whole frame that a server sends: unmasked (RFC 6455, section 5.2)."""
    kind = _TEXT if text else _BINARY
    if size < 126:
        return _SHORT(kind, size)
    return _MEDIUM(kind, 126, size) if size < 1 << 16 else _LONG(kind, 127, size)
