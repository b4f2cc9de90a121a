import random

import numpy as np
import pytest
from foretype_lab.corpus import duplicates


def text(words: list[str]) -> str:
    return " ".join(words)


def test_windows_are_equal_exactly_where_their_tokens_are() -> None:
    draw = random.Random(1)
    words = [draw.choice("abcdefghij") for _ in range(400)]
    tokens = duplicates.lexical_tokens(text(words))
    hashes = duplicates.windows(tokens, 4)
    assert hashes.shape == (397,)
    by_words: dict[tuple[str, ...], int] = {}
    for at, value in enumerate(hashes.tolist()):
        assert by_words.setdefault(tuple(words[at : at + 4]), value) == value
    assert len(set(by_words.values())) == len(by_words)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_texts_shorter_than_a_window_have_none(count: int) -> None:
    assert len(duplicates.windows(duplicates.lexical_tokens(text(["x"] * count)), 4)) == 0


def test_the_signature_estimates_jaccard_similarity() -> None:
    draw = random.Random(2)
    words = [f"w{draw.randrange(100_000)}" for _ in range(3000)]
    changed = words[:1500] + [f"v{n}" for n in range(500)] + words[2000:]
    first, second = (duplicates.lexical_tokens(text(each)) for each in (words, changed))
    one, two = (set(duplicates.windows(each, 5).tolist()) for each in (first, second))
    exact = len(one & two) / len(one | two)
    estimate = float(np.count_nonzero(duplicates.signature(first) == duplicates.signature(second))) / 64
    assert abs(exact - estimate) < 0.15


def test_the_index_finds_what_is_alike_and_only_that() -> None:
    draw = random.Random(3)
    words = [f"w{draw.randrange(100_000)}" for _ in range(2000)]
    nearly = [*words[:-40], *(f"n{n}" for n in range(40))]
    half = [*words[:1000], *(f"h{n}" for n in range(1000))]
    index = duplicates.NearIndex(0.8)
    index.add("original", duplicates.signature(duplicates.lexical_tokens(text(words))))
    assert index.similar(duplicates.signature(duplicates.lexical_tokens(text(nearly)))) == "original"
    assert index.similar(duplicates.signature(duplicates.lexical_tokens(text(half)))) is None
