import contextlib
import os
import resource
import signal
import stat
import tracemalloc
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from foretype_retrieval.errors import (
    AbsentIndexError,
    BusyIndexError,
    DamagedIndexError,
    OutdatedIndexError,
    UnsavedIndexError,
    UnusableIndexError,
)
from foretype_retrieval.index import FileState, Index
from foretype_retrieval.indexing import make_entry
from foretype_retrieval.segment import ARRAYS, FileEntry, IndexSegment, build
from foretype_retrieval.store import folder_of, load, put_aside, save, writing
from foretype_retrieval.vectors import EXACT_CHUNKS, build_faiss
from hypothesis import given, settings
from hypothesis import strategies as st


def segment(count: int = 3) -> IndexSegment:
    text = "def parse_header(line):\n    return line\n\n\nclass Größe:\n    pass\n"
    return build([make_entry(f"f{number}.py", text, FileState(7, number), None) for number in range(count)], 0)


def large_segment() -> IndexSegment:
    """So many chunks that their vectors get a FAISS index."""
    rng = np.random.default_rng(0)
    text = "def parse_header(line):\n    return line\n" + "    # so that there is something to hold\n" * 20
    chunks = make_entry("f.py", text, FileState(7, 1), None).chunks
    count = EXACT_CHUNKS + 100
    return build(
        [FileEntry(f"f{at}.py", 7, at, chunks, rng.normal(size=(1, 32)).astype("f2")) for at in range(count)], 32
    )


@contextlib.contextmanager
def no_file_above(size_bytes: int) -> Generator[None]:
    """What a full disk says, of any file that grows beyond this."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    saved = segment()
    size = save(tmp_path / "i", saved, "digest")
    stored = load(tmp_path / "i", "digest")
    assert stored.size_bytes == size
    for name in ARRAYS:
        np.testing.assert_array_equal(stored.segment.arrays[name], saved.arrays[name], err_msg=name)


def test_an_empty_index_can_be_stored(tmp_path: Path) -> None:
    save(tmp_path, build([], 0), "")
    assert len(Index(load(tmp_path, "").segment)) == 0


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    save(tmp_path / "i", segment(), "")
    assert stat.S_IMODE((tmp_path / "i").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "i").iterdir()} == {0o600}


def test_an_absent_index_says_so(tmp_path: Path) -> None:
    with pytest.raises(AbsentIndexError):
        load(tmp_path, "")


def test_an_index_of_another_embedder_is_outdated(tmp_path: Path) -> None:
    save(tmp_path, segment(), "one")
    with pytest.raises(OutdatedIndexError, match="embedder"):
        load(tmp_path, "other")


def test_an_older_format_is_outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, segment(), "")
    monkeypatch.setattr("foretype_retrieval.store.FORMAT", 99)
    with pytest.raises(OutdatedIndexError, match="format"):
        load(tmp_path, "")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_any_changed_byte_that_matters_is_found(
    tmp_path_factory: pytest.TempPathFactory, where: int, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    saved = segment()
    save(folder, saved, "")
    path = folder / "index.ftx"
    data = bytearray(path.read_bytes())
    data[where % len(data)] ^= flip
    path.write_bytes(data)
    try:
        stored = load(folder, "")
    except UnusableIndexError:
        return
    # Padding between arrays is the only part that may change unseen.
    for name in ARRAYS:
        np.testing.assert_array_equal(stored.segment.arrays[name], saved.arrays[name], err_msg=name)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_a_file_cut_short_is_damaged(tmp_path_factory: pytest.TempPathFactory, where: int) -> None:
    folder = tmp_path_factory.mktemp("short")
    save(folder, segment(), "")
    path = folder / "index.ftx"
    data = path.read_bytes()
    path.write_bytes(data[: where % (len(data) - 64)])
    with pytest.raises(DamagedIndexError):
        load(folder, "")


def test_a_full_disk_is_told_and_leaves_the_old_index(tmp_path: Path) -> None:
    save(tmp_path, segment(), "")
    before = sorted(path.name for path in tmp_path.iterdir())
    with no_file_above(1_000), pytest.raises(UnsavedIndexError, match="full"):
        save(tmp_path, segment(200), "")
    assert load(tmp_path, "").segment.file_count == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_disk_that_is_full_before_the_vectors_lists_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    made = large_segment()
    whole = save(tmp_path, made, "")
    lists = len(build_faiss(made.arrays["vectors"]))
    (tmp_path / "index.ftx").unlink()
    with no_file_above(whole - lists // 2), pytest.raises(UnsavedIndexError, match=r"disk is full.* MB are needed"):
        save(tmp_path, made, "")
    assert list(tmp_path.iterdir()) == []


def test_the_lists_of_vectors_are_those_that_are_made_in_memory(tmp_path: Path) -> None:
    made = large_segment()
    save(tmp_path, made, "")
    np.testing.assert_array_equal(load(tmp_path, "").faiss, build_faiss(made.arrays["vectors"]))


def test_a_save_that_is_broken_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foretype_retrieval.store.os.fsync", break_off)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, segment(), "")
    assert list(tmp_path.iterdir()) == []


def test_what_is_put_aside_is_the_same_and_has_no_name(tmp_path: Path) -> None:
    made = large_segment()
    aside = put_aside(tmp_path, made)
    assert aside is not made and aside.mapped is not None and list(tmp_path.iterdir()) == []
    for _ in range(2):
        for name in ARRAYS:
            np.testing.assert_array_equal(aside.arrays[name], made.arrays[name], err_msg=name)
        aside.let_go()


def test_what_is_small_or_finds_no_room_is_not_put_aside(tmp_path: Path) -> None:
    small, made = segment(), large_segment()
    assert put_aside(tmp_path, small) is small
    with no_file_above(100_000):
        assert put_aside(tmp_path, made) is made
    assert put_aside(tmp_path / "absent", made) is made
    assert list(tmp_path.iterdir()) == []


def test_a_save_holds_a_part_of_what_it_writes(tmp_path: Path) -> None:
    index = Index(dimensions=32)
    text = "def parse_header(line):\n    return line\n" + "    # so that there is something to hold\n" * 20
    chunks = make_entry("f.py", text, FileState(7, 1), None).chunks
    for first in range(3):
        rows = np.random.default_rng(first).normal(size=(6_000, 1, 32)).astype("f2")
        entries = [FileEntry(f"f{at * 3 + first}.py", 7, at, chunks, row) for at, row in enumerate(rows)]
        index.update(entries, put_aside=lambda made: put_aside(tmp_path, made))
    index.prepare()
    tracemalloc.start()
    try:
        size_bytes = save(tmp_path, index.merged(), "")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size_bytes > 16_000_000
    assert peak_bytes < size_bytes / 2, "FAISS holds its lists besides, which nobody here counts"
    assert len(Index(load(tmp_path, "").segment)) == 18_000


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnsavedIndexError, match="--cache-dir"):
        save(tmp_path / "file" / "index", segment(), "")
    with pytest.raises(UnsavedIndexError), writing(tmp_path / "file" / "index"):
        pass


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".index-killed").write_bytes(b"half")
    save(tmp_path, segment(), "")
    assert [path.name for path in tmp_path.iterdir()] == ["index.ftx"]


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with writing(tmp_path):
        child = os.fork()
        if child == 0:
            try:
                with writing(tmp_path):
                    os._exit(1)
            except BusyIndexError:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with writing(tmp_path):
        pass


def test_a_reader_keeps_its_index_while_it_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, segment(3), "")
    old = load(tmp_path, "").segment
    save(tmp_path, segment(50), "")
    assert old.paths == ["f0.py", "f1.py", "f2.py"] and old.text(0).startswith("def parse_header")
    assert load(tmp_path, "").segment.file_count == 50


def test_workspaces_have_folders_of_their_own_that_tell_nothing(tmp_path: Path) -> None:
    one, two = folder_of(tmp_path, Path("/secret/project")), folder_of(tmp_path, Path("/secret/project2"))
    assert one != two and "secret" not in str(one.relative_to(tmp_path))
