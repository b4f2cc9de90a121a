"""The stream door over a real socket: the wire of design section 3, and the outcome table of section 7."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from backend.world import TOKEN, TOKENIZER, complete, gateway, profile, scripted, segment, segments, until
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.engines.scripted import ScriptedEngine, fixed
from foretype_backend.errors import StoreError
from foretype_backend.telemetry.intake import Sender
from foretype_context.prompt.profile import Opened
from foretype_context.prompt.segments import Kind, digest_of
from foretype_wire.messages import (
    MAX_FRAME_BYTES,
    Ack,
    Cancel,
    Changed,
    ChangeReason,
    Delta,
    Done,
    Error,
    ErrorCode,
    Feedback,
    Finish,
    Hello,
    Profile,
    RequestClass,
    Stop,
)
from websockets.exceptions import ConnectionClosed


class Gate:
    """A sleep that lets so many tokens through and then waits until it is opened."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.opened = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        if self.free > 0:
            self.free -= 1
            await asyncio.sleep(0)
        else:
            await self.opened.wait()
            await asyncio.sleep(0)


@pytest.mark.parametrize("json", [False, True], ids=["msgpack", "json"])
async def test_hello_brings_the_profile_and_complete_brings_text(json: bool) -> None:
    async with gateway(scripted("x + 1\n")) as world, world.peer(json=json) as peer:
        text, end, deltas = await peer.ask()
        assert text == "x + 1\n"
        assert isinstance(end, Done)
        assert end.finish is Finish.END_OF_MIDDLE or end.finish is Finish.LENGTH
        assert sum(delta.tokens for delta in deltas) == end.usage.generated_tokens > 0
        assert sum(delta.logprob for delta in deltas) == pytest.approx(-0.1 * end.usage.generated_tokens)


async def test_usage_and_timings_tell_what_was_cached_and_where_the_time_went() -> None:
    engine = scripted("x\n", prefill_s_per_token=0.0001)
    async with gateway(engine) as world, world.peer() as peer:
        long = "value = compute(value)\n" * 40
        _, first = await peer.answer("a", segments=segments(long))
        _, second = await peer.answer("b", segments=segments(long))
        assert first.usage.cached_tokens == 0
        assert second.usage.cached_tokens >= second.usage.prompt_tokens - 64
        assert second.usage.cached_source == "engine"
        assert first.timings_ms.prefill > second.timings_ms.prefill >= 0


async def test_stop_rules_end_the_text_exactly_and_free_the_engine() -> None:
    engine = scripted("first\nsecond\nthird\n", tokens_per_chunk=8)
    async with gateway(engine) as world, world.peer() as peer:
        text, end = await peer.answer(stop=Stop(max_lines=1))
        assert (text, end.finish) == ("first", Finish.STOP)
        await world.idle()
        text, end = await peer.answer("r2", stop=Stop(strings=["nd\nth"]))
        assert (text, end.finish) == ("first\nseco", Finish.STOP)


async def test_a_first_line_that_opens_a_block_is_followed_by_the_block_and_no_other_is() -> None:
    stop = Stop(max_lines=1, opened=Opened(endings=[":"], max_lines=9, max_tokens=64, min_indent=1))
    for answer, shown in (
        ("if x:\n    return 1\n\ny = 2\n", "if x:\n    return 1"),
        ("x = 1\n    return 1\n", "x = 1"),
    ):
        async with gateway(scripted(answer)) as world, world.peer() as peer:
            text, end = await peer.answer(stop=stop, max_tokens=8)
            assert (text, end.finish) == (shown, Finish.STOP)
    async with gateway(scripted("one two three four five six seven")) as world, world.peer() as peer:
        for id, stops in (("opened", stop), ("plain", Stop())):
            _, end = await peer.answer(id, stop=stops, max_tokens=2)
            assert (end.finish, end.usage.generated_tokens) == (Finish.LENGTH, 2)
        await world.idle()


async def test_cancel_stops_the_engine_while_it_decodes() -> None:
    gate = Gate(free=4)
    async with gateway(scripted("word " * 100, sleep=gate)) as world, world.peer() as peer:
        await peer.begin("a", max_tokens=100)
        await peer.send(Cancel(id="a"))
        await until(lambda: world.service.statistics().stopping == 1)
        gate.opened.set()
        end = await peer.cancelled("a")
        await world.idle()
        assert end.usage.generated_tokens < 100
        assert end.usage.tokens_after_cancel <= 2


async def test_an_engine_that_does_not_let_go_is_abandoned_after_the_grace() -> None:
    gate = Gate(free=3)  # the engine hangs in the middle, and looks at its abort only when it moves again
    async with gateway(scripted("word " * 100, sleep=gate)) as world, world.peer() as peer:
        await peer.begin("a", max_tokens=100)
        await peer.send(Cancel(id="a"))
        await peer.cancelled("a")
        await world.idle()


async def test_a_cancel_right_behind_its_request_wins_although_the_prompt_is_long() -> None:
    """The prompt is encoded in a thread; the cancel comes while nothing else knows of the request yet."""
    async with gateway(with_profile=profile(context_limit_tokens=200_000)) as world, world.peer() as peer:
        await peer.send(complete("a", segments=segments("value = 1\n" * 20_000)))
        await peer.send(Cancel(id="a"))
        await peer.cancelled("a")
        assert not world.engine.requests


async def test_supersede_cancels_the_named_request() -> None:
    gate = Gate(free=4)
    async with gateway(scripted("word " * 50, sleep=gate)) as world, world.peer() as peer:
        await peer.begin("a", max_tokens=50)
        await peer.send(complete("b", supersedes="a", max_tokens=3))
        ends: dict[str, Any] = {}
        while len(ends) < 2:
            message = await peer.receive()
            if isinstance(message, Done):
                ends[message.id] = message.finish
                gate.opened.set()
        assert ends == {"a": Finish.CANCELLED, "b": Finish.LENGTH}


async def test_a_request_that_names_itself_is_answered() -> None:
    async with gateway(scripted("word " * 50)) as world, world.peer() as peer:
        await peer.send(complete("a", supersedes="a", max_tokens=3))
        message = await peer.receive()
        while not isinstance(message, Done):
            message = await peer.receive()
        assert (message.id, message.finish) == ("a", Finish.LENGTH)


@pytest.mark.parametrize("frames", [[Cancel(id="a"), complete("b", supersedes="a")], [complete("b", supersedes="a")]])
async def test_a_cancel_has_reached_the_engine_when_its_frame_is_read(frames: list[object]) -> None:
    """No task and no turn of the event loop in between: behind those everything waits that other frames have begun."""
    gate = Gate(free=4)
    async with gateway(scripted("word " * 50, sleep=gate)) as world, world.peer() as peer:
        told: list[str] = []
        world.engine.abort = told.append
        await peer.begin("a", max_tokens=50)
        (connection,) = world.gateway.stream.connections
        for frame in frames:
            connection._came(msgspec.msgpack.encode(frame))  # pyright: ignore[reportPrivateUsage]
            assert told == [connection.session.key("a")], "and once is enough"
        gate.opened.set()
        await world.idle()


async def test_a_deadline_before_the_first_token_is_expired() -> None:
    async with gateway(scripted(sleep=Gate(free=0))) as world, world.peer() as peer:
        end = await peer.refusal(deadline_ms=30)
        assert end.code is ErrorCode.EXPIRED
        await world.idle()


async def test_a_deadline_after_the_first_token_keeps_what_was_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    clock = loop.time
    async with gateway(scripted("word " * 50, sleep=Gate(free=5))) as world, world.peer() as peer:
        await peer.send(complete())
        first = await peer.receive()
        assert isinstance(first, Delta) and first.text.startswith("word")
        monkeypatch.setattr(loop, "time", lambda: clock() + 3600.0)  # the deadline has passed
        _, end, _ = await peer.until_end("r1")
        assert isinstance(end, Done)
        assert end.finish is Finish.EXPIRED


async def test_an_engine_lost_before_the_first_token_is_asked_once_more() -> None:
    engine = scripted("x + 1\n")
    async with gateway(engine) as world, world.peer() as peer:
        engine.fail_next()
        text, _ = await peer.answer()
        assert text == "x + 1\n"
        assert b"foretype_engine_retries_total 1.0" in world.service.metrics.render()


async def test_an_engine_that_dies_twice_is_not_asked_a_third_time() -> None:
    engine = scripted()
    async with gateway(engine) as world, world.peer() as peer:
        for _ in range(3):
            engine.fail_next()
        end = await peer.refusal()
        assert end.code is ErrorCode.ENGINE_UNAVAILABLE
        assert end.retry_after_ms
        assert len(world.engine.requests) == 2
        engine._faults.clear()
        await peer.still_works()


async def test_a_fault_in_an_adapter_is_an_error_and_never_leaks_text(caplog: pytest.LogCaptureFixture) -> None:
    engine = scripted()
    async with gateway(engine) as world, world.peer() as peer:
        engine.fail_next(ValueError("secret_source_text"))
        end = await peer.refusal()
        assert "secret_source_text" not in end.message
        assert "secret_source_text" not in caplog.text
        assert "ValueError" in caplog.text
        await peer.still_works()


async def test_an_engine_whose_ids_are_not_of_the_tokenizer_is_refused() -> None:
    async with gateway(ScriptedEngine(fixed([10**6]))) as world, world.peer() as peer:
        end = await peer.refusal()
        assert "tokenizer" in end.message


async def test_a_digest_repeated_to_a_gigabyte_is_refused_before_it_is_rendered() -> None:
    async with gateway() as world, world.peer() as peer:
        big = "x = 1\n" * 100_000
        await peer.ask("a", segments=segments(big))
        many = [segment(Kind.PREFIX, digest=digest_of(big)) for _ in range(1000)]
        end = await peer.refusal("b", segments=many)
        assert end.code is ErrorCode.INVALID_REQUEST
        await peer.still_works()


async def test_control_tokens_of_the_model_never_reach_the_client() -> None:
    answer = [*TOKENIZER.encode("ok"), TOKENIZER.control("<|fim_middle|>"), *TOKENIZER.encode(" leaked")]
    async with gateway(ScriptedEngine(fixed(answer))) as world, world.peer() as peer:
        text, end = await peer.answer()
        assert (text, end.finish) == ("ok", Finish.END_OF_MIDDLE)


@pytest.mark.parametrize(("class_", "max_tokens"), [(RequestClass.WARM, 5), (RequestClass.INTERACTIVE, 0)])
async def test_warming_fills_the_cache_and_generates_nothing(class_: RequestClass, max_tokens: int) -> None:
    engine = scripted()
    async with gateway(engine) as world, world.peer() as peer:
        parts = segments("value = compute(value)\n" * 40)
        text, end = await peer.answer("a", segments=parts, class_=class_, max_tokens=max_tokens)
        assert text == ""
        _, end = await peer.answer("b", segments=parts)
        assert end.usage.cached_tokens > 0


async def test_feedback_is_acknowledged_after_the_sink_has_it() -> None:
    stored: list[tuple[str, int]] = []
    release = asyncio.Event()

    async def sink(sender: Sender, batch: str, events: Sequence[dict[str, object]]) -> None:
        await release.wait()
        stored.append((batch, len(events)))

    async with gateway(feedback=sink) as world, world.peer() as peer:
        await peer.send(Feedback(batch="b1", events=[{"what": "shown"}, {"what": "accepted"}]))
        await peer.still_works()  # nothing waits for the store
        assert stored == []
        release.set()
        assert await peer.receive() == Ack(batch="b1")
        assert stored == [("b1", 2)]


async def test_why_feedback_is_not_stored_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    async def sink(sender: Sender, batch: str, events: Sequence[dict[str, object]]) -> None:
        raise StoreError("the store x is full (disk full); make room")

    async with gateway(feedback=sink) as world, world.peer() as peer:
        for batch in ("b1", "b2"):
            await peer.send(Feedback(batch=batch, events=[]))
            assert isinstance(await peer.receive(), Error)
    told = [one.getMessage() for one in caplog.records if "feedback is not stored" in one.getMessage()]
    assert told == ["feedback is not stored; clients keep it: the store x is full (disk full); make room"]


async def test_feedback_that_was_not_stored_is_not_acknowledged() -> None:
    async def sink(sender: Sender, batch: str, events: Sequence[dict[str, object]]) -> None:
        raise OSError("disk full")

    async with gateway(feedback=sink) as world, world.peer() as peer:
        await peer.send(Feedback(batch="b1", events=[]))
        told = await peer.error()
        assert (told.code, told.field) == (ErrorCode.OVERLOADED, "batch")
        assert told.retry_after_ms and "disk" not in told.message
        await peer.still_works()


async def test_changed_is_accepted() -> None:
    seen: list[Changed] = []
    async with gateway(changed=lambda _session, change: seen.append(change)) as world, world.peer() as peer:
        change = Changed(documents=["file:///a.py"], reason=ChangeReason.BRANCH)
        await peer.send(change)
        await peer.still_works()
        assert seen == [change]


async def test_a_new_profile_is_sent_to_everybody() -> None:
    async with gateway() as world, world.peer() as peer:
        world.gateway.stream.update_profile(profile(strategy="next-2"))
        message = await peer.receive()
        assert isinstance(message, Profile)
        assert message.strategy == "next-2"


async def test_many_are_told_of_a_profile_a_few_at_a_time_and_of_the_newest_alone() -> None:
    async with gateway() as world, contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(world.peer()) for _ in range(20)]
        door = world.gateway.stream
        told = Counter[str]()
        for connection in door.connections:
            connection.send = lambda message: told.update([message.strategy])  # type: ignore[method-assign]
        door.update_profile(profile(strategy="first"))
        assert told == {"first": 16}, "the rest waits for the next turn"
        door.update_profile(profile(strategy="second"))
        await until(lambda: told["second"] == len(peers))
        assert told == {"first": 16, "second": 20}


async def test_disconnect_ends_everything_of_the_connection() -> None:
    gate = Gate(free=4)
    async with gateway(scripted("word " * 50, sleep=gate)) as world:
        async with world.peer() as peer:
            for id in ("a", "b", "c"):
                await peer.send(complete(id, max_tokens=50))
            assert isinstance(await peer.receive(), Delta)
        await world.idle()
        assert len(world.engine.aborted) == 3
        assert len(world.gateway.stream.connections) == 0


async def test_a_slow_reader_loses_nothing() -> None:
    answer = "word " * 300
    engine = scripted(answer)
    async with gateway(engine) as world, world.peer() as peer:
        await peer.send(complete("a", max_tokens=1000))
        await world.idle()  # all of it was generated before a single frame is read
        text, end, deltas = await peer.until_end("a")
        assert text == answer
        assert isinstance(end, Done)
        assert sum(delta.tokens for delta in deltas) == end.usage.generated_tokens


@pytest.mark.parametrize("limits", [{"live_per_connection": 2}, {"max_running": 1, "max_waiting": 1}])
async def test_too_many_requests_are_refused_with_a_time_to_come_back(limits: dict[str, int]) -> None:
    gate = Gate(free=0)
    bounds = LimitsConfig(abort_grace_ms=100, **limits)  # type: ignore[arg-type]
    async with gateway(scripted(sleep=gate), limits=bounds) as world, world.peer() as peer:
        for id in ("a", "b", "c"):
            await peer.send(complete(id))
        end = await peer.error()
        assert (end.id, end.code) == ("c", ErrorCode.OVERLOADED)
        assert end.retry_after_ms
        gate.opened.set()


# Bad input: each gets a defined answer, and the connection lives.

BAD = [
    pytest.param({"type": "complete", "id": "a", "segments": "no list"}, "segments", id="wrong type of a field"),
    pytest.param({"type": "complete", "id": 7, "segments": []}, "id", id="wrong type of the id"),
    pytest.param({"type": "complete", "id": "a", "segments": [{"kind": "prefix"}]}, "segments[0].scope", id="missing"),
    pytest.param(
        {"type": "complete", "id": "a", "segments": [{"kind": "nonsense", "scope": "file", "text": ""}]},
        "segments[0].kind",
        id="unknown kind",
    ),
    pytest.param({"type": "teleport"}, "type", id="unknown type"),
    pytest.param({"no": "type"}, "type", id="no type"),
    pytest.param([1, 2, 3], "frame", id="no object"),
    pytest.param({"type": "cancel", "id": ""}, "id", id="empty id"),
    pytest.param({"type": "cancel", "id": "x" * 65}, "id", id="id too long"),
    pytest.param({"type": "hello", "v": 1}, "type", id="hello twice"),
    pytest.param({"type": "feedback", "batch": "", "events": []}, "batch", id="batch without name"),
    pytest.param({"type": "changed", "documents": [], "reason": "whim"}, "reason", id="unknown reason"),
    pytest.param(b"\xc1\xff\x00", "frame", id="no MessagePack"),
    pytest.param(b"", "frame", id="empty frame"),
    pytest.param(b"\x81\xa4type\xa2\xff\xfe", "frame", id="invalid UTF-8"),
    pytest.param(b"\x91" * 100_000, "frame", id="nested too deep"),
    pytest.param("{}", "frame", id="a text frame on a binary connection"),
    pytest.param(b"\xc6\x7f\xff\xff\xff", "frame", id="claims two gigabytes"),
    pytest.param(b"\x00" * (MAX_FRAME_BYTES + 1), "frame", id="over the limit"),
]


@pytest.mark.parametrize(("bad", "field"), BAD)
async def test_a_bad_frame_is_answered_with_its_field_and_the_connection_lives(bad: object, field: str) -> None:
    async with gateway() as world, world.peer() as peer:
        await peer.send(bad)
        error = await peer.error()
        assert (error.code, error.field) == (ErrorCode.INVALID_REQUEST, field)
        await peer.still_works()


BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**9}, "max_tokens"),
    ({"deadline_ms": float("nan")}, "deadline_ms"),
    ({"stop": Stop(opened=Opened(endings=[""], max_lines=1, max_tokens=1))}, "stop.opened.endings[0]"),
    ({"stop": Stop(opened=Opened(endings=[":"], comments=[""], max_lines=1, max_tokens=1))}, "stop.opened.comments[0]"),
    ({"stop": Stop(opened=Opened(endings=[":"], max_lines=0, max_tokens=1))}, "stop.opened.max_lines"),
    ({"segments": []}, "segments"),
    ({"segments": [segment(Kind.PREFIX)]}, "segments[0]"),
    ({"segments": [segment(Kind.PREFIX, "a", bytes(16))]}, "segments[0]"),
    ({"segments": [segment(Kind.PREFIX, digest=bytes(15))]}, "segments[0].digest"),
    ({"segments": [segment(Kind.MIDDLE, digest=bytes(16))]}, "segments[0].digest"),
    ({"segments": [segment(Kind.MIDDLE, "a"), segment(Kind.PREFIX, "b")]}, "segments[1].kind"),
    ({"segments": [segment(Kind.TAIL, "a"), segment(Kind.TAIL, "b")]}, "segments[1].kind"),
    ({"segments": [segment(Kind.FILE, "a", path="x\ny")]}, "segments[0].source.path"),
    ({"segments": [segment(Kind.PREFIX, "a")] * 1025}, "segments"),
    ({"segments": segments("value = 1\n" * 2000)}, "segments"),  # over the context
    # tiktoken panics on blanks, and a panic passes `except Exception`: such a prompt must never get that far.
    ({"segments": [segment(Kind.PREFIX, " " * 1_000_000), segment(Kind.MIDDLE, "x")]}, "segments"),
    ({"segments": [segment(Kind.PREFIX, " \t" * 500_000), segment(Kind.MIDDLE, "x")]}, "segments"),
]


@pytest.mark.parametrize(("fields", "field"), BAD_FIELDS, ids=[f"{f}-{i}" for i, (_, f) in enumerate(BAD_FIELDS)])
async def test_a_bad_field_ends_that_request_alone(fields: dict[str, Any], field: str) -> None:
    async with gateway() as world, world.peer() as peer:
        error = await peer.refusal("bad", **fields)
        assert (error.code, error.field) == (ErrorCode.INVALID_REQUEST, field)
        await peer.still_works()


async def test_an_id_that_is_live_cannot_be_used_again_and_the_live_one_goes_on() -> None:
    gate = Gate(free=0)
    async with gateway(scripted("x + 1\n", sleep=gate)) as world, world.peer() as peer:
        await peer.send(complete("a"))
        await peer.send(complete("a"))
        error = await peer.error()
        assert (error.code, error.field, error.id) == (ErrorCode.INVALID_REQUEST, "id", None)
        gate.opened.set()
        text, end, _ = await peer.until_end("a")
        assert text == "x + 1\n"
        assert isinstance(end, Done)


async def test_a_broken_frame_that_names_a_live_request_does_not_end_it() -> None:
    gate = Gate(free=0)
    async with gateway(scripted(sleep=gate)) as world, world.peer() as peer:
        await peer.send(complete("a"))
        await peer.send({"type": "complete", "id": "a", "segments": 3})
        error = await peer.error()
        assert error.id is None
        gate.opened.set()
        _, end, _ = await peer.until_end("a")
        assert isinstance(end, Done)


async def test_a_request_before_hello_is_refused() -> None:
    async with gateway() as world, world.peer(hello=None) as peer:
        error = await peer.refusal()
        assert error.field == "type"
        await peer.send(Hello(v=1))
        assert isinstance(await peer.receive(), Profile)
        await peer.still_works()


async def test_an_unknown_version_is_refused_and_may_be_corrected() -> None:
    async with gateway() as world, world.peer(hello=None) as peer:
        await peer.send(Hello(v=2))
        error = await peer.error()
        assert error.field == "v"
        await peer.send(Hello(v=1))
        assert isinstance(await peer.receive(), Profile)


async def test_a_frame_far_over_the_limit_ends_the_connection_and_no_other() -> None:
    async with gateway() as world, world.peer() as other, world.peer() as peer:
        with pytest.raises(ConnectionClosed) as closed:
            await peer.send(b"\x00" * (5 * MAX_FRAME_BYTES))
            await peer.receive()
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
        await other.still_works()


async def test_a_text_frame_that_is_no_utf8_ends_that_connection_as_the_protocol_demands_and_no_other() -> None:
    """RFC 6455, section 8.1. (Invalid UTF-8 inside MessagePack is a bad frame like any other.)"""
    async with gateway() as world, world.peer() as other, world.peer(json=True) as peer:
        await peer.socket.send(b"\xff\xfe", text=True)
        assert (await peer.closed()).code == 1007
        await other.still_works()


async def test_a_flood_of_bad_frames_from_a_client_that_does_not_read_is_answered_one_by_one() -> None:
    async with gateway() as world, world.peer() as peer:
        for _ in range(2000):
            await peer.send(b"\xc1")
        for _ in range(2000):
            assert isinstance(await peer.receive(), Error)
        await peer.still_works()


# Who may connect.


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "null"])
async def test_a_web_page_cannot_open_the_loopback_socket(origin: str) -> None:
    async with gateway() as world:
        assert (await world.closes(additional_headers={"Origin": origin})).code == 4403


async def test_dns_rebinding_cannot_open_the_loopback_socket() -> None:
    """The page's own name resolves to 127.0.0.1, and its requests are same-origin; only Host tells."""
    async with gateway() as world:
        rebound = replace(world, host="rebound.evil.example")
        assert (await rebound.closes(host=world.host, port=world.port)).code == 4403


async def test_a_listed_origin_and_host_may_connect() -> None:
    async with (
        gateway(origins=["https://ide.example"], hosts=["ide.example"]) as world,
        world.peer(additional_headers={"Origin": "https://ide.example"}) as peer,
    ):
        await peer.still_works()


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer "}],
)
async def test_no_or_wrong_token_closes_4401(headers: dict[str, str]) -> None:
    async with gateway(token=TOKEN) as world:
        assert (await world.closes(additional_headers=headers)).code == 4401
