"""A private gateway runs all day on a laptop with an editor connected: when nobody types it must hardly wake up."""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import pytest
import uvicorn
from foretype_backend.transport.http_protocol import Connections, bounded
from foretype_backend.transport.loop_monitor import watch_loop
from foretype_backend.transport.server import EndableServer
from foretype_client.private_gateway.finding import find_gateway
from foretype_eval.gateway import GatewayOptions, connected, private_gateway
from starlette.applications import Starlette
from uvicorn.server import ServerState

from client import virtual

WATCHED_S = 2.0
WAKES_PER_S_MAX = 8


@pytest.mark.skipif(sys.platform != "linux", reason="context switches by thread are Linux's")
@pytest.mark.timeout(120)
async def test_with_an_editor_connected_and_silent_it_hardly_wakes_up(tmp_path: Path) -> None:
    async with private_gateway(GatewayOptions(engine="scripted"), state_dir=tmp_path) as endpoint:
        record = await find_gateway(tmp_path)
        assert record is not None
        async with connected(GatewayOptions(url=endpoint.url, token=endpoint.token)):
            process = psutil.Process(record.pid)
            before = process.num_ctx_switches().voluntary
            await asyncio.sleep(WATCHED_S)
            woken = process.num_ctx_switches().voluntary - before
    assert woken / WATCHED_S < WAKES_PER_S_MAX, f"{woken / WATCHED_S:.0f} a second"


async def test_the_server_ends_when_it_is_told_and_looks_at_nothing_in_between() -> None:
    looks = 0

    class Watched(EndableServer):
        async def on_tick(self, counter: int) -> bool:
            nonlocal looks
            looks += 1
            return await super().on_tick(counter)

    options = uvicorn.Config(Starlette())
    options.load()
    server = Watched(options)
    serving = asyncio.ensure_future(server.main_loop())
    await asyncio.sleep(0.35)  # uvicorn's own looks four times by then
    server.should_exit = True
    await asyncio.wait_for(serving, 60)
    assert looks == 0


@asynccontextmanager
async def _serving(held: Connections) -> AsyncGenerator[httpx.AsyncClient]:
    server = EndableServer(uvicorn.Config(Starlette(), http=bounded(held), lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60
            ) as client:
                yield client
        finally:
            server.should_exit = True
            await asyncio.wait_for(serving, 60)


class _Transport(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    closed = False

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def resume_reading(self) -> None:
        pass


@pytest.mark.parametrize("pauses_s", [(), (29,), (29, 29, 1), (15, 15, 15)])
def test_a_connection_ends_as_long_after_its_last_answer_as_it_may_be_silent(pauses_s: tuple[float, ...]) -> None:
    async def scenario() -> None:
        config = uvicorn.Config(Starlette(), lifespan="off", timeout_keep_alive=1000)
        config.load()
        protocol, transport = bounded(Connections(idle_s=30))(config, ServerState(), {}), _Transport()
        protocol.connection_made(transport)
        for pause_s in pauses_s:
            await asyncio.sleep(pause_s)
            protocol.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.sleep(0.01)
        await asyncio.sleep(29.9)
        assert not transport.closed
        await asyncio.sleep(0.2)
        assert transport.closed
        protocol.connection_lost(None)

    virtual.run(scenario)


async def test_an_answer_has_the_date_of_its_own_request_on_a_connection_that_was_silent() -> None:
    now = datetime(2031, 5, 6, 7, 8, 9, 999_999, UTC)
    async with _serving(Connections(clock=lambda: now)) as client:
        first = await client.get("/")
        now += timedelta(hours=2)
        second = await client.get("/")
    assert first.headers.get_list("date") == ["Tue, 06 May 2031 07:08:09 GMT"]
    assert second.headers.get_list("date") == ["Tue, 06 May 2031 09:08:09 GMT"]


async def test_the_loop_is_looked_at_often_while_something_is_generated_and_seldom_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            over.set()
            await asyncio.Event().wait()

    monkeypatch.setattr("foretype_backend.transport.loop_monitor.asyncio.sleep", sleep)
    working = iter([False, True, True, False])
    watching = asyncio.ensure_future(watch_loop(lambda _: None, lambda: next(working), 2.0))
    await asyncio.wait_for(over.wait(), 60)
    watching.cancel()
    assert slept == [2.0, 0.02, 0.02, 2.0]
