import pytest
from foretype_client.adaptive.candidates import CopyLine
from foretype_context.syntax.document import Document
from hypothesis import given
from hypothesis import strategies as st


def suggest(text: str, **options: int) -> str | None:
    offset = text.index("|")
    snapshot = Document("file:///a.py", text.replace("|", "", 1), language="plaintext").snapshot()
    found = CopyLine(**options).suggest(snapshot, offset)
    return None if found is None else found.text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("import os\nimport re\nx\nimp|\n", "ort re"),  # the most recent line above wins
        ("    return self.a\nif x:\n        ret|", "urn self.a"),  # indentation may differ
        ("imp|\nx = 1\nimport os\nimport re\n", "ort os"),  # below is asked where above has nothing
        ("  import os\nimp|", "ort os"),  # the start of the text is a line's
        ("return value\nreturn\nret\n    ret|", "urn"),
        ("return\n    return|", None),  # an equal line with nothing more is passed over
        # Line endings and trailing blanks are not copied.
        ("import os  \r\nimp|\r\n", "ort os"),
        ("imp|\r\nimport os\r\n", "ort os"),
        ("import os\rimp|\r", "ort os"),
        ("x\rimport os\rimp|\r", "ort os"),
        # Too little is typed.
        ("import os\nim|", None),
        ("import os\ni m|", None),
        ("import os\n    |", None),
        ("|", None),
    ],
)
def test_the_rest_of_the_nearest_line_that_begins_like_this_one(text: str, rest: str | None) -> None:
    assert suggest(text) == rest


def test_the_middle_of_a_line_is_not_its_start() -> None:
    assert suggest("x = import_it\nimp|") is None


def test_the_search_gives_up_after_its_probes() -> None:
    text = "self.one = 1\n" + "x = self.two\n" * 5 + "self|"
    assert suggest(text, probes_max=3) is None
    assert suggest(text, probes_max=6) == ".one = 1"


def test_the_window_bounds_the_search() -> None:
    assert suggest("import os\n" + "x\n" * 100 + "imp|", above_chars=100) is None
    assert suggest("imp|\n" + "x\n" * 100 + "import os\n", below_chars=100) is None


def test_a_window_that_begins_inside_a_line_does_not_make_a_line_start() -> None:
    assert suggest("long = import os\n" + "imp|", above_chars=len("import os\n")) is None


@given(st.text(alphabet="ab \n\r\t", max_size=80), st.integers(0, 80))
def test_what_is_copied_is_the_rest_of_a_line_of_the_document(text: str, offset: int) -> None:
    offset = min(offset, len(text))
    offset -= text[max(offset - 1, 0) : offset + 1] == "\r\n"  # no cursor stands inside of a line's end
    snapshot = Document("file:///a.py", text, language="plaintext").snapshot()
    found = CopyLine(typed_chars_min=1).suggest(snapshot, offset)
    typed = snapshot.text[snapshot.line_start(snapshot.line_of(offset)) : offset].lstrip(" \t")
    if found is not None:
        lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
        assert any(line.startswith(typed.strip()) and line.endswith(found.text.strip()) for line in lines)
