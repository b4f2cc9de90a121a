"""The prefix directory: a random history of sessions beside a model that keeps everything, and the rules one by one."""

from collections.abc import Sequence

import pytest
from foretype_backend.prefix.block_keys import block_keys, extend_keys
from foretype_backend.prefix.chain import ChainMaker, blocks_of
from foretype_backend.prefix.directory import PrefixDirectory
from foretype_backend.prefix.salt import Namespace, SaltBook, cache_salt
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from hypothesis import given, settings
from hypothesis import strategies as st

BLOCK = 4
SECRET = b"s" * 32
REPOSITORY = Namespace("acme", "repo")


def placed(*parts: tuple[str, Scope, int]) -> list[PlacedSegment]:
    """Segments of so many tokens each, one character a token, one document a part."""
    result: list[PlacedSegment] = []
    at = 0
    for document, scope, tokens in parts:
        source = Source(document=document, path=document, version=1, start=0, end=tokens)
        segment = Segment(kind=Kind.PREFIX, scope=scope, source=source, text="x" * tokens)
        result.append(PlacedSegment(segment=segment, start=at, end=at + tokens))
        at += tokens
    return result


def chain(ids: Sequence[int], *parts: tuple[str, Scope, int], salt: str = ""):
    return blocks_of(block_keys(ids, BLOCK, salt=salt), placed(*parts), BLOCK)


def one_file(ids: Sequence[int], document: str = "a.py", salt: str = ""):
    return chain(ids, (document, Scope.FILE, len(ids)), salt=salt)


@given(
    known=st.lists(st.integers(0, 3), max_size=40),
    ids=st.lists(st.integers(0, 3), max_size=40),
    shared=st.integers(0, 40),
    salt=st.sampled_from(["", "a"]),
)
def test_extended_keys_equal_fresh_ones(known: list[int], ids: list[int], shared: int, salt: str) -> None:
    ids = known[:shared] + ids
    keys = extend_keys(known, block_keys(known, BLOCK, salt=salt), ids, BLOCK, salt=salt)
    assert keys == block_keys(ids, BLOCK, salt=salt)


def test_salts_are_those_of_the_version_before() -> None:
    """Another one would empty every cache of a fleet while it is brought up to date."""
    assert cache_salt(SECRET, Namespace("acme", "repository", 3)) == "Sc8p38mipgmnZYMFVc2rRrTbvRCC9b7dnVg0l5AICf0"


def test_a_maker_never_mixes_documents_or_salts() -> None:
    maker = ChainMaker(BLOCK, documents_max=2)
    for document in ("a", "b", "c", "a"):
        for salt in ("", "s"):
            ids = [ord(document), *range(11)]
            assert maker.keys(document, ids, salt) == block_keys(ids, BLOCK, salt=salt)


def test_blocks_know_their_documents_and_their_most_private_token() -> None:
    blocks = chain(range(12), ("", Scope.REPOSITORY, 6), ("a.py", Scope.FILE, 3), ("b.py", Scope.SESSION, 3))
    assert [block.scope for block in blocks] == [Scope.REPOSITORY, Scope.FILE, Scope.SESSION]
    assert [[span.document for span in block.spans] for block in blocks] == [[], ["a.py"], ["a.py", "b.py"]]
    assert [(block.start, block.end) for block in blocks] == [(0, 4), (4, 8), (8, 12)]


def test_a_segment_that_ends_where_a_block_does_is_in_no_other_block() -> None:
    blocks = chain(range(16), ("a.py", Scope.FILE, 4), ("b.py", Scope.SESSION, 4), ("c.py", Scope.FILE, 4))
    assert [[span.document for span in block.spans] for block in blocks] == [["a.py"], ["b.py"], ["c.py"], []]
    assert [block.scope for block in blocks] == [Scope.FILE, Scope.SESSION, Scope.FILE, next(iter(Scope))]


def test_what_was_sent_is_found_on_its_replica_up_to_the_first_difference() -> None:
    directory = PrefixDirectory()
    directory.place(REPOSITORY, "s", "a.py", one_file(range(16)), replica="r1", now=0.0)
    directory.place(REPOSITORY, "t", "a.py", one_file([*range(8), 99, 98, 97, 96]), replica="r2", now=1.0)
    assert directory.cached_blocks(block_keys(range(20), BLOCK)) == {"r1": 4, "r2": 2}
    assert directory.cached_blocks(block_keys([7, 7, 7, 7], BLOCK)) == {}
    assert directory.cached_blocks([]) == {}


def test_an_edit_leaves_the_colleague_warm_and_undo_too() -> None:
    directory = PrefixDirectory(retire_after_s=60)
    for session in ("editor", "colleague"):
        directory.place(REPOSITORY, session, "a.py", one_file(range(16)), replica="r", now=0.0)
    assert directory.edited("editor", "a.py", 5, 1.0) == 4
    assert directory.expire(100.0) == []  # the colleague still uses every block
    directory.left("colleague", 100.0)
    assert directory.expire(159.0) == []  # not a minute yet: undo would find them
    directory.place(REPOSITORY, "editor", "a.py", one_file(range(16)), replica="r", now=159.5)
    assert directory.expire(500.0) == []
    directory.closed("editor", "a.py", 500.0)
    retired = directory.expire(560.0)
    assert [one.key for one in retired] == list(block_keys(range(16), BLOCK))
    assert {span.document for one in retired for span in one.spans} == {"a.py"}
    assert directory.cached_blocks(block_keys(range(16), BLOCK)) == {}  # not advertised any more
    directory.place(REPOSITORY, "late", "a.py", one_file(range(8)), replica="r", now=600.0)
    assert directory.cached_blocks(block_keys(range(16), BLOCK)) == {"r": 2}  # used again: alive again


def test_another_file_in_the_prompt_voids_what_follows_it() -> None:
    directory = PrefixDirectory()
    blocks = chain(range(16), ("b.py", Scope.SESSION, 8), ("a.py", Scope.FILE, 8))
    directory.place(REPOSITORY, "s", "a.py", blocks, replica="r", now=0.0)
    assert directory.edited("s", "b.py", 0, 1.0) == 4
    assert directory.edited("s", "c.py", 0, 1.0) == 0
    assert directory.statistics().used_blocks == 0


def test_a_purge_forgets_one_repository_and_nothing_else() -> None:
    directory = PrefixDirectory()
    other = Namespace("acme", "other")
    directory.place(REPOSITORY, "s", "a.py", one_file(range(8)), replica="r", now=0.0)
    directory.place(other, "s", "o.py", one_file(range(8), "o.py", salt="o"), replica="r", now=0.0)
    [held] = directory.contents("acme", "repo")
    assert (held.document, held.tokens, held.sessions, held.replicas) == ("a.py", 8, 1, ("r",))
    assert directory.purge("acme", "repo") == 2
    assert directory.contents("acme", "repo") == []
    assert directory.cached_blocks(block_keys(range(8), BLOCK)) == {}
    assert directory.cached_blocks(block_keys(range(8), BLOCK, salt="o")) == {"r": 2}
    assert directory.purge("acme") == 2


def test_events_of_a_replica_overrule_its_history() -> None:
    directory = PrefixDirectory()
    keys = block_keys(range(16), BLOCK)
    directory.stored("r", keys[:2])
    directory.place(REPOSITORY, "s", "a.py", one_file(range(16)), replica="r", now=0.0)
    assert directory.cached_blocks(keys) == {"r": 2}
    directory.stored("r", keys[2:])
    assert directory.cached_blocks(keys) == {"r": 4}
    directory.removed("r", keys[1:2])
    assert directory.cached_blocks(keys) == {"r": 1}
    directory.join("r")  # restarted: empty
    assert directory.cached_blocks(keys) == {}


def test_a_replica_is_believed_to_hold_no_more_than_fits() -> None:
    directory = PrefixDirectory(capacity_blocks=4)
    directory.place(REPOSITORY, "s", "a.py", one_file(range(16)), replica="r", now=0.0)
    directory.place(REPOSITORY, "s", "b.py", one_file(range(100, 108), "b.py"), replica="r", now=1.0)
    assert directory.cached_blocks(block_keys(range(16), BLOCK)) == {"r": 2}  # its tail went first
    assert directory.cached_blocks(block_keys(range(100, 108), BLOCK)) == {"r": 2}


steps = st.lists(
    st.tuples(
        st.sampled_from(["place", "edited", "closed", "left", "expire", "leave", "purge"]),
        st.sampled_from(["s", "t"]),
        st.sampled_from(["a", "b"]),
        st.lists(st.integers(0, 1), max_size=24),
        st.sampled_from(["r1", "r2", None]),
        st.floats(0, 50),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(steps)
def test_no_history_breaks_the_books(history: list[tuple[str, str, str, list[int], str | None, float]]) -> None:
    """Use is exactly what the last prompts hold; what is used is never retired; nothing is kept that nobody has or holds."""
    directory = PrefixDirectory(capacity_blocks=8, retire_after_s=60)
    last: dict[tuple[str, str], tuple[bytes, ...]] = {}
    now = 0.0
    for step, session, document, ids, replica, gap in history:
        now += gap
        ids = [ord(document), *ids]  # a prompt names its file: no two of them share a block
        if step == "place":
            directory.place(REPOSITORY, session, document, one_file(ids, document), replica=replica, now=now)
            last[session, document] = block_keys(ids, BLOCK)
        elif step == "edited":
            directory.edited(session, document, 0, now)
            last[session, document] = ()
        elif step == "closed":
            directory.closed(session, document, now)
            last[session, document] = ()
        elif step == "left":
            directory.left(session, now)
            last = {user: keys for user, keys in last.items() if user[0] != session}
        elif step == "leave" and replica is not None:
            directory.leave(replica)
        elif step == "purge":
            directory.purge("acme", "repo")
            last.clear()
        used = {key for keys in last.values() for key in keys}
        retired = directory.expire(now)
        assert not used & {one.key for one in retired}
        statistics = directory.statistics()
        assert statistics.used_blocks == len(used)
        assert statistics.blocks <= len(used) + 2 * 8
        for replica_name, blocks in directory.cached_blocks(block_keys(ids, BLOCK)).items():
            assert replica_name in ("r1", "r2") and 1 <= blocks <= len(ids) // BLOCK


def test_salts_differ_for_every_namespace_and_after_a_purge() -> None:
    book = SaltBook(SECRET)
    names = [("a", ""), ("a", "b"), ("ab", ""), ("", "ab"), ("a", "b0")]
    salts = {book.salt(book.namespace(*name)) for name in names}
    assert len(salts) == len(names)
    assert all(len(salt) == 43 for salt in salts)
    before = book.salt(book.namespace("a", "b"))
    other = book.salt(book.namespace("ab", ""))
    book.purge("a")
    assert book.salt(book.namespace("a", "b")) != before
    assert book.salt(book.namespace("ab", "")) == other
    again = SaltBook(SECRET, book.epochs())
    assert again.salt(again.namespace("a", "b")) == book.salt(book.namespace("a", "b"))


def test_a_purge_ends_one_scope_once_and_tells_of_it_once() -> None:
    book = SaltBook(SECRET)
    told: list[tuple[str, str]] = []
    book.ended.add(lambda tenant, scope: told.append((tenant, scope)))
    before = {scope: book.salt(book.namespace("a", scope)) for scope in ("", "b", "c")}
    assert book.purge("a", "b") == book.namespace("a", "b") == Namespace("a", "b", 1)
    assert [scope for scope in before if book.salt(book.namespace("a", scope)) != before[scope]] == ["b"]
    book.follow({("a", "b"): 1, ("a", "c"): 0})  # where it is already
    book.follow({("a", "b"): 0})
    assert (told, book.epochs()) == ([("a", "b")], {("a", "b"): 1})
    assert Namespace("a", "b", 4).next() == Namespace("a", "b", 5)


def test_a_short_secret_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="openssl rand"):
        SaltBook(b"short")
    with pytest.raises(ValueError, match="31 bytes"):
        cache_salt(b"x" * 31, Namespace("a"))
