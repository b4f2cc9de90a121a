"""Stands in for `python -m foretype_backend serve` in tests of starting and joining; takes the same options.

`FAKE_GATEWAY` in the environment chooses a fault: `fail` ends at once with words on stderr, `refuse` as one whose
configuration cannot be used, `hang` never gets ready.
"""

import argparse
import http.server
import json
import os
import secrets
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--private", action="store_true", required=True)
parser.add_argument("--state-dir", type=Path, required=True)
parser.add_argument("--model", type=Path)
parser.add_argument("--linger-s", type=float, default=60.0)
parser.add_argument("--profile", type=Path)
options = parser.parse_args()

with (options.state_dir / "starts").open("a") as starts:
    starts.write(f"{os.getpid()}\n")

fault = os.environ.get("FAKE_GATEWAY", "")
if fault == "fail":
    print("loading\nmodel file is not there: foretype models pull", file=sys.stderr)
    sys.exit(3)
if fault == "refuse":
    print("foretype serve: engine.model: /gone.gguf: no such file", file=sys.stderr)
    sys.exit(2)
if fault == "hang":
    print("still loading", file=sys.stderr, flush=True)
    time.sleep(60)

TOKEN = secrets.token_hex(16)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        authorized = self.headers["Authorization"] == f"Bearer {TOKEN}"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "ok", "authorized": authorized}).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
time.sleep(0.2)  # so that two starters really overlap
record = {
    "pid": os.getpid(),
    "host": "127.0.0.1",
    "port": server.server_port,
    "token": TOKEN,
    "version": "test",
    "started": "2026-01-01T00:00:00Z",
    "model": str(options.model),
    "profile": str(options.profile),
}
path = options.state_dir / "gateway.json"
temporary = path.with_suffix(".tmp")
temporary.touch(mode=0o600)
temporary.write_text(json.dumps(record))
temporary.replace(path)
time.sleep(options.linger_s)
path.unlink(missing_ok=True)
