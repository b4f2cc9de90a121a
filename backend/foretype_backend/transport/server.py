"""The shell around the application: uvicorn, signals, the end of a private gateway."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, Protocol

import uvicorn
from foretype_wire.garbage_collection import calm_collector
from foretype_wire.tasks import end_tasks
from starlette.applications import Starlette

from foretype_backend.config.config import Config
from foretype_backend.transport.certificate import Certificate
from foretype_backend.transport.http_protocol import Connections, bounded
from foretype_backend.transport.loop_monitor import LoopWatch, watch_loop
from foretype_backend.transport.sockets import Address, address_of, bind
from foretype_backend.transport.websocket_frames import FrameProtocol

_FRAME_CEILING: Final = 4
"""Frames up to this many times the limit are read and answered with an error; larger ones end the connection (1009)."""

_SHUTDOWN_S: Final = 3

_YOUNG_OBJECTS: Final = 5_000
"""Looked through by the cycle collector at once, in some 3 ms of a busy machine once a second at 900 requests/s; at 2,000 it is five times as often."""

_SWITCH_S: Final = 0.0005
"""A thread that encodes lets the event loop have the interpreter after so long; Python's own 5 ms would be added to every wake-up."""

_LOOK_S: Final = 5.0
"""How often a private gateway looks whether another has taken its place: so long at most the model before goes on answering."""

_PRIVATE_CALM_S: Final = 10.0
"""Between two looks at how late a private gateway's loop is, while nothing is generated."""

_KEEP_ALIVE_S: Final = 30
"""Longer than clients keep an idle connection, mostly five seconds: who closes first must not be who is just asked again."""


class Clients(Protocol):
    """Those that are connected for long: a gateway ends when the last one leaves, or asks them to move."""

    @property
    def connections(self) -> Collection[object]: ...

    @property
    def activity(self) -> asyncio.Event:
        """Set whenever a connection came or left."""
        ...

    def goaway(self, grace_ms: float) -> None:
        """Ask every client to move on within `grace_ms`, and take no new one."""
        ...


class EndableServer(uvicorn.Server):
    """Signals belong to the edge, which cleans up after them; uvicorn would raise them again and skip that.

    And it wakes up when it is told to end, and never else: uvicorn looks ten times a second, and at the date for its header.
    :mod:`foretype_backend.transport.http_protocol` looks at the date when a request comes.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        self._told_to_end = asyncio.Event()
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        return self._told_to_end.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if value:
            self._told_to_end.set()

    async def main_loop(self) -> None:
        await self._told_to_end.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    def stop_accepting(self) -> None:
        """Leave new connections to others that listen on the same socket."""
        for server in self.servers:
            server.close()


def _server(app: Starlette, config: Config, certificate: Certificate | None) -> EndableServer:
    options = uvicorn.Config(
        app,
        http=bounded(Connections(config.gateway.max_http_connections, config.gateway.http_idle_s)),
        ws=FrameProtocol,
        ws_max_size=config.limits.max_frame_bytes * _FRAME_CEILING,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    options.load()
    options.ssl = None if certificate is None else certificate.context
    return EndableServer(options)


@contextlib.asynccontextmanager
async def running(
    app: Starlette,
    config: Config,
    listener: socket.socket | None = None,
    certificate: Certificate | None = None,
    watch: LoopWatch | None = None,
) -> AsyncGenerator[Address]:
    """Serve `app` while the block runs; yields the address it is bound to. Also for tests and benchmarks in process.

    Args:
        listener: a bound socket; without one the configured address is bound. Closed at the end.
        certificate: makes it speak TLS.
        watch: told how late the event loop is.
    """
    async with _running(app, config, listener or bind(config), certificate, watch) as (_, address):
        yield address


@contextlib.asynccontextmanager
async def _running(
    app: Starlette,
    config: Config,
    listener: socket.socket,
    certificate: Certificate | None,
    watch: LoopWatch | None,
) -> AsyncGenerator[tuple[EndableServer, Address]]:
    server = _server(app, config, certificate)
    monitors: list[asyncio.Task[None]] = []
    if watch is not None and config.private:
        # It has a connection all day, and keeps no laptop awake; a team's is looked at evenly.
        monitors.append(asyncio.create_task(watch_loop(watch.late, watch.working, _PRIVATE_CALM_S)))
    elif watch is not None:
        connected = server.server_state.connections
        monitors.append(asyncio.create_task(watch_loop(watch.late, lambda: bool(connected))))
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if task.done():
                await task
                raise RuntimeError("the server ended before it had started")
            await asyncio.sleep(0.005)
        yield server, address_of(listener)
    finally:
        await end_tasks(*monitors)
        server.should_exit = True
        await task
        listener.close()


async def serve_until_told(
    app: Starlette,
    clients: Clients,
    watch: LoopWatch,
    config: Config,
    listener: socket.socket,
    *,
    ready: Callable[[Address], None],
    reload: Callable[[], None] | None = None,
    certificate: Certificate | None = None,
    shared: bool = False,
    current: Callable[[], bool] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or, in private mode, until nobody has been connected for `linger_s`.

    On SIGTERM clients are asked to move first, and have `drain_s` for it; SIGINT, or a second signal, ends at once. A private
    gateway whose place another has taken asks its clients to move too.

    Args:
        ready: called once requests are served.
        reload: called on SIGHUP.
        shared: other workers listen on the same socket, so that who moves must not come back to this one.
        current: whether clients that look for this gateway still find it; asked often, on the event loop.
    """
    told = _Told()
    sys.setswitchinterval(_SWITCH_S)
    with _signals(told, reload), calm_collector(young_objects=_YOUNG_OBJECTS):
        async with _running(app, config, listener, certificate, watch) as (server, address):
            ready(address)
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(told.end.wait())]
            if config.private:
                waits.append(asyncio.ensure_future(_deserted(clients, config.gateway.linger_s)))
            replaced = None if current is None else asyncio.ensure_future(_until_not(current))
            if replaced is not None:
                waits.append(replaced)
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if shared:
                server.stop_accepting()
            moved = replaced is not None and replaced.done() and not replaced.cancelled()
            drain_s = config.gateway.drain_s if moved or (told.gently and not config.private) else 0.0
            await _drain(clients, drain_s, told)


@dataclass(slots=True)
class _Told:
    """What signals said: to end, whether clients are to move first, and whether somebody has become impatient."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    now: asyncio.Event = field(default_factory=asyncio.Event)
    gently: bool = False


async def _drain(clients: Clients, drain_s: float, told: _Told) -> None:
    """Ask every client to move, and wait until all have, the time is over, or a second signal came."""
    clients.goaway(grace_ms=drain_s * 1000)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drain_s):
            while clients.connections and not told.now.is_set():
                clients.activity.clear()
                moved = asyncio.ensure_future(clients.activity.wait())
                hurry = asyncio.ensure_future(told.now.wait())
                try:
                    await asyncio.wait({moved, hurry}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    moved.cancel()
                    hurry.cancel()


async def _until_not(current: Callable[[], bool]) -> None:
    while current():  # noqa: ASYNC110 - a file changes without telling anybody
        await asyncio.sleep(_LOOK_S)


async def _deserted(clients: Clients, linger_s: float) -> None:
    """Return when no stream connection has been open for `linger_s`, counted from the start too."""
    while True:
        clients.activity.clear()
        if clients.connections:
            await clients.activity.wait()
            continue
        try:
            async with asyncio.timeout(linger_s):
                await clients.activity.wait()
        except TimeoutError:
            return


@contextlib.contextmanager
def _signals(told: _Told, reload: Callable[[], None] | None) -> Generator[None]:
    """SIGINT and SIGTERM end, SIGHUP reloads, while the block runs."""
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        if told.end.is_set():
            told.now.set()
        told.gently = number == signal.SIGTERM
        told.end.set()

    def handler(number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            loop.call_soon_threadsafe(end, number)
        elif reload is not None:
            loop.call_soon_threadsafe(reload)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if reload is not None and hasattr(signal, "SIGHUP"):
        numbers.append(signal.SIGHUP)
    former = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in former.items():
            signal.signal(number, before)
