import subprocess
import sys
from typing import Any, get_args, get_origin

import msgspec
import pytest
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_wire.codec import Codec, scrub_call
from foretype_wire.errors import UnreadableFrameError
from foretype_wire.messages import (
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
    Profile,
    RequestClass,
    Stop,
    Timings,
    Usage,
    WireSegment,
    Workspace,
)
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DIGEST = st.binary(min_size=16, max_size=16)
COUNT = st.integers(0, 1 << 40)
NUMBER = st.floats(0, 1e9)
SEGMENT = st.builds(
    WireSegment,
    kind=st.sampled_from(Kind),
    scope=st.sampled_from(Scope),
    source=st.builds(Source, document=TEXT, path=TEXT, version=COUNT, start=COUNT, end=COUNT),
    digest=st.none() | DIGEST,
    text=st.none() | TEXT,
)
FROM_CLIENT = st.one_of(
    st.builds(Hello, v=COUNT, client=TEXT, workspaces=st.lists(st.builds(Workspace, root=TEXT, repository=TEXT))),
    st.builds(
        Complete,
        id=TEXT,
        class_=st.sampled_from(RequestClass),
        supersedes=st.none() | TEXT,
        segments=st.lists(SEGMENT, max_size=3),
        stop=st.builds(Stop, strings=st.lists(TEXT, max_size=2), max_lines=st.none() | COUNT),
        deadline_ms=NUMBER,
        prompt_tokens=st.none() | COUNT,
    ),
    st.builds(Cancel, id=TEXT),
    st.builds(Changed, documents=st.lists(TEXT, max_size=3), reason=st.sampled_from(ChangeReason)),
    st.builds(Feedback, batch=TEXT, events=st.lists(st.dictionaries(TEXT, COUNT), max_size=2)),
)
FROM_GATEWAY = st.one_of(
    st.builds(Profile, model=TEXT, grammar=TEXT, tokenizer_digest=TEXT),
    st.builds(Need, id=TEXT, digests=st.lists(DIGEST, max_size=3)),
    st.builds(Delta, id=TEXT, text=TEXT, logprob=st.floats(-1e6, 0), tokens=COUNT),
    st.builds(
        Done,
        id=TEXT,
        finish=st.sampled_from(Finish),
        usage=st.builds(Usage, prompt_tokens=COUNT, cached_source=TEXT),
        timings_ms=st.builds(Timings, prefill=NUMBER),
    ),
    st.builds(Ack, batch=TEXT),
    st.builds(Goaway, grace_ms=NUMBER),
    st.builds(Error, code=st.sampled_from(ErrorCode), id=st.none() | TEXT, retry_after_ms=st.none() | NUMBER),
)


@pytest.mark.parametrize("codec", [msgspec.json, msgspec.msgpack], ids=["json", "msgpack"])
class TestBothKindsOfFrames:
    @given(message=FROM_CLIENT)
    def test_client_messages_survive_the_wire(self, codec: Any, message: ClientMessage) -> None:
        assert codec.decode(codec.encode(message), type=ClientMessage) == message

    @given(message=FROM_GATEWAY)
    def test_gateway_messages_survive_the_wire(self, codec: Any, message: GatewayMessage) -> None:
        assert codec.decode(codec.encode(message), type=GatewayMessage) == message

    def test_unknown_fields_are_ignored(self, codec: Any) -> None:
        encoded = codec.encode({"type": "cancel", "id": "1", "of_version_2": {"a": [1]}})
        assert codec.decode(encoded, type=ClientMessage) == Cancel(id="1")

    @pytest.mark.parametrize(
        "message",
        [
            {"type": "never", "id": "1"},
            {"id": "1"},
            {"type": "cancel"},
            {"type": "cancel", "id": 1},
            {"type": "complete", "id": "1", "class": "urgent", "segments": []},
            {"type": "delta", "id": "1", "text": "of the other end"},
            [],
        ],
    )
    def test_unknown_types_missing_fields_and_wrong_types_are_refused(self, codec: Any, message: object) -> None:
        with pytest.raises(msgspec.ValidationError):
            codec.decode(codec.encode(message), type=ClientMessage)


@given(message=FROM_CLIENT | FROM_GATEWAY)
def test_both_kinds_have_the_same_keys(message: ClientMessage | GatewayMessage) -> None:
    def keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: keys(item) for name, item in value.items()}
        return [keys(item) for item in value] if isinstance(value, list) else None

    assert keys(msgspec.json.decode(msgspec.json.encode(message))) == keys(
        msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    )


def test_what_a_client_leaves_out_of_a_segments_source_is_nothing() -> None:
    frame = b'{"type":"complete","id":"1","segments":[{"kind":"prefix","scope":"file","source":{},"text":"x"}]}'
    decoded = msgspec.json.decode(frame, type=ClientMessage)
    assert isinstance(decoded, Complete)
    assert decoded.segments[0].source == Source(document="", path="", version=0, start=0, end=0)


def test_the_class_of_a_request_is_called_class() -> None:
    encoded = msgspec.json.decode(msgspec.json.encode(Complete(id="1", class_=RequestClass.BLOCK, segments=[])))
    assert encoded == {"type": "complete", "id": "1", "class": "block", "segments": []}


FRAMES = (
    '{"type":"hello","v":1,"client":"c"}',
    '{"type":"complete","id":"1","segments":[]}',
    '{"type":"next_edit","id":"1","question":{"window":"a\\n","cursor":1}}',
    '{"type":"cancel","id":"1"}',
    '{"type":"changed","documents":["a.py"],"reason":"edit"}',
    '{"type":"feedback","batch":"b","events":[]}',
    '{"type":"profile","model":"m","grammar":"g","tokenizer_digest":"d","context_limit_tokens":9}',
    '{"type":"need","id":"1","digests":["AAAA"]}',
    '{"type":"delta","id":"1","text":"x"}',
    '{"type":"edited","id":"1","reason":"unsure"}',
    '{"type":"done","id":"1","finish":"stop"}',
    '{"type":"ack","batch":"b"}',
    '{"type":"goaway","grace_ms":5.0}',
    '{"type":"error","code":"overloaded","id":"1","retry_after_ms":9.0}',
)
"""One of each message, as both ends of every version have spelled it."""


@pytest.mark.parametrize("frame", FRAMES)
def test_every_message_is_read_and_written_as_it_is_spelled(frame: str) -> None:
    decoded: object = msgspec.json.decode(frame, type=ClientMessage | GatewayMessage)
    written = msgspec.json.decode(msgspec.json.encode(decoded))
    assert written.items() >= msgspec.json.decode(frame).items()  # a profile says its defaults too


def test_every_message_is_among_them() -> None:
    tags = {(get_origin(one) or one).__struct_config__.tag for one in get_args(ClientMessage | GatewayMessage)}
    assert {msgspec.json.decode(frame)["type"] for frame in FRAMES} == tags


def test_the_wire_costs_msgspec_alone() -> None:
    script = (
        "import sys; before = set(sys.modules); import foretype_wire.messages, foretype_wire.segment_cache\n"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(roots - set(sys.stdlib_module_names) - {'typing_extensions'}))"  # msgspec takes it where it is there
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == "['foretype_context', 'foretype_wire', 'msgspec']\n"


@pytest.mark.parametrize("json", [True, False])
def test_a_frame_that_cannot_be_read_says_what_it_was(json: bool) -> None:
    """Of a message whose fields are wrong its type and id are known; of what is no message, nothing."""
    pack = msgspec.json.encode if json else msgspec.msgpack.encode
    for content, type, id in (({"type": "delta", "id": "7", "text": 3}, "delta", "7"), ([1], "", "")):
        frame = pack(content)
        with pytest.raises(UnreadableFrameError) as caught:
            Codec(json=json).decode(frame.decode() if json else frame)
        assert ((caught.value.type or ""), (caught.value.id or "")) == (type, id)


def test_halves_of_characters_are_mended_wherever_a_call_has_text() -> None:
    call = Complete[Segment](id="\ud800", supersedes="a\udfff", document="\ud800", language="py", segments=[])
    mended = scrub_call(call)
    assert (mended.id, mended.supersedes, mended.document) == ("\ufffd", "a\ufffd", "\ufffd")
    assert scrub_call(Complete[Segment](id="1", segments=[])).supersedes is None
