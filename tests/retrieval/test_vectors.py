import numpy as np
from foretype_retrieval.vectors import EXACT_CHUNKS, VectorPart, build_faiss, widened


def rows(count: int) -> np.ndarray:
    # Clustered, as source is: noise around some hundred directions.
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, 32))
    made = centres[rng.integers(0, 200, count)] + 0.4 * rng.normal(size=(count, 32))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float16)


def test_a_small_part_is_searched_exactly() -> None:
    vectors = rows(500)
    chunks, scores = VectorPart(vectors).nearest(vectors[7].astype(np.float32), np.ones(500, np.bool_), 5)
    exact = vectors.astype(np.float32) @ vectors[7].astype(np.float32)
    assert chunks[0] == 7 and set(np.argsort(-exact)[:5]) <= set(chunks.tolist())
    assert (np.diff(scores) <= 0).all()


def test_the_dead_are_never_found_in_either_form() -> None:
    vectors = rows(EXACT_CHUNKS + 100)
    alive = np.ones(len(vectors), np.bool_)
    alive[:3000] = False
    for part in (VectorPart(vectors[:500]), VectorPart(vectors)):
        part.prepare()
        chunks, _ = part.nearest(vectors[7].astype(np.float32), alive[: len(part)], 10)
        assert 7 not in chunks


def test_a_large_part_finds_nearly_what_an_exact_search_finds() -> None:
    vectors = rows(EXACT_CHUNKS + 2000)
    part, alive = VectorPart(vectors), np.ones(len(vectors), np.bool_)
    part.prepare()
    hits = 0
    for at in range(0, 1000, 20):
        query = vectors[at].astype(np.float32)
        exact = set(np.argsort(-(vectors.astype(np.float32) @ query))[:10].tolist())
        hits += len(exact & set(part.nearest(query, alive, 10)[0].tolist()))
    assert hits / 500 > 0.9


def test_the_stored_form_answers_alike_and_is_the_same_each_time() -> None:
    vectors = rows(EXACT_CHUNKS + 50)
    made = build_faiss(vectors)
    np.testing.assert_array_equal(made, build_faiss(vectors))
    part, other = VectorPart(vectors), VectorPart(vectors)
    part.attach(made)
    other.prepare()
    alive, query = np.ones(len(vectors), np.bool_), vectors[3].astype(np.float32)
    np.testing.assert_array_equal(part.nearest(query, alive, 5)[0], other.nearest(query, alive, 5)[0])


def test_who_is_dead_costs_the_living_no_neighbours() -> None:
    """A filter that is handed to FAISS would look at one list of all (`findings/filter-forgets-probes.sh`)."""
    vectors = np.random.default_rng(0).normal(
        size=(EXACT_CHUNKS + 2000, 32)
    )  # no clusters: neighbours lie in many lists
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    part = VectorPart(vectors)
    part.prepare()
    all_alive, some_alive = np.ones(len(vectors), np.bool_), np.ones(len(vectors), np.bool_)
    some_alive[::10] = False

    def hits(alive: np.ndarray) -> int:
        found = 0
        for at in range(1, 1000, 20):
            query = vectors[at].astype(np.float32)
            exact = np.argsort(-np.where(alive, vectors.astype(np.float32) @ query, -2.0))[:10]
            found += len(set(exact.tolist()) & set(part.nearest(query, alive, 10)[0].tolist()))
        return found

    assert hits(some_alive) > 0.95 * hits(all_alive)


def test_a_vector_unlike_those_before_it_is_kept_as_it_is() -> None:
    """Codes of eight bits would be clipped to the range of those they were trained with."""
    vectors = rows(2 * EXACT_CHUNKS)  # so many that every second one is left out of the training, the last among them
    vectors[-1] = 0.0
    vectors[-1, 0] = 1.0  # all of it in one dimension, where others have a fifth
    part = VectorPart(vectors)
    part.prepare()
    chunks, scores = part.nearest(vectors[-1].astype(np.float32), np.ones(len(vectors), np.bool_), 1)
    assert chunks.tolist() == [len(vectors) - 1] and abs(scores[0] - 1.0) < 1e-3


def test_a_vector_that_is_no_number_is_in_no_list_and_costs_no_other() -> None:
    vectors = rows(2 * EXACT_CHUNKS)
    vectors[9] = np.nan  # not among every second one, which the lists' centres are made of
    part = VectorPart(vectors)
    part.prepare()
    assert part.nearest(vectors[7].astype(np.float32), np.ones(len(vectors), np.bool_), 3)[0][0] == 7


def test_halves_are_widened_to_the_same_numbers() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].reshape(-1, 2)
    np.testing.assert_array_equal(widened(halves).view(np.int32), halves.astype(np.float32).view(np.int32))
