"""The corpus table: built from a store, read by the client."""

from pathlib import Path

import numpy as np
import pytest
from foretype_client.adaptive.lexemes import LINE_END, Vocabulary, lex
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.table import HISTORY_MAX, CorpusTable, shipped_table
from foretype_client.errors import TableError
from foretype_context.syntax.document import Document
from foretype_context.text.lexemes import hash_contexts
from foretype_lab.corpus.store import Store, build_store
from foretype_lab.corpus_table.build import build_table
from foretype_lab.corpus_table.count import ORDERS, count_order
from foretype_lab.corpus_table.symbols import read_corpus, symbols_of, vocabulary_of
from foretype_lab.errors import LabError
from hypothesis import given
from hypothesis import strategies as st

CLASS = """import os

class {name}:
    def __init__(self, {field}):
        self.{field} = {field}

    def __repr__(self):
        return os.path.join(self.{field}, "x")
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("store")
    # Each repository has names of its own, so that they are rare in the table, and ten files of the same shape.
    documents = [
        {"repo": f"r{r}", "path": f"m{f}.py", "text": CLASS.format(name=f"Kind{r}x{f}", field=f"field{r}x{f}")}
        for r in range(5)
        for f in range(10)
    ]
    build_store(documents, folder)
    return Store(folder)


@pytest.fixture(scope="module")
def path(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "t.ftt"
    build_table(store, path, lexemes=25, bytes_max=50_000)
    return path


def rows_after(table: CorpusTable, text: str) -> dict[int, dict[str, float]]:
    """By context length: what the table says follows."""
    vocabulary = Vocabulary(table.lexemes)
    history: list[int] = []
    lines = text.split("\n")
    for line in lines[:-1]:
        history += [*vocabulary.ids(lex(line.strip())), LINE_END]
    history += vocabulary.ids(lex(lines[-1].strip()))
    return {
        row.order: {vocabulary.lexeme(id): share for id, share in zip(row.ids, row.shares, strict=True)}
        for row in table.rows(history[-HISTORY_MAX:], vocabulary)
    }


def test_it_says_what_follows_in_the_corpus(path: Path) -> None:
    rows = rows_after(CorpusTable(path), "    def __repr__(")
    assert rows
    assert all(max(row, key=row.__getitem__) == "self" for row in rows.values())


def test_a_rare_word_is_followed_by_itself_though_no_corpus_has_it(path: Path) -> None:
    rows = rows_after(CorpusTable(path), "def __init__(self, never_seen_before):\nself.never_seen_before =")
    longest = rows[max(rows)]
    assert longest[" never_seen_before"] > 0.9


def test_a_model_with_a_table_knows_what_its_file_does_not(path: Path) -> None:
    text = "class A:\n    def __init__(self, abc):\n        self.abc ="
    snapshot = Document("file:///a.py", text, language="python").snapshot()
    assert AdaptiveModel().candidate(snapshot, len(text), least=0.05) is None
    found = AdaptiveModel(CorpusTable(path)).candidate(snapshot, len(text), least=0.05)
    assert found.text.startswith(" abc")


def test_building_again_gives_the_same_bytes_and_keeps_to_the_size(store: Store, path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.ftt"
    result = build_table(store, again, lexemes=25, bytes_max=50_000)
    assert again.read_bytes() == path.read_bytes()
    assert result["bytes"] == again.stat().st_size
    small = build_table(store, tmp_path / "small.ftt", lexemes=25, bytes_max=700)
    assert small["bytes"] <= 700
    assert small["contexts"] < result["contexts"]


def test_what_fewer_than_three_repositories_write_is_not_counted(store: Store) -> None:
    corpus = read_corpus(store, bytes_per_repository=10_000)
    vocabulary = vocabulary_of(corpus, 25)
    symbols = list(symbols_of(corpus, vocabulary))
    assert len(count_order(symbols[:2] + symbols[:1], 2, file_start=10_000).hashes)
    assert not len(count_order(symbols[:2], 2, file_start=10_000).hashes)


@given(st.lists(st.integers(0, 9_000), min_size=ORDERS + 1, max_size=20))
def test_builder_and_reader_hash_alike(symbols: list[int]) -> None:
    from foretype_lab.corpus_table import count

    array = np.array([*symbols, 0], np.int32)
    for order in range(1, ORDERS + 1):
        built = int(count._hashes(array, order)[-1]) >> 16  # pyright: ignore[reportPrivateUsage]
        assert built == hash_contexts(symbols, ORDERS)[order - 1]


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "magic", "header", "counts"])
def test_a_damaged_table_is_refused_by_name(path: Path, tmp_path: Path, damage: str) -> None:
    data = bytearray(path.read_bytes())
    broken = tmp_path / "broken.ftt"
    if damage == "cut":
        data = data[:-10]
    elif damage == "magic":
        data[0] ^= 1
    elif damage == "header":
        data[14] ^= 0xFF
    elif damage == "counts":
        data = bytearray(bytes(data).replace(b'"contexts": ', b'"contexts":9'))
    elif damage == "empty":
        data = bytearray()
    if damage != "missing":
        broken.write_bytes(data)
    with pytest.raises(TableError, match=r"broken\.ftt.*restore"):
        CorpusTable(broken)


@given(st.data())
def test_any_flipped_byte_is_refused_or_harmless(
    path: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    broken = tmp_path_factory.mktemp("flip") / "f.ftt"
    broken.write_bytes(raw)
    try:
        table = CorpusTable(broken)
    except TableError:
        return
    rows_after(table, "def __init__(self, never):\nself.never =")


def test_too_little_text_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    build_store([{"repo": "a", "path": "a.py", "text": "x = 1\n"}], tmp_path / "s")
    with pytest.raises(LabError, match="larger store"):
        build_table(Store(tmp_path / "s"), tmp_path / "t.ftt")
    assert not (tmp_path / "t.ftt").exists()


def test_the_shipped_table_is_small_and_of_this_format() -> None:
    table = shipped_table()
    assert table.language == "python"
    assert rows_after(table, "if __name__")
