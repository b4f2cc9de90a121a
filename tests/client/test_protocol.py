from typing import Any, get_args

import msgspec
import pytest
from client.wire_server import resolved
from foretype_context.edit_models.question import EditQuestion
from foretype_context.prompt.segments import Kind, Scope, Segment, Source, digest_of
from foretype_wire.client_protocol import BadFrame, ClientProtocol, Event, Failed, Refused, State
from foretype_wire.codec import Codec, scrub
from foretype_wire.errors import FrameTooLargeError, GatewayGoneError, RequestRefusedError
from foretype_wire.messages import (
    MAX_FRAME_BYTES,
    Ack,
    Cancel,
    Changed,
    ChangeReason,
    ClientMessage,
    Complete,
    Delta,
    Done,
    Error,
    ErrorCode,
    Feedback,
    Finish,
    GatewayMessage,
    Goaway,
    Hello,
    Need,
    NextEdit,
    Profile,
    Stop,
    Workspace,
)
from foretype_wire.segment_cache import SegmentCache
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

PROFILE = Profile(model="m", grammar="foretype-1", tokenizer_digest="0" * 32)


def call(id: str, *texts: str, kind: Kind = Kind.PREFIX, **more: Any) -> Complete[Segment]:
    segments = [Segment(kind=kind, scope=Scope.FILE, source=Source(), text=text) for text in texts]
    return Complete(id=id, segments=segments, **more)


def opened(**options: Any) -> ClientProtocol:
    protocol = ClientProtocol(**options)
    protocol.hello("test")
    protocol.data_to_send()
    return protocol


@pytest.fixture
def protocol() -> ClientProtocol:
    return opened()


def sent(protocol: ClientProtocol) -> list[ClientMessage]:
    return [
        (msgspec.json if isinstance(frame, str) else msgspec.msgpack).decode(frame, type=ClientMessage)
        for frame in protocol.data_to_send()
    ]


def receive(protocol: ClientProtocol, *messages: GatewayMessage) -> list[Event]:
    for message in messages:
        protocol.receive_frame(msgspec.msgpack.encode(message))
    return protocol.events_received()


class TestHello:
    def test_it_comes_first_and_opens_the_connection(self) -> None:
        protocol = ClientProtocol()
        assert protocol.state is State.CONNECTING
        protocol.hello("editor", [Workspace(root="/w")])
        assert sent(protocol) == [Hello(v=1, client="editor", workspaces=[Workspace(root="/w")])]
        assert protocol.state is State.OPEN
        with pytest.raises(RuntimeError, match="hello"):
            protocol.hello("editor")

    def test_json_is_an_option_of_the_connection(self) -> None:
        protocol = ClientProtocol(json=True)
        protocol.hello("editor")
        protocol.complete(call("1", "x"))
        frames = protocol.data_to_send()
        assert all(isinstance(frame, str) for frame in frames)
        protocol.receive_frame('{"type": "delta", "id": "1", "text": "a", "later_field": [1]}')
        assert protocol.events_received() == [Delta(id="1", text="a")]


class TestComplete:
    def test_what_the_gateway_has_travels_as_digest(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "stable"))
        protocol.complete(call("2", "stable"))
        first, second = sent(protocol)
        assert isinstance(first, Complete) and isinstance(second, Complete)
        assert (first.segments[0].text, first.segments[0].digest) == ("stable", None)
        assert (second.segments[0].text, second.segments[0].digest) == (None, digest_of("stable"))

    def test_every_field_of_the_call_arrives(self, protocol: ClientProtocol) -> None:
        asked = call(
            "1",
            "x",
            supersedes="0",
            document="file:///a",
            version=7,
            language="python",
            prompt_tokens=3,
            max_tokens=5,
            stop=Stop(strings=["\n"], max_lines=1, min_indent=2),
            deadline_ms=9.0,
        )
        protocol.complete(asked)
        (message,) = sent(protocol)
        assert isinstance(message, Complete)
        for field in asked.__struct_fields__:
            if field != "segments":
                assert getattr(message, field) == getattr(asked, field), field

    def test_lone_surrogates_become_replacement_characters_and_pairs_one_character(
        self, protocol: ClientProtocol
    ) -> None:
        protocol.complete(call("1", "a\ud83db", "\ud83d\ude00", document="file:///\udcff"))
        (message,) = sent(protocol)
        assert isinstance(message, Complete)
        assert [segment.text for segment in message.segments] == ["a\ufffdb", "😀"]
        assert message.document == "file:///\ufffd"
        assert protocol.segment_digests() == [digest_of("a\ufffdb"), digest_of("😀")]

    @pytest.mark.parametrize("id", ["", "x" * 65, "\ud83d"])
    def test_an_id_that_the_wire_cannot_carry_fails_the_call(self, id: str, protocol: ClientProtocol) -> None:
        protocol.complete(call(id, "x"))
        (event,) = protocol.events_received()
        assert isinstance(event, Failed) and isinstance(event.error, RequestRefusedError)
        assert (event.id, event.error.field) == (id, "id")
        assert sent(protocol) == []

    def test_a_call_larger_than_a_frame_fails_alone_and_leaves_the_mirror_safe(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "small"))
        protocol.complete(call("2", "small", "x" * MAX_FRAME_BYTES))
        (event,) = protocol.events_received()
        assert isinstance(event, Failed) and isinstance(event.error, RequestRefusedError)
        assert (event.id, event.error.field) == ("2", "segments")
        assert protocol.running == {"1"}
        assert protocol.segment_digests() == []

    def test_a_version_beyond_64_bits_fails_the_call(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "x", version=1 << 70))
        assert [type(event) for event in protocol.events_received()] == [Failed]

        question = EditQuestion(window="x", cursor=1)
        protocol.complete(NextEdit(id="2", question=question, version=1 << 70))
        assert [(event.id, event.error.field) for event in protocol.events_received()] == [("2", "question")]

    def test_a_running_id_cannot_be_used_again(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "x"))
        with pytest.raises(ValueError, match="running"):
            protocol.complete(call("1", "x"))

    def test_without_a_connection_it_fails_at_once(self) -> None:
        protocol = ClientProtocol()
        protocol.complete(call("1", "x"))
        protocol.connection_lost("gone")
        protocol.complete(call("2", "x"))
        events = protocol.events_received()
        assert [(event.id, type(event.error)) for event in events if isinstance(event, Failed)] == [
            ("1", GatewayGoneError),
            ("2", GatewayGoneError),
        ]


class TestNeed:
    def test_it_is_answered_with_the_same_complete_all_in_text(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "a", "b", "c"))
        protocol.complete(call("2", "a", "b", "c", version=3))
        sent(protocol)
        receive(protocol, Need(id="2", digests=[digest_of("b")]))
        (again,) = sent(protocol)
        assert isinstance(again, Complete)
        assert (again.id, again.version, [segment.text for segment in again.segments]) == ("2", 3, ["a", "b", "c"])

    def test_what_else_was_sent_before_is_not_trusted_any_more(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "a", "b"))
        protocol.complete(call("2", "a"))
        sent(protocol)
        receive(protocol, Need(id="2", digests=[digest_of("a")]))
        protocol.complete(call("3", "a", "b"))
        _, third = sent(protocol)
        assert isinstance(third, Complete)
        assert [segment.text for segment in third.segments] == [None, "b"]

    def test_the_second_need_for_one_call_fails_it_instead_of_looping(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "a"))
        events = receive(protocol, Need(id="1", digests=[b"x" * 16]), Need(id="1", digests=[b"x" * 16]))
        assert [type(event) for event in events] == [Failed]
        assert [type(message) for message in sent(protocol)] == [Complete, Complete, Cancel]

    def test_a_question_for_an_edit_has_no_digests_to_need(self, protocol: ClientProtocol) -> None:
        protocol.complete(NextEdit(id="1", question=EditQuestion(window="x", cursor=1)))
        assert [type(event) for event in receive(protocol, Need(id="1", digests=[b"x" * 16]))] == [Failed]
        assert [type(message) for message in sent(protocol)] == [NextEdit, Cancel]

    def test_a_cancelled_call_is_not_sent_again(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "a"))
        protocol.cancel("1")
        assert receive(protocol, Need(id="1", digests=[digest_of("a")])) == [Done(id="1", finish=Finish.CANCELLED)]
        assert [type(message) for message in sent(protocol)] == [Complete, Cancel]


class TestCancel:
    def test_a_cancel_that_overtakes_its_request_still_wins(self, protocol: ClientProtocol) -> None:
        protocol.cancel("1")
        protocol.complete(call("1", "x"))
        assert protocol.events_received() == [Done(id="1", finish=Finish.CANCELLED)]
        assert sent(protocol) == []

    def test_cancels_that_nobody_follows_do_not_pile_up(self, protocol: ClientProtocol) -> None:
        for number in range(1000):
            protocol.cancel(str(number))
        protocol.complete(call("0", "x"))
        assert protocol.running == {"0"}

    @pytest.mark.parametrize(
        "late",
        [
            Done(id="1", finish=Finish.STOP),
            Done(id="1", finish=Finish.CANCELLED),
            Error(id="1", code=ErrorCode.EXPIRED),
        ],
    )
    def test_whatever_the_gateway_says_then_the_call_ends_as_cancelled(
        self, late: GatewayMessage, protocol: ClientProtocol
    ) -> None:
        protocol.complete(call("1", "x"))
        protocol.cancel("1")
        protocol.cancel("1")
        assert [type(message) for message in sent(protocol)] == [Complete, Cancel]
        assert receive(protocol, Delta(id="1", text="late"), late) == [Done(id="1", finish=Finish.CANCELLED)]

    def test_expiry_cancels_and_fails(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "x"))
        protocol.expire("1")
        protocol.expire("1")
        (event,) = protocol.events_received()
        assert isinstance(event, Failed) and isinstance(event.error, RequestRefusedError)
        assert event.error.code is ErrorCode.EXPIRED
        assert [type(message) for message in sent(protocol)] == [Complete, Cancel]


class TestFromTheGateway:
    def test_late_frames_for_a_finished_id_are_ignored(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "x"))
        receive(protocol, Done(id="1", finish=Finish.STOP))
        late = [
            Delta(id="1", text="x"),
            Done(id="1", finish=Finish.STOP),
            Need(id="1", digests=[]),
            Error(id="1", code=ErrorCode.OVERLOADED),
        ]
        assert receive(protocol, *late) == []
        assert protocol.statistics().late_frames == 4

    def test_errors_with_and_without_an_id(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "x"))
        named, unnamed = receive(
            protocol,
            Error(id="1", code=ErrorCode.RATE_LIMITED, retry_after_ms=5.0),
            Error(code=ErrorCode.INVALID_REQUEST, field="type", message="unknown"),
        )
        assert isinstance(named, Failed) and isinstance(named.error, RequestRefusedError)
        assert (named.error.code, named.error.retry_after_ms) == (ErrorCode.RATE_LIMITED, 5.0)
        assert isinstance(unnamed, Refused)
        assert unnamed.error.field == "type"

    def test_profiles_replace_each_other(self, protocol: ClientProtocol) -> None:
        newer = msgspec.structs.replace(PROFILE, model="newer")
        assert receive(protocol, PROFILE, newer) == [PROFILE, newer]
        assert protocol.profile == newer

    def test_goaway_refuses_new_calls_and_closes_after_the_running_ones(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "x"))
        assert receive(protocol, Goaway(grace_ms=5), Goaway(grace_ms=9)) == [Goaway(grace_ms=5)]
        protocol.complete(call("2", "x"))
        (event,) = protocol.events_received()
        assert isinstance(event, Failed) and isinstance(event.error, GatewayGoneError)
        assert not protocol.close_expected()
        receive(protocol, Done(id="1", finish=Finish.STOP))
        assert protocol.close_expected()

    @pytest.mark.parametrize(
        "frame",
        [
            b"",
            b"\xc1",
            "{}",
            b"\x91" * 100_000,
            b"\x81\xa4type\xa5never",
            b"\x83\xa4type\xa5delta\xa2id\xa1x\xa4text\xa2\xff\xff",
            b"x" * (MAX_FRAME_BYTES + 1),
        ],
        ids=["empty", "reserved byte", "other kind", "deep", "unknown type", "not UTF-8", "too large"],
    )
    def test_a_frame_that_cannot_be_read_is_an_event_and_the_calls_live(
        self, frame: bytes | str, protocol: ClientProtocol
    ) -> None:
        protocol.complete(call("1", "x"))
        protocol.receive_frame(frame)
        assert [type(event) for event in protocol.events_received()] == [BadFrame]
        assert protocol.running == {"1"}
        assert protocol.state is State.OPEN

    def test_an_answer_of_a_later_version_fails_the_call_that_it_names(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "x"))
        protocol.complete(call("2", "x"))
        sent(protocol)
        protocol.receive_frame(msgspec.msgpack.encode({"type": "done", "id": "1", "finish": "filtered"}))
        protocol.receive_frame(msgspec.msgpack.encode({"type": "delta", "id": "2", "text": 5}))
        assert [type(event) for event in protocol.events_received()] == [BadFrame, Failed, BadFrame, Failed]
        assert sent(protocol) == [Cancel(id="2")]

    def test_the_end_of_the_connection_fails_every_call_once(self, protocol: ClientProtocol) -> None:
        for id in ("1", "2"):
            protocol.complete(call(id, "x"))
        protocol.connection_lost("vanished")
        protocol.connection_lost("again")
        protocol.receive_frame(msgspec.msgpack.encode(Done(id="1", finish=Finish.STOP)))
        events = protocol.events_received()
        assert [(event.id, str(event.error)) for event in events if isinstance(event, Failed)] == [
            ("1", "vanished"),
            ("2", "vanished"),
        ]
        assert len(events) == 2
        assert protocol.data_to_send() == []


class TestNotes:
    def test_a_branch_switch_of_thousands_of_files_fits_frames(self, protocol: ClientProtocol) -> None:
        documents = [f"file:///{'x' * 200}/{number}" for number in range(12_345)]
        protocol.changed(documents, ChangeReason.BRANCH)
        messages = sent(protocol)
        assert [document for m in messages if isinstance(m, Changed) for document in m.documents] == documents

    def test_feedback_is_kept_by_the_caller_while_there_is_no_connection(self) -> None:
        protocol = ClientProtocol()
        assert not protocol.feedback("b", [{}])
        protocol.changed(["a"], ChangeReason.EDIT)
        assert protocol.data_to_send() == []
        protocol.hello("x")
        assert protocol.feedback("b", [{"kind": "shown"}])
        assert sent(protocol)[1:] == [Feedback(batch="b", events=[{"kind": "shown"}])]
        assert receive(protocol, Ack(batch="b")) == [Ack(batch="b")]

    def test_the_status_line(self, protocol: ClientProtocol) -> None:
        protocol.complete(call("1", "x"))
        assert repr(protocol) == "<ClientProtocol: open, 1 running, 0 bad frames>"
        assert protocol.statistics()[:2] == (1, 1)


@given(st.text(st.characters(categories=None)))
def test_scrubbed_text_can_always_be_encoded_and_is_left_alone_if_it_could(text: str) -> None:
    scrubbed = scrub(text)
    scrubbed.encode()
    if not any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        assert scrubbed == text


def test_no_frame_above_the_limit_is_ever_made() -> None:
    with pytest.raises(FrameTooLargeError):
        Codec().encode(Cancel(id="x" * MAX_FRAME_BYTES))


@given(st.lists(st.one_of(st.binary(max_size=60), st.text(max_size=60)), max_size=20), st.booleans())
def test_arbitrary_frames_never_raise_and_never_end_a_call(frames: list[bytes | str], json: bool) -> None:
    protocol = opened(json=json)
    protocol.complete(call("running", "x"))
    for frame in frames:
        protocol.receive_frame(frame)
    assert protocol.running == {"running"}


class Connection(RuleBasedStateMachine):
    """Arbitrary calls against a gateway that resolves segments by the rule and otherwise says anything in any order."""

    IDS = st.sampled_from(["a", "b", "c"])
    TEXTS = st.lists(st.sampled_from(["", "x", "yy", "z" * 7, "日本", "w" * 50]), max_size=4)

    def __init__(self) -> None:
        super().__init__()
        self.protocol = ClientProtocol(capacity_bytes=12)
        self.protocol.hello("fuzz")
        self.gateway = SegmentCache(12)
        self.calls: dict[str, Complete[Segment]] = {}
        self.live: dict[str, bool] = {}  # id -> whether it was cancelled
        self.number = 0
        self.ends: dict[str, int] = {}
        self.open = True

    def settle(self) -> None:
        """Let every frame reach the gateway, which answers `need`, and check every event."""
        while frames := self.protocol.data_to_send():
            for frame in frames:
                message = msgspec.msgpack.decode(frame, type=ClientMessage)
                if isinstance(message, Complete):
                    self.resolve(message)
        for event in self.protocol.events_received():
            match event:
                case Delta():
                    assert self.ends[event.id] == 0, "a delta after the end"
                    assert not self.live[event.id], "a delta after cancel"
                case Done():
                    self.ends[event.id] += 1
                    assert not self.live[event.id] or event.finish is Finish.CANCELLED
                case Failed():
                    self.ends[event.id] += 1
                case _:
                    assert isinstance(event, get_args(Event))

    def resolve(self, message: Complete) -> None:
        texts, missing = resolved(self.gateway, message)
        if missing:
            self.protocol.receive_frame(msgspec.msgpack.encode(Need(id=message.id, digests=missing)))
        else:
            assert texts == [segment.text for segment in self.calls[message.id].segments]

    @rule(texts=TEXTS, kind=st.sampled_from(list(Kind)))
    def ask(self, texts: list[str], kind: Kind) -> None:
        self.number += 1
        asked = call(str(self.number), *texts, kind=kind)
        self.calls[asked.id], self.live[asked.id], self.ends[asked.id] = asked, False, 0
        self.protocol.complete(asked)
        self.settle()

    @precondition(lambda self: self.number)
    @rule(back=st.integers(0, 3))
    def cancel(self, back: int) -> None:
        id = str(max(1, self.number - back))
        self.live[id] = self.live[id] or id in self.protocol.running
        self.protocol.cancel(id)
        self.settle()

    @precondition(lambda self: self.number)
    @rule(back=st.integers(0, 3), data=st.data())
    def answer(self, back: int, data: st.DataObject) -> None:
        id = str(max(1, self.number - back))
        message = data.draw(
            st.one_of(
                st.builds(Delta, id=st.just(id), text=st.text(max_size=3)),
                st.builds(Done, id=st.just(id), finish=st.sampled_from(Finish)),
                st.builds(Error, id=st.just(id) | st.none(), code=st.sampled_from(ErrorCode)),
                st.builds(Need, id=st.just(id), digests=st.lists(st.binary(min_size=16, max_size=16), max_size=2)),
                st.builds(Ack, batch=st.just("b")),
                st.just(PROFILE),
            )
        )
        frame = msgspec.msgpack.encode(message)
        self.protocol.receive_frame(frame[: data.draw(st.integers(0, 2)) * -1 or None])
        self.settle()

    @rule()
    def the_gateway_forgets(self) -> None:
        self.gateway.clear()

    @rule(frame=st.binary(max_size=30))
    def noise(self, frame: bytes) -> None:
        self.protocol.receive_frame(frame)
        self.settle()

    @invariant()
    def every_call_has_one_end_or_runs(self) -> None:
        for id, ends in self.ends.items():
            assert ends == (0 if id in self.protocol.running else 1), id

    def teardown(self) -> None:
        self.protocol.connection_lost("end of the test")
        self.settle()
        assert all(ends == 1 for ends in self.ends.values())


Connection.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestAnySequence = Connection.TestCase
