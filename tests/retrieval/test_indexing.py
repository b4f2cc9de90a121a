import logging
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from foretype_retrieval.errors import IndexingCancelledError
from foretype_retrieval.indexing import IndexingProgress, open_index, refresh_file, update_workspace
from foretype_retrieval.search import query_of_words, search
from foretype_retrieval.segment import ARRAYS
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval.workspace import FILES, write_files


def names(index, words: str) -> list[str]:
    return [hit.found.name for hit in search(index, query_of_words(words), None, limit=5)]


def test_a_first_index_holds_every_file_and_is_stored(tmp_path: Path) -> None:
    root, seen = write_files(tmp_path / "w"), list[IndexingProgress]()
    index, report = update_workspace(root, tmp_path / "i", None, progress=seen.append)
    assert report.files == len(FILES) and report.indexed == len(FILES) and report.saved_bytes > 0
    assert set(open_index(tmp_path / "i", None).files()) == set(FILES) == set(index.files())
    assert seen[-1].files_done == seen[-1].files_total == len(FILES)


def test_nothing_changed_nothing_read_nothing_written(tmp_path: Path, root: Path) -> None:
    update_workspace(root, tmp_path / "i", None)
    stamp = (tmp_path / "i" / "index.ftx").stat().st_mtime_ns
    _, report = update_workspace(root, tmp_path / "i", None)
    assert (report.indexed, report.removed, report.saved_bytes) == (0, 0, 0)
    assert (tmp_path / "i" / "index.ftx").stat().st_mtime_ns == stamp


def test_only_what_changed_is_read_again(tmp_path: Path, root: Path) -> None:
    update_workspace(root, tmp_path / "i", None)
    write_files(
        root, {"shop/money.py": "def convert_price(amount):\n    return amount\n", "new.py": "def fresh(): pass\n"}
    )
    (root / "web" / "view.ts").unlink()
    index, report = update_workspace(root, tmp_path / "i", None)
    assert (report.indexed, report.removed, report.files) == (2, 1, 3)
    assert names(index, "convert price")[0] == "convert_price" and names(index, "format currency") == []


changes = st.lists(
    st.tuples(st.sampled_from(["a.py", "b/c.py", "b/d.js"]), st.one_of(st.none(), st.integers(0, 5))), max_size=8
)


@settings(max_examples=25, deadline=None)
@given(st.lists(changes, min_size=1, max_size=3))
def test_updates_of_the_stored_index_equal_a_fresh_one(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[tuple[str, int | None]]]
) -> None:
    folder = tmp_path_factory.mktemp("h")
    root = write_files(folder / "w")
    for number, round_ in enumerate(rounds):
        for path, version in round_:
            if version is None:
                (root / path).unlink(missing_ok=True)
            else:
                write_files(root, {path: f"def thing{version}(x):\n    return {version}\n" * version})
                os.utime(root / path, ns=(number * 10**9, number * 10**9 + version))
        updated, _ = update_workspace(root, folder / "i", None)
    fresh, _ = update_workspace(root, folder / "other", None)
    one, other = updated.merged().segment(), fresh.merged().segment()
    for name in ARRAYS:
        np.testing.assert_array_equal(one.arrays[name], other.arrays[name], err_msg=name)


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is a batch, and every batch is put aside."""
    monkeypatch.setattr("foretype_retrieval.indexing._BATCH_CHUNKS", 1)
    monkeypatch.setattr("foretype_retrieval.store._LARGE_CHUNKS", 1)


MANY = {f"m{at % 7}/f{at}.py": f"def name_{at}(value):\n    return value\n" for at in range(40)}


def test_an_index_of_many_batches_is_that_of_one_and_leaves_no_file(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = write_files(tmp_path / "w", MANY)
    update_workspace(root, tmp_path / "one", None)
    request.getfixturevalue("many_parts")
    index, _ = update_workspace(root, tmp_path / "many", None)
    assert (tmp_path / "many" / "index.ftx").read_bytes() == (tmp_path / "one" / "index.ftx").read_bytes()
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == ["index.ftx", "lock"]
    assert names(index, "name")[0] == "name_0" and set(index.files()) == set(MANY)


@pytest.mark.usefixtures("many_parts")
def test_where_what_was_put_aside_took_the_room_it_is_saved_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, tries = write_files(tmp_path / "w", MANY), list[int]()
    fsync = os.fsync

    def full_at_first(handle: int) -> None:
        with open("/proc/self/maps") as maps:
            tries.append(sum("(deleted)" in line and str(tmp_path) in line for line in maps))
        if tries[-1]:
            raise OSError(28, "No space left on device")
        fsync(handle)

    monkeypatch.setattr("foretype_retrieval.store.os.fsync", full_at_first)
    index, report = update_workspace(root, tmp_path / "i", None)
    assert len(tries) == 2 and tries[0] > 30 and report.saved_bytes and not report.problem
    assert set(open_index(tmp_path / "i", None).files()) == set(MANY) == set(index.files())


def test_a_saved_file_is_taken_in_and_a_deleted_one_forgotten(tmp_path: Path, root: Path) -> None:
    index, _ = update_workspace(root, tmp_path / "i", None)
    write_files(root, {"shop/money.py": "def convert_price(amount):\n    return amount\n"})
    updated = refresh_file(index, root, "shop/money.py", None)
    assert names(updated, "convert")[0] == "convert_price" and names(index, "convert") == []
    (root / "shop" / "money.py").unlink()
    assert "shop/money.py" not in refresh_file(updated, root, "shop/money.py", None).files()


@pytest.mark.parametrize("harm", [b"", b"no index at all", b"FTINDEX\0" + b"\xff" * 500])
def test_a_damaged_index_is_made_anew_with_one_line_of_log(
    tmp_path: Path, harm: bytes, caplog: pytest.LogCaptureFixture, root: Path
) -> None:
    update_workspace(root, tmp_path / "i", None)
    (tmp_path / "i" / "index.ftx").write_bytes(harm)
    with caplog.at_level(logging.INFO):
        index, report = update_workspace(root, tmp_path / "i", None)
    assert report.indexed == len(FILES) and len(index.files()) == len(FILES)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "made anew" in caplog.text


def test_cancelling_keeps_the_old_index(tmp_path: Path, root: Path) -> None:
    update_workspace(root, tmp_path / "i", None)
    before = (tmp_path / "i" / "index.ftx").read_bytes()
    write_files(root, {"new.py": "def fresh(): pass\n"})
    asked = iter(range(1000))
    with pytest.raises(IndexingCancelledError):
        # Late: the scan is over, and files are being read.
        update_workspace(root, tmp_path / "i", None, cancelled=lambda: next(asked) > 3)
    assert (tmp_path / "i" / "index.ftx").read_bytes() == before


def test_on_a_full_disk_the_index_goes_on_in_memory(tmp_path: Path, root: Path) -> None:
    (tmp_path / "i").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        index, report = update_workspace(root, tmp_path / "i", None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "disk is full" in report.problem and names(index, "format price")[0] == "format_price"
