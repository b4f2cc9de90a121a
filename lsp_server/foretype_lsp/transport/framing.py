r"""Message framing of the LSP base protocol, without I/O: bytes in, message bodies out, and back.

Header names are compared without case and any line end that ends in `\n` is taken: some clients are sloppy here, and a
message that is not understood is one that is never answered.
"""

from __future__ import annotations

from typing import Final

MAX_BODY_BYTES: Final = 256 << 20
"""A larger message is skipped (five 50 MB files would fit)."""

_MAX_HEADER_BYTES: Final = 1 << 16


class Framing:
    """Cuts a byte stream into message bodies. What is not a header is skipped until the next one.

    Attributes:
        skipped: messages and garbage that were dropped, for the log.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self._chunks: list[bytes] = []
        self._have = 0  # bytes in chunks
        self._header = b""
        self._wanted: int | None = None  # body bytes, once the header is complete

    def feed(self, data: bytes) -> list[bytes]:
        """Take some bytes; give the bodies that are now complete, in order."""
        bodies: list[bytes] = []
        while True:
            if self._wanted is None:
                if not data:
                    return bodies
                data = self._read_header(data)
                continue
            needed = self._wanted - self._have
            part, data = data[:needed], data[needed:]
            self._have += len(part)
            if self._wanted <= MAX_BODY_BYTES:
                self._chunks.append(part)
            if self._have < self._wanted:
                return bodies
            if self._wanted <= MAX_BODY_BYTES:
                bodies.append(b"".join(self._chunks))
            else:
                self.skipped += 1
            self._chunks, self._have, self._wanted = [], 0, None

    def _read_header(self, data: bytes) -> bytes:
        """Take bytes up to the blank line after the header; return those behind it."""
        self._header += data
        lines = self._header.split(b"\n")
        length: int | None = None
        position = 0
        for line in lines[:-1]:
            position += len(line) + 1
            name, _, value = line.strip().partition(b":")
            if name.lower() == b"content-length" and value.strip().isdigit() and len(value) < 20:
                length = int(value)
            elif not line.strip():
                rest, self._header = self._header[position:], b""
                if length is None:
                    self.skipped += position > len(line) + 1  # a stray blank line is nothing
                    return rest
                self._wanted = length
                return rest
        if len(self._header) > _MAX_HEADER_BYTES:
            self.skipped += 1
            self._header = lines[-1][-1024:]
        return b""


def frame(body: bytes) -> bytes:
    """A message with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
