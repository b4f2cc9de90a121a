"""Frames: messages of the wire as MessagePack or JSON, with every way to be unreadable under one name."""

from __future__ import annotations

import msgspec
from foretype_context.prompt.segments import Segment
from foretype_context.text.strings import join_surrogates, well_formed

from foretype_wire.errors import FrameTooLargeError, UnreadableFrameError
from foretype_wire.messages import MAX_FRAME_BYTES, ClientMessage, Complete, GatewayMessage

Frame = bytes | str
"""One WebSocket frame: bytes are MessagePack, str is JSON."""


class _Envelope(msgspec.Struct):
    """What can still be read of a frame that could not be."""

    type: str = ""
    id: str = ""


_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


class Codec:
    """Frames of the client's end of one connection: client messages out, gateway messages in."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        self._json_decoder = msgspec.json.Decoder[GatewayMessage](GatewayMessage)
        self._msgpack_decoder = msgspec.msgpack.Decoder[GatewayMessage](GatewayMessage)

    def encode(self, message: ClientMessage) -> Frame:
        """One frame.

        Raises:
            UnicodeEncodeError: a text holds a lone surrogate; see `scrub`.
            OverflowError: an integer beyond 64 bits.
            FrameTooLargeError: more than `MAX_FRAME_BYTES`.
        """
        encoded = msgspec.json.encode(message) if self.json else msgspec.msgpack.encode(message)
        if len(encoded) > MAX_FRAME_BYTES:
            raise FrameTooLargeError(f"{len(encoded)} bytes in one frame, more than {MAX_FRAME_BYTES}")
        return encoded.decode() if self.json else encoded

    def decode(self, frame: Frame) -> GatewayMessage:
        """One message.

        Raises:
            UnreadableFrameError: of the other kind, too large, malformed, or of an unknown type.
        """
        if isinstance(frame, str) is not self.json:
            raise UnreadableFrameError(
                f"a {'text' if isinstance(frame, str) else 'binary'} frame on the other connection kind"
            )
        if len(frame) > MAX_FRAME_BYTES:
            raise UnreadableFrameError(f"a frame of {len(frame)} bytes, more than {MAX_FRAME_BYTES}")
        try:
            if isinstance(frame, str):
                return self._json_decoder.decode(frame)
            return self._msgpack_decoder.decode(frame)
        except _UNREADABLE as error:
            envelope = self._envelope(frame)
            reason = str(error) or type(error).__name__
            raise UnreadableFrameError(reason, type=envelope.type, id=envelope.id) from error

    def _envelope(self, frame: Frame) -> _Envelope:
        try:
            if isinstance(frame, str):
                return msgspec.json.decode(frame, type=_Envelope)
            return msgspec.msgpack.decode(frame, type=_Envelope)
        except _UNREADABLE:
            return _Envelope()


def scrub(text: str) -> str:
    """`text` without lone surrogates: they become U+FFFD, and pairs one character, exactly as tiktoken reads them."""
    return well_formed(join_surrogates(text))


def scrub_call(call: Complete[Segment]) -> Complete[Segment]:
    """`call` with every text scrubbed."""
    segments = [
        Segment(
            kind=segment.kind,
            scope=segment.scope,
            source=msgspec.structs.replace(
                segment.source, document=scrub(segment.source.document), path=scrub(segment.source.path)
            ),
            text=scrub(segment.text),
        )
        for segment in call.segments
    ]
    strings = [scrub(string) for string in call.stop.strings]
    stop = msgspec.structs.replace(call.stop, strings=strings, repeats=scrub(call.stop.repeats))
    supersedes = None if call.supersedes is None else scrub(call.supersedes)
    return msgspec.structs.replace(
        call,
        id=scrub(call.id),
        supersedes=supersedes,
        document=scrub(call.document),
        language=scrub(call.language),
        segments=segments,
        stop=stop,
    )
