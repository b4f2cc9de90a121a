import re
from collections.abc import Sequence
from typing import Any

import pytest
from foretype_context.errors import EditRangeError
from foretype_context.syntax.document import Document, Edit, Snapshot
from foretype_context.syntax.languages import LANGUAGES, language_of, syntax_of
from foretype_context.text.lines import LineIndex
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


def applied(text: str, edits: Sequence[Edit]) -> str:
    for edit in edits:
        text = f"{text[: edit.start]}{edit.text}{text[edit.end :]}"
    return text


def tree_of(snapshot: Snapshot, offset: int = 0) -> Any:
    region = snapshot.syntax_at(offset)
    return None if region is None else region.tree


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


@given(histories())
def test_a_change_says_what_was_done_edit_by_edit_and_as_the_shortest_one(
    history: tuple[str, list[list[tuple[float, float, str]]]],
) -> None:
    text, batches = history
    document = Document("file:///a", text)
    for batch in batches:
        before = document.text
        run(document, [batch])
        change = document.change(1.5)
        assert (change.before, change.after.text, change.at_s) == (before, document.text, 1.5)
        assert applied(before, change.edits) == applied(before, [change.edit]) == document.text
        start, end, new = change.edit
        gone = before[start:end]
        assert not (gone and new) or (gone[0] != new[0] and gone[-1] != new[-1])


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
    assert (tree_of(grown) is None) == (tree_of(fresh) is None) == (language == "plaintext")
    if language != "plaintext":
        assert tree_of(grown).root_node.end_byte == tree_of(fresh).root_node.end_byte
        # A parser recovers from an error in other words when it has an older tree to look at.
        if not tree_of(fresh).root_node.has_error:
            assert str(tree_of(grown).root_node) == str(tree_of(fresh).root_node)


def test_a_python_tree_after_edits_is_the_tree_of_the_text() -> None:
    document = Document("file:///a.py", "def f(x):\n    return 'é🙂'\n\n\ndef g():\n    pass\n", path="a.py")
    document.apply([Edit(27, 27, "\n    # ü\n    y = (1,\n"), Edit(0, 0, "import os\n")], 2)
    snapshot = document.snapshot()
    fresh = Document("file:///a.py", document.text, path="a.py").snapshot()
    assert str(tree_of(snapshot).root_node) == str(tree_of(fresh).root_node)
    assert snapshot.version == 2


def test_a_snapshot_does_not_change_when_its_document_does() -> None:
    document = Document("file:///a.py", "x = 1\n", path="a.py")
    before = document.snapshot()
    sexp = str(tree_of(before).root_node)
    document.apply([Edit(0, 5, "def f():\n    pass")], 1)
    assert before.text == "x = 1\n" and before.version == 0 and str(tree_of(before).root_node) == sexp


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
    with pytest.raises(EditRangeError):
        document.apply([Edit(0, 1, "x"), Edit(2, 9, "")], 1)
    assert (document.text, document.version) == ("abc", 0)


def test_lone_surrogates_are_replaced_one_for_one() -> None:
    document = Document("u", "a\ud800b", language="python")
    document.apply([Edit(1, 1, "\udfff")], 1)
    assert document.text == "a��b"
    document.text.encode()


def test_a_version_nobody_asked_about_has_no_tree_once_the_document_moved_on() -> None:
    document = Document("u", "x = 1\n", language="python")
    stale = document.snapshot()
    document.apply([Edit(0, 0, "y\n")], 1)
    assert stale.syntax_at(0) is None and document.snapshot().syntax_at(0) is not None


def test_a_text_replaced_as_a_whole_is_parsed_anew() -> None:
    document = Document("u", "x = 1\n" * 500, language="python")
    new = "def f():\n    pass\n" * 2000
    document.apply([Edit(0, len(document.text), new)], 1)
    for offset in (0, len(new) // 2, len(new)):
        region = document.snapshot().syntax_at(offset)
        assert region is not None and region.start <= offset <= region.end
        assert not region.tree.root_node.has_error


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "plaintext"])
def test_every_language_of_the_table_parses(language: str) -> None:
    assert syntax_of(language) is not None
    assert Document("u", "x", language=language).snapshot().syntax_at(0) is not None


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
