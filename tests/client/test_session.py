import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from client.wire_server import PROFILE, TOKENIZER, Peer, WireServer, answer, read, until_cancelled
from e2e.way import Way
from foretype_client.errors import TokenizerFetchError
from foretype_client.ports import Endpoint
from foretype_client.session.connecting import Backoff, as_gateway_gone, check_url
from foretype_client.session.session import Session
from foretype_client.session.tokenizers import TokenizerStore
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import (
    Cancel,
    Changed,
    ChangeReason,
    Complete,
    Delta,
    ErrorCode,
    Finish,
    Goaway,
    Hello,
    Profile,
    Workspace,
)
from waiting import until
from websockets.exceptions import ConnectionClosedError, InvalidProxy
from websockets.frames import Close, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

FAST = Backoff(base_s=0.01, cap_s=0.02)


def call(id: str, *texts: str, **more: Any) -> Complete[Segment]:
    segments = [Segment(kind=Kind.PREFIX, scope=Scope.FILE, source=Source(), text=text) for text in texts]
    return Complete(id=id, segments=segments, **more)


def made(*url: str, **options: Any) -> Session:
    return Session(*url, **{"clock": time.monotonic, "rng": random.Random(1), "backoff": FAST, **options})


@asynccontextmanager
async def started(*url: str, **options: Any) -> AsyncIterator[Session]:
    told = {name: options.pop(name) for name in ("profiles", "connections", "acknowledged") if name in options}
    session = made(*url, **options)
    for name, subscriber in told.items():
        getattr(session, name).add(subscriber)
    await session.start()
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def connected(server: WireServer, **options: Any) -> AsyncIterator[Session]:
    async with started(server.url, **options) as session:
        await session.ready(60)
        yield session


@pytest.mark.parametrize("json", [False, True])
async def test_a_call_is_answered_with_its_deltas_and_one_done(json: bool) -> None:
    async with WireServer() as server, connected(server, json=json, client_name="editor") as session:
        text, done = await read(session.complete(call("1", "def add(a, b):\n")))
    assert (text, done.finish, done.usage.cached_tokens) == ("return a + b", Finish.STOP, 4)
    assert done.timings_ms.queue == 0.001
    assert done.timings_ms.network > 0
    assert server.received[0] == Hello(v=1, client="editor")


async def test_the_network_took_what_the_gateway_did_not() -> None:
    now = 5.0

    async def later(peer: Peer, message: Complete) -> None:
        nonlocal now
        now = 7.5
        await answer(peer, message)

    async with WireServer(later) as server, connected(server, clock=lambda: now) as session:
        _, done = await read(session.complete(call("1", "x")))
    assert done.timings_ms.network == pytest.approx(2500 - 0.003)


async def test_counters_go_on_over_connections() -> None:
    def counts() -> tuple[int, ...]:
        one = session.statistics()
        return one.calls, one.text_segments, one.digest_segments, one.needs, one.bad_frames

    async with WireServer() as server, started(server.url) as session:
        assert counts() == (0, 0, 0, 0, 0)
        await session.ready(60)
        await read(session.complete(call("1", "stable")))
        await server.peers[0].connection.close()
        await server.wait_for(Hello, 2)
        await until(lambda: session.connected)
        for id in ("2", "3", "4", "6"):
            await read(session.complete(call(id, "stable")))
        server.peers[1].cache.clear()
        await read(session.complete(call("5", "stable")))
        await server.peers[1].connection.send(b"\xc1")
        await until(lambda: session.statistics().bad_frames)
        await server.peers[1].connection.close()
        await server.wait_for(Hello, 3)
    # Sent anew as text after a `need`, a call is still one call.
    assert counts() == (6, 3, 4, 1, 1)
    assert session.statistics().connections == 3


async def test_every_pending_call_fails_at_once_when_the_gateway_vanishes() -> None:
    async with WireServer(until_cancelled) as server, connected(server) as session:
        streams = [session.complete(call(str(number), "x")) for number in range(3)]
        await server.wait_for(Complete, 3)
        server.peers[0].connection.transport.abort()
        for stream in streams:
            with pytest.raises(GatewayGoneError):
                await read(stream)


async def test_every_pending_call_fails_at_once_when_the_session_closes() -> None:
    async with WireServer(until_cancelled) as server, connected(server) as session:
        stream = session.complete(call("1", "x"))
        await session.close()
        with pytest.raises(GatewayGoneError):
            await read(stream)
        with pytest.raises(GatewayGoneError):
            await read(session.complete(call("2", "x")))


async def test_who_is_cancelled_while_a_session_closes_is_cancelled() -> None:
    async with WireServer() as server, connected(server) as session:
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        closing.cancel()
        async with asyncio.timeout(60):
            await asyncio.wait([closing])
        assert closing.cancelled()


async def test_a_gateway_may_answer_the_close_before_the_connection_is_cut() -> None:
    cut: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gateway = ServerProtocol()
        while data := await reader.read(65536):
            gateway.receive_data(data)
            for event in gateway.events_received():
                if isinstance(event, Request):
                    gateway.send_response(gateway.accept(event))
                    gateway.send_binary(msgspec.msgpack.encode(PROFILE))
                elif event.opcode is Opcode.CLOSE:
                    for _ in range(20):  # rounds of the loop: what wants to cut the connection cuts it
                        await asyncio.sleep(0)
                    cut.set_result(reader.at_eof() or reader.exception() is not None)
            writer.writelines(gateway.data_to_send())
            if gateway.close_expected():
                break
        writer.close()

    async with await asyncio.start_server(slowly, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/stream"
        async with started(url) as session:
            await session.ready(60)
        assert await cut is False


async def test_a_gateway_that_does_not_answer_the_close_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretype_client.session.session._CLOSE_TIMEOUT_S", 0.05)
    left = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gateway = ServerProtocol()
        gateway.receive_data(await reader.readuntil(b"\r\n\r\n"))
        (request,) = gateway.events_received()
        assert isinstance(request, Request)
        gateway.send_response(gateway.accept(request))
        gateway.send_binary(msgspec.msgpack.encode(PROFILE))
        writer.writelines(gateway.data_to_send())
        with suppress(ConnectionResetError):
            while await reader.read(65536):
                pass
        left.set()
        writer.close()

    async with await asyncio.start_server(deaf, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/stream"
        async with started(url) as session:
            await session.ready(60)
        async with asyncio.timeout(15):  # in 20 s a ping without an answer would have ended it
            await left.wait()


async def test_the_session_reconnects_and_starts_with_an_empty_segment_cache() -> None:
    states: list[bool] = []
    async with WireServer() as server, connected(server, connections=states.append) as session:
        await read(session.complete(call("1", "stable")))
        await server.peers[0].connection.close()
        await server.wait_for(Hello, 2)
        await until(lambda: session.connected)
        text, _ = await read(session.complete(call("2", "stable")))
        assert text == "return a + b"
        assert session.statistics().needs == 0
        assert session.statistics().connections == 2
    assert states[:3] == [True, False, True]


async def test_a_private_gateway_is_located_anew_for_every_connection() -> None:
    async with WireServer(token="one") as first, WireServer(token="two") as second:
        endpoints = iter([Endpoint(first.url, "one"), Endpoint(second.url, "two")])

        async def locate() -> Endpoint:
            return next(endpoints)

        async with started(locate=locate) as session:
            await session.ready(60)
            await first.peers[0].connection.close()
            await second.wait_for(Hello)
            assert session.endpoint == Endpoint(second.url, "two")


async def test_a_wrong_token_is_named_and_never_printed() -> None:
    async with WireServer(token="right") as server, started(server.url, token="wrong-secret") as session:
        with pytest.raises(GatewayGoneError, match=r"401.*token"):
            await session.ready(60)
        assert "wrong-secret" not in repr(session) + repr(session.endpoint) + session.statistics().last_error


async def test_a_close_with_4401_names_the_token() -> None:
    class Refusing(WireServer):
        async def _talk(self, connection: Any) -> None:
            await connection.close(4401, "no")

    async with Refusing() as server, started(server.url) as session:
        with pytest.raises(GatewayGoneError, match="4401"):
            await session.ready(60)


async def test_goaway_lets_running_calls_end_then_reconnects() -> None:
    release = asyncio.Event()

    async def slow(peer: Peer, message: Complete) -> None:
        if message.id == "1":
            await peer.send(Goaway(grace_ms=60_000))
            await release.wait()
        await answer(peer, message)

    async with WireServer(slow) as server, connected(server) as session:
        stream = session.complete(call("1", "x"))
        await until(lambda: not session.connected)
        with pytest.raises(GatewayGoneError, match="going away"):
            await read(session.complete(call("2", "x")))
        release.set()
        assert (await read(stream))[0] == "return a + b"
        await server.wait_for(Hello, 2)
        await until(lambda: session.connected)
        assert (await read(session.complete(call("3", "x"))))[0] == "return a + b"


async def test_the_grace_of_a_connection_that_has_ended_does_not_end_the_next_one() -> None:
    async def answers(peer: Peer, message: Complete) -> None:
        if message.id == "1":
            await peer.send(Goaway(grace_ms=3000))
        if message.id == "2":
            await asyncio.sleep(3.2)  # which is longer
        await answer(peer, message)

    async with WireServer(answers) as server, connected(server) as session:
        await read(session.complete(call("1", "x")))
        await server.wait_for(Hello, 2)
        await until(lambda: session.connected)
        assert (await read(session.complete(call("2", "x"))))[0] == "return a + b"
        assert session.statistics().connections == 2


async def test_other_folders_are_told_once_nothing_runs() -> None:
    """A connection has one `hello`: the next one has it, at the same gateway, and no call is lost for it."""
    one, other = Workspace(root="/a", repository="r1"), Workspace(root="/b", repository="r2")
    located: list[str] = []

    async def locate() -> Endpoint:
        located.append(server.url)
        return Endpoint(server.url)

    async with WireServer(until_cancelled) as server, started(locate=locate, workspaces=[one]) as session:
        await session.ready(60)
        running = session.complete(call("1", "x"))
        assert isinstance(await anext(aiter(running)), Delta)
        session.open_folders([one])
        session.open_folders([one, other])
        session.open_folders([other])
        assert session.connected and len(server.peers) == 1
        running.cancel()
        await read(running)
        hellos = [hello for hello in await server.wait_for(Hello, 2) if isinstance(hello, Hello)]
        assert [hello.workspaces for hello in hellos] == [[one], [other]]
        await until(lambda: session.connected)
        assert (session.statistics().failures, len(located)) == (0, 1)


async def test_goaway_ends_what_outlives_the_grace() -> None:
    async def never(peer: Peer, message: Complete) -> None:
        await peer.send(Goaway(grace_ms=1))

    async with WireServer(never) as server, connected(server) as session:
        with pytest.raises(GatewayGoneError):
            await read(session.complete(call("1", "x")))
        await server.wait_for(Hello, 2)


@pytest.mark.parametrize(("deadline_ms", "held_s"), [(10_000.0, 11.0), (250.0, 1.25), (-990.0, 1.0)])
async def test_a_gateway_that_never_answers_does_not_hold_a_call_beyond_its_deadline(
    deadline_ms: float, held_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    real = loop.call_later

    def at_once(delay_s: float, callback: Any, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        if getattr(callback, "__name__", "") == "_expire":
            waits.append(delay_s)
            delay_s = 0.0
        return real(delay_s, callback, *arguments, **options)

    async def silent(peer: Peer, message: Complete) -> None:
        pass

    async with WireServer(silent) as server, connected(server) as session:
        monkeypatch.setattr(loop, "call_later", at_once)
        with pytest.raises(RequestRefusedError) as raised:
            await read(session.complete(call("1", "x", deadline_ms=deadline_ms)))
        assert raised.value.code is ErrorCode.EXPIRED
        assert waits == [pytest.approx(held_s)]
        await server.wait_for(Cancel)


async def test_an_id_that_runs_is_refused_and_the_running_call_lives() -> None:
    async with WireServer(until_cancelled) as server, connected(server) as session:
        stream = session.complete(call("1", "x"))
        with pytest.raises(RequestRefusedError, match="id"):
            await read(session.complete(call("1", "x")))
        stream.cancel()
        assert (await read(stream))[1].finish is Finish.CANCELLED


async def test_profile_changes_are_told_and_changed_documents_and_feedback_are_sent() -> None:
    profiles: list[Profile] = []
    acknowledged: list[str] = []
    workspaces = [Workspace(root="/w", repository="0" * 32)]
    async with (
        WireServer() as server,
        connected(server, profiles=profiles.append, acknowledged=acknowledged.append, workspaces=workspaces) as session,
    ):
        newer = Profile(model="newer", grammar="foretype-1", tokenizer_digest="0" * 32)
        await server.peers[0].send(newer)
        await until(lambda: session.profile == newer)
        session.changed(["file:///a"], ChangeReason.BRANCH)
        assert session.feedback("batch-1", [{"kind": "shown"}])
        await until(lambda: acknowledged == ["batch-1"])
    assert profiles == [PROFILE, newer]
    assert await server.wait_for(Changed) == [Changed(documents=["file:///a"], reason=ChangeReason.BRANCH)]
    assert server.received[0] == Hello(v=1, client="foretype", workspaces=workspaces)


async def test_small_frames_leave_at_once_and_uncompressed() -> None:
    async with WireServer() as server, connected(server):
        connection = server.peers[0].connection
        assert connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connection.protocol.extensions == []


async def test_the_tokenizer_is_downloaded_once_verified_and_private(tmp_path: Path) -> None:
    cache_dir = tmp_path / "of" / "nobody yet"
    async with WireServer(token="t") as server, connected(server, token="t", cache_dir=cache_dir) as session:
        assert await session.tokenizer_json() == TOKENIZER
        (path,) = (cache_dir / "tokenizers").iterdir()
        assert path.read_bytes() == TOKENIZER and path.stat().st_mode & 0o777 == 0o600
        assert await session.tokenizer_json() == TOKENIZER
        assert sum(request.startswith("/v1/tokenizers/") for request in server.requests) == 1
        path.write_bytes(b"damaged")
        assert await session.tokenizer_json() == TOKENIZER
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]


async def test_a_tokenizer_that_cannot_be_kept_is_used_and_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with WireServer() as server, connected(server, cache_dir=tmp_path) as session:
        in_the_way = tmp_path / "tokenizers" / f"{PROFILE.tokenizer_digest}.json"
        in_the_way.mkdir(parents=True)
        assert await session.tokenizer_json() == TOKENIZER
        assert "cannot keep the tokenizer" in caplog.text
        assert list(in_the_way.parent.iterdir()) == [in_the_way]


async def test_a_digest_that_is_a_path_is_refused(tmp_path: Path) -> None:
    evil = Profile(model="m", grammar="foretype-1", tokenizer_digest="../../../evil")
    async with WireServer(profile=evil) as server, connected(server, cache_dir=tmp_path) as session:
        with pytest.raises(TokenizerFetchError, match="hexadecimal"):
            await session.tokenizer_json()


async def test_a_callback_that_fails_is_not_swallowed() -> None:
    def broken(profile: Profile) -> None:
        raise ZeroDivisionError

    async with WireServer() as server:
        session = made(server.url)
        session.profiles.add(broken)
        await session.start()
        await until(lambda: session._task is not None and session._task.done())
        with pytest.raises(ZeroDivisionError):
            await session.close()


@pytest.mark.parametrize("url", ["", "http://h/v1/stream", "ws://", "ws://h:0/", "ws://h:99999/", "localhost:80"])
def test_a_url_that_is_no_websocket_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ValueError, match="ws://127"):
        Session(url, clock=time.monotonic, rng=random.Random(1))


@pytest.mark.parametrize("url", ["ws://ann:s3cret@127.0.0.1:9/v1/stream?token=s3cret", "ws://s3cret@127.0.0.1:9/"])
async def test_credentials_in_the_url_are_in_no_message(url: str) -> None:
    session = made(url)
    with pytest.raises(GatewayGoneError) as early:
        await session.ready(0.0)
    await session.start()
    with pytest.raises(GatewayGoneError) as refused:
        await session.ready(10.0)
    told = (str(early.value), str(refused.value), session.statistics().last_error, repr(session))
    await session.close()
    assert "127.0.0.1" in told[0] and not any("s3cret" in text for text in told), told


def test_a_wrong_url_is_told_without_its_credentials() -> None:
    with pytest.raises(GatewayGoneError, match="proxy's URL") as gone, as_gateway_gone():
        raise InvalidProxy("http://ann:s3cret@proxy", "it has no port")
    assert "s3cret" not in str(gone.value)
    with pytest.raises(ValueError, match="host") as refused:
        check_url("http://ann:s3cret@host/v1/stream")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(("error", "reason"), [(OSError("no route"), "no route"), (TimeoutError(), "TimeoutError")])
def test_what_kept_from_the_gateway_is_told(error: Exception, reason: str) -> None:
    with pytest.raises(GatewayGoneError, match=f"cannot be reached: {reason}:"), as_gateway_gone():
        raise error


def test_backoff_is_full_jitter_under_a_cap() -> None:
    backoff, rng = Backoff(base_s=1.0, cap_s=8.0), random.Random(7)
    for attempt in (0, 1, 2, 3, 10, 10_000):
        delays = [backoff.delay_s(attempt, rng) for _ in range(200)]
        ceiling_s = min(8.0, 2.0**attempt if attempt < 20 else 8.0)
        assert 0.0 <= min(delays) < 0.2 * ceiling_s
        assert 0.8 * ceiling_s < max(delays) <= ceiling_s


class Longest(random.Random):
    """Waits for as long as the back-off allows."""

    def uniform(self, a: float, b: float) -> float:
        return b


async def test_the_back_off_grows_until_a_gateway_takes_us_in() -> None:
    class HangsUp(WireServer):
        async def _talk(self, connection: Any) -> None:
            await connection.close()

    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with HangsUp() as not_ours, WireServer() as ours:
        way = iter([None, not_ours, not_ours, None, ours, None, not_ours])

        async def locate() -> Endpoint:
            server = next(way, ours)
            if server is None:
                raise GatewayGoneError("nobody is there")
            return Endpoint(server.url, None)

        backoff = Backoff(base_s=1.0, cap_s=100.0)
        async with started(rng=Longest(), backoff=backoff, locate=locate, sleep=sleep) as session:
            await ours.wait_for(Hello)
            await until(lambda: session.connected)
            await ours.peers[0].connection.close()
            await ours.wait_for(Hello, 2)
    assert waits == [1.0, 2.0, 4.0, 8.0, 1.0, 2.0, 4.0]


PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


async def test_another_machine_is_reached_through_the_proxy_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(await reader.readline())
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        for name in PROXY_VARIABLES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with started("ws://gateway.example:7878/v1/stream"):
            assert await asked.get() == b"CONNECT gateway.example:7878 HTTP/1.1\r\n"


async def test_loopback_never_goes_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with WireServer() as server, connected(server, cache_dir=tmp_path) as session:
        assert await session.tokenizer_json()
        assert (await read(session.complete(call("1", "x"))))[0] == "return a + b"


async def test_no_tokenizer_is_asked_for_with_a_token_in_clear(tmp_path: Path) -> None:
    far = Endpoint("ws://example.org/v1/stream", "secret")
    with pytest.raises(TokenizerFetchError, match=r"example\.org"):
        await TokenizerStore(tmp_path).fetch(far, "0" * 32)


@pytest.mark.parametrize(("code", "told"), [(4401, "check the token.*--token-file"), (4403, "gateway.hosts")])
def test_a_refusal_says_what_was_refused(code: int, told: str) -> None:
    with pytest.raises(GatewayGoneError, match=f"\\({code}\\): .*{told}"), as_gateway_gone():
        raise ConnectionClosedError(Close(code, ""), None)


async def test_a_connection_that_ends_while_it_is_asked_whether_it_lives_is_given_up_by_nobody_else() -> None:
    async with WireServer() as server, Way(server).open() as router, started(router.url) as session:
        await session.ready(60)
        router.forget()
        asked = asyncio.create_task(session.ping(60))
        await asyncio.sleep(0.1)
        session.abandon("another network")
        assert await asked


def test_the_first_try_again_waits_a_quarter_of_a_second_at_most() -> None:
    class Highest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    assert [Backoff().delay_s(attempt, Highest()) for attempt in (0, 1, 9)] == [0.25, 0.5, 15.0]


async def test_a_connection_that_died_without_a_word_is_given_up_soon_after_a_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foretype_client.session.session._SILENT_S", 0.2)
    states: list[bool] = []
    async with (
        WireServer() as server,
        Way(server).open() as router,
        started(router.url, connections=states.append) as session,
    ):
        await session.ready(60)
        await read(session.complete(call("1", "a = 1\n")))
        await asyncio.sleep(0.6)  # it was listened to, and answered
        router.forget()
        async with asyncio.timeout(30):  # the library's own pings take 40 s
            with pytest.raises(GatewayGoneError):
                await read(session.complete(call("2", "a = 1\n", deadline_ms=60_000)))
        await until(lambda: session.connected)
        text, _ = await read(session.complete(call("3", "a = 1\n")))
        assert text == "return a + b" and router.connections == 2
        assert states == [True, False, True]
