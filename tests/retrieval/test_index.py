import threading
import tracemalloc

import numpy as np
import pytest
from foretype_retrieval.index import FileState, Index
from foretype_retrieval.indexing import make_entry
from foretype_retrieval.search import Features, candidates, query_at, query_of_words, search
from foretype_retrieval.segment import ARRAYS, FileEntry, build
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval.workspace import defining


class LetterEmbedder:
    """Counts letters: a real embedding, if a poor one."""

    dimensions = 26
    digest = "letters"

    def embed(self, texts: list[str]) -> np.ndarray:
        rows = np.array([[text.lower().count(chr(97 + at)) for at in range(26)] for text in texts], np.float32)
        rows = rows.reshape(len(texts), 26)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def question(self, text: str) -> np.ndarray:
        return self.embed([text])[0]


EMBEDDER = LetterEmbedder()
BODIES = [
    "",
    "def parse_header(line):\n    return line.split(':')\n",
    "def write_header(line):\n    return parse_header(line)\n\n\nclass HeaderError(Exception):\n    pass\n",
    "class Basket:\n    def add_item(self, item):\n        self.items.append(item)\n",
    "LIMIT = 3\n",
    "def parse_header(text, strict):\n    return strict\n",
]


def entry(path: str, version: int) -> FileEntry:
    text = BODIES[version % len(BODIES)]
    return make_entry(path, text, FileState(len(text), version), EMBEDDER)


def answers(index: Index) -> list[list[tuple[str, str, int, float]]]:
    questions = [query_of_words("parse header line"), query_of_words("Basket"), query_at(["x = HeaderError()"], "y = ")]
    return [
        [
            (hit.found.path, hit.found.name, hit.found.start, hit.found.score)
            for hit in search(index, question, EMBEDDER, limit=6)
        ]
        for question in questions
    ]


paths = st.sampled_from(["a.py", "b/c.py", "b/d.py", "z.py", "é.py"])
events = st.lists(st.tuples(st.booleans(), st.lists(st.tuples(paths, st.integers(0, 30)), max_size=3)), max_size=14)


@settings(max_examples=60, deadline=None)
@given(events)
def test_any_history_equals_a_fresh_index(history: list[tuple[bool, list[tuple[str, int]]]]) -> None:
    index, now = Index(dimensions=26), {}
    for adds, changed in history:
        if adds:
            latest = dict(changed)
            index.update([entry(path, version) for path, version in latest.items()])
            now.update(latest)
        else:
            index.update([], [path for path, _ in changed])
            for path, _ in changed:
                now.pop(path, None)
    fresh = Index(build([entry(path, version) for path, version in now.items()], 26))
    assert index.files() == fresh.files() and len(index) == len(fresh)
    assert answers(index) == answers(fresh)
    merged, expected = index.merged().segment(), fresh.merged().segment()
    for name in ARRAYS:
        np.testing.assert_array_equal(merged.arrays[name], expected.arrays[name], err_msg=name)


def test_a_copy_is_not_changed_by_updates_of_the_other() -> None:
    index = Index(build([entry("a.py", 1), entry("b.py", 3)], 26))
    before, copy = answers(index), index.copy()
    copy.update([entry("a.py", 2)], ["b.py"])
    assert answers(index) == before and answers(copy) != before


@settings(max_examples=40, deadline=None)
@given(events)
def test_every_copy_keeps_answering_as_it_did(history: list[tuple[bool, list[tuple[str, int]]]]) -> None:
    index, kept = Index(build([entry("a.py", 1), entry("z.py", 3)], 26)), list[Index]()
    then: list[object] = []
    for adds, changed in history:
        kept.append(index)
        then.append((index.files(), len(index), answers(index)))
        index = index.copy()
        latest = dict(changed)
        index.update([entry(path, version) for path, version in latest.items()] if adds else [], [] if adds else latest)
    assert [(one.files(), len(one), answers(one)) for one in kept] == then


def test_readers_see_all_of_a_save_or_nothing_of_it_while_it_is_taken_in() -> None:
    def version(number: int) -> list[FileEntry]:
        text = f"def now_{number}(value):\n    return value\n"
        return [make_entry(path, text, FileState(1, number), EMBEDDER) for path in ("a.py", "b/c.py")]

    held = [Index(build(version(0), 26))]
    over, torn, looked = threading.Event(), list[object](), threading.Semaphore(0)

    def read() -> None:
        while not over.is_set():
            index = held[0]
            hits = search(index, query_of_words("now value"), EMBEDDER, limit=9)
            names = {hit.found.name for hit in hits}
            states = {state.mtime_ns for state in index.files().values()}
            if len(hits) != 2 or names != {f"now_{one}" for one in states}:
                torn.append((names, states))
            looked.release()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 40):
        fresh = held[0].copy()
        fresh.update(version(number))
        fresh.prepare()
        held[0] = fresh
        assert looked.acquire(timeout=30)
    over.set()
    for reader in readers:
        reader.join()
    assert not torn


def test_a_save_into_an_index_of_many_files_makes_no_copy_of_their_paths() -> None:
    index = Index(build([FileEntry(f"folder/{at}.py", 1, 1, [], np.zeros((0, 0))) for at in range(20_000)], 0))
    index.prepare()
    tracemalloc.start()
    try:
        fresh = index.copy()
        fresh.update([make_entry("folder/7.py", "def seven():\n    return 7\n", FileState(2, 2), None)])
        fresh.prepare()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fresh.files()["folder/7.py"] == FileState(2, 2) and index.files()["folder/7.py"] == FileState(1, 1)
    assert most < 200_000, "bytes; a table of 20,000 paths takes two million"


def test_a_merge_of_many_small_segments_loses_nothing() -> None:
    index = Index(dimensions=26)
    for number in range(40):
        index.update([entry(f"f{number}.py", 3)])
    assert len(index) == 80 and set(index.files()) == {f"f{number}.py" for number in range(40)}


@pytest.fixture
def shop() -> Index:
    texts = {
        "shop/cart.py": "class Basket:\n    def total(self):\n        return sum(self.prices)\n",
        "shop/other.py": "class Basket:\n    colour = 'red'\n",
        "shop/money.py": "def format_price(amount, currency):\n    return f'{amount} {currency}'\n",
        "web/view.py": "def show(request):\n    return render(request)\n",
    }
    return Index(build([make_entry(path, text, FileState(1, 1), EMBEDDER) for path, text in texts.items()], 26))


def test_what_the_imports_name_comes_first(shop: Index) -> None:
    query = query_at(
        ["from shop.cart import Basket", "", "def pay():", "    basket = Basket()"], "    x = ", "web/pay.py"
    )
    first = search(shop, query, EMBEDDER, limit=3)[0]
    assert (first.found.path, first.found.name, first.source_name) == ("shop/cart.py", "Basket", "imports")


def test_the_document_itself_is_never_found(shop: Index) -> None:
    query = query_at(["class Basket:", "    def total(self):"], "", "shop/cart.py")
    assert all(hit.found.path != "shop/cart.py" for hit in search(shop, query, EMBEDDER, limit=10))


def test_a_word_being_typed_does_not_change_the_question() -> None:
    lines = ["from shop.cart import Basket"]
    assert query_at(lines, "    price = form") == query_at(lines, "    price = format_pri")
    assert query_at(lines, "    price = format_price(") != query_at(lines, "    price = form")


def test_search_goes_on_by_words_without_an_embedder(shop: Index) -> None:
    found = search(shop, query_of_words("format currency"), None, limit=1)
    assert found[0].found.name == "format_price"


def test_each_weight_alone_orders_by_what_it_weighs(shop: Index) -> None:
    lines = ["from shop.money import format_price", "price = format_price(1, 'EUR')"]
    query, near_the_view = query_at(lines, "", "shop/pay.py"), query_at(lines, "", "web/pay.py")
    nothing = Features(*(0.0 for _ in Features._fields))
    # Of the two definitions of Basket the first is the document's own.
    of_two = query_at(["basket = Basket()", "price = format_price(1, 'EUR')"], "", "shop/cart.py")
    unused = query_at(
        ["from shop.money import format_price", "from shop.cart import Basket", "Basket()"], "", "shop/pay.py"
    )
    best = dict.fromkeys(Features._fields, (query, "format_price"))
    best |= {"alike": (of_two, "Basket"), "folder": (near_the_view, "show"), "unused": (unused, "format_price")}
    for name, (asked, expected) in best.items():
        hits = search(shop, asked, EMBEDDER, limit=9, weights=nothing._replace(**{name: 1.0}))
        assert hits[0].found.name == expected, name
        assert hits[0].found.score > hits[1].found.score, f"{name}: the order of keys decided"


def test_imported_and_not_used_yet_is_what_stands_on_its_import_line_alone(shop: Index) -> None:
    lines = ["from shop.money import format_price", "from shop.cart import Basket", "show(Basket())"]
    found = candidates(shop, query_at(lines, "", "pay.py"), EMBEDDER)
    unused = found.features[:, Features._fields.index("unused")]
    values = {shop.view().found(key, 0.0).name: value for key, value in zip(found.keys, unused, strict=True)}
    assert [values[name] for name in ("format_price", "Basket", "show")] == [1.0, 0.0, 0.0]


def test_a_name_that_everything_has_does_not_drown_the_rest() -> None:
    texts = {f"m{number:03}.py": "class Thing:\n    def start(self):\n        pass\n" for number in range(100)}
    texts["engine.py"] = "def start_engine(fuel):\n    return fuel\n"
    index = Index(build([make_entry(path, text, FileState(1, 1), EMBEDDER) for path, text in texts.items()], 26))
    assert defining(index, "start") == []
    hits = search(index, query_of_words("start engine fuel"), EMBEDDER, limit=3)
    assert hits[0].found.name == "start_engine"


def test_an_empty_question_to_an_empty_index_finds_nothing() -> None:
    assert search(Index(dimensions=26), query_of_words(""), EMBEDDER, limit=5) == []
