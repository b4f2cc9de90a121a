"""Every door trusts the same authorities: the operating system's, or those that SSL_CERT_FILE and SSL_CERT_DIR name."""

import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from json_server import QuietHandler

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")

# What each door says to a server that speaks TLS and nothing that they want to hear; a certificate comes before that.
DOORS = """
import asyncio, sys
import httpx
from foretype_backend.engines.openai.http_stream import HttpStreams
from foretype_client.session.connecting import http_client
from foretype_client.session.opening import opened
from foretype_models.running_servers import _client

async def socket(url):
    async with opened(url.replace("https:", "wss:")):
        pass

async def http(url):
    async with http_client(url, 5.0) as client:
        await client.get(url)

async def stream(url):
    streams = HttpStreams(httpx.Request("POST", url), connect_timeout_s=5.0, idle_timeout_s=5.0)
    await streams.connect()
    streams.close()

async def looked(url):
    async with _client(5.0, local=False) as client:
        await client.get(url)

for door in (socket, http, stream, looked):
    try:
        asyncio.run(door(sys.argv[1]))
        said = "trusted"
    except Exception as error:
        said = "refused" if "CERTIFICATE_VERIFY_FAILED" in str(error) else "trusted"
    print(door.__name__, said)
"""


def run(folder: Path, *command: str) -> None:
    subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    key = ("-newkey", "rsa:2048", "-nodes")
    constraints = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    run(
        folder,
        "req",
        "-x509",
        *key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=P",
        *constraints,
    )
    run(folder, "req", *key, "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    run(folder, "x509", "-req", "-in", "own.csr", "-out", "own.pem", *signed)
    (folder / "store").mkdir()
    shutil.copy(folder / "ca.pem", folder / "store")
    run(folder, "rehash", "store")
    return folder


@pytest.fixture
def server(authority: Path) -> Iterator[str]:
    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "own.pem", authority / "own.key")
    with Quiet(("127.0.0.1", 0), QuietHandler) as door:
        door.socket = context.wrap_socket(door.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=door.serve_forever)
        thread.start()
        yield f"https://localhost:{door.server_port}/"
        door.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [("SSL_CERT_FILE", "ca.pem", "trusted"), ("SSL_CERT_DIR", "store", "trusted"), ("NOTHING", "", "refused")],
)
def test_every_door_trusts_whom_the_machines_owner_trusts(
    authority: Path, server: str, name: str, path: str, said: str
) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SSL_CERT")}
    env = {**kept, name: str(authority / path)}
    done = subprocess.run(
        [sys.executable, "-c", DOORS, server], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == dict.fromkeys(
        ("socket", "http", "stream", "looked"), said
    )
