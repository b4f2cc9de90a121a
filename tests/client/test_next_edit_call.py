"""The next edit on the wire, from the client's end: one answer whatever a gateway sends, and nothing outside the window."""

import asyncio

import pytest
from client.test_protocol import opened, receive, sent
from client.test_session import connected
from client.wire_server import Peer, WireServer
from foretype_context.edit_models.question import EditQuestion, WindowEdit
from foretype_wire.client_protocol import Failed
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import (
    Cancel,
    Delta,
    Done,
    Edited,
    Error,
    ErrorCode,
    Finish,
    Need,
    NextEdit,
)

WINDOW = "a = 1\nb = 2\n"
EDIT = WindowEdit(start=6, end=7, text="c")


def asked(id: str = "n1", window: str = WINDOW) -> NextEdit:
    return NextEdit(id=id, document="file:///x.py", question=EditQuestion(window=window, cursor=0))


def test_a_question_travels_whole_and_ends_once() -> None:
    protocol = opened()
    protocol.complete(asked())
    assert sent(protocol) == [asked()]
    edited, done = Edited(id="n1", edit=EDIT), Done(id="n1", finish=Finish.STOP)
    assert receive(protocol, Delta(id="n1", text="no delta is asked for"), edited, done, edited) == [edited, done]
    assert not protocol.running


def test_of_a_completion_no_edit_is_taken_and_what_was_cancelled_brings_none() -> None:
    protocol = opened()
    protocol.complete(asked())
    protocol.cancel("n1")
    assert sent(protocol) == [asked(), Cancel(id="n1")]
    told = receive(protocol, Edited(id="n1", edit=EDIT), Done(id="n1", finish=Finish.STOP))
    assert told == [Done(id="n1", finish=Finish.CANCELLED)]


def test_a_gateway_that_asks_for_segments_of_it_ends_it() -> None:
    protocol = opened()
    protocol.complete(asked())
    sent(protocol)
    (ended,) = receive(protocol, Need(id="n1", digests=[b"x" * 16]))
    assert isinstance(ended, Failed) and not protocol.running
    assert sent(protocol) == [Cancel(id="n1")]


def test_a_window_that_no_frame_can_hold_is_not_asked_about() -> None:
    protocol = opened()
    protocol.complete(asked(window="a\ud800\n"))
    assert sent(protocol) == []
    (ended,) = protocol.events_received()
    assert isinstance(ended, Failed) and isinstance(ended.error, RequestRefusedError)
    assert ended.error.field == "question"


@pytest.mark.parametrize("json", [False, True], ids=["msgpack", "json"])
async def test_the_session_waits_for_the_edit(json: bool) -> None:
    async def answer(peer: Peer, message: NextEdit) -> None:
        await peer.send(Edited(id=message.id, edit=EDIT))
        await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE))

    async with WireServer(on_next_edit=answer) as server, connected(server, json=json) as session:
        found = await session.next_edit(asked())
    assert (found.edit, found.reason, found.done.finish) == (EDIT, "", Finish.END_OF_MIDDLE)


@pytest.mark.parametrize("edit", [WindowEdit(start=3, end=99, text="x"), WindowEdit(start=5, end=4, text="x")])
async def test_an_edit_outside_of_the_window_is_none(edit: WindowEdit) -> None:
    async def answer(peer: Peer, message: NextEdit) -> None:
        await peer.send(Edited(id=message.id, edit=edit))
        await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE))

    async with WireServer(on_next_edit=answer) as server, connected(server) as session:
        found = await session.next_edit(asked())
    assert (found.edit, found.reason) == (None, "outside")


async def test_who_waits_no_more_stops_the_model() -> None:
    came = asyncio.Event()

    async def answer(peer: Peer, message: NextEdit) -> None:
        came.set()

    async with WireServer(on_next_edit=answer) as server, connected(server) as session:
        asking = asyncio.create_task(session.next_edit(asked()))
        await came.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await server.wait_for(Cancel) == [Cancel(id="n1")]


async def test_a_refusal_and_a_lost_gateway_are_raised() -> None:
    async def refuse(peer: Peer, message: NextEdit) -> None:
        if message.id == "n2":
            await peer.connection.close()
            return
        await peer.send(Error(code=ErrorCode.INVALID_REQUEST, id=message.id, field="type", message="no such model"))

    async with WireServer(on_next_edit=refuse) as server, connected(server) as session:
        with pytest.raises(RequestRefusedError, match="no such model"):
            await session.next_edit(asked())
        with pytest.raises(GatewayGoneError):
            await session.next_edit(asked("n2"))
