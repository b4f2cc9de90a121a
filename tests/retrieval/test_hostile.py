"""Workspaces that no well-meaning tool would make: huge, changing, unreadable, adversarial."""

import itertools
import logging
import os
import shutil
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from foretype_context.syntax.parsing import PARSE_STEPS, parse_bounded
from foretype_retrieval import scan as scanning
from foretype_retrieval.chunks import chunk_text
from foretype_retrieval.errors import DamagedIndexError, WorkspaceGoneError
from foretype_retrieval.indexing import open_index, update_workspace
from foretype_retrieval.scan import scan
from foretype_retrieval.search import query_of_words, search
from foretype_retrieval.static_embedder import default_embedder
from foretype_retrieval.store import FORMAT, load, save
from foretype_retrieval.vectors import build_faiss
from retrieval.workspace import FILES, defining, write_files


class Entry:
    """A directory entry of a tree that is too large to be made for a test."""

    def __init__(self, name: str, folder: bool) -> None:
        self.name = name
        self._folder = folder

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._folder

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return not self._folder

    def stat(self, *, follow_symlinks: bool = True) -> SimpleNamespace:
        return SimpleNamespace(st_size=100, st_mtime_ns=1)


def tree_of(folders: int, per_folder: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretends such a tree; returns the names of the folders as they are listed."""
    listed: list[str] = []

    def scandir(path: Path) -> Iterator[Entry]:
        listed.append(path.name)
        if path == root:
            return iter([Entry(f"pkg{number:03}", True) for number in range(folders)])
        return iter([Entry(f"module{number:03}.py", False) for number in range(per_folder)])

    monkeypatch.setattr(scanning.os, "scandir", scandir)
    return listed


def test_two_hundred_thousand_files_are_listed_with_every_folder_seen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tree_of(400, 500, tmp_path, monkeypatch)
    # What a name tells has its own tests; here it would be the cost.
    monkeypatch.setattr(scanning, "wanted", lambda path, size_bytes: True)
    pauses: list[None] = []
    found = scan(tmp_path, pause=lambda: pauses.append(None))
    assert len(found.files) == 200_000 and found.complete and len(listed) == len(set(listed)) == 401
    assert len(pauses) == 200_400 // 500  # a completion gets its turn this often


@pytest.mark.slow
def test_memory_of_a_scan_is_that_of_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree_of(10, 500, tmp_path, monkeypatch)
    scan(tmp_path)  # what is made once does not count
    peaks: list[int] = []
    for _ in range(3):  # a thread that an earlier test has not ended yet counts too, but not each time
        tracemalloc.start()
        try:
            assert len(scan(tmp_path).files) == 5_000
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # 400 bytes a file for path and state: 80 MB for 200,000 files.
    assert min(peaks) < 400 * 5_000 + 500_000


def test_an_index_stops_growing_and_says_how_many_files_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("foretype_retrieval.indexing.MAX_CHUNKS", 50)
    root = write_files(tmp_path / "w", {f"m{number:03}.py": f"def f{number}(): pass\n" for number in range(200)})
    with caplog.at_level(logging.WARNING):
        index, report = update_workspace(root, tmp_path / "i", None)
    assert len(index) == 51 and report.full == 149 and report.indexed == 51
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "149 files" in caplog.text


def test_a_full_index_is_written_again_only_for_what_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretype_retrieval.indexing.MAX_CHUNKS", 50)
    root = write_files(tmp_path / "w", {f"m{number:03}.py": f"def f{number}(): pass\n" for number in range(60)})
    update_workspace(root, tmp_path / "i", None)
    _, report = update_workspace(root, tmp_path / "i", None)
    assert (report.full, report.indexed, report.saved_bytes) == (9, 0, 0)
    # "a…" would be read before all others, and there is no room for it.
    write_files(root, {"a.py": "def late(): pass\n", "m050.py": "def renamed(): pass\n"})
    index, report = update_workspace(root, tmp_path / "i", None)
    assert (report.full, report.indexed, len(index)) == (10, 1, 51) and report.saved_bytes
    assert defining(index, "renamed") and not defining(index, "f50") and not defining(index, "late")
    # Files that are all read again take no room twice.
    for number in range(51):
        (root / f"m{number:03}.py").write_text(f"def again{number}(): pass\n")
    index, report = update_workspace(root, tmp_path / "i", None)
    assert (report.full, report.indexed, len(index)) == (10, 51, 51)


def test_a_file_of_a_hundred_megabytes_is_not_even_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    with (root / "big.py").open("wb") as stream:
        stream.truncate(100_000_000)
    opened: list[str] = []
    real = os.open

    def watched(path: object, *rest: object) -> int:
        opened.append(str(path))
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(scanning.os, "open", watched)
    index, report = update_workspace(root, tmp_path / "i", None)
    assert report.files == len(FILES) and "big.py" not in index.files()
    assert any(path.endswith("cart.py") for path in opened) and not any(path.endswith("big.py") for path in opened)


def test_a_tree_of_links_in_a_circle_ends(tmp_path: Path, root: Path) -> None:
    for name, target in (("a", "b"), ("b", "a"), ("self", "self"), ("up", ".."), ("shop/down", "..")):
        (root / name).symlink_to(target, target_is_directory=True)
    (root / "broken.py").symlink_to("nothing.py")
    _, report = update_workspace(root, tmp_path / "i", None)
    assert report.files == len(FILES) and report.unreadable == 0


def test_a_folder_that_cannot_be_listed_costs_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    real = os.scandir

    def scandir(path: Path) -> object:
        # Root reads everything, so that a mode would prove nothing here.
        if Path(path).name == "shop":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(scanning.os, "scandir", scandir)
    index, report = update_workspace(root, tmp_path / "i", None)
    assert report.unreadable == 1 and list(index.files()) == ["web/view.ts"]


def test_files_that_change_and_vanish_while_they_are_read(tmp_path: Path) -> None:
    root = write_files(tmp_path / "w", {f"m{number:02}.py": f"def old{number}(): pass\n" for number in range(60)})
    stop = threading.Event()

    def disturb() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            for number in range(0, 60, 3):
                path = root / f"m{number:02}.py"
                if turn % 2:
                    path.unlink(missing_ok=True)
                else:
                    path.write_text(f"def new{number}(): pass\n" * turn)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        for _ in range(5):
            update_workspace(root, tmp_path / "i", None)
    finally:
        stop.set()
        disturber.join()
    settled, _ = update_workspace(root, tmp_path / "i", None)
    fresh, _ = update_workspace(root, tmp_path / "j", None)
    assert settled.files() == fresh.files() and len(settled) == len(fresh)


def test_invalid_utf8_is_indexed_stored_and_found(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.py").write_bytes(b"# \xff\xfe\x80\ndef caf\xc3\xa9_price(x):\n    return '\xed\xa0\x80'\n")
    update_workspace(root, tmp_path / "i", default_embedder())
    opened = open_index(tmp_path / "i", default_embedder())
    hit = search(opened, query_of_words("café_price"), default_embedder(), limit=1)[0]
    assert hit.found.name == "café_price" and "�" in hit.found.text


@pytest.mark.parametrize("older", [0, FORMAT + 1])
def test_an_index_of_another_format_is_made_anew_with_one_line_of_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, older: int, root: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("foretype_retrieval.store.FORMAT", older)
        update_workspace(root, tmp_path / "i", None)
    with caplog.at_level(logging.INFO):
        _, report = update_workspace(root, tmp_path / "i", None)
    assert report.indexed == len(FILES)
    assert len(caplog.records) == 1 and f"format {older}" in caplog.text and "made anew" in caplog.text
    assert load(tmp_path / "i", "").segment.file_count == len(FILES)


@pytest.mark.parametrize("stored", [np.zeros(64, np.uint8), build_faiss(np.eye(16, 256, dtype=np.float16))])
def test_nearest_vectors_that_cannot_be_read_are_made_anew_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stored: np.ndarray
) -> None:
    """Their checksum is right: another FAISS wrote them, or they belong to other vectors."""
    root, embedder = write_files(tmp_path / "w"), default_embedder()
    with monkeypatch.context() as other:
        other.setattr("foretype_retrieval.store.EXACT_CHUNKS", 0)
        other.setattr("foretype_retrieval.store.write_faiss", lambda shape, rows, write: write(stored.tobytes()))
        update_workspace(root, tmp_path / "i", embedder)
    with pytest.raises(DamagedIndexError, match="FAISS"):
        open_index(tmp_path / "i", embedder)
    for again in (True, False):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            index, report = update_workspace(root, tmp_path / "i", embedder)
        assert bool(report.saved_bytes) is again and len(index) == 4
        assert sum("made anew" in record.message for record in caplog.records) == again == len(caplog.records)


def test_a_workspace_deleted_while_it_is_read_keeps_the_stored_index_whole(tmp_path: Path, root: Path) -> None:
    update_workspace(root, tmp_path / "i", None)
    write_files(root, {f"m{number}.py": "def f(): pass\n" for number in range(50)})
    index, report = update_workspace(
        root, tmp_path / "i", None, progress=lambda done: shutil.rmtree(root, ignore_errors=True)
    )
    assert report.removed == 0 and len(index.files()) < len(FILES) + 50
    open_index(tmp_path / "i", None)
    with pytest.raises(WorkspaceGoneError):
        update_workspace(root, tmp_path / "i", None)


def test_a_disk_that_fills_up_in_the_middle_leaves_the_old_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    update_workspace(root, tmp_path / "i", None)
    before = (tmp_path / "i" / "index.ftx").read_bytes()
    write_files(root, {"new.py": "def fresh(): pass\n"})

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("foretype_retrieval.store.os.fsync", full)
    index, report = update_workspace(root, tmp_path / "i", None)
    assert "disk is full" in report.problem and "MB are needed" in report.problem and "new.py" in index.files()
    assert (tmp_path / "i" / "index.ftx").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "i").iterdir()) == ["index.ftx", "lock"]


@pytest.mark.parametrize("language", ["c", "cpp", "csharp", "java", "ruby", "shellscript"])
def test_source_that_is_made_to_be_slow_is_given_up(language: str) -> None:
    # Each was found to keep its parser busy for 2 to 5 s, few progress calls apart.
    unit = {"shellscript": "x = lambda: (", "ruby": "a?b:a<b>c<"}.get(language, "/* ' \" ` ")
    ticks = itertools.count()
    hostile = unit * (60_000 // len(unit))
    assert parse_bounded(hostile.encode(), language, seconds=3, clock=lambda: next(ticks)) is None


def test_a_parser_gets_a_number_of_steps_and_no_more() -> None:
    text = b"".join(b"def f%d(a, b):\n    return [a, {b: (a,)}]\n" % number for number in range(2_000))
    assert parse_bounded(text, "python", steps=3) is None
    assert parse_bounded(text, "python", steps=PARSE_STEPS) is not None


def test_an_embedder_that_cannot_load_costs_the_vectors_alone(tmp_path: Path) -> None:
    root, said = write_files(tmp_path / "w"), list[str]()
    (tmp_path / "e.npz").write_bytes(b"no table")
    embedder = default_embedder(tmp_path / "e.npz", complain=said.append)
    update_workspace(root, tmp_path / "i", embedder)
    hits = search(open_index(tmp_path / "i", embedder), query_of_words("format currency"), embedder, limit=1)
    assert hits[0].found.name == "format_price" and len(said) == 1
    # When it can be loaded again, the index is made again, with vectors.
    index, report = update_workspace(root, tmp_path / "i", default_embedder())
    assert report.indexed == len(FILES) and index.dimensions > 0


def test_saving_twice_gives_equal_bytes(tmp_path: Path, root: Path) -> None:
    index, _ = update_workspace(root, tmp_path / "i", default_embedder())
    before = (tmp_path / "i" / "index.ftx").read_bytes()
    save(tmp_path / "i", index.merged(), default_embedder().digest)  # type: ignore[union-attr]
    assert (tmp_path / "i" / "index.ftx").read_bytes() == before


def test_a_large_file_is_named_whole_whatever_its_parse_left_over() -> None:
    # As many definitions as a parse of this size has steps: names must not depend on what is left of them.
    text = "".join(f"def function_{at}(value):\n    return value + {at}\n\n\n" for at in range(6_000))
    found = chunk_text(text, "python")
    assert [chunk.name for chunk in found] == [f"function_{at}" for at in range(len(found))]
    assert len(found) > 100
