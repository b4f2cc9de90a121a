import pytest
from foretype_client.flow.cache import CachedAnswer, CompletionCache
from foretype_client.flow.strands import Place, Strand
from foretype_context.prompt.profile import Profile
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.syntax.document import Document
from foretype_wire.messages import Finish
from hypothesis import given
from hypothesis import strategies as st

PROFILE = Profile(model="m", grammar="foretype-1", tokenizer_digest="00")


def at(text: str, uri: str = "file:///a.py", profile: Profile = PROFILE) -> Place:
    offset = text.index("|")
    return Place.of(Document(uri, text.replace("|", "", 1), language="plaintext").snapshot(), offset, profile)


def entry(text: str, generated: str, *, id: str = "r1", finish: Finish = Finish.END_OF_MIDDLE) -> CachedAnswer:
    return CachedAnswer(id, Strand(at(text), generated), SuggestionKind.LINE, finish)


def holding(*entries: CachedAnswer) -> CompletionCache:
    cache = CompletionCache()
    for one in entries:
        cache.put(one)
    return cache


def rest(cache: CompletionCache, text: str) -> str | None:
    hit = cache.get(at(text))
    return None if hit is None else hit.rest


WHOLE, CUT = Finish.END_OF_MIDDLE, Finish.CANCELLED


@pytest.mark.parametrize(
    ("asked", "said", "finish", "place", "left"),
    [
        # Typing through finds what is left.
        ("x = |\ny", "foo(a)", WHOLE, "x = |\ny", "foo(a)"),
        ("x = |\ny", "foo(a)", WHOLE, "x = fo|\ny", "o(a)"),
        ("x = |\ny", "foo(a)", WHOLE, "x = foo(|)\ny", "a)"),
        ("x = |\ny", "foo(a)", WHOLE, "x = b|\ny", None),
        ("x = |\ny = 1", "foo()", WHOLE, "x = |\ny = 2", None),  # the same prefix, another suffix
        # After accepting, Enter and the indentation the rest of the stream is there.
        ("def f():|\n", "\n    a = 1\n    b = 2\n    return a", WHOLE, "def f():\n    a = 1\n    b = 2\n    |\n", "return a"),
        # Where the model said nothing, that is known; of one that was cut short it is no answer.
        ("done|", "", WHOLE, "done|", ""),
        ("done|", "", WHOLE, "done |", None),
        ("x|", "", CUT, "x|", None),
        ("x|", " = 1", WHOLE, "x = 1|", None),  # its end was never asked about
    ],
)  # fmt: skip
def test_what_is_left_of_an_answer_at_a_place(
    asked: str, said: str, finish: Finish, place: str, left: str | None
) -> None:
    assert rest(holding(entry(asked, said, finish=finish)), place) == left


def test_hits_and_misses_are_counted() -> None:
    cache = holding(entry("x|", "foo", id="text"), entry("y|", "", id="nothing"))
    for text in ("x|", "xf|", "y|", "z|"):
        cache.get(at(text))
    assert cache.statistics()[2:] == (3, 1, 0)


def test_the_newest_answer_wins() -> None:
    cache = holding(entry("x|", "= foo", id="old"), entry("x |", "= bar", id="new"))
    assert rest(cache, "x|") == "= foo"
    cache.put(entry("x|", " = bar", id="newer"))
    assert rest(cache, "x|") == " = bar"


def test_a_longer_answer_at_the_same_place_replaces_the_shorter() -> None:
    cache = holding(entry("x|", " = 1", id="short"), entry("x|", " = 1\ny = 2", id="long"))
    assert cache.statistics().entries == 1
    assert rest(cache, "x|") == " = 1\ny = 2"


def test_an_answer_that_was_cut_short_does_not_replace_more_of_the_same() -> None:
    cache = holding(entry("x|", " = 1\ny = 2", id="whole"), entry("x|", " = 1", id="cut", finish=Finish.CANCELLED))
    assert rest(cache, "x|") == " = 1\ny = 2"


def test_the_least_recently_used_entry_leaves_first_and_wholly() -> None:
    cache = CompletionCache(entries_max=2)
    cache.put(entry("a|", "1\n2\n3", id="a"))
    cache.put(entry("b|", "1\n2\n3", id="b"))
    assert rest(cache, "a|") == "1\n2\n3"
    cache.put(entry("c|", "1", id="c"))
    assert rest(cache, "b|") is None
    assert rest(cache, "a|") == "1\n2\n3"
    statistics = cache.statistics()
    assert (statistics.entries, statistics.evicted, statistics.rows) == (2, 1, 3)


@pytest.mark.parametrize(
    ("kept", "finish", "place", "known"),
    [
        ("foo()", Finish.END_OF_MIDDLE, "x|", True),
        ("foo()", Finish.CANCELLED, "xfo|", True),
        ("foo()", Finish.END_OF_MIDDLE, "xfoo()|", False),
        ("", Finish.END_OF_MIDDLE, "x|", True),
        ("", Finish.CANCELLED, "x|", False),
        ("", Finish.END_OF_MIDDLE, "x |", False),
        ("foo()", Finish.END_OF_MIDDLE, "y|", False),
    ],
)
def test_what_it_would_answer_is_known_and_counts_as_no_use(kept: str, finish: Finish, place: str, known: bool) -> None:
    cache = holding(entry("x|", kept, finish=finish))
    assert cache.knows(at(place)) is known
    assert (cache.statistics().hits, cache.statistics().misses) == (0, 0)
    assert (cache.get(at(place)) is not None) is known


def test_a_cache_needs_room() -> None:
    with pytest.raises(ValueError, match="entries_max"):
        CompletionCache(entries_max=0)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.text(alphabet="xy\n ", max_size=6)), max_size=20),
    st.integers(min_value=1, max_value=4),
)
def test_rows_never_outlive_their_entries(puts: list[tuple[str, str]], entries_max: int) -> None:
    cache = CompletionCache(entries_max=entries_max)
    for number, (left, generated) in enumerate(puts):
        cache.put(entry(f"{left}|", generated, id=str(number)))
        assert cache.statistics().entries <= entries_max
        newest = rest(cache, f"{left}|")
        assert newest == generated
    held = {row.key for e in cache._entries.values() for row in e.strand.rows}
    assert held == set(cache._rows)
