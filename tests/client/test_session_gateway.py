"""The session against the real gateway: both ends of the wire as they ship, only the engine is scripted."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest
from backend.test_stream_with_client import session_of
from backend.world import TOKENIZER, TOKENIZER_PATH, gateway, scripted, until
from client.wire_server import read
from foretype_client.session.connecting import Backoff
from foretype_client.session.session import Session
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.templates import encode_prompt, grammar
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Complete, Delta, ErrorCode, Finish

LETTERS = "abcdefgh"


def call(id: str, above: str, typed: str, below: str = "", **more: Any) -> Complete[Segment]:
    texts = [(Kind.PATH, ""), (Kind.PREFIX, above), (Kind.SUFFIX, below), (Kind.MIDDLE, typed)]
    segments = [Segment(kind=kind, scope=Scope.FILE, source=Source(path="a.py"), text=text) for kind, text in texts]
    return Complete(id=id, segments=segments, **({"max_tokens": 64} | more))


@pytest.mark.parametrize("json", [False, True])
async def test_the_engine_sees_the_prompt_that_the_client_has_whatever_travelled(json: bool) -> None:
    """Random sessions over a few texts; the gateway forgets its cache at random, and `need` repairs it."""
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return "x"

    rng = random.Random(5)
    async with gateway(scripted(answer)) as world, session_of(world, json=json) as session:
        for number in range(40):
            if rng.random() < 0.2:
                for connection in world.gateway.stream.connections:
                    connection.session.cache.clear()
            asked = call(
                str(number),
                "".join(f"{rng.choice(LETTERS)} = {rng.randrange(9)}\n" for _ in range(rng.randrange(3))),
                rng.choice(["", "    é", "日本 = ", "<|fim_middle|>"]),
                rng.choice(["", "pass\n"]),
            )
            encoded = encode_prompt(TOKENIZER, grammar("foretype-1"), asked.segments)
            _, done = await read(session.complete(asked))
            assert done.usage.prompt_tokens == len(encoded.ids)
            assert prompts[-1] == TOKENIZER.decode(encoded.ids).decode()
        statistics = session.statistics()
    assert statistics.needs > 0
    assert statistics.digest_segments > statistics.text_segments / 2
    assert statistics.bad_frames == 0


async def test_a_cancel_frees_the_engine_and_is_confirmed() -> None:
    async with gateway(scripted("y = 1\n" * 500, decode_s_per_token=0.002)) as world, session_of(world) as session:
        stream = session.complete(call("1", "x = 1\n", "", max_tokens=1000))
        assert isinstance(await anext(aiter(stream)), Delta)
        stream.cancel()
        _, done = await read(stream)
        assert done.finish is Finish.CANCELLED
        await world.idle()
        # Cancelled before the gateway even read the request: it still wins, and nothing is left running.
        late = session.complete(call("2", "x = 1\n", "", max_tokens=1000))
        late.cancel()
        assert (await read(late))[1].finish is Finish.CANCELLED
        await world.idle()


async def test_a_wrong_token_count_is_a_refusal_and_the_connection_lives() -> None:
    async with gateway() as world, session_of(world) as session:
        with pytest.raises(RequestRefusedError) as raised:
            await read(session.complete(call("1", "x = 1\n", "", prompt_tokens=1)))
        assert raised.value.code is ErrorCode.TOKENIZER_MISMATCH
        await read(session.complete(call("2", "x = 1\n", "")))


async def test_the_tokenizer_comes_from_the_gateway(tmp_path: Path) -> None:
    async with gateway(token="a-long-enough-token") as world:
        async with session_of(world, token="a-long-enough-token", cache_dir=tmp_path) as session:
            assert await session.tokenizer_json() == await asyncio.to_thread(TOKENIZER_PATH.read_bytes)
        session = Session(world.ws_url, token="another-token", clock=time.monotonic, rng=random.Random(1))
        states: list[bool] = []
        session.connections.add(states.append)
        await session.start()
        with pytest.raises(GatewayGoneError, match="check the token"):
            await session.ready(60)
        await session.close()
        assert states == []


async def test_goaway_of_the_real_gateway_moves_the_session_on() -> None:
    quick = Backoff(base_s=0.01, cap_s=0.02)
    async with gateway() as world, session_of(world, backoff=quick) as session:
        world.gateway.stream.goaway(1000.0)
        await until(lambda: not session.connected)
        world.gateway.stream.draining = False  # another gateway, behind the same address
        await until(lambda: session.statistics().connections == 2 and session.connected)
        await read(session.complete(call("1", "x = 1\n", "")))
