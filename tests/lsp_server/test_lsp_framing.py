from foretype_lsp.transport.framing import MAX_BODY_BYTES, Framing, frame
from hypothesis import given
from hypothesis import strategies as st

bodies = st.lists(st.binary(max_size=40), max_size=6)


@given(bodies, st.data())
def test_messages_come_out_whole_however_the_bytes_are_cut(messages, data):
    stream = b"".join(map(frame, messages))
    framing = Framing()
    out = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        out += framing.feed(stream[:cut])
        stream = stream[cut:]
    assert out == messages
    assert framing.skipped == 0


@given(st.binary(max_size=200))
def test_garbage_never_raises(data):
    Framing().feed(data)


def test_header_names_have_no_case_and_other_headers_are_ignored():
    message = b"content-type: application/vscode-jsonrpc; charset=utf-8\r\nCONTENT-LENGTH:2\r\n\r\n{}"
    assert Framing().feed(message) == [b"{}"]


def test_line_ends_without_carriage_return_are_taken():
    assert Framing().feed(b"Content-Length: 2\n\n{}") == [b"{}"]


def test_after_a_block_without_length_the_next_message_is_read():
    framing = Framing()
    assert framing.feed(b"Hello: world\r\n\r\n" + frame(b"[1]")) == [b"[1]"]
    assert framing.skipped == 1


def test_a_message_over_the_limit_is_skipped_and_the_next_is_read():
    framing = Framing()
    framing.feed(b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
    block = bytes(1 << 24)
    left = MAX_BODY_BYTES + 1
    while left:
        assert framing.feed(block[:left]) == []
        left -= min(len(block), left)
    assert framing.feed(frame(b"{}")) == [b"{}"]
    assert framing.skipped == 1


def test_an_endless_header_is_not_kept():
    framing = Framing()
    for _ in range(8):
        framing.feed(b"x" * 20_000)
    assert framing.skipped >= 1
    assert framing.feed(b"\r\n\r\n" + frame(b"{}"))[-1:] == [b"{}"]
