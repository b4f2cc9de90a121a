"""Whose blocks an edit makes stale."""

from foretype_backend.prefix.chain import Span
from foretype_backend.prefix.invalidation import DOCUMENTS_MAX, EndedUse, LastPrompts

SPANS = {
    b"other": (Span("b.py", 1, 0, 40),),
    b"both": (Span("b.py", 1, 40, 50), Span("a.py", 1, 0, 6)),
    b"head": (Span("a.py", 1, 6, 20),),
    b"tail": (Span("a.py", 1, 20, 33),),
}
CHAIN = tuple(SPANS)


def prompts() -> LastPrompts:
    return LastPrompts(lambda key: SPANS.get(key, ()))


def ended(*keys: bytes, session: str = "s", document: str = "a.py") -> list[EndedUse]:
    return [EndedUse(key, (session, document)) for key in keys]


def test_an_edit_ends_the_use_of_what_holds_it_and_of_all_behind():
    for start, stale in [(33, ()), (32, (b"tail",)), (20, (b"tail",)), (19, (b"head", b"tail")), (0, CHAIN[1:])]:
        last = prompts()
        last.place("s", "a.py", CHAIN)
        assert last.edited("s", "a.py", start) == ended(*stale)
        assert last.edited("s", "a.py", 0) == ended(*(key for key in CHAIN[1:] if key not in stale)), "and only once"


def test_another_file_that_stands_in_a_prompt_ends_it_from_there_on():
    last = prompts()
    last.place("s", "a.py", CHAIN)
    assert last.edited("s", "b.py", 45) == ended(*CHAIN[1:])
    assert last.edited("s", "c.py", 0) == []


def test_it_ends_one_sessions_use_in_each_of_its_prompts():
    last = prompts()
    last.place("s", "a.py", CHAIN)
    last.place("s", "b.py", CHAIN[:1])
    last.place("colleague", "a.py", CHAIN)
    assert last.edited("s", "b.py", 0) == ended(*CHAIN) + ended(b"other", document="b.py")
    assert last.left("colleague") == ended(*CHAIN, session="colleague")
    assert len(last) == 1


def test_the_next_prompt_keeps_what_it_shares_with_the_last():
    last = prompts()
    assert last.place("s", "a.py", CHAIN) == []
    assert last.place("s", "a.py", (b"other", b"new")) == ended(b"both", b"head", b"tail")
    assert last.closed("s", "a.py") == ended(b"other", b"new")
    assert last.closed("s", "a.py") == []


def test_the_oldest_of_too_many_documents_is_closed():
    last = prompts()
    for at in range(DOCUMENTS_MAX):
        assert last.place("s", f"{at}.py", (b"head",)) == []
    assert last.place("s", "one more.py", (b"head",)) == ended(b"head", document="0.py")


def test_a_purge_ends_a_prompt_without_a_word():
    last = prompts()
    last.place("s", "a.py", CHAIN)
    last.purged("s", "a.py")
    last.purged("s", "gone.py")
    assert last.edited("s", "a.py", 0) == last.closed("s", "a.py") == []
