import pytest
from foretype_lsp.documents.documents import ChangeResult, Documents, path_of
from foretype_lsp.documents.positions import Encoding, Lines
from foretype_lsp.messages import ContentChange, Point, Range
from hypothesis import given
from hypothesis import strategies as st

URI = "file:///w/a.py"
ALPHABET = ["a", "(", " ", "\n", "\r", "\r\n", "\x0c", "é", "语", "😀", "\ud83d", "\ude00", "\udcff"]
texts = st.lists(st.sampled_from(ALPHABET), max_size=20).map("".join)
points = st.builds(Point, st.integers(0, 8), st.integers(0, 12))
changes = st.lists(st.builds(ContentChange, texts, st.none() | st.builds(Range, points, points)), max_size=4)


def at(line, start, end, text):
    return ContentChange(text, Range(Point(line, start), Point(line, end)))


@given(texts, st.sampled_from(Encoding), st.lists(changes, max_size=5))
def test_the_document_and_its_lines_never_part(text, encoding, batches):
    documents = Documents(encoding)
    documents.open(URI, text)
    for version, batch in enumerate(batches):
        assert documents.change(URI, batch, version=version) is ChangeResult.APPLIED
        held = documents.get(URI)
        assert held.document.text == Lines(held.lines.text).text.translate(dict.fromkeys(range(55296, 57344), 65533))
        assert held.snapshot().line_count == len(held.lines)
        for line in range(len(held.lines)):
            assert held.snapshot().line_start(line) == held.lines.start_of(line)


@pytest.fixture
def documents():
    return Documents()


def test_changes_of_one_notification_build_on_each_other(documents):
    documents.open(URI, "ab\ncd")
    documents.change(URI, [at(0, 1, 2, "XY\n"), at(1, 0, 0, "Z"), at(1, 0, 1, "")], version=2)
    assert documents.get(URI).document.text == "aXY\n\ncd"


def test_the_whole_text_is_taken_as_the_difference(documents):
    documents.open(URI, "a\nb\nc\n")
    held = documents.get(URI)
    assert documents.change(URI, [ContentChange("a\nbX\nc\n")], version=5) is ChangeResult.APPLIED
    assert documents.get(URI) is held
    assert (held.document.text, held.document.version) == ("a\nbX\nc\n", 5)
    documents.change(URI, [at(1, 2, 2, "Y")], version=6)
    assert held.document.text == "a\nbXY\nc\n"


def test_a_version_that_runs_backwards_is_taken_as_told(documents):
    documents.open(URI, "a", version=9)
    assert documents.change(URI, [at(0, 1, 1, "b")], version=3) is ChangeResult.APPLIED
    assert (documents.get(URI).document.text, documents.get(URI).document.version) == ("ab", 3)


def test_a_change_without_a_version_counts_on(documents):
    documents.open(URI, "a", version=9)
    documents.change(URI, [at(0, 1, 1, "b")])
    assert documents.get(URI).document.version == 10


def test_positions_outside_are_clamped_and_backward_ranges_turned_round(documents):
    documents.open(URI, "ab\r\ncd")
    documents.change(URI, [at(0, 99, 99, "X"), ContentChange("Y", Range(Point(99, 0), Point(99, 5)))], version=2)
    assert documents.get(URI).document.text == "abX\ncdY"
    documents.change(URI, [ContentChange("", Range(Point(1, 1), Point(0, 1)))], version=3)
    assert documents.get(URI).document.text == "adY"


def test_a_change_of_an_unknown_document_is_ignored_unless_it_is_the_whole_text(documents):
    assert documents.change(URI, [at(0, 0, 0, "x")], version=1) is ChangeResult.UNKNOWN
    assert documents.get(URI) is None
    assert documents.change(URI, [ContentChange("whole")], version=2) is ChangeResult.APPLIED
    assert documents.get(URI).document.text == "whole"
    assert documents.get(URI).document.language == "python"


def test_a_lost_document_ignores_changes_until_the_whole_text_comes(documents):
    documents.open(URI, "x")
    documents.lose(URI)
    assert documents.change(URI, [at(0, 0, 0, "y")], version=2) is ChangeResult.LOST
    assert not documents.get(URI).usable
    assert documents.change(URI, [ContentChange("z")], version=3) is ChangeResult.APPLIED
    assert documents.get(URI).usable
    assert documents.get(URI).document.text == "z"


def test_opening_again_replaces_and_closing_forgets(documents):
    documents.open(URI, "x")
    documents.open(URI, "y", version=4)
    assert documents.get(URI).document.text == "y"
    assert documents.close(URI) is not None
    assert documents.close(URI) is None
    assert documents.get(URI) is None


@pytest.mark.parametrize(
    ("uri", "text", "reason"),
    [
        ("file:///w/.env", "A=1", "secrets"),
        ("file:///w/a.bin", "\x00\x01" * 50, "binary"),
        ("file:///w/poetry.lock", "", "lock"),
    ],
)
def test_files_that_never_get_suggestions_say_why(uri, text, reason):
    assert reason in Documents().open(uri, text).excluded


def test_uris_are_the_same_however_they_are_escaped(documents):
    documents.open("file:///c%3A/a%20b.py", "x")
    assert documents.get("file:///c:/a b.py") is not None


def test_a_path_in_a_prompt_is_relative_to_the_innermost_folder():
    documents = Documents(roots=["/w", "/w/inner", "/other"])
    assert documents.open("file:///w/inner/p/a.py", "").document.path == "p/a.py"
    assert documents.open("file:///w/b.py", "").document.path == "b.py"
    assert documents.open("file:///elsewhere/c.py", "").document.path == "c.py"


def test_documents_that_are_on_no_disk_have_a_name_and_a_language(documents):
    assert documents.open("untitled:Untitled-1", "", language="python").document.language == "python"
    assert documents.open("untitled:scratch.py", "").document.language == "python"


@pytest.mark.parametrize("uri", ["", "file://[", "file:", "::", "http://[::1", "a\x00b", "%ff%fe", "\ud800"])
def test_any_uri_at_all_is_taken(uri):
    path_of(uri)
    documents = Documents(roots=["/w"])
    documents.open(uri, "x")
    assert documents.get(uri).document.text == "x"
