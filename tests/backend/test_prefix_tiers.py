"""What the shared tier is made of: envelopes, the gates, the span index, the feed, and chunks in a real Redis."""

import contextlib
import hmac
from typing import Any

import pytest
import redis
from backend.redis_server import redis_server
from foretype_backend.errors import ChunkFormatError, PlacementError, TierRefusedError, TierUnavailableError
from foretype_backend.prefix.redis_chunks import HEADER_BYTES, RedisChunks, pack, unpack
from foretype_backend.prefix.retire_feed import (
    STREAM,
    PurgeNotice,
    RetireFeed,
    RetireNotice,
    decode,
    encode,
    read_stream,
)
from foretype_backend.prefix.salt import tier_secret
from foretype_backend.prefix.spans import Placed, Placement, SpanIndex, placement_of, to_parameters
from foretype_backend.prefix.tier_policy import CostGate, TierHealth, TierStanding
from hypothesis import given, settings
from hypothesis import strategies as st

CHUNK = bytes(range(256)) * 4
SECRET, OTHERS = tier_secret(b"s" * 32), tier_secret(b"t" * 32)


# Envelopes


@given(st.binary(max_size=200), st.binary(max_size=2000), st.booleans())
def test_what_was_packed_comes_back(key: bytes, payload: bytes, compress: bool) -> None:
    assert unpack(SECRET, key, pack(SECRET, key, payload, compress=compress), len(payload)) == payload


@settings(max_examples=300)
@given(st.data(), st.booleans())
def test_no_damage_passes(data: st.DataObject, compress: bool) -> None:
    value = bytearray(pack(SECRET, b"key", CHUNK, compress=compress))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack(SECRET, b"key", bytes(value), len(CHUNK))
    except ChunkFormatError:
        return
    assert found == CHUNK  # a bit that deflate does not read


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_right(value: bytes) -> None:
    with pytest.raises(ChunkFormatError):
        unpack(SECRET, b"key", value, 7)


def test_a_value_under_another_key_or_of_another_size_is_refused() -> None:
    value = pack(SECRET, b"a", CHUNK)
    assert len(value) == HEADER_BYTES + len(CHUNK)
    for key, size in ((b"b", len(CHUNK)), (b"a", len(CHUNK) + 1)):
        with pytest.raises(ChunkFormatError):
            unpack(SECRET, key, value, size)
    with pytest.raises(ChunkFormatError):
        unpack(SECRET, b"a", value[:-1], len(CHUNK))
    assert len(pack(SECRET, b"a", bytes(4096), compress=True)) < 200


# Gates


def test_a_tier_pays_only_where_loading_beats_computing() -> None:
    gate = CostGate(probe_every=4)
    assert gate.pays(1_000_000, 16)  # nothing is measured yet
    gate.loaded(1_000_000, 0.01)  # 100 MB/s
    assert gate.pays(1_000_000, 16)
    gate.computed(1_000, 0.1)  # 10,000 tokens/s: 16 tokens are 1.6 ms
    assert not gate.pays(1_000_000, 16) and gate.pays(100_000, 16)
    assert [gate.lets_through(1_000_000, 16) for _ in range(8)].count(True) == 2
    for _ in range(40):
        gate.loaded(10_000_000, 0.001)
    assert gate.pays(1_000_000, 16)


def test_a_store_that_fails_is_left_alone_for_longer_and_longer_and_comes_back() -> None:
    health = TierHealth(0.0)
    assert health.may_ask(0.0) and health.standing(0.0) is TierStanding.UP
    now, pauses = 0.0, []
    for _ in range(8):
        health.failed("TimeoutError", now)
        assert not health.may_ask(now)
        pause = health.statistics(now).retry_s
        pauses.append(pause)
        now += pause
        assert health.may_ask(now)
        assert not health.may_ask(now)  # one probe at a time
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    health.succeeded()
    assert health.may_ask(now) and health.may_ask(now)
    health.refused("it writes to disk", now)
    assert health.standing(now) is TierStanding.REFUSED and not health.may_ask(now + 29)
    assert health.may_ask(now + 30)


# Spans


def test_a_retired_range_finds_the_keys_behind_its_first_character() -> None:
    placed = (Placed(0, 16, "", 0, 0, 0), Placed(16, 48, "a.py", 1, 0, 100), Placed(48, 64, "b.py", 1, 50, 80))
    placement = Placement("ns", placed)
    for one in (placement, placement._replace(shared=True)):
        assert placement_of(to_parameters(one)) == one
    index = SpanIndex(keys_max=3)
    index.note(placement, [(b"0", 16), (b"1", 32), (b"2", 48), (b"3", 64)], 16)
    assert index.at("ns", "a.py") == [b"1", b"2"]
    assert index.at("ns", "a.py", 100) == [] and index.at("ns", "a.py", 99) == [b"1", b"2"]
    assert index.at("ns", "b.py") == [b"3"] and index.at("other", "b.py") == []
    index.note(Placement("ns", (Placed(0, 16, "c.py", 1, 0, 9),)), [(b"4", 16)], 16)
    assert len(index) == 3 and index.at("ns", "a.py") == [b"2"]  # bounded: the oldest was forgotten
    assert sorted(index.forget_namespace("ns")) == [b"2", b"3", b"4"] and len(index) == 0


@pytest.mark.parametrize(
    "value",
    [1, {}, {"namespace": 1, "placed": []}, {"namespace": "n", "placed": [[1]]}, {"namespace": "n", "placed": 5}]
    + [{"namespace": "n", "placed": [[0, 1, "d", 0, 0, bad]]} for bad in ("x", None, True, 1.5)]
    + [{"namespace": "n", "placed": [], "shared": 1}, {"namespace": "", "placed": [], "shared": True}],
)
def test_a_bad_placement_is_refused_by_name(value: object) -> None:
    with pytest.raises(PlacementError, match=r"kv_transfer_params\.foretype"):
        placement_of({"foretype": value})
    assert placement_of(None) == placement_of({"other": 1}) == Placement("", ())


# The feed


@given(
    st.one_of(st.builds(RetireNotice, st.text(), st.text(), st.integers(0, 1 << 40)), st.builds(PurgeNotice, st.text()))
)
def test_messages_survive_the_stream(message: RetireNotice | PurgeNotice) -> None:
    assert decode(encode(message, SECRET), SECRET) == message


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'["retire","n"]', b'["retire","n","d","x"]', b'["new",1,2,3]', b"\xff"]
)
def test_an_entry_of_another_version_is_passed_over(body: bytes) -> None:
    signed = {b"m": body, b"s": hmac.digest(SECRET, body, "sha256")}
    assert decode(signed, SECRET) is None and decode({}, SECRET) is None


def test_every_subscriber_hears_everything_once_and_a_deaf_one_is_bounded() -> None:
    feed = RetireFeed(capacity=2)
    first, second = feed.subscribe(), feed.subscribe()
    feed.publish([PurgeNotice("a")])
    assert first() == [PurgeNotice("a")] and first() == []
    feed.publish([PurgeNotice("b"), PurgeNotice("c")])
    assert second() == [PurgeNotice("b"), PurgeNotice("c")]  # its oldest was dropped


# Chunks in a real Redis


def test_chunks_in_redis() -> None:
    with redis_server() as server:
        chunks = RedisChunks(server.url, timeout_s=60.0, secret=SECRET, ttl_s=1000)
        chunks.check()
        chunks.store("ns-1", [(b"a", CHUNK), (b"b", memoryview(CHUNK[::-1]))])
        assert chunks.exist("ns-1", [b"a", b"b", b"c"]) == [True, True, False]
        assert chunks.load("ns-1", [b"b", b"c", b"a"], len(CHUNK)) == [CHUNK[::-1], None, CHUNK]
        assert chunks.load("ns-2", [b"a"], len(CHUNK)) == [None]  # another tenant's
        raw = redis.Redis(unix_socket_path=str(server.socket))
        assert 0 < raw.ttl(b"ftk2:ns-1:a") <= 1000
        chunks.shorten("ns-1", [b"a"], 500)
        assert raw.ttl(b"ftk2:ns-1:a") <= 500
        assert chunks.load("ns-1", [b"a"], len(CHUNK)) == [CHUNK] and raw.ttl(b"ftk2:ns-1:a") > 500  # used again
        raw.setrange(b"ftk2:ns-1:b", 40, b"\0\0\0")
        assert chunks.load("ns-1", [b"b"], len(CHUNK)) == [None]
        assert chunks.statistics().damaged == 1
        chunks.store("ns-2", [(b"a", CHUNK)])
        assert chunks.purge("ns-1") == 2
        assert chunks.exist("ns-1", [b"a"]) == [False] and chunks.exist("ns-2", [b"a"]) == [True]
        with pytest.raises(ValueError, match="namespace"):
            chunks.purge("*")
        chunks.close()


def test_who_can_write_to_that_redis_forges_no_chunk_and_no_message() -> None:
    with redis_server() as server:
        raw: Any = redis.Redis(unix_socket_path=str(server.socket))
        ours, forger = (
            RedisChunks(server.url, timeout_s=60.0, secret=SECRET),
            RedisChunks(server.url, timeout_s=60.0, secret=OTHERS),
        )
        ours.check()
        forger.store("ns", [(b"a", CHUNK)])
        assert ours.load("ns", [b"a"], len(CHUNK)) == [None]
        ours.store("theirs", [(b"b", CHUNK)])
        raw.copy(b"ftk2:theirs:b", b"ftk2:ns:b")  # authentic, and somebody else's
        raw.copy(b"ftk2:theirs:b", b"ftk2:theirs:c")
        assert ours.load("ns", [b"b"], len(CHUNK)) == ours.load("theirs", [b"c"], len(CHUNK)) == [None]
        assert ours.load("theirs", [b"b"], len(CHUNK)) == [CHUNK]
        assert ours.statistics().damaged == 3
        for fields in (
            encode(PurgeNotice("ns"), OTHERS),
            {b"m": b'["purge","ns"]'},
            encode(PurgeNotice("mine"), SECRET),
        ):
            raw.xadd(STREAM, fields)
        assert read_stream(raw, "0", SECRET, block_ms=10)[0] == [PurgeNotice("mine")]
        ours.close()
        forger.close()


def test_the_stream_carries_what_was_retired() -> None:
    with redis_server() as server:
        client = redis.Redis(unix_socket_path=str(server.socket))
        for message in (RetireNotice("n", "a.py", 7), PurgeNotice("m")):
            client.xadd(STREAM, encode(message, SECRET))  # pyright: ignore[reportArgumentType]
        messages, last = read_stream(client, "0", SECRET, block_ms=10)
        assert messages == [RetireNotice("n", "a.py", 7), PurgeNotice("m")]
        assert read_stream(client, last, SECRET, block_ms=10) == ([], last)


def test_a_redis_that_is_away_full_or_restarted_raises_and_serves_again() -> None:
    with (
        redis_server("--maxmemory", "2mb", "--maxmemory-policy", "noeviction") as server,
        contextlib.closing(RedisChunks(server.url, timeout_s=60.0, secret=SECRET)) as chunks,
    ):
        chunks.check()
        chunks.store("n", [(b"a", CHUNK)])
        with pytest.raises(TierUnavailableError):
            for at in range(4):
                chunks.store("n", [(bytes([at, 1]), bytes(1_000_000))])
        assert chunks.load("n", [b"a"], len(CHUNK)) == [CHUNK]  # full: what is there is still there
        server.kill()
        for call in (lambda: chunks.load("n", [b"a"], 4), lambda: chunks.exist("n", [b"a"]), chunks.check):
            with pytest.raises(TierUnavailableError):
                call()
        server.start()
        chunks.check()
        assert chunks.load("n", [b"a"], len(CHUNK)) == [None]


@pytest.mark.parametrize("options", [("--save", "60 1"), ("--appendonly", "yes")])
def test_a_redis_that_writes_to_disk_is_refused(options: tuple[str, str]) -> None:
    with redis_server(*options) as server, pytest.raises(TierRefusedError, match="disk"):
        RedisChunks(server.url, timeout_s=60.0, secret=SECRET).check()


def test_another_format_and_a_closed_configuration_are_refused() -> None:
    with redis_server("--rename-command", "CONFIG", "") as server:
        with pytest.raises(TierRefusedError, match="CONFIG"):
            RedisChunks(server.url, timeout_s=60.0, secret=SECRET).check()
        RedisChunks(server.url, timeout_s=60.0, secret=SECRET, unverified=True).check()
        redis.Redis(unix_socket_path=str(server.socket)).set("ftk:format", "99")
        with pytest.raises(TierRefusedError, match="format 99"):
            RedisChunks(server.url, timeout_s=60.0, secret=SECRET, unverified=True).check()
    with pytest.raises(ValueError, match="ttl_s"):
        RedisChunks("redis://localhost", secret=SECRET, ttl_s=0)
