import tracemalloc

import numpy as np
import pytest
from foretype_retrieval import merging
from foretype_retrieval.chunks import Chunk
from foretype_retrieval.definitions import ChunkKind
from foretype_retrieval.merging import Merged
from foretype_retrieval.segment import ARRAYS, FileEntry, IndexSegment, build
from hypothesis import given, settings
from hypothesis import strategies as st

WORDS = ["alpha", "beta", "gamma", "delta", "é", "omega"]


def entry(path: str, words: tuple[str, ...]) -> FileEntry:
    chunks = [
        Chunk(ChunkKind.FUNCTION, word, at, at + 1, at, f"{word}\n", f"{word} {' '.join(words)} {path}")
        for at, word in enumerate(words)
    ]
    vectors = np.full((len(chunks), 3), len(path), np.float16)
    return FileEntry(path, len(words), len(path), chunks, vectors)


files = st.dictionaries(
    st.sampled_from([f"{folder}{name}.py" for folder in ("", "a/", "é/") for name in "abcd"]),
    st.lists(st.sampled_from(WORDS), max_size=3, unique=True).map(tuple),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(files, min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 6))
def test_what_is_alive_in_several_segments_is_what_a_fresh_one_holds_however_small_the_pieces(
    parts: list[dict[str, tuple[str, ...]]], rows: int, postings: int
) -> None:
    latest = {path: at for at, part in enumerate(parts) for path in part}
    segments = [build([entry(path, words) for path, words in part.items()], 3) for part in parts]
    alive = [np.array([latest[path] == at for path in one.paths], np.bool_) for at, one in enumerate(segments)]
    expected = build([entry(path, parts[at][path]) for path, at in latest.items()], 3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merging, "_ROWS", rows)
        patched.setattr(merging, "_POSTINGS", postings)
        merged = Merged(list(zip(segments, alive, strict=True)))
        found = merged.segment()
    assert merged.shapes == expected.shapes == found.shapes
    for name in ARRAYS:
        np.testing.assert_array_equal(found.arrays[name], expected.arrays[name], err_msg=name)


def large(first: int) -> IndexSegment:
    """Two thousand chunks, of which every second one goes to another segment's files: nothing lies in one run."""
    entries: list[FileEntry] = []
    for at in range(first, 4_000, 2):
        text = "\n".join(f"line {line} of {at}" for line in range(20))
        words = " ".join(f"word{'abcdefghij'[at * one % 10]}{'abcdefghij'[one % 10]}" for one in range(60))
        chunk = Chunk(ChunkKind.FUNCTION, f"name_{at}", 0, 9, 0, text, words)
        entries.append(FileEntry(f"f{at:04}.py", 1, 1, [chunk], np.zeros((1, 240), np.float16)))
    return build(entries, 240)


def test_pieces_are_made_without_the_whole_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_ROWS", 200)
    monkeypatch.setattr(merging, "_POSTINGS", 2_000)
    segments = [large(0), large(1)]
    parts = [(segment, np.ones(segment.file_count, np.bool_)) for segment in segments]
    for segment in segments:
        segment.prepare()
    tracemalloc.start()
    try:
        merged = Merged(parts)
        most_bytes = sum(piece.nbytes for _, piece in merged.pieces())
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes > 3_500_000
    assert peak_bytes < most_bytes / 2, "what orders files, chunks and terms is held, and one piece"
