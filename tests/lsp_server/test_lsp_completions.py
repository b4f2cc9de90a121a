from foretype_lsp.documents.positions import Encoding, Lines, Position
from foretype_lsp.suggestions.items import ACCEPT_COMMAND, accepted_characters, cursor_line, item
from hypothesis import given
from hypothesis import strategies as st


def make(text, offset, suggestion, replaces=0, encoding=Encoding.UTF16):
    return item(cursor_line(Lines(text, encoding), offset), "id-1", suggestion, replaces)


def test_the_range_runs_from_the_first_non_blank_and_the_text_starts_with_what_is_there():
    made = make("def f():\n    return fib(\n", 24, "n - 1)")
    assert made["insertText"] == "return fib(n - 1)"
    assert made["range"] == {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 15}}


def test_in_the_indentation_the_range_starts_at_the_cursor():
    made = make("def f():\n    ", 13, "return 1")
    assert made["insertText"] == "return 1"
    assert made["range"] == {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 4}}
    left = make("def f():\n        x", 11, "y")
    assert left["insertText"] == "y"
    assert left["range"]["start"] == {"line": 1, "character": 2}


def test_what_is_replaced_right_of_the_cursor_is_in_the_range():
    made = make("f()", 2, "a, b)", 1)
    assert made["insertText"] == "f(a, b)"
    assert made["range"]["end"] == {"line": 0, "character": 3}


def test_a_replacement_never_leaves_the_line():
    assert make("f(\nx", 2, "a)", 5)["range"]["end"] == {"line": 0, "character": 2}


def test_positions_are_in_the_clients_units():
    text = 's = "😀语" + x'
    for encoding, character in [(Encoding.UTF8, 17), (Encoding.UTF16, 13), (Encoding.UTF32, 12)]:
        assert make(text, len(text), "y", encoding=encoding)["range"]["end"]["character"] == character


def test_accepting_names_the_suggestion():
    assert make("x", 1, "y")["command"] == {"title": "Accepted", "command": ACCEPT_COMMAND, "arguments": ["id-1"]}


def test_a_line_with_half_a_surrogate_pair_is_not_handed_back():
    assert make("a\ud83d b", 4, "c")["insertText"] == " bc"


def test_accepted_length_is_counted_in_utf16_from_the_start_of_the_text():
    assert accepted_characters("x = 😀y", 4, 6) == 1
    assert accepted_characters("x = 😀y", 4, 7) == 2
    assert accepted_characters("x = 😀y", 4, 99) == 2
    assert accepted_characters("x = 😀y", 4, 1) == 0


@given(st.text(alphabet="ab \t\n\r😀语", max_size=30), st.data(), st.text(alphabet="xy\n😀", max_size=5))
def test_putting_the_text_into_the_range_gives_the_document_with_the_suggestion(text, data, suggestion):
    for encoding in Encoding:
        lines = Lines(text, encoding)
        text = lines.text
        offset = lines.offset_at(lines.position_at(data.draw(st.integers(0, len(text)))))
        replaces = data.draw(st.integers(0, 2))
        replaces = min(replaces, len(cursor_line(lines, offset).text) - cursor_line(lines, offset).column)
        made = item(cursor_line(lines, offset), "id", suggestion, replaces)
        start, end = (Position(**made["range"][side]) for side in ("start", "end"))
        a, b = lines.offset_at(start), lines.offset_at(end)
        assert text[:a] + made["insertText"] + text[b:] == text[:offset] + suggestion + text[offset + replaces :]
