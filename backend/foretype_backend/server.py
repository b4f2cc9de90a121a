"""The shell around the application: socket, uvicorn, signals, the end of a private gateway."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from foretype_backend.app import stream_door
from foretype_backend.config import Config, ConfigError

__all__ = ["Address", "bind", "running", "serve_until_told"]

_FRAME_CEILING: Final = 4
"""Frames up to this many times the limit are read and answered with an error; larger ones end the connection (1009)."""

_SHUTDOWN_S: Final = 3

Address = tuple[str, int]


class _Server(uvicorn.Server):
    """Signals belong to the edge, which cleans up after them; uvicorn would raise them again and skip that."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def bind(config: Config) -> socket.socket:
    """Bind the configured address. Raises ConfigError with the remedy."""
    host, port = config.gateway.host.strip("[]"), config.gateway.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle's algorithm off only for sockets that say IPPROTO_TCP, and an
    # accepted socket inherits it: without it every second small frame waits 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        remedy = "choose another with --port, or 0 for a free one"
        raise ConfigError("gateway.port", f"cannot bind {host}:{port} ({error}); {remedy}") from error
    return listener


def address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return str(host), int(port)


def _server(app: FastAPI, config: Config) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            ws="websockets-sansio",
            ws_max_size=config.limits.max_frame_bytes * _FRAME_CEILING,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            h11_max_incomplete_event_size=64 * 1024,
        )
    )


@contextlib.asynccontextmanager
async def running(app: FastAPI, config: Config, listener: socket.socket | None = None) -> AsyncGenerator[Address]:
    """Serve `app` while the block runs; yields the address it is bound to. Also for tests and benchmarks in process.

    Args:
        listener: a bound socket; without one the configured address is bound. Closed at the end.
    """
    listener = listener or bind(config)
    server = _server(app, config)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if task.done():
                await task
                raise RuntimeError("the server ended before it had started")
            await asyncio.sleep(0.005)
        yield address_of(listener)
    finally:
        server.should_exit = True
        await task
        listener.close()


async def serve_until_told(
    app: FastAPI, config: Config, listener: socket.socket, *, ready: Callable[[Address], None]
) -> None:
    """Serve until SIGTERM or SIGINT, or, in private mode, until nobody has been connected for `linger_s`.

    Args:
        ready: called once requests are served.
    """
    told = asyncio.Event()
    with _signals(told):
        async with running(app, config, listener) as address:
            ready(address)
            waits = [asyncio.ensure_future(_told(told))]
            if config.private:
                waits.append(asyncio.ensure_future(_deserted(app, config.gateway.linger_s)))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            stream_door(app).goaway(grace_ms=0.0)


async def _told(told: asyncio.Event) -> None:
    await told.wait()


async def _deserted(app: FastAPI, linger_s: float) -> None:
    """Return when no stream connection has been open for `linger_s`, counted from the start too."""
    door = stream_door(app)
    while True:
        door.activity.clear()
        if door.connections:
            await door.activity.wait()
            continue
        try:
            async with asyncio.timeout(linger_s):
                await door.activity.wait()
        except TimeoutError:
            return


@contextlib.contextmanager
def _signals(told: asyncio.Event) -> Generator[None]:
    """SIGINT and SIGTERM set `told` while the block runs."""
    loop = asyncio.get_running_loop()

    def tell(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(told.set)

    former = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
