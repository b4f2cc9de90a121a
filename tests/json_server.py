"""A server that answers in JSON what a test says."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextlib.contextmanager
def json_server(answer: Callable[[str, str], Any]) -> Iterator[str]:
    """Its URL, while it runs. `answer` gets method and path of each request, on the server's threads."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer(self.command, self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
