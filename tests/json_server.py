"""Servers of HTTP for tests, on a free port of this machine."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def listening(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[ThreadingHTTPServer]:
    """A server that answers by `handler`, while it runs; connections that a client keeps hold nobody up."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def json_server(answer: Callable[[str, str], Any]) -> Iterator[str]:
    """Its URL, while it runs. `answer` gets method and path of each request, on the server's threads."""

    class Door(QuietHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer(self.command, self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_DELETE = do_GET

    with listening(Door) as server:
        yield f"http://127.0.0.1:{server.server_port}"
