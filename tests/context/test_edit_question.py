"""Windows, and what was done in them before: always whole lines, always of this text."""

import pytest
from foretype_context.edit_models.question import (
    MAX_QUESTION_CHARS,
    MAX_WINDOW_CHARS,
    EditQuestion,
    EditWindow,
    RecentEdit,
    RelatedText,
    question_at,
    recent_edit,
    window_at,
    window_before,
)
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(st.sampled_from("ab é🙂\r\n\n"), max_size=80)


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True) if text else []


@given(TEXTS, st.integers(-3, 90), st.integers(0, 4), st.integers(0, 4))
def test_a_window_is_whole_lines_around_the_place(text: str, offset: int, above: int, below: int) -> None:
    start, end = window_at(text, offset, above, below)
    place = min(max(offset, 0), len(text))
    assert 0 <= start <= place <= end <= len(text)
    assert start == 0 or text[start - 1] == "\n"
    assert end == len(text) or text[end - 1] == "\n"
    assert text.count("\n", start, place) <= above
    assert text.count("\n", place, end) <= below + 1


@given(TEXTS, TEXTS, st.data())
def test_the_window_before_an_edit_holds_what_the_edit_replaced_and_whole_lines(
    before: str, inserted: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(before)))
    end = data.draw(st.integers(start, len(before)))
    after = before[:start] + inserted + before[end:]
    place = data.draw(st.integers(start, start + len(inserted)))
    window = window_at(after, place, 2, 2)
    was = window_before(before, start, end, len(inserted), window)
    assert was is not None and was in before
    if window == (0, len(after)):
        assert was == before


def test_a_window_far_from_the_edit_was_what_it_is() -> None:
    before = "".join(f"line {n}\n" for n in range(40))
    at = before.index("line 5\n")
    after = before[:at] + "new\nnew\n" + before[at:]
    window = window_at(after, after.index("line 20"), 2, 2)
    assert window_before(before, at, at, len("new\nnew\n"), window) == after[slice(*window)]
    above = window_at(after, 0, 0, 1)
    assert window_before(before, at, at, len("new\nnew\n"), above) == "line 0\nline 1\n"


def test_an_edit_is_told_as_whole_lines_with_those_around_it() -> None:
    before = "a\nb\nc\nd\ne\nf\n"
    at = before.index("c")
    told = recent_edit("x.py", before, at, at + 1, "see", around_lines=1)
    assert told == RecentEdit(path="x.py", old="b\nc\nd\n", new="b\nsee\nd\n", line=1)
    assert recent_edit("x.py", before, at, at + 1, "c") is None, "nothing was changed"
    assert recent_edit("x.py", before, at, at, "x" * 5000) is None, "too large to be told"


def test_a_question_holds_what_the_profile_wants_and_no_more() -> None:
    text = "".join(f"line {n}\n" for n in range(40))
    wanted = EditWindow(lines_above=1, lines_below=1, around_lines=2, edits=2, related=True)
    edits = [RecentEdit(path="x.py", old=f"{n}\n", new=f"{n}!\n") for n in range(4)]
    found = question_at(text, text.index("20"), wanted, path="x.py", edits=edits, related=[RelatedText(text="t")])
    assert found.window == "line 19\nline 20\nline 21\n" and found.window[found.cursor :].startswith("20\n")
    assert (found.above, found.below, found.first_line) == ("line 17\nline 18\n", "line 22\nline 23\n", 19)
    assert found.edits == edits[2:] and len(found.related) == 1
    bare = question_at(text, 0, EditWindow(edits=0), edits=edits, related=[RelatedText(text="t")])
    assert bare is not None and not (bare.edits or bare.related or bare.above or bare.below)


@pytest.mark.parametrize("text", ["", "x" * (MAX_WINDOW_CHARS + 1)], ids=["empty", "one long line"])
def test_there_is_no_question_where_the_window_cannot_be_asked_about(text: str) -> None:
    assert question_at(text, 0, EditWindow()) is None


def test_what_the_types_do_not_refuse_is_named() -> None:
    assert EditQuestion(window="a\n", cursor=2).wrong() is None
    assert EditQuestion(window="a\n", cursor=3).wrong() == ("cursor", "3 is behind the window, which has 2 characters")
    assert (EditQuestion(window="", cursor=0).wrong() or ("",))[0] == "window"
    many = EditQuestion(window="a\n", cursor=0, related=[RelatedText(text="x" * 16_000)] * 9)
    assert many.characters > MAX_QUESTION_CHARS and (many.wrong() or ("",))[0] == "related"
