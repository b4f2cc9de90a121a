from itertools import pairwise

import pytest
from foretype_client.flow.strands import WINDOW_LINES, Place, Strand
from foretype_context.prompt.profile import Profile
from foretype_context.syntax.closers import is_added_by_editor, is_closers, is_closing_line
from foretype_context.syntax.document import Document, Snapshot
from hypothesis import given
from hypothesis import strategies as st

PROFILE = Profile(model="m", grammar="foretype-1", tokenizer_digest="00")


def at(text: str, uri: str = "file:///a.py", profile: Profile | None = PROFILE, language: str = "plaintext") -> Place:
    """The place of the `|` in `text`."""
    offset = text.index("|")
    return Place.of(snapshot(text.replace("|", "", 1), uri, language), offset, profile)


def snapshot(text: str, uri: str = "file:///a.py", language: str = "plaintext") -> Snapshot:
    return Document(uri, text, language=language).snapshot()


def test_a_strand_answers_at_its_place_and_along_its_line() -> None:
    strand = Strand(at("x = |\n"), "foo()")
    assert strand.rest_at(at("x = |\n")) == "foo()"
    assert strand.rest_at(at("x = fo|\n")) == "o()"
    assert strand.rest_at(at("x = foo()|\n")) == ""
    assert strand.rest_at(at("x = fx|\n")) is None


def test_a_strand_does_not_answer_before_its_place() -> None:
    assert Strand(at("x = f|"), "oo()").rest_at(at("x = |")) is None


def test_typing_past_what_a_stream_has_said_is_no_contradiction() -> None:
    strand = Strand(at("x = |"), "fo")
    assert strand.typed(at("x = foo|")) == 3
    assert strand.rest_at(at("x = foo|")) is None
    strand.extend("o()")
    assert strand.rest_at(at("x = foo|")) == "()"
    assert strand.typed(at("x = fob|")) is None


def test_line_breaks_may_be_carriage_return_line_feed_in_the_document() -> None:
    strand = Strand(at("def f():|\r\nz\r\n"), "\n    a = 1\n    return a")
    assert strand.rest_at(at("def f():\r\n    a = 1\r\n    |\r\nz\r\n")) == "return a"


def test_white_space_is_significant_to_two_indents() -> None:
    assert at("if x:\n    |").line_prefix != at("if x:\n        |").line_prefix
    assert Strand(at("if x:\n    |"), "go()").rest_at(at("if x:\n        |")) is None
    assert at("if x:\n    a\n|").key != at("if x:\n  a\n|").key


def test_another_line_below_is_another_place() -> None:
    assert at("x = |\ny = 1").key != at("x = |\ny = 2").key


@pytest.mark.parametrize("closed", [")", ")]", '")', "\n)", "\n}\n"])
def test_closers_right_of_the_cursor_and_below_are_ignored(closed: str) -> None:
    assert at(f"foo(|{closed}\ny = 1").key == at("foo(|\ny = 1").key


@pytest.mark.parametrize(
    ("language", "closed", "ignored"),
    [
        ("html", "</li>", True),
        ("html", "</a:b-c.d></>);", True),
        ("html", "\n</li>\n  </ul>", True),
        ("html", "\nend", False),
        ("html", "<li>", False),
        ("html", "</li", False),
        ("html", "</li>x", False),
        ("javascriptreact", "</>", True),
        ("vue", "</li>", False),
        ("python", "</li>", False),
        ("ruby", "\n  end\nend", True),
        ("ruby", "\nend # a", False),
        ("ruby", " end", False),
        ("shellscript", "\ndone", True),
        ("shellscript", "\nend", False),
        ("python", "\nend", False),
    ],
)
def test_tags_and_ends_of_blocks_are_closers_where_the_language_has_them(
    language: str, closed: str, ignored: bool
) -> None:
    with_it = at(f"foo(|{closed}\ny = 1", language=language)
    assert (with_it.key == at("foo(|\ny = 1", language=language).key) is ignored


@pytest.mark.parametrize(
    ("language", "inserted", "added"),
    [
        ("python", "", True),
        ("python", ")]}>\"'`", True),
        ("python", ");", False),
        ("python", "\n", False),
        ("python", "\nend", False),
        ("html", "</li>", True),
        ("html", '"></li>', True),
        ("html", " </li>", False),
        ("python", "</li>", False),
        ("ruby", "\nend", True),
        ("ruby", "  \r\n  end", True),
        ("ruby", "end", False),
        ("ruby", "\nend\n", False),
        ("ruby", "\nends", False),
    ],
)
def test_what_an_editor_adds_to_what_is_typed(language: str, inserted: str, added: bool) -> None:
    assert is_added_by_editor(inserted, language) is added


def test_the_word_that_ends_a_block_is_one_on_a_line_of_its_own() -> None:
    assert is_closing_line("  end", "ruby") and not is_closers("  end", "ruby")
    assert is_closing_line("  });", "javascript") and is_closers("  });", "javascript")


def test_text_right_of_the_cursor_is_not_ignored() -> None:
    assert at("foo(|bar)").key != at("foo(|)").key


def test_lines_far_above_and_the_line_number_do_not_matter() -> None:
    lines = "".join(f"line {n}\n" for n in range(WINDOW_LINES + 3))
    assert at(f"import os\n{lines}x|").key == at(f"{lines}x|").key


def test_each_line_of_the_window_matters() -> None:
    lines = [f"line {n}\n" for n in range(WINDOW_LINES)]
    whole = at("top\n" + "".join(lines) + "|").key
    for n in range(WINDOW_LINES):
        other = [*lines[:n], "changed\n", *lines[n + 1 :]]
        assert at("top\n" + "".join(other) + "|").key != whole


def test_uri_and_profile_are_part_of_a_place() -> None:
    assert at("x|").key != at("x|", uri="file:///b.py").key
    assert at("x|") != at("x|", profile=Profile(model="n", grammar="foretype-1", tokenizer_digest="00"))
    assert at("x|") != at("x|", profile=None)


TEXT = st.text(alphabet="ab \t\n(é😀", max_size=60)


@given(above=st.text(alphabet="ab \n", max_size=400), generated=TEXT, below=TEXT)
def test_a_strand_answers_at_every_place_along_it(above: str, generated: str, below: str) -> None:
    text, offset = above + "\n" + below, len(above)
    strand = Strand(Place.of(snapshot(text), offset, PROFILE), generated)
    for typed in range(len(generated) + 1):
        after = snapshot(above + generated[:typed] + "\n" + below)
        assert strand.rest_at(Place.of(after, offset + typed, PROFILE)) == generated[typed:]


@given(generated=TEXT, cuts=st.lists(st.integers(0, 60), max_size=6))
def test_a_strand_grown_in_pieces_is_the_strand_of_the_whole(generated: str, cuts: list[int]) -> None:
    place = at("def f(|\nend")
    pieces = Strand(place)
    bounds = [0, *sorted(min(cut, len(generated)) for cut in cuts), len(generated)]
    for start, end in pairwise(bounds):
        pieces.extend(generated[start:end])
    assert pieces == Strand(place, generated)
