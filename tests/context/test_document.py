import re

import pytest
from foretype_context.document import Document, Edit, EditOutOfRange, Snapshot
from foretype_context.languages import LANGUAGES, grammar_of, language_of
from foretype_context.lines import LineIndex
from hypothesis import given, settings
from hypothesis import strategies as st

ATOMS = [*"ab {}:()'\"\t é漢🙂\n\n\r#=", "\r\n", "\ud800", "\x00", "def f():\n    "]
TEXT = st.lists(st.sampled_from(ATOMS), max_size=60).map("".join)


def plain_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]


def check_lines(snapshot: Snapshot) -> None:
    starts = plain_starts(snapshot.text)
    assert [snapshot.line_start(i) for i in range(snapshot.line_count)] == starts
    for offset in range(len(snapshot.text) + 1):
        assert snapshot.line_of(offset) == max(i for i, start in enumerate(starts) if start <= offset)


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[list[tuple[float, float, str]]]]:
    batch = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), TEXT), max_size=3)
    return draw(TEXT), draw(st.lists(batch, max_size=6))


def run(document: Document, batches: list[list[tuple[float, float, str]]]) -> None:
    for version, batch in enumerate(batches, 1):
        length = len(document.text)
        edits: list[Edit] = []
        for a, b, new in batch:
            start, end = sorted((round(a * length), round(b * length)))
            edits.append(Edit(start, end, new))
            length += len(new) - (end - start)
        document.apply(edits, version)


@settings(max_examples=150, deadline=None)
@given(histories(), st.sampled_from(["python", "javascript", "plaintext"]))
def test_after_any_edits_the_state_equals_a_fresh_one(
    history: tuple[str, list[list[tuple[float, float, str]]]], language: str
) -> None:
    text, batches = history
    document = Document("file:///a", text, language=language)
    run(document, batches)
    fresh = Document("file:///a", document.text, language=language).snapshot()
    grown = document.snapshot()
    assert grown.text == fresh.text
    check_lines(grown)
    assert (grown.tree is None) == (fresh.tree is None)
    if grown.tree is not None and fresh.tree is not None:
        assert grown.tree.root_node.end_byte == fresh.tree.root_node.end_byte


def test_a_python_tree_after_edits_is_the_tree_of_the_text() -> None:
    document = Document("file:///a.py", "def f(x):\n    return 'é🙂'\n\n\ndef g():\n    pass\n", path="a.py")
    document.apply([Edit(27, 27, "\n    # ü\n    y = (1,\n"), Edit(0, 0, "import os\n")], 2)
    snapshot = document.snapshot()
    fresh = Document("file:///a.py", document.text, path="a.py").snapshot()
    assert snapshot.tree is not None and fresh.tree is not None
    assert str(snapshot.tree.root_node) == str(fresh.tree.root_node)
    assert snapshot.version == 2


def test_a_snapshot_does_not_change_when_its_document_does() -> None:
    document = Document("file:///a.py", "x = 1\n", path="a.py")
    before = document.snapshot()
    assert before.tree is not None
    sexp = str(before.tree.root_node)
    document.apply([Edit(0, 5, "def f():\n    pass")], 1)
    assert before.text == "x = 1\n" and before.version == 0 and str(before.tree.root_node) == sexp


def test_a_long_text_keeps_its_lines_across_block_borders() -> None:
    text = "".join(f"line {i}\r\n" if i % 3 else f"line {i}\n" for i in range(1000))
    index = LineIndex.of(text)
    for start, end, new in [
        (0, 0, "\n"),
        (5000, 5003, ""),
        (1100, 4000, "x\r"),
        (len(text) - 4000, len(text) - 3999, "\r\n\n"),
    ]:
        text = text[:start] + new + text[end:]
        index = index.after(start, end, len(new), text)
        assert [index.start(i) for i in range(len(index))] == plain_starts(text)


def test_cr_and_lf_that_meet_or_part_at_a_border_are_counted_right() -> None:
    text = "a\n" * 127 + "a\r" + "b\n" * 200
    index = LineIndex.of(text)
    at = text.index("\r") + 1
    text = text[:at] + "\n" + text[at:]
    index = index.after(at, at, 1, text)
    assert [index.start(i) for i in range(len(index))] == plain_starts(text)
    text = text[: at - 1] + text[at:]
    index = index.after(at - 1, at, 0, text)
    assert [index.start(i) for i in range(len(index))] == plain_starts(text)


def test_line_texts_leave_their_endings_out() -> None:
    snapshot = Document("u", "a\r\nb\nc\r\r\n\n").snapshot()
    assert [snapshot.line_text(i) for i in range(snapshot.line_count)] == ["a", "b", "c", "", "", ""]


def test_an_edit_outside_the_text_is_refused_whole() -> None:
    document = Document("u", "abc")
    with pytest.raises(EditOutOfRange):
        document.apply([Edit(0, 1, "x"), Edit(2, 9, "")], 1)
    assert (document.text, document.version) == ("abc", 0)


def test_lone_surrogates_are_replaced_one_for_one() -> None:
    document = Document("u", "a\ud800b", language="python")
    document.apply([Edit(1, 1, "\udfff")], 1)
    assert document.text == "a��b"
    document.text.encode()


def test_a_document_above_the_limit_has_no_tree_and_still_has_lines() -> None:
    document = Document("u", "x = 1\n" * 120_000, language="python")
    assert document.snapshot().tree is None
    document.apply([Edit(0, 6, "")], 1)
    assert document.snapshot().line_count == 120_000


def test_a_parse_that_takes_too_long_leaves_no_tree_until_there_is_time() -> None:
    text = "def f(x):\n    return [x, 'é']\n\n\n" * 4000
    document = Document("u", text, language="python")
    assert document.snapshot().tree is not None
    at = text.index("x, ", 500)
    seen: list[bool] = []
    for version, character in enumerate("((((((((((", 1):
        document.apply([Edit(at, at, character)], version)
        seen.append(document.snapshot().tree is None)
    assert all(seen) and document.snapshot().line_count == 16_001
    for version, _ in enumerate(range(10), 20):
        document.apply([Edit(at, at + 1, "")], version)
    assert document.refresh()
    snapshot = document.snapshot()
    fresh = Document("u", document.text, language="python").snapshot()
    assert snapshot.tree is not None and fresh.tree is not None
    assert str(snapshot.tree.root_node) == str(fresh.tree.root_node)


def test_a_closing_bracket_brings_the_tree_back_by_itself() -> None:
    text = "def f(x):\n    return [x, 'é']\n\n\n" * 1000
    document = Document("u", text, language="python")
    at = text.index("x, ", 15_000)
    for version, character in enumerate("g(1)"):
        document.apply([Edit(at, at, character)], version)
        at += 1
    document.apply([Edit(at, at, ", ")], 9)
    assert document.snapshot().tree is not None


def test_a_broken_document_gets_its_tree_when_there_is_time() -> None:
    text = "def f(x):\n    return [x, 'é']\n\n\n" * 4000
    document = Document("u", text, language="python")
    document.apply([Edit(10, 10, "(")], 1)
    assert document.snapshot().tree is None
    assert document.refresh() and document.snapshot().tree is not None


def test_a_text_replaced_as_a_whole_is_parsed_anew() -> None:
    document = Document("u", "x = 1\n" * 500, language="python")
    new = "def f():\n    pass\n" * 2000
    document.apply([Edit(0, len(document.text), new)], 1)
    tree = document.snapshot().tree
    assert tree is not None and tree.root_node.end_byte == len(new) and not tree.root_node.has_error


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "plaintext"])
def test_every_language_of_the_table_parses(language: str) -> None:
    assert grammar_of(language) is not None
    assert Document("u", "x", language=language).snapshot().tree is not None


def test_languages_are_told_from_names() -> None:
    assert [language_of(p) for p in ("a/b.py", "C:\\x\\Y.TSX", "Rakefile", ".bashrc", "LICENSE", "x.unknown", "")] == [
        "python",
        "typescriptreact",
        "ruby",
        "shellscript",
        "plaintext",
        "plaintext",
        "plaintext",
    ]
