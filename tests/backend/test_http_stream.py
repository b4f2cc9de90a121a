"""The engine's HTTP against a server that says exactly the bytes it is told to."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.test_faults import certificate
from backend.world import until
from foretype_backend.engines.openai import http_stream
from foretype_backend.engines.openai.events import Event, Events
from foretype_backend.engines.openai.http_stream import HttpStreams, StreamedResponse
from foretype_backend.errors import EngineUnavailableError
from hypothesis import given
from hypothesis import strategies as st

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def connections_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine does something else between two requests."""
    monkeypatch.setattr(http_stream, "_IDLE_S", 600.0)


def sized(body: bytes, *, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


@dataclass
class Script:
    """What each request is answered with: pieces, with pauses in seconds between them, and "hang up"."""

    answers: list[Sequence[bytes | float | str]]
    port: int = 0
    asked: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0
    closed: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.asked.append(head + await reader.readexactly(length))
                for piece in self.answers[len(self.asked) - 1]:
                    if isinstance(piece, bytes):
                        writer.write(piece)
                        await writer.drain()
                    elif isinstance(piece, float):
                        await asyncio.sleep(piece)
                    else:
                        writer.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed += 1
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def served(*answers: Sequence[bytes | float | str], **options: Any) -> AsyncGenerator[tuple[Script, HttpStreams]]:
    script, tls = Script(list(answers)), options.pop("tls", None)
    server = await asyncio.start_server(script.accept, "127.0.0.1", 0, ssl=tls)
    script.port = server.sockets[0].getsockname()[1]
    userinfo = options.pop("userinfo", "")
    async with httpx.AsyncClient(
        headers={"authorization": "Bearer key"}, trust_env=False, verify=False, timeout=60
    ) as client:
        template = client.build_request(
            "POST", f"http{'s' if tls else ''}://{userinfo}127.0.0.1:{script.port}/v1/completions"
        )
    streams = HttpStreams(template, connect_timeout_s=60, idle_timeout_s=options.pop("idle_timeout_s", 60))
    try:
        yield script, streams
    finally:
        streams.close()
        server.close()
        for task in script.tasks:
            task.cancel()
        await asyncio.gather(*script.tasks, return_exceptions=True)


async def post(streams: HttpStreams, body: bytes, headers: Mapping[str, str]) -> StreamedResponse:
    answer = streams.kept() or await streams.connect()
    try:
        await answer.ask(streams.request(body, headers))
    except BaseException:
        answer.close()
        raise
    return answer


async def whole(streams: HttpStreams, body: bytes = b"{}") -> tuple[int, str]:
    answer = await post(streams, body, {})
    try:
        return answer.status, await answer.text()
    finally:
        answer.close()


async def test_one_connection_serves_answers_of_every_kind_one_after_the_other() -> None:
    chunked = HEAD + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    first = b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"body")
    refused = sized(b"no", status=b"400 Bad")
    async with served([chunked], [first], [refused], [chunked[:50], 0.01, chunked[50:]]) as (script, streams):
        assert [await whole(streams) for _ in range(4)] == [(200, "abc"), (200, "body"), (400, "no"), (200, "abc")]
        assert script.connections == 1
        head, _, body = script.asked[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:") and body == b"{}"
        assert b"\r\nauthorization: Bearer key" in head.lower().replace(b"bearer key", b"Bearer key")
        assert b"accept-encoding" not in head.lower()


async def test_a_reader_that_has_enough_keeps_the_connection_when_the_rest_comes_and_not_when_it_stays_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_stream, "_REST_S", 60.0)
    late, never = [HEAD + b"2\r\nab\r\n", 0.02, b"1\r\nc\r\n0\r\n\r\n"], [HEAD + b"2\r\nab\r\n"]
    async with served(late, never, [sized(b"new")]) as (script, streams):
        answer = await post(streams, b"{}", {})
        assert await answer.read() == b"ab"
        answer.leave()
        await until(lambda: bool(streams._idle))  # the rest has come  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(http_stream, "_REST_S", 0.02)
        answer = await post(streams, b"{}", {})
        assert await answer.read() == b"ab"
        assert (script.connections, script.closed) == (1, 0)
        answer.leave()
        await until(lambda: script.closed == 1)
        assert await whole(streams) == (200, "new")


async def test_closing_before_the_end_closes_the_connection() -> None:
    async with served([HEAD + b"2\r\nab\r\n"], [10.0]) as (script, streams):
        answer = await post(streams, b"{}", {})
        assert await answer.read() == b"ab"
        answer.close()
        waiting = asyncio.create_task(post(streams, b"{}", {}))  # and one that has no head yet
        await until(lambda: (script.connections, script.closed) == (2, 1))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert streams.connections == 0


@pytest.mark.parametrize(
    "answer",
    [
        [sized(b"ab", more=b"Connection: close\r\n"), "hang up"],
        [sized(b"ab"), "hang up"],
        [b"HTTP/1.1 200 OK\r\n\r\nab", "hang up"],  # it ends where the connection ends
        [sized(b"ab") + sized(b"not asked for")],
        [sized(b"ab"), 0.01, b"HTTP/1.1 200 OK\r\n"],
    ],
)
async def test_a_connection_that_cannot_be_used_again_is_not(answer: Sequence[bytes | float | str]) -> None:
    async with served(answer, [sized(b"new")]) as (script, streams):
        assert await whole(streams) == (200, "ab")
        await until(lambda: streams.connections == 0)
        assert await whole(streams) == (200, "new")
        assert script.connections == 2


async def test_one_that_was_idle_for_long_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served([sized(b"ab")], [sized(b"new")]) as (script, streams):
        await whole(streams)
        monkeypatch.setattr(http_stream, "_IDLE_S", -1.0)
        assert await whole(streams) == (200, "new")
        assert script.connections == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ([b"nonsense\r\n\r\n"], httpx.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000], httpx.RemoteProtocolError),
        (["hang up"], httpx.RemoteProtocolError),
        ([HEAD + b"2\r\nab\r\n", "hang up"], httpx.RemoteProtocolError),
        ([HEAD + b"zz\r\n"], httpx.RemoteProtocolError),
        ([HEAD + b"2\r\nab\r\n", 600.0], httpx.ReadTimeout),
        ([600.0], httpx.ReadTimeout),
    ],
)
async def test_what_breaks_is_told_and_leaves_nothing_open(
    answer: Sequence[bytes | float | str], error: type[Exception]
) -> None:
    silent = error is httpx.ReadTimeout
    async with served(answer, idle_timeout_s=0.1 if silent else 60.0) as (_, streams):
        with pytest.raises(error):
            await whole(streams)
        assert streams.connections == 0


async def test_slow_and_steady_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop comes every forty seconds, of which the loop's clock jumps over nearly all; a minute of silence would be too much."""
    loop, jumped_s = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + jumped_s)
    drop = b"1\r\nx\r\n"
    drops: list[bytes | float | str] = [HEAD + drop, *[30.0, drop] * 9, b"0\r\n\r\n"]
    async with served(drops, idle_timeout_s=60.0) as (_, streams):
        answer, came = await post(streams, b"{}", {}), 0
        while data := await answer.read():
            assert data == b"x"
            came += 1
            jumped_s += 40.0
        answer.close()
    assert came == 10


async def test_no_connection_is_told() -> None:
    template = httpx.Request("POST", "http://127.0.0.1:9/v1/completions")
    with pytest.raises(httpx.ConnectError):
        await post(HttpStreams(template, connect_timeout_s=1, idle_timeout_s=1), b"{}", {})


async def test_headers_cannot_carry_another_request_and_a_url_may_carry_a_password() -> None:
    async with served([sized(b"ab")], userinfo="me:secret@") as (script, streams):
        with pytest.raises(httpx.LocalProtocolError, match="X-Request-Id"):
            await post(streams, b"{}", {"X-Request-Id": "a\r\nX-More: b"})
        answer = await post(streams, b"{}", {"X-Request-Id": "a b"})
        answer.close()
        assert b"\r\nX-Request-Id: a b\r\n" in script.asked[0]
        assert b"Basic bWU6c2VjcmV0" in script.asked[0]


async def test_tls_is_spoken_with_servers_whose_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = certificate(tmp_path, days=1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    async with served([sized(b"ab")], [sized(b"cd")], tls=context) as (script, streams):
        with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
            await whole(streams)
        streams.close()
        monkeypatch.setattr(streams, "_context", ssl.create_default_context(cafile=str(chain)))
        assert [await whole(streams) for _ in range(2)] == [(200, "ab"), (200, "cd")]
        assert script.connections == 1


async def test_of_a_refusal_without_end_the_beginning_is_read() -> None:
    head = b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with served([head + b"100000\r\n" + b"x" * 0x100000 + b"\r\n", 10.0]) as (_, streams):
        status, text = await whole(streams)
        assert (status, len(text)) == (500, 64 * 1024)


def event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text}]}, ensure_ascii=False).encode() + b"\r\n\r\n"


@given(st.lists(st.text(max_size=8), max_size=5), st.lists(st.integers(1, 60), min_size=1))
def test_events_are_the_same_in_whatever_pieces_they_come(texts: list[str], sizes: list[int]) -> None:
    # Line separators that are none in this format (U+2028, U+0085) are part of a text.
    stream = b": hello\n\n" + b"".join(map(event, texts)) + b"data: [DONE]\n\ndata: [DONE]"
    events, found, at = Events("http://engine"), list[Event](), 0
    for size in [*sizes, len(stream)]:
        if at < len(stream):
            found += events.feed(stream[at : at + size])
            at += size
    while found[-1].last and len(found) > 1 and found[-2].last:
        found.pop()  # a reader stops at the first
    assert [one.text for one in found] == [*texts, ""] and found[-1].last


def test_the_last_line_needs_no_end_and_a_line_without_end_is_refused() -> None:
    events = Events("http://engine")
    assert events.feed(event("ab").rstrip()) == []
    assert [one.text for one in events.feed(b"")] == ["ab"]
    with pytest.raises(EngineUnavailableError, match="without end"):
        for _ in range(20):
            events.feed(b"x" * 100_000)
    with pytest.raises(EngineUnavailableError, match="no completion"):
        Events("http://engine").feed(b'data: {"choices":[{"text":"\xff"}]}\n')
