import random
from collections.abc import Iterator

import numpy as np
import pytest
from foretype_retrieval.chunks import Chunk
from foretype_retrieval.definitions import ChunkKind
from foretype_retrieval.index import Index
from foretype_retrieval.segment import FileEntry, build
from foretype_retrieval.view import Key, View
from hypothesis import example, given, settings
from hypothesis import strategies as st

WORDS = [f"word{chr(97 + at // 26)}{chr(97 + at % 26)}" for at in range(60)]


def entry(path: str, texts: list[str]) -> FileEntry:
    """A file of one definition for each text, whose first word names it."""
    chunks = [
        Chunk(ChunkKind.FUNCTION, text.split()[0], 10 * at, 10 * at + 9, at, text, text)
        for at, text in enumerate(texts)
    ]
    vectors = np.array([[len(text) % 7, 1.0] for text in texts], np.float16).reshape(len(texts), 2)
    return FileEntry(path, 1, 1, chunks, vectors)


def places(view: View, chunks: np.ndarray) -> list[tuple[str, int]]:
    return sorted(key[:2] for key in view.keys(chunks))


def every_score(view: View, scores: np.ndarray) -> Iterator[tuple[float, Key]]:
    """As anybody would: each chunk that scores anything, its score as it is compared."""
    for chunk in np.flatnonzero(scores > 1e-4):
        yield float(np.round(scores[chunk], 4)), view.keys(np.array([chunk]))[0]


@pytest.fixture(scope="module")
def large() -> View:
    """More chunks than the columns that are looked at first, many of them alike."""
    rng = random.Random(1)
    files = [
        entry(f"f{number:03}.py", [" ".join(rng.choices(WORDS, k=rng.choice([2, 2, 5]))) for _ in range(9)])
        for number in range(400)
    ]
    return Index(build(files, 2)).view()


@pytest.mark.parametrize("limit", [1, 7, 32, 500])
def test_the_best_by_words_are_those_of_a_look_at_every_chunk(large: View, limit: int) -> None:
    for words in (WORDS[:3], WORDS[10:11], WORDS[20:50], ["nowhere"]):
        scores = large.word_scores(dict.fromkeys(words, 1.0))
        expected = sorted(every_score(large, scores), key=lambda one: (-one[0], one[1]))[:limit]
        chunks, best = large.best(scores, limit)
        assert large.ranking(chunks, best, limit) == expected


def test_a_score_is_that_of_its_formula(large: View) -> None:
    word, weight = WORDS[4], 2.0
    scores = large.word_scores({word: weight})
    lists = large.holding([word], 10_000)
    holding = np.flatnonzero(scores)
    assert {key[0] for key in large.keys(holding)} == set(lists)
    mean = sum(len(large.found(key, 0.0).text.split()) for key in large.keys(np.arange(large.count))) / large.count + 3
    rarity = np.log1p((large.count - len(holding) + 0.5) / (len(holding) + 0.5))
    for chunk in holding[:50].tolist():
        words = large.found(large.keys(np.array([chunk]))[0], 0.0).text.split()
        # Its name counts three times more, and the words of its file's name once.
        times = words.count(word) + 3 * (words[0] == word)
        terms = len(words) + 3
        length = 1.2 * (1 - 0.6 + 0.6 * terms / mean)
        assert scores[chunk] == pytest.approx(weight * 2.2 * rarity * times / (times + length), rel=1e-4)


def test_the_rarest_words_alone_count() -> None:
    # The word at 0 stands in one text, that at 39 in forty: of seventeen the most frequent is left out, and no other.
    texts = [" ".join(WORDS[at:40]) for at in range(40)]
    fresh = Index(build([entry("a.py", texts)], 2)).view()
    terms = dict.fromkeys(WORDS[23:40], 1.0)
    scores = fresh.word_scores(terms)
    np.testing.assert_array_equal(scores, fresh.word_scores(dict.fromkeys(WORDS[23:39], 1.0)))
    assert (scores != fresh.word_scores(dict.fromkeys(WORDS[23:38], 1.0))).any()
    # The most frequent is the rarest when what held it is gone.
    index = Index(build([entry("a.py", texts), entry("b.py", [WORDS[23]] * 17)], 2))
    index.update([], ["b.py"])
    np.testing.assert_array_equal(index.view().word_scores(terms)[:40], scores)


def test_cosines_are_those_of_the_rows_in_every_part() -> None:
    index = Index(build([entry("a.py", ["one", "two words"])], 2))
    index.update([entry("b.py", ["three of them"])])
    vector = np.array([0.6, 0.8], np.float32)
    lengths = np.array([len("one") % 7, len("two words") % 7, len("three of them") % 7])
    np.testing.assert_allclose(index.view().cosines(vector, np.arange(3)), 0.6 * lengths + 0.8, atol=1e-4)


texts = st.lists(st.lists(st.sampled_from(WORDS[:4]), min_size=1, max_size=2).map(" ".join), min_size=0, max_size=25)
histories = st.lists(
    st.dictionaries(st.sampled_from(["a.py", "b.py", "c/d.py", "z.py"]), texts, max_size=3), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(histories, st.integers(1, 12))
@example([{"z.py": [WORDS[0]] * 3}, {"a.py": [WORDS[0]] * 3}], 4)
def test_what_is_alike_is_settled_as_in_a_fresh_index(history: list[dict[str, list[str]]], limit: int) -> None:
    index, now = Index(dimensions=2), dict[str, list[str]]()
    for changed in history:
        index.update([entry(path, found) for path, found in changed.items()])
        now |= changed
    view, fresh = index.view(), Index(build([entry(path, found) for path, found in now.items()], 2)).view()
    terms = {WORDS[0]: 1.0, WORDS[1]: 2.0}
    scores, expected = view.word_scores(terms), fresh.word_scores(terms)
    assert places(view, view.best(scores, limit)[0]) == places(fresh, fresh.best(expected, limit)[0])
    vector = np.array([0.6, 0.8], np.float32)
    assert places(view, view.by_vector(vector, limit)[0]) == places(fresh, fresh.by_vector(vector, limit)[0])
    inside = [one.best_inside(_files(one), found, limit) for one, found in ((view, scores), (fresh, expected))]
    assert places(view, inside[0]) == places(fresh, inside[1])
    assert len(inside[0]) == min(limit, sum(len(now.get(path, [])) for path in ("a.py", "z.py")))
    names = WORDS[:5]
    ours, theirs = view.definitions(names, limit), fresh.definitions(names, limit)
    few = theirs.counts <= limit
    assert places(view, ours.chunks) == places(fresh, theirs.chunks)
    assert (ours.counts[few] == theirs.counts[few]).all() and (ours.counts[~few] > limit).all()
    assert (np.bincount(ours.names, minlength=5)[few] == ours.counts[few]).all()
    found = {key[:2]: names[name] for key, name in zip(view.keys(ours.chunks), ours.names.tolist(), strict=True)}
    assert all(now[path][start // 10].split()[0] == name for (path, start), name in found.items())
    assert view.holding([WORDS[0], WORDS[1]], 9) == fresh.holding([WORDS[0], WORDS[1]], 9)


def _files(view: View) -> np.ndarray:
    return np.array(sorted(view.file(path) for path in ("a.py", "z.py") if view.file(path) >= 0), np.int64)


def test_a_file_that_is_gone_has_no_number() -> None:
    index = Index(build([entry("a.py", ["one two"]), entry("b.py", ["one"])], 2))
    index.update([entry("a.py", ["three"])], ["b.py"])
    view = index.view()
    assert view.file("b.py") == view.file("never.py") == -1
    assert view.paths(np.array([view.file("a.py")])) == ["a.py"]
    assert [view.found(key, 0.0).text for key in view.keys(view.definitions(["one", "three"], 9).chunks)] == ["three"]
