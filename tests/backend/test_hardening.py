"""What an attacker may try that no other test does: floods, bombs, dribbles, borrowed digests, secrets in messages."""

import asyncio
import gzip
import zlib
from hashlib import blake2b

import pytest
from backend.world import TOKEN, complete, gateway, scripted, segment, segments, until
from foretype_backend.config.config import Config
from foretype_backend.config.settings import GatewayConfig, IdentityConfig
from foretype_backend.database import place_of, url_of
from foretype_backend.doors import connection as stream_connection
from foretype_backend.doors import http as http_door
from foretype_backend.doors import stream as stream_door
from foretype_backend.identity.keys import mint
from foretype_context.prompt.segments import Kind
from foretype_wire.messages import Complete, Delta, Need
from websockets.asyncio.client import connect


async def raw(world_port: int, data: bytes, *, wait: bool = True) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", world_port)
    writer.write(data)
    await writer.drain()
    answer = await reader.read(65536) if wait else b""
    writer.close()
    return answer


async def test_connections_beyond_the_limit_are_told_to_try_later() -> None:
    async with gateway() as world, world.peer() as peer:
        world.gateway.stream.places.in_all = 1
        assert (await world.closes()).code == stream_door.CLOSE_TRY_LATER
        await peer.still_works()


async def test_who_never_says_hello_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_connection, "HELLO_S", 0.05)
    async with gateway() as world, world.peer() as peer:
        assert (await world.closes()).code == stream_connection.CLOSE_POLICY
        await peer.still_works()


async def test_a_body_that_dribbles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door, "BODY_S", 0.05)
    async with gateway() as world:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        answer = await raw(world.port, head)
        assert b" 400 " in answer.split(b"\r\n")[0]
        assert b"did not arrive" in answer


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000,  # without end
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: x\r\n" * 15_000 + b"\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\r\n" * 100_000,
    ],
)
async def test_heads_without_end_or_measure_are_refused(head: bytes) -> None:
    async with gateway() as world:
        answer = await raw(world.port, head)
        assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0]
        async with world.http() as http:
            large = {"X": "x" * 60_000}
            assert (await http.get("/healthz", headers=large)).status_code == 200
            assert (await http.get("/healthz")).status_code == 200  # each head is measured by itself


async def test_a_compressed_bomb_is_never_inflated() -> None:
    async with gateway() as world:
        async with world.http() as http:
            bomb = gzip.compress(b" " * 50_000_000)
            answer = await http.post("/v1/completions", content=bomb, headers={"content-encoding": "gzip"})
            assert answer.status_code == 400
        async with connect(world.ws_url, compression="deflate", proxy=None, open_timeout=60) as socket:
            assert socket.protocol.extensions == []
            await socket.send(zlib.compress(b" " * 50_000_000))
            assert b"frame" in bytes(await socket.recv())


async def test_a_digest_of_another_connection_opens_nothing() -> None:
    async with gateway() as world, world.peer() as owner, world.peer() as thief:
        secret = "password = 'hunter2'\n"
        await owner.ask("a", segments=segments(prefix=secret))
        digest = blake2b(secret.encode(), digest_size=16).digest()
        forged = [segment(Kind.PREFIX, digest=digest), segment(Kind.SUFFIX, "\n"), segment(Kind.MIDDLE, "x")]
        await thief.send(complete("b", segments=forged))
        answer = await thief.receive()
        assert isinstance(answer, Need)
        assert answer.digests == [digest]
        assert not any(len(prompt) > 40 for prompt in list(world.engine.requests)[1:])


async def test_no_field_of_a_request_names_an_engine() -> None:
    fields = set(Complete.__struct_fields__)
    assert not {"url", "engine", "model", "host", "salt", "cache_salt"} & fields
    async with gateway() as world, world.http() as http:
        body = {"prompt": "x = ", "url": "http://127.0.0.1:1", "cache_salt": "mine", "engine": "other"}
        refused = await http.post("/v1/completions", json=body)
        assert refused.status_code == 400 and "url" in refused.text
        assert not world.engine.requests


async def test_a_slow_reader_costs_one_delta_and_nobody_else_waits() -> None:
    engine = scripted("x + 1\n" * 200)
    async with gateway(engine) as world, world.peer() as quick:
        async with connect(
            world.ws_url, proxy=None, compression=None, max_queue=1, close_timeout=0.2, open_timeout=60
        ) as slow:
            await slow.send(b"\x83\xa4type\xa5hello\xa1v\x01\xa6client\xa1x")
            await slow.recv()
            connection = next(c for c in world.gateway.stream.connections if c.session.hello.client == "x")
            await quick.answer("q", max_tokens=900)
            for _ in range(1000):
                if connection._channel.ready:  # until both sockets are full
                    connection.send(Delta(id="one", text="x" * (1 << 16)))
            assert not connection._channel.ready
            for number in range(2000):
                connection.send(Delta(id="one", text=str(number)))
            assert repr(connection._outbox).startswith("<Outbox: 1 of")
        await until(lambda: len(world.gateway.stream.connections) == 1)


def test_no_secret_stands_in_what_is_printed() -> None:
    key = mint(lambda size: b"\x05" * size)
    config = Config(token=TOKEN, identity=IdentityConfig(url="postgresql://u:hunter2@h/db"))
    assert TOKEN not in repr(config)
    assert "hunter2" not in repr(config)
    assert key.secret not in repr(key)
    assert "hunter2" not in place_of(url_of("postgresql://u:hunter2@h/db", "identity.url"))


def test_the_gateway_listens_on_loopback_by_itself() -> None:
    assert GatewayConfig().host == "127.0.0.1"
