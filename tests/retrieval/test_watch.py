"""A workspace while somebody works in it: texts that are not saved, git, and a user who does not want it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from foretype_retrieval import watch
from foretype_retrieval.index import Index
from foretype_retrieval.indexing import IndexingProgress, UpdateReport, make_entry, open_index, update_workspace
from foretype_retrieval.scan import Scan, read_source, scan
from foretype_retrieval.source import RetrievalSource, open_source
from foretype_retrieval.static_embedder import LazyEmbedder, default_embedder
from foretype_retrieval.store import folder_of
from foretype_retrieval.watch import IndexedFolder
from git_repo import git
from retrieval.workspace import FILES, defining, write_files
from waiting import wait_until


@contextmanager
def watching(root: Path, cache: Path, embedder: Any = None, **options: Any) -> Iterator[IndexedFolder]:
    one = IndexedFolder(root, cache, embedder or LazyEmbedder(), **options)
    one.start()
    try:
        yield one
    finally:
        one.close()


def defines(workspace: IndexedFolder, name: str) -> bool:
    return workspace.index is not None and bool(defining(workspace.index, name))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_POLL_S", 0.02)


@pytest.fixture
def workspace(root: Path, tmp_path: Path) -> Iterator[IndexedFolder]:
    with watching(root, tmp_path / "cache") as one:
        wait_until(lambda: one.index is not None and len(one.index) > 0)
        yield one


def test_an_unsaved_text_counts_and_its_file_again_when_it_is_closed(workspace: IndexedFolder, root: Path) -> None:
    workspace.edited("shop/cart.py", "def never_saved(): pass\n")
    wait_until(lambda: defines(workspace, "never_saved"))
    assert not defines(workspace, "Basket")
    workspace.touched("shop/cart.py")  # saved by somebody else: what is open still counts
    assert workspace.wait_idle(30) and defines(workspace, "never_saved")
    workspace.edited("shop/cart.py", None)
    wait_until(lambda: defines(workspace, "Basket") and not defines(workspace, "never_saved"))


def test_what_was_not_saved_is_never_stored(workspace: IndexedFolder, root: Path, tmp_path: Path) -> None:
    workspace.edited("new.py", "def never_saved(): pass\n")
    wait_until(lambda: defines(workspace, "never_saved"))
    write_files(root, {f"m{number}.py": f"def made{number}(): pass\n" for number in range(60)})
    git(root, "init", "-q")
    git(root, "add", ".")
    wait_until(lambda: defines(workspace, "made59"))
    assert defines(workspace, "never_saved")
    stored = open_index(folder_of(tmp_path / "cache", root), default_embedder())
    assert defining(stored, "made59") and not defining(stored, "never_saved")


def test_what_a_scan_leaves_out_is_left_out_open_or_saved_too(root: Path, tmp_path: Path) -> None:
    paths = (".env", "build/x.py", "ignored.py", "sub/ignored_too.py", ".hidden/x.py")
    hidden = {path: f"def hidden{number}(): pass\n" for number, path in enumerate(paths)}
    write_files(root, {".gitignore": "ignored.py\n", "sub/.gitignore": "*_too.py\n", **hidden})
    with watching(root, tmp_path / "cache") as workspace:
        wait_until(lambda: defines(workspace, "Basket"))
        for number, (path, text) in enumerate(hidden.items()):
            workspace.edited(path, text)
            workspace.touched(path)
            assert workspace.wait_idle(30) and not defines(workspace, f"hidden{number}"), path
            workspace.edited(path, None)
            assert workspace.wait_idle(30) and not defines(workspace, f"hidden{number}"), path


def test_a_private_key_in_an_open_document_is_not_indexed(workspace: IndexedFolder) -> None:
    workspace.edited("key.py", "KEY = '''\n-----BEGIN PRIVATE KEY-----\nabc\n'''\ndef hidden(): pass\n")
    assert workspace.wait_idle(30) and not defines(workspace, "hidden")


def test_a_pull_a_reset_and_a_restore_are_followed(tmp_path: Path) -> None:
    origin = write_files(tmp_path / "origin")
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "one")
    git(tmp_path, "clone", "-q", str(origin), "clone")
    root = tmp_path / "clone"
    with watching(root, tmp_path / "cache") as workspace:
        wait_until(lambda: defines(workspace, "Basket"))
        write_files(origin, {"shop/cart.py": "class Trolley: pass\n"})
        git(origin, "commit", "-qam", "two")
        head = (root / ".git" / "HEAD").stat().st_mtime_ns
        git(root, "pull", "-q", "--ff-only")
        assert (root / ".git" / "HEAD").stat().st_mtime_ns == head  # which alone would not tell
        wait_until(lambda: defines(workspace, "Trolley") and not defines(workspace, "Basket"))
        git(root, "reset", "-q", "--hard", "HEAD~1")
        wait_until(lambda: defines(workspace, "Basket") and not defines(workspace, "Trolley"))


def test_a_work_tree_has_its_git_elsewhere(root: Path, tmp_path: Path) -> None:
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    git(root, "checkout", "-q", "-b", "two")
    write_files(root, {"shop/cart.py": "class Trolley: pass\n"})
    git(root, "commit", "-qam", "two")
    git(root, "worktree", "add", "-q", "-f", "--detach", str(tmp_path / "tree"), "main")
    with watching(tmp_path / "tree", tmp_path / "cache") as workspace:
        wait_until(lambda: defines(workspace, "Basket"))
        git(tmp_path / "tree", "checkout", "-q", "--detach", "two")
        wait_until(lambda: defines(workspace, "Trolley"))


def test_a_folder_that_is_deleted_and_comes_back(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SCAN_EVERY_S", 0.1)
    with watching(root, tmp_path / "cache") as workspace:
        wait_until(lambda: defines(workspace, "Basket"))
        root.rename(tmp_path / "aside")
        wait_until(lambda: not defines(workspace, "Basket"))
        assert "not a folder" in workspace.status()
        workspace.edited("shop/cart.py", "def still_open(): pass\n")
        wait_until(lambda: defines(workspace, "still_open"))
        (tmp_path / "aside").rename(root)
        workspace.edited("shop/cart.py", None)
        wait_until(lambda: defines(workspace, "Basket") and "not a folder" not in workspace.status())


@pytest.mark.slow
def test_cancelling_a_first_index_leaves_what_is_edited_searchable(tmp_path: Path) -> None:
    root = write_files(tmp_path / "w", {f"m{number}.py": "def f(): pass\n" * 200 for number in range(1500)})
    seen: list[IndexingProgress | None] = []

    def tell(progress: IndexingProgress | None) -> None:
        seen.append(progress)
        if progress is not None and progress.files_done:
            workspace.cancel()

    with watching(root, tmp_path / "cache", on_progress=tell) as workspace:
        wait_until(lambda: "cancelled" in workspace.status())
        assert seen[0] == IndexingProgress(0, 0, 0) and seen[-1] is None
        workspace.edited("m1.py", "def mine(): pass\n")
        wait_until(lambda: defines(workspace, "mine"))
        assert workspace.index is not None and len(workspace.index.files()) == 1


def counted_work(monkeypatch: pytest.MonkeyPatch) -> tuple[list[UpdateReport], list[Path]]:
    """What the indexing process did, here and in turn, and the folders that were looked at: a hundred times a second."""
    runs: list[UpdateReport] = []
    scans: list[Path] = []

    def worker(root: Path, folder: Path, **_: object) -> UpdateReport:
        runs.append(update_workspace(root, folder, None)[1])
        return runs[-1]

    def counted(root: Path, *arguments: Any, **options: Any) -> Scan:
        scans.append(root)
        return scan(root, *arguments, **options)

    monkeypatch.setattr(watch, "run_worker", worker)
    monkeypatch.setattr(watch, "scan", counted)
    monkeypatch.setattr(watch, "_SCAN_EVERY_S", 0.01)
    return runs, scans


def test_a_full_index_is_not_made_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_files(tmp_path / "w", {f"m{number:03}.py": f"def f{number}(): pass\n" for number in range(120)})
    runs, scans = counted_work(monkeypatch)
    monkeypatch.setattr("foretype_retrieval.indexing.MAX_CHUNKS", 50)
    with watching(root, tmp_path / "cache", lambda: None) as workspace:
        wait_until(lambda: defines(workspace, "f50"))
        write_files(root, {"m010.py": "def renamed(): pass\n"})
        wait_until(lambda: defines(workspace, "renamed"))
        seen = len(scans)
        wait_until(lambda: len(scans) > seen + 3)
        assert len(runs) == 1 and "69 files are left out" in workspace.status()
        for number in range(50):
            (root / f"m{number:03}.py").unlink()
        wait_until(lambda: defines(workspace, "f100"))


def test_files_that_cannot_be_read_start_the_process_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_files(tmp_path / "w", {f"m{number:03}.py": f"def f{number}(): pass\n" for number in range(120)})
    runs, scans = counted_work(monkeypatch)

    def readable(root: Path, path: str) -> Any:
        return None if "m000.py" <= path < "m100.py" and (root / path).stat().st_size < 40 else read_source(root, path)

    monkeypatch.setattr("foretype_retrieval.indexing.read_source", readable)
    monkeypatch.setattr(watch, "read_source", readable)
    with watching(root, tmp_path / "cache", lambda: None) as workspace:
        wait_until(lambda: defines(workspace, "f110"))
        seen = len(scans)
        wait_until(lambda: len(scans) > seen + 3)
        assert len(runs) == 1
        write_files(root, {"m010.py": "def renamed(): pass\n" * 3})
        wait_until(lambda: defines(workspace, "renamed"))


def test_a_fault_costs_fresh_answers_and_no_more(
    workspace: IndexedFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "_AFTER_FAULT_S", 0.01)
    with monkeypatch.context() as broken:
        broken.setattr(watch, "make_entry", lambda *_: 1 / 0)
        workspace.edited("shop/cart.py", "def a(): pass\n")
        wait_until(lambda: "ZeroDivisionError" in workspace.status())
    assert defines(workspace, "Basket")
    workspace.edited("shop/cart.py", "def b(): pass\n")
    wait_until(lambda: defines(workspace, "b"))
    assert sum("ZeroDivisionError" in record.message for record in caplog.records) == 1


def test_a_fault_in_one_document_loses_no_text_and_delays_no_other(
    workspace: IndexedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_AFTER_FAULT_S", 0.05)
    faults: list[str] = []

    def make(path: str, *rest: Any) -> Any:
        if path == "shop/cart.py":
            faults.append(path)
            raise ZeroDivisionError
        return make_entry(path, *rest)

    with monkeypatch.context() as broken:
        broken.setattr(watch, "make_entry", make)
        workspace.edited("shop/cart.py", "def never_saved(): pass\n")
        wait_until(lambda: len(faults) > 1)
        workspace.edited("shop/money.py", "def another(): pass\n")
        wait_until(lambda: defines(workspace, "another"))
        assert not workspace.wait_idle(0) and "ZeroDivisionError" in workspace.status()
    wait_until(lambda: defines(workspace, "never_saved"))
    assert workspace.wait_idle(30) and "ZeroDivisionError" not in workspace.status()


def test_a_fault_that_is_nobodys_loses_no_text_either(
    workspace: IndexedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_AFTER_FAULT_S", 0.01)
    with monkeypatch.context() as broken:
        broken.setattr(Index, "prepare", lambda self: 1 / 0)
        workspace.edited("shop/cart.py", "def never_saved(): pass\n")
        wait_until(lambda: "ZeroDivisionError" in workspace.status())
    wait_until(lambda: defines(workspace, "never_saved"))


def test_many_open_texts_that_change_at_once_are_all_taken_in(
    workspace: IndexedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename over fifty open files: nothing of it is on disk, where a comparison would look."""
    begun, go_on = threading.Event(), threading.Event()

    def make(*arguments: Any) -> Any:
        begun.set()
        go_on.wait(60)
        return make_entry(*arguments)

    monkeypatch.setattr(watch, "make_entry", make)
    workspace.edited("shop/cart.py", "def first(): pass\n")
    assert begun.wait(60)
    for number in range(50):
        workspace.edited(f"new{number}.py", f"def never_saved{number}(): pass\n")
    go_on.set()
    assert workspace.wait_idle(60)
    assert all(defines(workspace, f"never_saved{number}") for number in range(50))


def test_a_comparison_does_not_miss_the_file_of_an_open_text(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty texts that were never saved: no process is started for them, and nothing is made anew."""
    scans: list[Path] = []
    runs: list[Path] = []
    now_s = 0.0

    def counted(root: Path, *arguments: Any, **options: Any) -> Scan:
        scans.append(root)
        return scan(root, *arguments, **options)

    def worker(root: Path, folder: Path, **_: object) -> UpdateReport:
        runs.append(root)
        return update_workspace(root, folder, None)[1]

    monkeypatch.setattr(watch, "scan", counted)
    monkeypatch.setattr(watch, "run_worker", worker)
    with watching(root, tmp_path / "cache", lambda: None, clock=lambda: now_s) as workspace:
        wait_until(lambda: defines(workspace, "Basket"))
        for number in range(50):
            workspace.edited(f"new{number}.py", f"def never_saved{number}(): pass\n")
        assert workspace.wait_idle(60)
        before, started = workspace.generation, len(runs)
        scans.clear()
        now_s += 61.0
        wait_until(lambda: len(scans) == 1)
        workspace.touched("shop/cart.py")  # taken in after what the last comparison found
        assert workspace.wait_idle(60)
        assert (workspace.generation, len(runs)) == (before + 1, started)
        assert all(defines(workspace, f"never_saved{number}") for number in range(50))


def test_a_save_waits_for_no_comparison_and_none_forgets_it(
    workspace: IndexedFolder, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long look at the tree, which listed these files before they were saved, made and deleted."""
    listed, go_on = threading.Event(), threading.Event()

    def long(root: Path, *arguments: Any, **options: Any) -> Scan:
        found = scan(root, *arguments, **options)
        listed.set()
        while not (go_on.is_set() or options["cancelled"]()):
            options["pause"]()
        return found

    monkeypatch.setattr(watch, "scan", long)
    monkeypatch.setattr(watch, "_SCAN_EVERY_S", 0.0)
    assert listed.wait(60)
    write_files(root, {"shop/cart.py": "def saved(): pass\n", "shop/new.py": "def made(): pass\n"})
    (root / "shop/money.py").unlink()
    for path in ("shop/cart.py", "shop/new.py", "shop/money.py"):
        workspace.touched(path)

    def is_true() -> bool:
        return defines(workspace, "saved") and defines(workspace, "made") and not defines(workspace, "format_price")

    wait_until(is_true)
    monkeypatch.setattr(watch, "_SCAN_EVERY_S", 60.0)
    go_on.set()
    assert workspace.wait_idle(60) and is_true()


def test_an_index_that_only_memory_holds_knows_what_is_open(root: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    workspace = IndexedFolder(root, tmp_path / "cache", LazyEmbedder())
    workspace.edited("shop/cart.py", "def never_saved(): pass\n")
    workspace.start()
    try:
        wait_until(lambda: defines(workspace, "never_saved"))
        assert workspace.wait_idle(60)
        write_files(root, {f"m{number}.py": f"def made{number}(): pass\n" for number in range(60)})
        git(root, "init", "-q")
        git(root, "add", ".")
        wait_until(lambda: defines(workspace, "made59"))
        assert defines(workspace, "never_saved")
    finally:
        workspace.close()


@pytest.fixture
def source(root: Path, tmp_path: Path) -> Iterator[RetrievalSource]:
    one = open_source([root], cache_dir=tmp_path / "cache")
    assert one.wait(60)
    yield one
    one.close()


def test_a_document_belongs_to_the_innermost_folder_also_where_that_comes_later(
    source: RetrievalSource, root: Path
) -> None:
    inner, uri = root / "shop", (root / "shop" / "cart.py").as_uri()
    source.opened(uri, "def never_saved(): pass\n")
    wait_until(lambda: bool(source.holding(root, "never_saved", 5)))
    source.folders([root, inner])
    wait_until(lambda: bool(source.holding(inner, "never_saved", 5)))
    source.closed(uri)
    wait_until(lambda: not source.holding(inner, "never_saved", 5) and not source.holding(root, "never_saved", 5))
    source.opened(uri, "def never_saved(): pass\n")
    wait_until(lambda: bool(source.holding(inner, "never_saved", 5)))
    source.folders([root])
    wait_until(lambda: bool(source.holding(root, "never_saved", 5)))


def test_a_folder_that_is_reached_over_a_link(source: RetrievalSource, root: Path, tmp_path: Path) -> None:
    from foretype_context.syntax.document import Document

    link = tmp_path / "link"
    link.symlink_to(root, target_is_directory=True)
    source.folders([link])
    text = "from shop.cart import Basket\nb = "
    snapshot = Document((link / "pay.py").as_uri(), text, path="pay.py").snapshot()
    assert source.wait(60)
    wait_until(lambda: bool(source.snippets(snapshot, len(text), limit=3)))


def test_documents_of_nowhere_are_no_concern(source: RetrievalSource) -> None:
    for uri in ("untitled:1", "file:///nowhere/x.py", "file://[broken", "", "\0"):
        source.opened(uri, "x")
        source.changed(uri, "y")
        source.saved(uri)
        source.closed(uri)
        assert source.wait(60) and f"{len(FILES) + 1} definitions" in source.status(), uri


def globs_from_the_start(one: IndexedFolder, root: Path, cache: Path) -> IndexedFolder:
    one.close()
    other = IndexedFolder(root, cache, LazyEmbedder(), globs=["**/geometry.py"])
    other.start()
    wait_until(lambda: other.index is not None)
    assert not defines(other, "Rectangle")  # not for a moment
    return other


def ignored_and_told(one: IndexedFolder, root: Path, cache: Path) -> IndexedFolder:
    (root / ".gitignore").write_text("geometry.py\n")
    one.touched(".gitignore")
    wait_until(lambda: not defines(one, "Rectangle"))
    return one


def ignored_while_nothing_ran(one: IndexedFolder, root: Path, cache: Path) -> IndexedFolder:
    one.close()
    (root / ".gitignore").write_text("geometry.py\n")
    other = IndexedFolder(root, cache, LazyEmbedder())
    other.start()
    wait_until(lambda: other.index is not None)
    assert not defines(other, "Rectangle")
    return other


def test_rules_above_the_folder_and_of_its_repository_are_followed_though_nobody_tells(
    root: Path, tmp_path: Path
) -> None:
    (root / "geometry.py").write_text("class Rectangle:\n    def area(self):\n        return 1\n")
    write_files(tmp_path, {".git/HEAD": "", ".gitignore": "", ".git/info/exclude": ""})
    one = IndexedFolder(root, tmp_path / "cache", LazyEmbedder())
    one.start()
    try:
        for rules in (tmp_path / ".gitignore", tmp_path / ".git/info/exclude"):
            wait_until(lambda: defines(one, "Rectangle"))
            rules.write_text("geometry.py\n")
            wait_until(lambda: not defines(one, "Rectangle"))
            rules.write_text("")
        wait_until(lambda: defines(one, "Rectangle"))
    finally:
        one.close()


@pytest.mark.parametrize("leave_out", [globs_from_the_start, ignored_and_told, ignored_while_nothing_ran])
def test_what_is_left_out_since_it_was_indexed_is_gone_and_stays_gone(
    root: Path, tmp_path: Path, leave_out: Callable[[IndexedFolder, Path, Path], IndexedFolder]
) -> None:
    (root / "geometry.py").write_text("class Rectangle:\n    def area(self):\n        return 1\n")
    first = IndexedFolder(root, tmp_path / "cache", LazyEmbedder())
    first.start()
    wait_until(lambda: defines(first, "Rectangle"))
    one = leave_out(first, root, tmp_path / "cache")
    try:
        one.touched("geometry.py")  # saved, though it is left out
        one.edited("geometry.py", "class Rectangle:\n    pass\n")
        assert one.wait_idle(60.0)
        assert not defines(one, "Rectangle")
        one.edited("geometry.py", None)
        (root / ".gitignore").write_text("")
        one.touched(".gitignore")
        if leave_out is not globs_from_the_start:
            wait_until(lambda: defines(one, "Rectangle"))
    finally:
        one.close()
