import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from foretype_context.prompt.sources import SnippetSource
from foretype_context.syntax.document import Document, Snapshot
from foretype_retrieval.errors import AbsentIndexError, IndexingCancelledError, WorkerError
from foretype_retrieval.indexing import IndexingProgress, open_index
from foretype_retrieval.source import RetrievalSource, open_source, path_of
from foretype_retrieval.static_embedder import LazyEmbedder, default_embedder
from foretype_retrieval.store import writing
from foretype_retrieval.watch import IndexedFolder
from foretype_retrieval.worker import run_worker
from imports import imported
from retrieval.workspace import FILES, write_files
from waiting import wait_until

PLACE = "from shop.cart import Basket\n\n\ndef pay(basket):\n    total = "


def at_end(root: Path, path: str = "pay.py", text: str = PLACE) -> tuple[Snapshot, int]:
    return Document((root / path).as_uri(), text, path=path).snapshot(), len(text)


@contextmanager
def indexed(folder: Path) -> Generator[tuple[Path, RetrievalSource]]:
    root = write_files(folder / "w")
    source = open_source([root], cache_dir=folder / "cache")
    wait_until(lambda: bool(source.snippets(*at_end(root), limit=8)))
    yield root, source
    source.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Path, RetrievalSource]]:
    """For a test that changes files."""
    with indexed(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, RetrievalSource]]:
    """For all tests that only ask."""
    with indexed(tmp_path_factory.mktemp("unchanged")) as found:
        yield found


def test_snippets_name_their_file_and_are_short(unchanged: tuple[Path, RetrievalSource]) -> None:
    root, source = unchanged
    port: SnippetSource = source
    first = port.snippets(*at_end(root), limit=8)[0]
    assert (first.path, first.source_name) == ("shop/cart.py", "imports")
    assert FILES["shop/cart.py"][first.start : first.end].startswith("class Basket") and len(first.text) <= 1_001


def test_no_more_than_asked_for(unchanged: tuple[Path, RetrievalSource]) -> None:
    root, source = unchanged
    assert len(source.snippets(*at_end(root), limit=1)) == 1 and source.snippets(*at_end(root), limit=0) == ()


class Late:
    """An embedder in a process of its own, whose first answer to each question comes too late."""

    def __init__(self) -> None:
        self._inner = default_embedder()
        self.dimensions, self.digest = self._inner.dimensions, self._inner.digest
        self.embed = self._inner.embed
        self.asked: list[str] = []

    def question(self, text: str):
        self.asked.append(text)
        return self._inner.question(text) if self.asked.count(text) > 1 else None


def test_a_place_whose_vector_was_late_has_it_when_it_asks_again(tmp_path: Path) -> None:
    root, late = write_files(tmp_path / "w"), Late()
    folder = IndexedFolder(root, tmp_path / "cache", lambda: late)
    source = RetrievalSource([folder], lambda: late)
    folder.start()
    try:
        assert source.wait(60)
        # No word of it stands in a file, so that vectors alone find anything.
        place = at_end(root, text="unknown = ")
        assert source.snippets(*place, limit=8) == []
        assert source.snippets(*place, limit=8) != []
        source.snippets(*place, limit=8)
        assert len(late.asked) == 2, "what was answered with its vector is remembered"
    finally:
        source.close()


def test_a_document_outside_every_workspace_has_none(unchanged: tuple[Path, RetrievalSource], tmp_path: Path) -> None:
    assert unchanged[1].snippets(*at_end(tmp_path / "elsewhere"), limit=8) == ()


def test_any_place_in_any_text_can_be_asked(unchanged: tuple[Path, RetrievalSource]) -> None:
    root, source = unchanged
    for text in ("", "\n", "x", "\r\n\r\n", "é🙂" * 50, "from"):
        snapshot, _ = at_end(root, text=text)
        for offset in range(len(text) + 1):
            assert len(source.snippets(snapshot, offset, limit=4)) <= 4


def test_a_workspace_that_disappears_ends_up_empty_and_says_so(tmp_path: Path) -> None:
    workspace = IndexedFolder(tmp_path / "gone", tmp_path / "cache", LazyEmbedder())
    workspace.start()
    wait_until(lambda: "not a folder" in workspace.status() and workspace.index is not None)
    assert workspace.index is not None and len(workspace.index) == 0
    workspace.close()


def test_the_status_says_how_much_is_indexed(unchanged: tuple[Path, RetrievalSource]) -> None:
    assert "4 definitions" in unchanged[1].status()


def test_the_process_reports_and_stores(tmp_path: Path) -> None:
    root, seen = write_files(tmp_path / "w"), list[IndexingProgress]()
    report = run_worker(root, tmp_path / "i", progress=seen.append)
    assert report.files == len(FILES) and seen[-1].files_done == len(FILES)
    assert set(open_index(tmp_path / "i", default_embedder()).files()) == set(FILES)


def test_the_process_tells_why_it_could_not(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="not a folder"):
        run_worker(tmp_path / "gone", tmp_path / "i")
    root = write_files(tmp_path / "w")
    with writing(tmp_path / "i"), pytest.raises(WorkerError, match="another process"):
        run_worker(root, tmp_path / "i")


def test_the_process_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    root = write_files(tmp_path / "w", {f"m{number}.py": "def f(): pass\n" * 200 for number in range(1500)})
    cancelled = threading.Event()
    with pytest.raises(IndexingCancelledError):
        run_worker(root, tmp_path / "i", progress=lambda _: cancelled.set(), cancelled=cancelled)
    with pytest.raises(AbsentIndexError):
        open_index(tmp_path / "i", default_embedder())


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b%20c.py", "/a/b c.py"),
        ("/a/b.py", "/a/b.py"),
        ("untitled:1", None),
        ("", None),
        ("http://x/y", None),
    ],
)
def test_only_files_have_a_path(uri: str, path: str | None) -> None:
    assert path_of(uri) == (Path(path) if path is not None else None)


def test_the_package_costs_no_torch_and_no_faiss_to_import() -> None:
    assert imported("import foretype_retrieval.source", "torch", "faiss") == []


def test_files_that_may_hold_a_name_are_told_without_reading_them(
    opened: tuple[Path, RetrievalSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretype_retrieval.watch._SCAN_EVERY_S", 1e6)  # a look at the whole tree would find it too
    root, source = opened
    found = source.holding(root, "Basket", 8)
    assert found == sorted(found) and root / "shop/cart.py" in found
    assert source.holding(root, "Basket", 1) == found[:1]
    assert source.holding(root, "nobody_has_this", 8) == source.holding(root, "if", 8) == []
    assert source.holding(root / "elsewhere", "Basket", 8) == []
    (root / "shop/cart.py").unlink()
    source.saved((root / "shop/cart.py").as_uri())
    wait_until(lambda: root / "shop/cart.py" not in source.holding(root, "Basket", 8))
