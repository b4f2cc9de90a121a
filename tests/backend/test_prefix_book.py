"""The book of caches: what was generated counts, sessions end, and the tiers are told through a Redis that comes and goes."""

import asyncio
import threading
import weakref
from array import array

import msgspec
import pytest
import redis
import redis.asyncio
from backend.redis_server import redis_server
from backend.world import until
from foretype_backend.fleet.retired_ranges import RetireSender
from foretype_backend.prefix.cache_book import FORGET_AFTER_S, CacheBook
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.retire_feed import (
    STREAM,
    Message,
    PurgeNotice,
    RetireNotice,
    encode,
    follow_stream,
    read_stream,
)
from foretype_backend.prefix.salt import SaltBook, tier_namespace, tier_secret
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from hypothesis import given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

SECRET = tier_secret(b"s" * 32)

IDS = list(range(2, 102))


def origin(session: str = "a", document: str = "x.py", tokens: int = 100) -> Origin:
    source = Source(document=document, version=1, start=0, end=300)
    placed = PlacedSegment(
        segment=Segment(kind=Kind.PREFIX, scope=Scope.FILE, source=source, text=""), start=0, end=tokens
    )
    return Origin(tenant="t", repository="r", session=session, document=document, placed=(placed,))


@pytest.mark.parametrize(("tokens", "cached"), [(28, 112), (29, 128)])
def test_an_accepted_suggestion_is_a_cached_prefix_but_for_its_last_token(tokens: int, cached: int) -> None:
    """The last token that was said was never computed: the 28th would have filled a block."""
    book = CacheBook(16)
    found = book.look_up(origin(), IDS, "s", 0.0)
    book.sent(found, "one", 0.0)
    said = list(range(500, 500 + tokens))
    book.answered(found, said, "one", 0.1)
    longer = book.look_up(origin(), [*IDS, *said, 7], "s", 0.2)
    assert longer.held == {"one": cached}
    assert book.look_up(origin(), [*IDS, *said, 7], "another salt", 0.2).held == {}


def test_sessions_end_when_they_leave_and_when_nobody_hears_of_them() -> None:
    book = CacheBook(16)
    for at, name in enumerate("ab"):
        book.sent(book.look_up(origin(name, f"{name}.py"), [at, *IDS], "s", 0.0), "one", 0.0)
    book.left("a", 1.0)
    assert book.directory.statistics().sessions == 1
    book.expire(FORGET_AFTER_S - 1)
    assert book.directory.statistics().sessions == 1
    book.expire(FORGET_AFTER_S)
    assert book.directory.statistics().sessions == 0
    told = book.expire(FORGET_AFTER_S + 61)
    assert RetireNotice(tier_namespace("s"), "b.py", 0) in told


def test_what_was_looked_up_and_never_sent_is_forgotten_too() -> None:
    """The engine is away, or a warm-up waits in vain: nothing is sent, and the prompt's ids must not stay."""
    book, ids = CacheBook(16), array("Q", IDS)
    gone = weakref.ref(ids)
    book.look_up(origin(), ids, "s", 0.0)
    del ids
    book.expire(FORGET_AFTER_S - 1)
    assert gone() is not None
    book.look_up(origin("b"), IDS, "s", 1.0)
    book.expire(FORGET_AFTER_S)
    assert gone() is None


def test_a_client_that_names_endless_documents_and_repositories_is_bounded() -> None:
    book, salts = CacheBook(16), SaltBook(b"s" * 32)
    for at in range(300):
        namespace = salts.namespace("t", f"r{at}")
        found = book.look_up(
            msgspec.structs.replace(origin(document=f"{at}.py"), repository=f"r{at}"),
            [at, *IDS],
            salts.salt(namespace),
            float(at),
        )
        book.sent(found, None, float(at))
    assert book.directory.statistics().used_blocks == 64 * 6  # the last documents; nobody holds what was before
    assert book.directory.statistics().blocks == 64 * 6


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99), st.integers(1, 40)), max_size=40))
def test_what_is_looked_up_never_exceeds_what_was_sent(turns: list[tuple[str, int, int]]) -> None:
    book, sent = CacheBook(16), list[list[int]]()
    for name, cut, tail in turns:
        ids = [*IDS[:cut], *range(1000 + tail, 1000 + 2 * tail)]
        if not ids:
            continue
        found = book.look_up(origin(name, tokens=len(ids)), ids, "s", 0.0)
        shared = max((_common(ids, one) for one in sent), default=0) // 16 * 16
        assert found.held.get("one", 0) <= min(shared, (len(ids) - 1) // 16 * 16)
        book.sent(found, "one", 0.0)
        sent.append(ids)
        again = book.look_up(origin(name, tokens=len(ids)), ids, "s", 0.0)
        assert again.held.get("one", 0) == (len(ids) - 1) // 16 * 16


def _common(left: list[int], right: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


async def test_the_tiers_are_told_and_a_redis_that_was_away_is_told_later() -> None:
    with redis_server() as server:
        sender = RetireSender(
            redis.asyncio.Redis(unix_socket_path=str(server.socket), socket_timeout=60.0), SECRET, capacity=3
        )
        reader = redis.Redis(unix_socket_path=str(server.socket), protocol=2)
        sender.tell([RetireNotice("n", "a.py", 4), PurgeNotice("n")])
        await until(lambda: sender.statistics().sent == 2)
        assert read_stream(reader, "0", SECRET)[0] == [
            PurgeNotice("n"),
            RetireNotice("n", "a.py", 4),
        ]  # a purge goes first
        server.kill()
        sender.tell(RetireNotice("n", f"{at}.py", 0) for at in range(5))
        sender.tell([PurgeNotice("m")])
        await until(lambda: sender.statistics().dropped == 2)  # the oldest; a purge never
        server.start()
        await until(lambda: sender.statistics().sent == 6)
        told, _ = await asyncio.to_thread(read_stream, reader, "0", SECRET)
        assert told == [PurgeNotice("m"), *(RetireNotice("n", f"{at}.py", 0) for at in (2, 3, 4))]
        reader.close()
        await sender.close()


class HeldPauses(threading.Event):
    """Each pause lasts until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.begun.release()
        self.go_on.acquire()
        return self.is_set()


async def test_what_is_said_while_redis_changes_its_role_is_heard() -> None:
    """A server that is made a replica ends questions that wait and their connections: nothing had come before, and all comes after."""
    heard: list[Message] = []
    closing = HeldPauses()
    with redis_server() as server:
        admin = redis.Redis(unix_socket_path=str(server.socket))
        at_once = Retry(NoBackoff(), 0)
        client = redis.Redis(unix_socket_path=str(server.socket), protocol=2, retry=at_once)

        def waits() -> bool:
            return any("b" in one["flags"] for one in admin.client_list())

        following = threading.Thread(
            target=follow_stream, args=(client, SECRET, heard.extend, closing), kwargs={"block_ms": 3_600_000}
        )
        following.start()
        try:
            for at in range(2):
                await until(waits)
                admin.replicaof("127.0.0.1", "1")  # nobody listens there
                await asyncio.to_thread(closing.begun.acquire)
                admin.replicaof("NO", "ONE")
                admin.xadd(STREAM, encode(RetireNotice("n", "a.py", at), SECRET))  # pyright: ignore[reportArgumentType]
                closing.go_on.release()
                await until(lambda told=at + 1: len(heard) == told)
            assert heard == [RetireNotice("n", "a.py", 0), RetireNotice("n", "a.py", 1)]
        finally:
            closing.set()
            closing.go_on.release()
            server.kill()
            await asyncio.to_thread(following.join)
            admin.close()
            client.close()
