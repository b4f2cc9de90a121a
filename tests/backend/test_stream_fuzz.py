"""Whatever frames arrive, the connection lives and answers a good request afterwards."""

import asyncio
import random
from typing import Any

import msgspec
import pytest
from backend.world import World, complete, gateway, scripted
from foretype_backend.config.settings import LimitsConfig
from foretype_wire.messages import Delta, Done, Error, Need
from hypothesis import given, settings
from hypothesis import strategies as st

TYPES = ["hello", "complete", "cancel", "changed", "feedback", "teleport", ""]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=6), st.binary(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(["repository", "file", "path", "prefix", "suffix", "tail", "middle", "x"])
SEGMENT = st.fixed_dictionaries(
    {"kind": KINDS | VALUES, "scope": st.sampled_from(["global", "file", "session"]) | VALUES},
    optional={
        "text": st.text(max_size=20) | VALUES,
        "digest": st.binary(min_size=16, max_size=16) | VALUES,
        "source": st.fixed_dictionaries({}, optional={"path": st.text(max_size=8), "version": VALUES}) | VALUES,
    },
)
STOP = st.fixed_dictionaries(
    {},
    optional={"strings": st.lists(st.text(max_size=3), max_size=3) | VALUES, "max_lines": VALUES, "min_indent": VALUES},
)
MESSAGE = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES) | VALUES},
    optional={
        "id": st.sampled_from(["a", "b", "é", "\x00"]) | VALUES,
        "v": VALUES,
        "class": st.sampled_from(["interactive", "warm", "chat", "speculative"]) | VALUES,
        "segments": st.lists(SEGMENT, max_size=4) | VALUES,
        "stop": STOP | VALUES,
        "max_tokens": st.integers(0, 8) | VALUES,
        "deadline_ms": st.floats(1, 1000) | VALUES,
        "prompt_tokens": st.integers(0, 20) | VALUES,
        "supersedes": st.sampled_from(["a", "b", "c"]) | VALUES,
        "digests": VALUES,
        "documents": st.lists(st.text(max_size=4), max_size=2) | VALUES,
        "reason": st.sampled_from(["edit", "branch"]) | VALUES,
        "batch": st.text(max_size=70) | VALUES,
        "events": st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=2), max_size=2) | VALUES,
    },
)


async def survives(frames: list[Any], *, json: bool) -> None:
    async with gateway(scripted("x + 1\n")) as world, world.peer(json=json) as peer:
        for frame in frames:
            await peer.send(frame)
        await peer.send(complete("the-good-one"))
        text = ""
        while True:
            message = await peer.receive()
            if getattr(message, "id", None) != "the-good-one":
                continue
            if isinstance(message, Delta):
                text += message.text
            else:
                break
        assert isinstance(message, Done), message
        assert text == "x + 1\n"
        await world.idle()


@settings(max_examples=25, deadline=None)
@given(st.lists(MESSAGE, min_size=1, max_size=20))
def test_messages_of_any_shape(messages: list[dict[str, Any]]) -> None:
    asyncio.run(survives([msgspec.msgpack.encode(message) for message in messages], json=False))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(max_size=60) | MESSAGE.map(msgspec.msgpack.encode), max_size=20), st.data())
def test_bytes_of_any_kind(frames: list[bytes], data: st.DataObject) -> None:
    cut = [frame[: data.draw(st.integers(0, len(frame)))] for frame in frames]
    asyncio.run(survives([*cut, "a text frame"], json=False))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | MESSAGE.map(repr), max_size=20))
def test_text_of_any_kind(frames: list[str]) -> None:
    asyncio.run(survives(frames, json=True))


async def test_random_comings_and_goings_leave_nothing_behind() -> None:
    """Connects, requests, cancels, supersedes, faults and disconnects at random points of slow generations."""
    draw = random.Random(20261120)

    async def slow(seconds: float) -> None:
        await asyncio.sleep(draw.choice((0, 0, 0.001)))

    engine = scripted("word " * 30, sleep=slow, slots=3)
    limits = LimitsConfig(max_running=4, max_waiting=6, live_per_connection=8, abort_grace_ms=100, retry_wait_ms=50)

    async def one_client(world: World) -> None:
        for _ in range(4):
            async with world.peer(json=draw.random() < 0.5, max_queue=None) as peer:  # reads while it closes
                for number in range(12):
                    step = draw.random()
                    if step < 0.6:
                        former = f"r{number - 1}" if draw.random() < 0.3 else None
                        class_ = draw.choice(["interactive", "block", "speculative", "warm"])
                        await peer.send(
                            complete(f"r{number}", class_=class_, supersedes=former, document="d", deadline_ms=500.0)
                        )
                    elif step < 0.9:
                        await peer.send({"type": "cancel", "id": f"r{draw.randrange(number + 1)}"})
                    else:
                        engine.fail_next(after_tokens=draw.randrange(5))
                    await asyncio.sleep(draw.choice((0, 0.002)))

    async with gateway(engine, limits=limits) as world:
        await asyncio.gather(*(one_client(world) for _ in range(6)))
        await world.idle()
        assert engine.statistics().waiting == 0
        assert not world.gateway.stream.connections
        engine._faults.clear()
        async with world.peer() as peer:
            await peer.still_works()


@pytest.mark.parametrize("json", [False, True])
async def test_every_request_of_a_burst_gets_exactly_one_end(json: bool) -> None:
    async with gateway(scripted("x + 1\n")) as world, world.peer(json=json) as peer:
        ids = [f"r{number}" for number in range(40)]
        for number, id in enumerate(ids):
            await peer.send(
                complete(id, document=f"d{number % 3}", supersedes=f"r{number - 5}" if number % 4 == 0 else None)
            )
            if number % 7 == 0:
                await peer.send({"type": "cancel", "id": id})
        ends: list[str] = []
        while len(ends) < len(ids):
            message = await peer.receive()
            if isinstance(message, Done | Error | Need):
                assert message.id is not None
                ends.append(message.id)
        assert sorted(ends) == sorted(ids)
        await peer.still_works()
        await world.idle()
