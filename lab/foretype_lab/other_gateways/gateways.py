"""Another gateway in front of the same scripted engine, started as its own manual says, and ours beside it.

`make peer-gateways-env` installs it into an environment of its own. Both authenticate their requests: ours with a key of one run, smg
with one as its shared key.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import psutil
from foretype_client.ports import Endpoint
from foretype_eval.gateway import GatewayOptions, connected
from foretype_eval.load.gateway import GatewayUnderLoad, pinned, target
from foretype_models.artifacts import locate
from foretype_wire.errors import GatewayGoneError

from foretype_lab.other_gateways.sse_client import SseConnection, open_sse, request_bytes
from foretype_lab.other_gateways.sse_engine import MODEL
from foretype_lab.processes import environment, free_ports

PEERS: Final = ("smg", "foretype")
ENVIRONMENTS: Final = Path(".venv-peer-gateways")
_START_S: Final = 90.0

_FORETYPE: Final = """\
[engine]
name = "openai"
model = "{engine}/v1"
[model]
tokenizer = "{tokenizer}"
[limits]
max_running = 8192
max_waiting = 4096"""


class GatewayPlace(NamedTuple):
    """Where `/v1/completions` is, what a request must carry, and the process to watch."""

    host: str
    port: int
    headers: Mapping[str, str]
    process: psutil.Process | None

    def watched(self) -> GatewayUnderLoad:
        return GatewayUnderLoad(Endpoint(f"http://{self.host}:{self.port}", None), self.process)


def version_of(name: str) -> str | None:
    """The installed version of a peer; None where that says nothing."""
    if name != "smg":
        return None
    found = sorted(ENVIRONMENTS.glob("smg/lib/python*/site-packages/smg-*.dist-info"))
    return found[-1].name.removeprefix("smg-").removesuffix(".dist-info") if found else None


@contextlib.contextmanager
def scripted_server(frame_ms: float, core: int | None) -> Generator[str]:
    """The scripted engine in a process of its own; yields its URL without `/v1`."""
    command = [sys.executable, "-P", "-m", "foretype_lab.other_gateways.sse_engine", "--frame-ms", str(frame_ms)]
    with pinned(core):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        port = process.stdout.readline().strip() if process.stdout is not None else ""
        if not port:
            raise GatewayGoneError("the scripted engine did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(process)


@contextlib.asynccontextmanager
async def peer(name: str, engine: str, folder: Path, core: int | None) -> AsyncGenerator[GatewayPlace]:
    """The gateway `name` in front of `engine`, on `core`; a URL names one that runs already.

    Raises:
        GatewayGoneError: it is not installed or does not start; with its last words and the remedy.
    """
    if name.startswith("http://"):
        url = urlsplit(name)
        yield GatewayPlace(url.hostname or "127.0.0.1", url.port or 80, {}, None)
    elif name == "foretype":
        profile = folder / "foretype.toml"
        profile.write_text(_FORETYPE.format(engine=engine, tokenizer=locate().tokenizer_path.as_posix()))
        options = GatewayOptions(profile=profile)
        async with target(options, frame_ms=0, slots=0, core=core) as found:
            url = urlsplit(found.endpoint.url)
            headers = {"Authorization": f"Bearer {found.endpoint.token}"}
            # A private gateway ends when the last session has left, and requests over HTTP are no session.
            async with connected(GatewayOptions(url=found.endpoint.url, token=found.endpoint.token)):
                yield GatewayPlace(url.hostname or "127.0.0.1", url.port or 80, headers, found.process)
    elif name == "smg":
        async with _smg(engine, folder, core) as place:
            yield place
    else:
        raise GatewayGoneError(f"{name}: none of {', '.join(PEERS)}, and no http:// URL of a running gateway")


@contextlib.asynccontextmanager
async def _smg(engine: str, folder: Path, core: int | None) -> AsyncGenerator[GatewayPlace]:
    program = (ENVIRONMENTS / "smg" / "bin" / "smg").absolute()
    if not program.exists():
        raise GatewayGoneError(f"{program} is not there; `make peer-gateways-env` installs it")
    port, key, log = free_ports(1)[0], f"sk-{secrets.token_hex(16)}", folder / "smg.log"
    with pinned(core):
        process = _launch([str(program), *_arguments(engine, port, key)], log)
    try:
        place = GatewayPlace("127.0.0.1", port, {"Authorization": f"Bearer {key}"}, psutil.Process(process.pid))
        try:
            await _answers(place, process)
        except GatewayGoneError as error:
            words = log.read_text("utf-8", "replace").strip()[-600:]
            raise GatewayGoneError(f"smg does not serve: {error}; it said: {words}") from None
        yield place
    finally:
        _stop(process)


def _launch(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent)


def _arguments(engine: str, port: int, key: str) -> Sequence[str]:
    own = ("--host", "127.0.0.1", "--port", str(port), "--api-key", key, "--log-level", "error")
    metrics = ("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_ports(1)[0]))
    # One worker: what a policy does with prompts would be cost without use.
    return ("launch", *own, *metrics, "--worker-urls", engine, "--policy", "round_robin")


async def _answers(place: GatewayPlace, process: subprocess.Popen[bytes]) -> None:
    """Wait until a completion comes back. Raises GatewayGoneError."""
    request = request_bytes(place.host, "ready?", model=MODEL, max_tokens=1, headers=place.headers)
    problem: str | None = "it never answered"
    deadline = asyncio.get_running_loop().time() + _START_S
    while asyncio.get_running_loop().time() < deadline:
        if process.poll() is not None:
            raise GatewayGoneError(f"it ended with {process.returncode}")
        with contextlib.suppress(GatewayGoneError, TimeoutError):
            problem = await _once(await open_sse(place.host, place.port), request)
            if problem is None:
                return
        await asyncio.sleep(0.3)
    raise GatewayGoneError(problem or "")


async def _once(connection: SseConnection, request: bytes) -> str | None:
    ended: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    connection.on_end = lambda problem: None if ended.done() else ended.set_result(problem)
    connection.send(request)
    try:
        async with asyncio.timeout(10):
            return await ended
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
