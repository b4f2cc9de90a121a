"""vLLM's cache events in terms of our keys: decoded, applied in order, void after a gap; and the way there over ZMQ."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio
from backend.world import until
from foretype_backend.config.fleet import is_local_endpoint
from foretype_backend.errors import CacheEventsError
from foretype_backend.fleet.kv_events import follow_events
from foretype_backend.prefix.block_keys import block_keys
from foretype_backend.prefix.cache_book import CacheBook
from foretype_backend.prefix.events import CacheChange, EventBook
from foretype_backend.prefix.origin import Origin
from hypothesis import example, given
from hypothesis import strategies as st

IDS = list(range(100, 148))
KEYS = block_keys(IDS, 16, salt="s")


def stored(hashes: list[int], ids: list[int], parent: int | None = None, **fields: Any) -> dict[str, Any]:
    first = [["s"]] if parent is None else [None]
    extra = first + [None] * (len(hashes) - 1)
    event = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": ids}
    return event | {"block_size": 16, "medium": "GPU", "lora_name": None, "extra_keys": extra} | fields


def batch(*events: Any) -> bytes:
    return msgspec.msgpack.encode([0.0, list(events), 0])


def test_chains_follow_from_the_events_alone() -> None:
    book = EventBook(16)
    assert book.read(0, batch(stored([1, 2], IDS[:32]))) == CacheChange(KEYS[:2])
    assert book.read(1, batch(stored([3], IDS[32:], parent=2))) == CacheChange(KEYS[2:])
    assert book.read(2, batch({"type": "BlockRemoved", "block_hashes": [3, 99], "medium": "GPU"})) == CacheChange(
        (), KEYS[2:]
    )
    assert len(book) == 2
    assert book.read(3, batch({"type": "AllBlocksCleared"}, stored([1], IDS[:16]))) == CacheChange(
        KEYS[:1], (), cleared=True
    )


def test_a_block_that_is_evicted_and_stored_again_in_one_batch_is_there() -> None:
    book = EventBook(16)
    book.read(0, batch(stored([1, 2], IDS[:32])))
    removed = {"type": "BlockRemoved", "block_hashes": [1, 2], "medium": "GPU"}
    assert book.read(1, batch(removed, stored([1], IDS[:16]))) == CacheChange(KEYS[:1], KEYS[1:2])


def test_events_as_arrays_of_older_versions_are_read_too() -> None:
    rows: list[Any] = [
        ["BlockStored", [1], None, IDS[:16], 16, None, "GPU", None, [["s"]]],
        ["BlockRemoved", [1], "GPU"],
        ["AllBlocksCleared"],
    ]
    book = EventBook(16)
    assert book.read(0, batch(rows[0])) == CacheChange(KEYS[:1])
    assert book.read(1, batch(rows[1])) == CacheChange((), KEYS[:1])
    assert book.read(2, batch(rows[2])).cleared


def test_a_lost_batch_voids_what_was_known() -> None:
    book = EventBook(16)
    book.read(5, batch(stored([1], IDS[:16])))  # the first one that is heard begins the count
    change = book.read(7, batch(stored([3], IDS[32:], parent=1)))
    assert change == CacheChange(cleared=True)  # its parent may have been removed in the batch that is missing


@pytest.mark.parametrize(
    "fields",
    [{"block_size": 32}, {"medium": "CPU"}, {"lora_name": "x"}, {"token_ids": [1, 2]}, {"parent_block_hash": 77}],
)
def test_blocks_that_are_none_of_ours_are_left_out(fields: dict[str, Any]) -> None:
    assert EventBook(16).read(0, batch(stored([1], IDS[:16]) | fields)) == CacheChange()


ANYTHING = st.recursive(st.none() | st.integers(-9, 9) | st.text() | st.binary(max_size=3), st.lists, max_leaves=6)
FIELDS = ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "medium", "lora_name", "extra_keys"]


@given(
    st.binary(max_size=60)
    | ANYTHING.map(msgspec.msgpack.encode)
    | st.lists(st.lists(ANYTHING, max_size=9)).map(lambda rows: batch(*rows))
    | st.dictionaries(st.sampled_from(FIELDS), ANYTHING).map(lambda odd: batch(stored([1], IDS[:16]) | odd))
)
@example(b"\x92\x00\x91\x93\x00\x00\x90")  # a medium that no set can hold
@example(batch(stored([1], [2**40] * 16)))
def test_any_frame_is_read_or_refused(payload: bytes) -> None:
    book = EventBook(16)
    book.read(0, batch(stored([1], IDS[:16])))
    refused = False
    try:
        book.read(1, payload)
    except CacheEventsError:
        refused = True
        assert len(book) == 1
    # What was refused is missing, so that the next one begins anew; what was read is not.
    assert book.read(2, batch(stored([5], IDS[:16]))) == CacheChange(KEYS[:1], cleared=refused)
    removed = {"type": "BlockRemoved", "block_hashes": [5], "medium": "GPU"}
    assert book.read(3, batch(removed)) == CacheChange((), KEYS[:1])
    assert not (refused and len(book))


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("ipc:///run/x", True),
        ("tcp://127.0.0.1:5557", True),
        ("tcp://[::1]:5557", True),
        ("tcp://localhost:5557", True),
        ("tcp://*:5557", False),
        ("tcp://0.0.0.0:5557", False),
        ("tcp://gpu-1:5557", False),
        ("inproc://x", False),
        ("", False),
    ],
)
def test_events_never_leave_their_host(endpoint: str, local: bool) -> None:
    assert is_local_endpoint(endpoint) is local


async def test_events_over_zmq_replace_belief(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/events"
    context = zmq.asyncio.Context()
    publisher = context.socket(zmq.PUB)
    publisher.bind(endpoint)
    book = CacheBook(16)
    heard: list[CacheChange] = []

    def hear(change: CacheChange) -> None:
        heard.append(change)
        book.apply_events("one", change)

    listener = asyncio.create_task(follow_events(endpoint, 16, hear))
    origin = Origin(tenant="t", repository="r", session="a", document="x")
    found = book.look_up(origin, IDS, "s", 0.0)
    book.sent(found, "one", 0.0)
    assert book.look_up(origin, IDS, "s", 0.0).held == {"one": 32}  # the last block is always computed
    for sequence in range(200):  # a subscriber hears what is published after it has joined
        await publisher.send_multipart([b"", sequence.to_bytes(8, "big"), batch(stored([1], IDS[:16]))])
        await asyncio.sleep(0.01)
        if heard:
            break
    await publisher.send_multipart([b"", b"short", b""])
    await publisher.send_multipart([b"", (sequence + 1).to_bytes(8, "big"), b"\xc1"])
    removed = batch({"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"})
    await publisher.send_multipart([b"", (sequence + 1).to_bytes(8, "big"), removed])
    await until(lambda: any(change.removed for change in heard))
    assert book.look_up(origin, IDS, "s", 0.0).held == {}  # what the engine says goes
    listener.cancel()
    await asyncio.gather(listener, return_exceptions=True)
    publisher.close(linger=0)
    context.term()
