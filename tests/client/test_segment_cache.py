from pathlib import Path

import pytest
from foretype_context.prompt.segments import STABLE_KINDS, Kind, digest_of
from foretype_wire.segment_cache import CAPACITY_ENTRIES, SegmentCache
from hypothesis import given
from hypothesis import strategies as st

# Few distinct texts against a small capacity, so that hits, evictions and oversized texts all happen.
TEXTS = st.sampled_from(["", "a", "bb", "ccc", "héé", "日本語", "😀", "x" * 9, "y" * 13, "z" * 40, "\ud83d"])
SEGMENTS = st.tuples(st.sampled_from(list(Kind)), TEXTS)
MESSAGES = st.lists(st.lists(SEGMENTS, max_size=5), max_size=12)


def transfer(sender: SegmentCache, receiver: SegmentCache, message: list[tuple[Kind, str]]) -> list[str | None]:
    """What the receiver reads, None where it would have to ask."""
    read: list[str | None] = []
    for kind, text in message:
        digest = sender.send(kind, text)
        if digest is None:
            receiver.receive_text(kind, text)
            read.append(text)
        else:
            read.append(receiver.receive_digest(kind, digest))
    return read


DIGESTS = st.lists(st.sampled_from([digest_of(text) for text in ("a", "bb", "ccc", "y" * 13, "héé")]), max_size=4)
CALLS = st.lists(st.tuples(SEGMENTS, DIGESTS, st.integers(0, 2)), max_size=12)


def test_both_ends_hold_as_much_as_the_protocol_says() -> None:
    said = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
    assert f"an LRU of {SegmentCache().capacity_bytes / 2**20:g} MiB (UTF-8 bytes of texts)" in said
    assert f"in bytes and in {CAPACITY_ENTRIES:,} texts" in said


@given(CALLS)
def test_digests_received_together_move_what_they_move_one_by_one(
    calls: list[tuple[tuple[Kind, str], list[bytes], int]],
) -> None:
    together, one_by_one = SegmentCache(20), SegmentCache(20)
    for (kind, text), digests, times in calls:
        for _ in range(times):
            read = [(digest, one_by_one.receive_digest(Kind.PREFIX, digest)) for digest in digests]
            assert together.receive_digests(digests) == [digest for digest, held in read if held is None]
            assert together.digests() == one_by_one.digests()
        together.receive_text(kind, text)
        one_by_one.receive_text(kind, text)
        assert together.digests() == one_by_one.digests()


@given(MESSAGES)
def test_two_mirrors_fed_the_same_messages_stay_equal_and_resolve_every_digest(
    messages: list[list[tuple[Kind, str]]],
) -> None:
    sender, receiver = SegmentCache(20), SegmentCache(20)
    for message in messages:
        assert transfer(sender, receiver, message) == [text for _, text in message]
        assert sender.digests() == receiver.digests()
        assert sender.size_bytes == receiver.size_bytes <= 20


@given(MESSAGES, MESSAGES, MESSAGES)
def test_one_need_repairs_mirrors_that_differ_for_good(
    only_sender: list[list[tuple[Kind, str]]],
    only_receiver: list[list[tuple[Kind, str]]],
    messages: list[list[tuple[Kind, str]]],
) -> None:
    sender, receiver = SegmentCache(20), SegmentCache(20)
    for message in only_sender:
        transfer(sender, SegmentCache(20), message)
    for message in only_receiver:
        transfer(SegmentCache(20), receiver, message)
    repairs = 0
    for message in messages:
        if None in transfer(sender, receiver, message):
            repairs += 1
            sender.clear()
            for kind, text in message:  # sent again, all as text
                sender.send(kind, text)
                receiver.receive_text(kind, text)
            held = sender.digests()
            assert receiver.digests()[len(receiver) - len(held) :] == held
    assert repairs <= 1


def test_a_text_larger_than_the_cache_is_never_cached_and_evicts_nothing() -> None:
    cache = SegmentCache(10)
    assert cache.send(Kind.PREFIX, "kept") is None
    assert cache.send(Kind.PREFIX, "x" * 11) is None
    assert cache.send(Kind.PREFIX, "x" * 11) is None
    assert cache.digests() == [digest_of("kept")]


def test_touched_texts_outlive_older_ones() -> None:
    cache = SegmentCache(3)
    for text in ("a", "b", "c", "a", "d"):
        cache.send(Kind.PREFIX, text)
    assert cache.digests() == [digest_of(text) for text in ("c", "a", "d")]


@pytest.mark.parametrize("kind", sorted(set(Kind) - STABLE_KINDS))
def test_volatile_kinds_never_travel_by_digest(kind: Kind) -> None:
    cache = SegmentCache()
    cache.receive_text(kind, "text")
    assert cache.send(kind, "text") is None
    assert len(cache) == 0
    cache.send(Kind.PREFIX, "text")
    assert cache.send(kind, "text") is None
    assert cache.receive_digest(kind, digest_of("text")) is None


def test_the_capacity_counts_utf8_bytes_and_must_not_be_negative() -> None:
    cache = SegmentCache(4)
    cache.send(Kind.PREFIX, "日本")  # six bytes
    assert len(cache) == 0
    with pytest.raises(ValueError, match="capacity_bytes"):
        SegmentCache(-1)


def test_a_digest_that_the_sender_knows_changes_nothing_but_the_hashing() -> None:
    told, untold = SegmentCache(), SegmentCache()
    for text in ("a", "b", "a"):
        assert told.send(Kind.PREFIX, text, digest_of(text)) == untold.send(Kind.PREFIX, text)
    assert told.digests() == untold.digests() != []


def test_a_cleared_cache_is_as_a_new_one_and_a_shrunk_one_keeps_the_most_recent() -> None:
    cache = SegmentCache(6)
    for text in ("aa", "bb", "cc"):
        cache.send(Kind.PREFIX, text)
    cache.shrink(2)
    assert cache.digests() == [digest_of("bb"), digest_of("cc")]
    assert (len(cache), cache.size_bytes) == (2, 4)
    cache.shrink(-1)
    assert (len(cache), cache.size_bytes) == (0, 0)
    cache.send(Kind.PREFIX, "dd")
    cache.clear()
    assert (len(cache), cache.size_bytes) == (0, 0)
