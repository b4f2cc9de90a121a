"""One tenant cannot hurt another: connections, requests and the event loop's time are shared; who is silent or takes nothing ends."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from backend.identity_world import NOW_MS, identity_of, minted, record, salts
from backend.scrape import total
from backend.test_frames import HANDSHAKE, Wire, configured, masked
from backend.world import World, complete, gateway, scripted, until
from foretype_backend.admission.limits import Budget, Reservation
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.doors import stream as stream_door
from foretype_backend.doors.http import OUTCOME
from foretype_backend.identity.accounts import Quotas
from foretype_backend.identity.directory import Principal, Tenant
from foretype_backend.serving.fair_turns import Turns
from foretype_backend.transport.websocket_frames import FrameProtocol
from foretype_wire.messages import Done, Error, ErrorCode, RequestClass
from uvicorn.server import ServerState
from websockets.frames import Opcode


@asynccontextmanager
async def two_tenants(folder: Path, **options: Any) -> AsyncGenerator[tuple[World, dict[str, str], dict[str, str]]]:
    """A gateway, and headers of a key of each of two tenants."""
    async with identity_of(folder / "i.db") as (identity, store):
        await store.add_tenant(Tenant(name="other"), NOW_MS)
        keys = {tenant: minted() for tenant in ("acme", "other")}
        for tenant, key in keys.items():
            await store.add_key(key, record(key, tenant), NOW_MS)
        await identity.watch.look()
        async with gateway(identity=identity, salts=salts(), **options) as world:
            acme, other = ({"Authorization": f"Bearer {key.text}"} for key in keys.values())
            yield world, acme, other


# Finding 8, and what is unbounded in the list below it


async def test_one_tenants_connections_lock_nobody_else_out(tmp_path: Path) -> None:
    bounds = {"max_connections": 3, "max_connections_per_tenant": 2}
    async with two_tenants(tmp_path, bounds=bounds) as (world, acme, other):
        async with world.peer(additional_headers=acme), world.peer(additional_headers=acme) as second:
            third = await world.closes(additional_headers=acme)
            assert third.code == stream_door.CLOSE_TRY_LATER and "your tenant" in third.reason
            async with world.peer(additional_headers=other) as peer:
                await peer.still_works()
            await second.still_works()
        await until(lambda: world.gateway.stream.places.statistics().held == 0)


async def test_a_gateway_of_one_tenant_gives_it_everything() -> None:
    bounds = {"max_connections_per_tenant": 1, "max_requests_per_tenant": 1}
    async with gateway(bounds=bounds) as world, world.peer() as one, world.peer() as two:
        await one.still_works()
        await two.still_works()


async def test_http_requests_are_bounded_for_a_tenant_and_in_all(tmp_path: Path) -> None:
    slow = scripted("x + 1\n" * 30, decode_s_per_token=0.05)
    bounds = {"max_requests": 2, "max_requests_per_tenant": 1}
    async with two_tenants(tmp_path, bounds=bounds, engine=slow) as (world, acme, other):
        body = {"prompt": "x = ", "max_tokens": 200}
        async with world.http() as http:

            async def ask(headers: dict[str, str]) -> Any:
                return await http.post("/v1/completions", json=body, headers=headers)

            first = asyncio.ensure_future(ask(acme))
            await until(lambda: world.gateway.requests.statistics().held == 1)
            again = await ask(acme)
            assert (again.status_code, again.headers["Retry-After"]) == (429, "1")
            assert "your tenant" in again.json()["error"]["message"]
            second = asyncio.ensure_future(ask(other))
            await until(lambda: world.gateway.requests.statistics().held == 2)
            world.gateway.requests.each = 5
            full = await ask(acme)
            assert (full.status_code, full.headers["Retry-After"]) == (503, "1")
            assert (await http.get("/healthz")).status_code == 200
            for task in (first, second):
                task.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
        await until(lambda: world.gateway.requests.statistics().held == 0)


async def _ends(world: World, *said: bytes, pause_s: float = 0.0) -> bytes:
    reader, writer = await asyncio.open_connection(world.host, world.port)
    heard = b""
    try:
        for part in said:
            writer.write(part)
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(60):
            while part := await reader.read(65536):
                heard += part
        return heard
    except ConnectionResetError:  # what it was still sending was not read
        return heard
    finally:
        writer.close()


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "said",
    [(), (b"GET /heal",), (HEALTH,), (HEALTH + b"\r\n",), (HEALTH + b"\r\n", b"\r\n"), (HEALTH + b"\r\n", b"GET /")],
    ids=["nothing", "half a line", "half a head", "one request", "and a dribble", "and half of another"],
)
async def test_an_http_connection_that_is_silent_ends(said: tuple[bytes, ...]) -> None:
    async with gateway(bounds={"http_idle_s": 0.2}) as world:
        heard = await _ends(world, *said, pause_s=0.02)
        assert (b" 200 " in heard) == any(b"\r\n\r\n" in part for part in said)


async def test_a_request_that_takes_longer_than_silence_may_is_answered() -> None:
    slow = scripted("x + 1\n" * 30, prefill_s_per_token=0.0, decode_s_per_token=0.05)
    async with gateway(slow, bounds={"http_idle_s": 0.1}) as world, world.http() as http:
        answer = await http.post("/v1/completions", json={"prompt": "x = ", "max_tokens": 10})
        assert answer.status_code == 200 and answer.json()["choices"][0]["text"]


async def test_the_connection_that_has_been_silent_longest_makes_room() -> None:
    async with gateway(bounds={"max_http_connections": 2}) as world:
        pairs = [await asyncio.open_connection(world.host, world.port) for _ in range(3)]
        assert await asyncio.wait_for(pairs[0][0].read(), 60) == b""
        for reader, writer in pairs[1:]:
            writer.write(HEALTH + b"\r\n")
            assert b" 200 " in await asyncio.wait_for(reader.read(100), 60)
        async with world.peer() as peer:
            await peer.still_works()
        for _, writer in pairs:
            writer.close()


async def test_requests_that_do_not_wait_for_answers_are_few() -> None:
    async with gateway() as world:
        head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert (await _ends(world, head * 5000)).count(b" 200 ") < 20
        async with world.http() as http:
            assert (await http.get("/healthz")).status_code == 200


# The event loop


class _Loop(Wire):
    """Runs what is called soon when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.soon: list[Callable[[], None]] = []
        self.reading = True

    def call_soon(self, work: Callable[[], None]) -> None:
        self.soon.append(work)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0


class _ShortTurn:
    """A turn that is over after every frame."""

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop
        self.spent = 0

    def left_s(self) -> float:
        return 1e-9

    def spend(self, seconds: float) -> None:
        self.spent += 1

    def again(self, work: Callable[[], None]) -> None:
        self._loop.soon.append(work)


def listening(loop: Any, heard: list[Any], turn: Any = None) -> FrameProtocol:
    protocol = FrameProtocol(configured(1 << 20), ServerState(), {}, loop)
    protocol.connection_made(loop)
    protocol.data_received(HANDSHAKE)
    protocol.conn.send_response(protocol.response)
    protocol.handshake_complete = True
    protocol.conn.data_to_send()
    protocol.listen(heard.append, lambda: None, turn)
    return protocol


@pytest.mark.parametrize("pieces", [False, True], ids=["whole messages", "read by the library"])
def test_a_flood_of_frames_is_read_one_turn_at_a_time_in_order_and_completely(pieces: bool) -> None:
    loop, heard = _Loop(), list[Any]()
    protocol = listening(loop, heard, _ShortTurn(loop))
    frames = [masked(Opcode.BINARY, b"%d" % at) for at in range(500)]
    start = masked(Opcode.BINARY, b"a", fin=False) + masked(Opcode.CONT, b"b") if pieces else b""
    protocol.data_received(start + b"".join(frames))
    assert len(heard) <= 75, "the rest waits"
    most, rounds = 0, 0
    protocol.data_received(masked(Opcode.BINARY, b"last"))
    assert len(heard) <= 75 and not loop.reading, "what comes meanwhile waits behind it, and nothing more is read"
    while loop.soon:
        before = len(heard)
        loop.soon.pop(0)()
        most, rounds = max(most, len(heard) - before), rounds + 1
    assert most <= 75 and rounds > 5
    assert heard == [*([b"ab"] if pieces else []), *(b"%d" % at for at in range(500)), b"last"]
    assert loop.reading


def test_work_that_a_frame_left_is_done_before_the_next_frame() -> None:
    loop, heard = _Loop(), list[Any]()
    protocol = listening(loop, heard)

    def take(frame: Any) -> None:
        heard.append(frame)
        if frame == b"0":
            protocol.later(lambda: heard.append("later"))
            protocol.later(lambda: heard.append("and later"))

    protocol.listen(take, lambda: None)
    protocol.data_received(masked(Opcode.BINARY, b"0") + masked(Opcode.BINARY, b"1"))
    assert heard == [b"0"]
    while loop.soon:
        loop.soon.pop(0)()
    assert heard == [b"0", "later", "and later", b"1"] and loop.reading


def test_pings_are_answered_once_when_their_sender_reads_again() -> None:
    loop, heard = _Loop(), list[Any]()
    protocol = listening(loop, heard)
    protocol.pause_writing()
    before = loop.sent
    for at in range(1000):
        protocol.data_received(masked(Opcode.PING, b"%d" % at))
    assert loop.sent == before
    protocol.resume_writing()
    assert loop.sent == before + b"\x8a\x03999"
    protocol.data_received(masked(Opcode.PING, b"x"))
    assert loop.sent.endswith(b"\x8a\x01x")


def test_a_message_in_fragments_without_end_ends_the_connection() -> None:
    loop, heard = _Loop(), list[Any]()
    protocol = listening(loop, heard)
    protocol.data_received(masked(Opcode.BINARY, b"", fin=False))
    while not loop.closed:
        protocol.data_received(masked(Opcode.CONT, b"", fin=False) * 50)
        while loop.soon:
            loop.soon.pop(0)()
    assert loop.sent.startswith(b"\x88") or b"\x03\xf1" in loop.sent, "1009"
    assert not heard and not protocol.frames


async def test_a_ping_flood_of_somebody_who_does_not_read_stays_small(tmp_path: Path) -> None:
    async with two_tenants(tmp_path) as (world, acme, other), world.peer(additional_headers=other) as victim:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect((world.host, world.port))
        plain.setblocking(False)
        loop = asyncio.get_running_loop()
        head = HANDSHAKE[:-2] + f"Authorization: {acme['Authorization']}\r\n\r\n".encode()
        await loop.sock_sendall(plain, head.replace(b"Host: a", b"Host: localhost"))
        await until(lambda: len(world.gateway.stream.connections) == 2)
        flood = masked(Opcode.PING, b"p" * 125) * 2000
        hello = masked(Opcode.BINARY, msgspec.msgpack.encode({"type": "hello", "v": 1, "client": "flood"}))
        await loop.sock_sendall(plain, hello)
        sent = 0
        while sent < 40:  # 10 MB
            await asyncio.wait_for(loop.sock_sendall(plain, flood), 60)
            sent += 1
        await victim.still_works()
        flooding = next(one for one in world.gateway.stream.connections if one.principal.tenant == "acme")
        assert flooding._channel.transport.get_write_buffer_size() < 200_000
        plain.close()


async def test_turns_go_round_and_nobody_waits_behind_a_flood() -> None:
    turns, order = Turns(turn_s=0.0), list[str]()
    for number in range(50):
        turns.again("flood", lambda number=number: order.append(f"f{number}"))
    for name in ("a", "b"):
        turns.again(name, lambda name=name: order.append(name))
    waited = asyncio.ensure_future(turns.come("c", 0.001))
    await until(lambda: len(order) == 52 and waited.done())
    assert {"a", "b"} < set(order[:4])
    assert [one for one in order if one.startswith("f")] == [f"f{number}" for number in range(50)]
    assert turns.statistics() == (0, 0)


async def test_a_turn_that_is_used_up_is_for_one_tenant_and_one_round() -> None:
    turns = Turns(turn_s=0.01)
    turns.spend("a", 0.02)
    assert turns.left_s("a") < 0 < turns.left_s("b")
    gone = asyncio.ensure_future(turns.come("a", 0.001))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(turns.come("a", 0.001), 60)
    await until(lambda: turns.left_s("a") == 0.01)
    assert turns.statistics() == (0, 0)


async def test_how_late_the_loop_is_is_a_metric() -> None:
    async with gateway() as world, world.http() as http, world.peer():

        async def sampled() -> bool:
            return total((await http.get("/metrics")).text, "foretype_loop_lag_seconds_count") >= 2

        await until(sampled)
        text = (await http.get("/metrics")).text
        assert "foretype_http_requests 0.0" in text and "foretype_segments_bytes" in text


def test_who_asked_once_is_forgotten_and_looking_for_them_is_not_paid_at_every_request() -> None:
    quotas = Quotas()
    acme = Tenant(name="acme", budgets={"user": Budget(tokens_per_s=100, burst_tokens=100)})
    quotas.follow({"acme": acme}, 0.0)

    def asked(user: str, now: float) -> None:
        reservation = quotas.reserve(Principal(tenant="acme", user=user), RequestClass.INTERACTIVE, 10, now)
        assert isinstance(reservation, Reservation)
        quotas.budgets.settle(reservation, 10, now)

    for number in range(1000):
        asked(f"user{number}", 0.0)
    asked("late", 60.0)
    assert len(list(quotas.budgets.names())) == 1001, "all are full again, and nobody looked"
    for second in range(10_000):
        asked("late", 61.0 + second)
    assert list(quotas.budgets.names()) == ["user:acme/late"]


# What is shed


async def test_foreign_clients_that_are_shed_get_an_empty_completion_and_ours_the_code() -> None:
    slow = scripted("x + 1\n" * 30, decode_s_per_token=0.05)
    limits = LimitsConfig(max_running=1, max_waiting=1, abort_grace_ms=200)
    async with gateway(slow, limits=limits) as world, world.peer() as peer, world.http() as http:
        for number in range(2):
            await peer.send(complete(f"hold{number}", document=str(number), max_tokens=500, stop={}))
        await until(lambda: world.service.statistics().waiting == 1)
        answer = await http.post("/v1/completions", json={"prompt": "x = ", "max_tokens": 8})
        body = answer.json()
        assert (answer.status_code, answer.headers[OUTCOME]) == (200, "overloaded")
        assert body["choices"][0] == {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}
        assert body["usage"]["completion_tokens"] == 0
        answer = await http.post("/v1/completions", json={"prompt": "x = ", "stream": True})
        assert answer.status_code == 200 and "error" not in answer.text
        events = [msgspec.json.decode(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        assert [event["choices"][0]["text"] for event in events] == [""]
        assert answer.text.endswith("data: [DONE]\n\n")
        for stream in (False, True):
            answer = await http.post("/infill", json={"input_prefix": "x = ", "stream": stream})
            assert answer.status_code == 200
            told = answer.text.removeprefix("data: ")
            assert (msgspec.json.decode(told)["content"], msgspec.json.decode(told)["stop"]) == ("", True)
        metrics = (await http.get("/metrics")).text
        assert 'reason="overloaded"} 4.0' in metrics
        await peer.send(complete("mine", document="c"))
        while not isinstance(message := await peer.receive(), Error | Done) or message.id != "mine":
            pass
        assert isinstance(message, Error) and message.code is ErrorCode.OVERLOADED
        assert message.retry_after_ms
