"""A server of one file that breaks, lies and refuses as it is told: what networks and proxies do to a download."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from json_server import QuietHandler, listening


@dataclass
class FileServer:
    """What it does with the requests to come.

    Attributes:
        breaks_after: bytes of a body after which the connection ends, one entry per request; whole ones once it is empty.
        ranges: whether it serves parts.
        announces: the length that it says, in place of the right one; None says none at all.
        refuses: statuses that it answers first, one per request.
    """

    body: bytes
    etag: str = '"v1"'
    ranges: bool = True
    breaks_after: list[int] = field(default_factory=list)
    announces: int | None = -1
    refuses: list[int] = field(default_factory=list)
    content_type: str = "application/octet-stream"
    redirects: list[str] = field(default_factory=list)
    linked: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/file.gguf"


@contextmanager
def serving(served: FileServer) -> Iterator[FileServer]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def nothing(self, status: int, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in (*headers, ("Content-Length", "0")):
                self.send_header(name, value)
            self.end_headers()

        def do_GET(self) -> None:
            served.requests.append(dict(self.headers))
            if served.refuses:
                self.nothing(served.refuses.pop(0), ("Retry-After", "0"))
                return
            if served.redirects:
                linked = [("X-Linked-Etag", f'"{served.linked}"')] if served.linked else []
                self.nothing(302, ("Location", served.redirects.pop(0)), *linked)
                return
            start = 0
            asked = self.headers.get("Range", "")
            same = self.headers.get("If-Range", served.etag) == served.etag
            if served.ranges and asked and same:
                start = int(asked.removeprefix("bytes=").rstrip("-"))
                if start >= len(served.body):
                    self.nothing(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(served.body) - 1}/{len(served.body)}")
            else:
                self.send_response(200)
            rest = served.body[start:]
            if served.etag:
                self.send_header("ETag", served.etag)
            self.send_header("Content-Type", served.content_type)
            if served.announces is not None:
                self.send_header("Content-Length", str(len(rest) if served.announces < 0 else served.announces))
            else:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            if served.breaks_after:
                rest = rest[: served.breaks_after.pop(0)]
                self.close_connection = True
            self.wfile.write(rest)

    with listening(Handler) as server:
        served.port = server.server_port
        yield served
