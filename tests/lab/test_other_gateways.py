"""The load beside peers: the scripted engine, the generator's SSE, what is not installed."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from foretype_lab.commands import bench
from foretype_lab.other_gateways import gateways
from foretype_lab.other_gateways.measure import PeerLoadOptions, run_peer
from foretype_lab.other_gateways.sse_client import SseConnection, open_sse, request_bytes
from foretype_lab.other_gateways.sse_engine import MODEL, serve
from foretype_wire.errors import GatewayGoneError
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner


def _silent(_step: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture
async def engine() -> AsyncGenerator[int]:
    server = await serve(0, 0.001)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_the_scripted_engine_speaks_with_a_client_that_is_not_ours(engine: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{engine}/v1", trust_env=False, timeout=60) as client:
        models = (await client.get("/models")).json()
        assert [model["id"] for model in models["data"]] == [MODEL]
        body: dict[str, Any] = {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 4}
        whole = (await client.post("/completions", json=body)).json()
        assert whole["choices"][0]["text"] == " token" * 4 and whole["usage"]["completion_tokens"] == 4
        options = {"stream": True, "stream_options": {"include_usage": True}}
        for _ in range(2):  # on the same connection
            async with client.stream("POST", "/completions", json=body | options) as answer:
                lines = [line async for line in answer.aiter_lines() if line]
            events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
            assert lines[-1] == "data: [DONE]" and len(events) == 5
            assert [event["choices"][0]["finish_reason"] for event in events[:4]] == [None, None, None, "length"]
            assert events[4]["usage"]["completion_tokens"] == 4
        assert (await client.post("/completions", content=b"{")).status_code == 400
        assert (await client.get("/nothing")).status_code == 404

        async def parts() -> AsyncGenerator[bytes]:
            yield b"{}"

        assert (await client.post("/completions", content=parts())).json()["usage"]["completion_tokens"] == 16


async def test_one_connection_is_used_again_and_tells_first_text_and_end(engine: int) -> None:
    connection = await open_sse("127.0.0.1", engine)
    request = request_bytes("127.0.0.1", "x", model=MODEL, max_tokens=3, headers={})
    for _ in range(3):
        said: list[str] = []
        ended: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        connection.on_first = lambda said=said: said.append("first")
        connection.on_end = ended.set_result
        connection.send(request)
        assert await asyncio.wait_for(ended, 60) is None and said == ["first"] and connection.usable
    connection.close()
    with pytest.raises(GatewayGoneError, match=r"http://127\.0\.0\.1:9"):
        await open_sse("127.0.0.1", 9)


def chunked(*parts: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


CHUNKED = chunked(
    b'data: {"choices":[{"text":""}]', b"}\n\n", b'data: {"choices":[{"text":"word"}]}\n\n', b"data: [DONE]\n\n"
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_an_answer_in_any_pieces_is_the_same_answer(sizes: list[int]) -> None:
    connection = SseConnection()
    said: list[str | None] = []
    connection.on_first = lambda: said.append("first")
    connection.on_end = said.append
    connection.send(b"")
    at = 0
    while at < len(CHUNKED):
        size = sizes[at % len(sizes)]
        connection.data_received(CHUNKED[at : at + size])
        at += size
    assert said == ["first", None]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", "status 503: busy"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\ndata: not json\n\n", "no text came"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "no HTTP: Invalid character in chunk size"),
    ],
)
def test_what_is_no_completion_is_told(answer: bytes, problem: str) -> None:
    connection = SseConnection()
    said: list[str | None] = []
    connection.on_end = said.append
    connection.send(b"")
    connection.data_received(answer)
    assert len(said) == 1 and said[0] is not None and problem in said[0]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_our_own_gateway_before_the_scripted_engine_answers_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foretype_lab.other_gateways.measure._DRAIN_S", 60.0)
    options = PeerLoadOptions(peer="foretype", rate=20, seconds=1, warm_up_s=0.3, developers=4, prompts=4, pin=False)
    found = await run_peer(options, progress=_silent)
    assert found["requests"] == 20 and found["unanswered"] == 0 and found["problems"] == {}
    # It may be less than a tick of the kernel's, and on a busy machine comes after the second that is measured.
    assert found["gateway_cpu_ms_per_request"] >= 0 and found["added_ms"]["n"] == 20
    assert found["direct"]["added_ms"]["n"] >= 20 and found["tpot_ms"]["n"] == 20


@pytest.mark.timeout(120)
async def test_a_search_beside_a_peer_begins_at_the_rate_that_was_asked_and_measures_it_too() -> None:
    server = await serve(0, 0.001)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    options = PeerLoadOptions(
        peer=url,
        rate=30,
        seconds=0.2,
        warm_up_s=0.1,
        tried_requests=2,
        search=True,
        search_s=0.01,
        prompts=2,
        pin=False,
    )
    found = await run_peer(options, progress=_silent)
    server.close()
    assert [one["rate"] for one in found["tried"]] == [30] and found["cut_off"]
    assert found["at_rate"]["requests"] == 6 and found["at_rate"]["unanswered"] == 0


def test_a_peer_that_is_not_installed_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "ENVIRONMENTS", tmp_path)
    for name, message in (("smg", "make peer-gateways-env"), ("other", "none of smg, foretype")):
        done = CliRunner().invoke(bench, ["peer-load", name, "--json"])
        assert done.exit_code == 2 and message in " ".join(done.stderr.split())
