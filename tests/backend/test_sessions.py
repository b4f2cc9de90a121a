"""The pure parts of a connection: inbox, outbox, session."""

import math
from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from backend.world import complete
from foretype_backend.config.settings import LimitsConfig
from foretype_context.prompt.profile import Opened, Stop
from foretype_wire.errors import BadFrameError, InvalidRequestError
from foretype_wire.gateway_protocol import GatewaySession, Inbox, Outbox, check_complete
from foretype_wire.messages import Ack, Cancel, Delta, Done, Finish, Hello
from hypothesis import given
from hypothesis import strategies as st


def delta(id: str, text: str) -> Delta:
    return Delta(id=id, text=text, logprob=-1.0, tokens=1)


def drain(outbox: Outbox) -> list[object]:
    out: list[object] = []
    while (message := outbox.pop()) is not None:
        out.append(message)
    return out


def test_waiting_deltas_of_one_completion_merge() -> None:
    outbox = Outbox(capacity=4)
    for message in (delta("a", "x"), delta("b", "1"), delta("a", "y"), Done(id="a", finish=Finish.STOP)):
        outbox.put(message)
    assert drain(outbox) == [
        Delta(id="a", text="xy", logprob=-2.0, tokens=2),
        delta("b", "1"),
        Done(id="a", finish=Finish.STOP),
    ]
    assert repr(outbox) == "<Outbox: 0 of 4 waiting, 1 merged>"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")) | st.none()))
def test_merging_keeps_every_text_in_order_and_the_queue_short(steps: list[tuple[str, str] | None]) -> None:
    outbox = Outbox(capacity=4)
    sent = {"a": "", "b": ""}
    got = {"a": "", "b": ""}
    for step in steps:
        if step is None:
            message = outbox.pop()
            if isinstance(message, Delta):
                got[message.id] += message.text
        else:
            sent[step[0]] += step[1]
            outbox.put(delta(*step))
        assert outbox.waiting <= 2
    for message in drain(outbox):
        assert isinstance(message, Delta)
        got[message.id] += message.text
    assert got == sent


def test_the_outbox_says_when_it_is_full() -> None:
    outbox = Outbox(capacity=2)
    outbox.put(Ack(batch="1"))
    assert not outbox.full
    outbox.put(Ack(batch="2"))
    assert outbox.full
    assert repr(outbox) == "<Outbox: 2 of 2 waiting, 0 merged>"


def test_the_first_frame_decides_the_kind_even_when_it_is_broken() -> None:
    inbox = Inbox(max_frame_bytes=1000)
    with pytest.raises(BadFrameError):
        inbox.decode("{broken")
    with pytest.raises(BadFrameError, match="one kind per connection"):
        inbox.decode(msgspec.msgpack.encode(Cancel(id="a")))
    assert inbox.decode('{"type":"cancel","id":"a"}') == Cancel(id="a")


def test_the_answer_to_a_broken_request_names_it_and_quotes_nothing() -> None:
    inbox = Inbox(max_frame_bytes=1000)
    with pytest.raises(BadFrameError) as caught:
        inbox.decode('{"type":"complete","id":"r7","segments":[{"kind":"secret_text","scope":"file"}]}')
    assert (caught.value.id, caught.value.field) == ("r7", "segments[0].kind")
    assert "secret_text" not in str(caught.value)


def test_size_is_counted_in_bytes() -> None:
    inbox = Inbox(max_frame_bytes=60)
    with pytest.raises(BadFrameError, match="at most 60"):
        inbox.decode('{"type":"cancel","id":"' + "é" * 30 + '"}')


BOUNDS = [
    ("max_tokens", {"max_tokens": 0}, {"max_tokens": -1}),
    ("max_tokens", {"max_tokens": 100}, {"max_tokens": 101}),
    ("deadline_ms", {"deadline_ms": 0.5}, {"deadline_ms": 0.0}),
    ("deadline_ms", {}, {"deadline_ms": math.inf}),
    ("stop.strings", {"stop": Stop(strings=["x"] * 16)}, {"stop": Stop(strings=["x"] * 17)}),
    ("stop.strings[1]", {"stop": Stop(strings=["a", "x" * 256])}, {"stop": Stop(strings=["a", "x" * 257])}),
    ("stop.strings[0]", {"stop": Stop(strings=["a"])}, {"stop": Stop(strings=[""])}),
    ("stop.max_lines", {"stop": Stop(max_lines=1)}, {"stop": Stop(max_lines=0)}),
    ("stop.min_indent", {"stop": Stop(min_indent=0)}, {"stop": Stop(min_indent=-1)}),
    ("stop.least_chance", {"stop": Stop(least_chance=0.99)}, {"stop": Stop(least_chance=1.0)}),
    ("stop.least_chance", {"stop": Stop(least_chance=0.0)}, {"stop": Stop(least_chance=-0.1)}),
    ("stop.least_chance", {"stop": Stop()}, {"stop": Stop(least_chance=math.nan)}),
    (
        "stop.opened.max_tokens",
        {"stop": Stop(opened=Opened(endings=[":"], max_lines=1, max_tokens=100, min_indent=1))},
        {"stop": Stop(opened=Opened(endings=[":"], max_lines=1, max_tokens=101, min_indent=1))},
    ),
    (
        "stop.opened.max_tokens",
        {"stop": Stop(opened=Opened(endings=[":"], max_lines=1, max_tokens=1, min_indent=1))},
        {"stop": Stop(opened=Opened(endings=[":"], max_lines=1, max_tokens=0, min_indent=1))},
    ),
]


@pytest.mark.parametrize(("field", "good", "bad"), BOUNDS)
def test_every_number_of_a_completion_has_bounds(field: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    asked = complete("a")
    check_complete(msgspec.structs.replace(asked, **good), max_tokens=100)
    with pytest.raises(InvalidRequestError) as caught:
        check_complete(msgspec.structs.replace(asked, **bad), max_tokens=100)
    assert caught.value.field == field


def greeted(live: Collection[str] = ()) -> GatewaySession:
    session = GatewaySession("c1", live, max_tokens=LimitsConfig().max_tokens)
    session.greet(Hello(v=1))
    return session


def test_an_early_cancel_is_forgotten_after_a_while() -> None:
    session = greeted()
    session.cancel(Cancel(id="a"), now=0.0)
    assert session.admit(complete("a"), now=11.0)


def test_early_cancels_are_bounded() -> None:
    session = greeted()
    for number in range(1000):
        session.cancel(Cancel(id=f"r{number}"), now=0.0)
    assert session.admit(complete("r0"), now=0.0)
    assert not session.admit(complete("r999"), now=0.0)


def test_an_id_may_be_used_again_once_it_has_ended() -> None:
    live = {"a"}
    session = greeted(live)
    with pytest.raises(BadFrameError):
        session.admit(complete("a"), now=0.0)
    live.clear()
    assert session.admit(complete("a"), now=0.0)


@pytest.mark.parametrize("id", ["", "x" * 65, "with space", "nul\x00", "é"])
def test_ids_are_short_visible_ascii(id: str) -> None:
    with pytest.raises(InvalidRequestError):
        greeted().admit(complete(id), now=0.0)
