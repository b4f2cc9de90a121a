"""HTTP/1.1 parsed in C, with a bound on heads, which neither uvicorn's protocol of this kind nor its library has."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HttpProtocol"]

HEAD_MAX_BYTES: Final = 64 * 1024
"""Of the request line and all headers; more is answered with 400, and the connection ends."""


class HttpProtocol(HttpToolsProtocol):
    """See the module."""

    _in_head = True
    _raw_bytes = 0  # while a head is under way: a field is only known when it has ended
    _field_bytes = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._raw_bytes += len(data)
            if self._raw_bytes > HEAD_MAX_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        self._in_head, self._raw_bytes, self._field_bytes = True, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > HEAD_MAX_BYTES:
            raise ValueError("the head of the request is too large")  # the parser turns it into a 400
