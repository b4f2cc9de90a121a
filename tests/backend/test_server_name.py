"""A name server that hangs, fails or says something new, and the connections of an engine meanwhile."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field

import httpx
import pytest
from backend.replica import Replica
from backend.test_http_stream import served, sized, whole
from foretype_backend.engines.openai import http_stream, server_name
from foretype_backend.engines.openai.http_stream import HttpStreams
from foretype_backend.engines.openai.server_name import KnownAddresses, ServerName, named_transport
from foretype_backend.engines.vllm.server import VllmServerEngine


@dataclass
class NameServer:
    """What the next lookup is answered with: addresses, an error, or nothing until the test ends."""

    answer: list[str] | OSError | None = field(default_factory=lambda: ["127.0.0.1"])
    asked: int = 0
    ends: threading.Event = field(default_factory=threading.Event)

    def resolved(self, host: str, port: int) -> list[str]:
        self.asked += 1
        if self.answer is None:
            self.ends.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer()
    monkeypatch.setattr(server_name, "resolved", made.resolved)
    yield made
    made.ends.set()


@contextlib.asynccontextmanager
async def streams_to(port: int, *, connect_timeout_s: float = 60) -> AsyncGenerator[HttpStreams]:
    template = httpx.Request("POST", f"http://vllm:{port}/v1/completions")
    name = ServerName.of(template.url)
    streams = HttpStreams(template, connect_timeout_s=connect_timeout_s, idle_timeout_s=60, name=name)
    try:
        yield streams
    finally:
        streams.close()
        await name.close()


def test_a_lookup_is_waited_for_as_long_as_nothing_is_known_and_then_for_a_moment() -> None:
    known = KnownAddresses()
    known.asked(10.0)
    assert known.patience_s(99.0) is None
    known.found(["::1", "127.0.0.1", "127.0.0.1"])
    assert known.last == ("::1", "127.0.0.1")
    known.asked(20.0)
    patience = known.patience_s(20.0)
    assert patience is not None and 0 < patience < 1
    assert known.patience_s(20.0 + patience) == known.patience_s(60.0) == 0, "who comes later does not wait again"
    known.found([])
    assert known.last == ("::1", "127.0.0.1")
    known.found(["10.0.0.7"])
    assert known.last == ("10.0.0.7",)


@pytest.mark.parametrize("answer", [None, socket.gaierror(socket.EAI_AGAIN, "again")])
async def test_a_name_server_that_hangs_or_fails_keeps_nobody_from_a_server_that_is_known(
    names: NameServer, answer: OSError | None
) -> None:
    async with (
        served(*[[sized(b"ok", more=b"Connection: close\r\n")]] * 6) as (script, _),
        streams_to(script.port) as streams,
    ):
        assert await whole(streams) == (200, "ok")
        names.answer = answer
        assert [await whole(streams) for _ in range(5)] == [(200, "ok")] * 5
        assert script.connections == 6
        assert names.asked == (2 if answer is None else 6), "one that hangs is not asked once more for each"


async def test_the_client_of_what_is_no_stream_knows_the_same_addresses(names: NameServer) -> None:
    async with served(*[[sized(b"ok", more=b"Connection: close\r\n")]] * 3) as (script, _):
        name = ServerName("vllm", script.port)
        transport = named_transport(name, False, httpx.Limits())
        async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=60) as client:
            for names.answer in (["127.0.0.1"], None, None):
                assert (await client.post(f"http://vllm:{script.port}/v1/models", json={})).text == "ok"
        assert names.asked == 2
        await name.close()


async def test_a_replica_passes_its_checks_while_the_name_server_hangs(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`vllm` is a name that nobody but `names` knows: what asked for it elsewhere would fail."""
    monkeypatch.setattr(http_stream, "_IDLE_S", -1.0)
    async with Replica() as replica:
        engine = VllmServerEngine.from_config(url=f"{replica.url.replace('127.0.0.1', 'vllm')}/v1")
        await engine.start()
        asked, names.answer = names.asked, None
        for _ in range(3):
            await engine.check()
        assert names.asked == asked + 1
        await engine.close()


async def test_a_server_that_comes_back_at_another_address_is_found_there(names: NameServer) -> None:
    async with (
        served([sized(b"ok", more=b"Connection: close\r\n")], [sized(b"moved")]) as (script, _),
        streams_to(script.port) as streams,
    ):
        assert await whole(streams) == (200, "ok")
        names.answer = ["127.0.0.2"]  # where nobody listens
        with pytest.raises(httpx.ConnectError):
            await whole(streams)
        names.answer = ["127.0.0.2", "127.0.0.1"]
        assert await whole(streams) == (200, "moved")


async def test_a_lookup_that_ends_late_is_gone_by_where_the_known_address_takes_nobody(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = threading.Event()

    def late(host: str, port: int) -> list[str]:
        moved.wait()
        return ["127.0.0.1"]

    async with served([sized(b"moved")]) as (script, _), streams_to(script.port) as streams:
        names.answer = ["127.0.0.2"]
        with pytest.raises(httpx.ConnectError):
            await whole(streams)
        monkeypatch.setattr(server_name, "resolved", late)
        asking = asyncio.create_task(whole(streams))
        await asyncio.sleep(2 * server_name._PATIENCE_S)  # pyright: ignore[reportPrivateUsage]
        assert not asking.done()
        moved.set()
        assert await asking == (200, "moved")


async def test_a_name_without_an_address_is_told_in_its_own_words(names: NameServer) -> None:
    names.answer = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    async with streams_to(8000) as streams:
        with pytest.raises(httpx.ConnectError, match="Name or service not known"):
            await streams.connect()


async def test_who_gives_up_ends_no_lookup_that_others_wait_for(names: NameServer) -> None:
    names.answer = None
    async with streams_to(8000, connect_timeout_s=0.05) as streams:
        for _ in range(2):
            with pytest.raises(httpx.ConnectTimeout):
                await streams.connect()
        assert names.asked == 1
