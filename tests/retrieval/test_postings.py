import numpy as np
from foretype_retrieval.postings import chunks_and_counts, ends_of_terms, packed
from hypothesis import given
from hypothesis import strategies as st

posting = st.tuples(st.integers(0, 2**28 - 1), st.integers(0, 2**28 - 1), st.integers(1, 255))


@given(st.lists(posting, max_size=20, unique_by=lambda one: one[:2]))
def test_packed_postings_sort_by_term_and_chunk_and_lose_nothing(postings: list[tuple[int, int, int]]) -> None:
    columns = np.array(postings, np.int64).reshape(-1, 3).T
    numbers = packed(columns[0], columns[1], columns[2].astype(np.uint8))
    numbers.sort()
    chunks, counts = chunks_and_counts(numbers)
    expected = sorted(postings)
    assert list(zip(chunks.tolist(), counts.tolist(), strict=True)) == [one[1:] for one in expected]


def test_a_term_ends_where_the_next_one_begins() -> None:
    numbers = packed(np.array([0, 0, 2]), np.array([0, 7, 2**28 - 1]), np.array([1, 255, 1], np.uint8))
    assert ends_of_terms(numbers, 4).tolist() == [2, 2, 3, 3]
