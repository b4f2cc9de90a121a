"""WebSocket frames of an open connection without the detour through ASGI: callbacks in, one write out.

ASGI takes a coroutine for every message sent and a queue, a task switch and two calls to stop and resume reading for every
message received; under load that was a third of what a request cost the gateway. This is uvicorn's own protocol: handshake,
masks, pings, closing and limits are its. It offers an application the extension :data:`EXTENSION` (ASGI's `scope["extensions"]`)
with two shorter ways, for whole messages of a connection that was accepted: :meth:`FrameProtocol.listen` and
:meth:`FrameProtocol.write`. Closing, and learning of the end, stay with ASGI.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

__all__ = ["EXTENSION", "Frame", "FrameChannel", "FrameProtocol", "channel_of"]

EXTENSION: Final = "foretype.frames"
_TEXT: Final = 0x81
_BINARY: Final = 0x82
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

    def write(self, payload: bytes, *, text: bool) -> None:
        """One whole message; dropped when the connection is over."""
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

    _on_frame: Callable[[Frame], None] | None = None
    _on_writable: Callable[[], None] | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._extensions: dict[str, object] = {}

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

    @property
    def ready(self) -> bool:
        return self.writable.is_set()

    def write(self, payload: bytes, *, text: bool) -> None:
        if self.close_sent or self.conn.state is not State.OPEN or self.transport.is_closing():
            return
        self.transport.write(_head(len(payload), text) + payload)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # No cycles: what a connection holds of its client's source text is freed now, not at the collector's next round.
        self._on_frame = self._on_writable = None
        self._extensions.pop(EXTENSION, None)

    def pause(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._on_writable is not None:
            self._on_writable()


def _head(size: int, text: bool) -> bytes:
    """Of a whole frame that a server sends: unmasked (RFC 6455, section 5.2)."""
    kind = _TEXT if text else _BINARY
    if size < 126:
        return _SHORT(kind, size)
    return _MEDIUM(kind, 126, size) if size < 1 << 16 else _LONG(kind, 127, size)
