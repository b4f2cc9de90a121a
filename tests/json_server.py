"""Servers of HTTP for tests, on a free port of this machine."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SEES_IT_S = 5.0


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def say(self, status: int, value: object) -> None:
        """Answer with a value as JSON; bytes as they are."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Listening(ThreadingHTTPServer):
    """One that knows which connections are open; attributes: see `http.server`."""

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.connections.discard(request)

    def end(self) -> None:
        """Ends what clients keep open, and waits for the threads that have it, as long as one may take to see that."""
        self.shutdown()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):  # closed by now
                connection.shutdown(socket.SHUT_RDWR)
        ends = time.monotonic() + _SEES_IT_S
        while self.connections and time.monotonic() < ends:
            time.sleep(0.002)


@contextlib.contextmanager
def listening(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[Listening]:
    """A server that answers by `handler`, while it runs; connections that a client keeps are ended with it."""
    with Listening(port, handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.end()
            thread.join()


@contextlib.contextmanager
def json_server(answer: Callable[[str, str], Any]) -> Iterator[str]:
    """Its URL, while it runs. `answer` gets method and path of each request, on the server's threads."""

    class Door(QuietHandler):
        def do_GET(self) -> None:
            self.say(200, answer(self.command, self.path))

        do_PUT = do_POST = do_DELETE = do_GET

    with listening(Door) as server:
        yield f"http://127.0.0.1:{server.server_port}"
