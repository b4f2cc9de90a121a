"""Large files: their documents are windows. Here with windows of a few characters, so that every border is met."""

from unittest.mock import patch

import pytest
from foretype_context.syntax.document import Edit
from foretype_context.text.strings import well_formed
from foretype_lsp.documents import documents as documents_module
from foretype_lsp.documents import window as window_module
from foretype_lsp.documents.documents import MAX_DOCUMENT_BYTES, MAX_FOLLOWED_BYTES, ChangeResult, Documents
from foretype_lsp.documents.positions import Encoding, Lines, Position
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.documents.window import REACH_CHARS, Window, around
from foretype_lsp.messages import ContentChange, Point, Range
from foretype_lsp.settings import Settings
from hypothesis import given
from hypothesis import strategies as st

URI = "file:///w/a.py"
ALPHABET = ["a", "bc ", "\n", "\r", "\r\n", "é", "语", "😀", "😀😀\n", "\ud83d", "\ude00"]
texts = st.lists(st.sampled_from(ALPHABET), max_size=12).map("".join)
long_texts = st.lists(st.sampled_from(ALPHABET), min_size=30, max_size=80).map("".join)
points = st.builds(Point, st.integers(0, 30), st.integers(0, 9))
edits = st.builds(ContentChange, texts, st.none() | st.builds(Range, points, points))
REACH, MARGIN, LARGE = 8, 3, 25


@given(long_texts, st.sampled_from(Encoding), st.lists(st.tuples(edits, points), max_size=6))
def test_the_document_is_always_what_the_window_of_the_whole_text_is(text, encoding, steps):
    whole = Documents(encoding)
    whole.open(URI, text)
    with (
        patch.multiple(window_module, REACH_CHARS=REACH, _MARGIN_CHARS=MARGIN),
        patch.object(documents_module, "MAX_DOCUMENT_BYTES", LARGE),
    ):
        documents = SharedDocuments(Settings(), lambda: 0.0)
        documents.begin(encoding, [])
        documents.open(URI, text, language="python", version=1)
        for version, (change, asked) in enumerate(steps, 2):
            whole.change(URI, [change], version=version)
            documents.change(URI, [change], version=version)
            held, text = documents.get(URI), whole.get(URI).lines.text
            assert held.lines.text == text
            assert held.version == version
            documents.reach(held, asked.position)
            start, end = held.window or (0, len(text))
            assert held.document.text == well_formed(text[start:end])
            if held.window is not None:
                assert end - start <= 8 * REACH
            # What a prompt is made of around the place is what stands there.
            place, offset = held.lines.offset_at(asked.position), held.offset_at(asked.position)
            assert start + offset == place
            near = well_formed(text[max(0, place - MARGIN) : place + MARGIN])
            assert near in held.document.text
            assert held.lines.offset_at(held.position_at(offset)) == held.lines.offset_at(
                whole.get(URI).position_at(place)
            )


@pytest.mark.parametrize(
    ("edit", "window", "own"),
    [
        (Edit(2, 4, "xyz"), Window(11, 21), None),  # before it
        (Edit(2, 10, ""), Window(2, 12), None),  # up to it
        (Edit(10, 10, "xy"), Window(10, 22), Edit(0, 0, "xy")),  # where it begins
        (Edit(8, 12, "x"), Window(8, 17), Edit(0, 2, "x")),  # across where it begins
        (Edit(15, 16, ""), Window(10, 19), Edit(5, 6, "")),  # inside
        (Edit(18, 25, "xy"), Window(10, 20), Edit(8, 10, "xy")),  # across where it ends
        (Edit(5, 30, "x"), Window(5, 6), Edit(0, 10, "x")),  # around it
        (Edit(21, 30, "x"), Window(10, 20), None),  # behind it
    ],
)
def test_an_edit_of_the_whole_text_is_one_of_the_window(edit, window, own):
    assert Window(10, 20).after(edit) == (window, own)


def test_a_window_is_whole_lines_but_for_one_that_is_too_long():
    lines = Lines("x = 12345\n" * 100_000)
    start, end = around(lines, 500_003)
    assert lines.part(start, end).startswith("x = ") and lines.part(start, end).endswith("\n")
    assert 2 * REACH_CHARS <= end - start <= 2 * REACH_CHARS + 20
    assert around(Lines("x" * 1_000_000), 500_000) == (500_000 - REACH_CHARS, 500_000 + REACH_CHARS)


def test_utf16_positions_are_those_of_the_whole_file_at_the_windows_borders():
    line = 'smile = "😀"  # é\n'
    documents = SharedDocuments(Settings(), lambda: 0.0)
    documents.begin(Encoding.UTF16, [])
    documents.open(URI, line * 400_000, language="python", version=1)
    held = documents.get(URI)
    documents.reach(held, Position(200_000, 11))
    assert held.window.start > 0 and held.window.end < held.lines.chars
    for offset in (0, len(line), len(held.document.text) - len(line)):
        at = held.position_at(offset)
        assert held.document.text[held.offset_at(Position(at.line, 11)) - 1] == "😀"  # nine units, and two of the face
        assert held.position_at(held.offset_at(Position(at.line, 12))) == (at.line, 12)
    documents.change(
        URI, [ContentChange("# new\n", Range(Point(3, 0), Point(3, 0)))], version=2
    )  # a window's length away
    documents.reach(held, Position(200_001, 11))
    assert held.document.text[held.offset_at(Position(200_001, 11)) - 1] == "😀"


def test_a_file_that_grows_above_the_limit_becomes_a_window_and_what_is_far_too_large_is_not_kept():
    documents = SharedDocuments(Settings(), lambda: 0.0)
    documents.open(URI, "x\ny\n", language="python", version=1)
    documents.change(URI, [ContentChange("z = 1\n" * 900_000, Range(Point(1, 0), Point(1, 0)))], version=2)
    held = documents.get(URI)
    assert held.excluded is None and held.lines.chars > MAX_DOCUMENT_BYTES > len(held.document.text)
    assert documents.usable(URI) == "larger than 5,000,000 bytes: commands know whole files"
    documents.change(URI, [ContentChange("x = 1")], version=3)
    assert documents.get(URI).document.text == "x = 1"
    documents.open("file:///w/b.py", "x = 1\n" * (MAX_FOLLOWED_BYTES // 5), language="python", version=1)
    assert documents.get("file:///w/b.py").excluded == "larger than 64,000,000 bytes"
    assert documents.change("file:///w/b.py", [ContentChange("y", Range(Point(0, 0), Point(0, 0)))], version=2) is (
        ChangeResult.EXCLUDED
    )
