"""What is taken of an answer: one edit within the window, or nothing. Whatever comes, and in whatever pieces."""

import re

import pytest
from foretype_context.edit_models.answer import AnswerReader, Nothing, ReadAnswer
from foretype_context.edit_models.format import FORMATS, edit_format
from foretype_context.edit_models.question import EditQuestion, WindowEdit
from foretype_context.edit_models.regions import boundaries, lines_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

ZETA, SWEEP = "zeta-2.1", "sweep-next-edit"
WINDOW = "def total(basket):\n    sum = 0\n    for one in items:\n        sum += one\n    return sum\n"
NEXT = WINDOW.replace("items", "basket")
TWO = "".join(f"line {n}\n" for n in range(20))
"""Of two regions."""


def taken(
    answer: str, window: str = WINDOW, *, id: str = SWEEP, whole: bool = True, above: str = "", below: str = ""
) -> ReadAnswer:
    reader = AnswerReader(edit_format(id), EditQuestion(window=window, cursor=0, above=above, below=below))
    reader.feed(answer)
    return reader.end(whole=whole)


def applied(window: str, edit: WindowEdit | None) -> str:
    assert edit is not None and 0 <= edit.start <= edit.end <= len(window)
    return window[: edit.start] + edit.text + window[edit.end :]


def test_the_first_difference_is_the_edit_and_as_short_as_it_can_be() -> None:
    found = taken(NEXT.replace("return sum", "return sum * 2"))
    assert found == ReadAnswer(
        WindowEdit(start=WINDOW.index("items"), end=WINDOW.index("items:") + 5, text="basket"), ""
    )
    assert applied(WINDOW, found.edit) == NEXT


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        pytest.param(NEXT, NEXT, id="as it was asked for"),
        pytest.param(NEXT.removesuffix("\n"), NEXT, id="without the last line ending"),
        pytest.param(NEXT.replace("\n", "\r\n"), NEXT, id="with other line endings"),
        pytest.param(WINDOW.replace("    sum = 0\n", ""), WINDOW.replace("    sum = 0\n", ""), id="a deletion"),
        pytest.param("x = 1\n" + WINDOW, "x = 1\n" + WINDOW, id="before the first line"),
        pytest.param(WINDOW + "\n\nprint(2)\n", WINDOW + "\n\nprint(2)\n", id="behind the last line"),
    ],
)
def test_an_answer_becomes_its_text(answer: str, wanted: str) -> None:
    assert applied(WINDOW, taken(answer).edit) == wanted


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(WINDOW, Nothing.NOTHING, id="the window again"),
        pytest.param(WINDOW + "\n\n", Nothing.NOTHING, id="and empty lines"),
        pytest.param("NO_EDITS", Nothing.NOTHING, id="no edits"),
        pytest.param("", Nothing.CUT, id="empty"),
        pytest.param(NEXT[:70], Nothing.CUT, id="in the middle of a line"),
        pytest.param(NEXT[: NEXT.index("    return")], Nothing.CUT, id="in the middle of the window"),
        pytest.param(NEXT + "    return sum\n", Nothing.TAIL, id="the last line twice"),
        pytest.param(NEXT + "        sum += one\n    return sum\n", Nothing.TAIL, id="the last lines twice"),
        pytest.param(NEXT + "NO_EDITS\n", Nothing.MARKER, id="leaked words"),
        pytest.param(NEXT + "<|file_sep|>b.py\n", Nothing.MARKER, id="a token of the format, spelled"),
        pytest.param(NEXT + "<|fim_middle|>", Nothing.MARKER, id="a token of another"),
        pytest.param(NEXT + "<|file_s", Nothing.MARKER, id="the beginning of a token"),
        pytest.param("```python\n" + NEXT + "```\n", Nothing.MARKER, id="a fence"),
        pytest.param(">>>>>>> UPDATED\n" + NEXT, Nothing.MARKER, id="the marker of a merge"),
        pytest.param("Here is the code:\n" + NEXT, Nothing.UNREADABLE, id="talk"),
        pytest.param("int main() {\n  return 0;\n}\n", Nothing.UNREADABLE, id="another file"),
    ],
)
def test_what_is_no_answer_is_dropped_whole(answer: str, why: Nothing) -> None:
    assert taken(answer) == ReadAnswer(None, why)


def test_what_did_not_come_to_its_end_is_dropped() -> None:
    assert taken(NEXT, whole=False) == ReadAnswer(None, Nothing.CUT)


def test_what_stands_around_the_window_is_not_put_into_it() -> None:
    assert taken(NEXT + "print(total([]))\n", below="print(total([]))\n").reason == Nothing.TAIL
    assert taken("import os\n" + NEXT, above="import os\n").reason == Nothing.OUTSIDE


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("<|marker_1|>\n" + NEXT + "<|marker_2|>", NEXT),
        ("\n<|marker_1|>\n" + NEXT + "<|marker_2|>\nand more <[fim-middle]>", NEXT),
        ("<|marker_1|>\n" + NEXT.replace("total", "to<|user_cursor|>tal") + "<|marker_2|>", NEXT),
        ("<|marker_1|>\n" + NEXT.removesuffix("\n") + "<|marker_2|>", NEXT),
        (
            "<|marker_1|>\ndef total(basket):\n    return sum(basket)\n<|marker_2|>",
            "def total(basket):\n    return sum(basket)\n",
        ),
    ],
)
def test_between_two_markers_stands_the_answer(answer: str, wanted: str) -> None:
    assert applied(WINDOW, taken(answer, id=ZETA, whole=False).edit) == wanted


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("<|marker_1|><|marker_1|>", Nothing.NOTHING),
        ("<|marker_2|>\n<|marker_2|>", Nothing.NOTHING),
        ("NO_EDITS", Nothing.NOTHING),
        ("<|marker_1|>\n" + NEXT, Nothing.CUT),
        (NEXT, Nothing.UNREADABLE),
        ("so: <|marker_1|>\n" + NEXT + "<|marker_2|>", Nothing.UNREADABLE),
        ("<|marker_2|>\n" + NEXT + "<|marker_3|>", Nothing.OUTSIDE),
        ("<|marker_0|>\n" + NEXT + "<|marker_2|>", Nothing.OUTSIDE),
        ("<|marker_2|>\n" + NEXT + "<|marker_1|>", Nothing.OUTSIDE),
        ("<|marker_1|>\n<|user_cursor|>" + NEXT + "<|user_cursor|><|marker_2|>", Nothing.MARKER),
        ("<|marker_1|>\n<filename>b.py\n" + NEXT + "<|marker_2|>", Nothing.MARKER),
        ("<|marker_1|>\n" + NEXT + "    return sum\n<|marker_2|>", Nothing.TAIL),
        ("<|marker_1|>\n<|marker_2|>", Nothing.CUT),
    ],
)
def test_between_markers_that_are_none_stands_nothing(answer: str, why: Nothing) -> None:
    assert taken(answer, id=ZETA) == ReadAnswer(None, why)


def test_one_region_of_several_is_changed_and_the_others_stay() -> None:
    places = boundaries(lines_of(TWO), *edit_format(ZETA).marker_lines)
    assert len(places) == 3
    second = "".join(TWO.splitlines(keepends=True)[places[1] :])
    changed = second.replace("line 18", "line eighteen")
    found = taken("<|marker_2|>\n" + changed + "<|marker_3|>", TWO, id=ZETA)
    assert applied(TWO, found.edit) == TWO.replace("line 18", "line eighteen")
    both = taken("<|marker_1|>\n" + TWO.replace("line 3\n", "") + "<|marker_3|>", TWO, id=ZETA)
    assert applied(TWO, both.edit) == TWO.replace("line 3\n", "")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_line_endings_stay_those_of_the_window(ending: str, last: bool) -> None:
    window = ending.join(["a", "b", "c"]) + ending * last
    for new in (["a", "x", "c"], ["a", "b", "c", "d", "e"], ["a", "b", "x"], ["n", "a", "b", "c"], ["a", "c"]):
        found = taken("\n".join(new), window)
        assert applied(window, found.edit) == ending.join(new) + ending * last


# Whatever comes

CODE = ["def f(a):", "    return a", "", "x = 1", "}", "    if x:", "print(x)"]
WINDOWS = st.tuples(
    st.lists(st.sampled_from(CODE), min_size=1, max_size=24), st.sampled_from(["\n", "\r\n"]), st.booleans()
).map(lambda drawn: drawn[1].join(drawn[0]) + drawn[1] * drawn[2] or "\n")
PIECES = st.sampled_from(
    [
        *CODE,
        *(f"{line}\n" for line in CODE),
        "\n",
        "\r\n",
        "<|marker_1|>",
        "<|marker_2|>\n",
        "<|marker_3|>",
        "<|mark",
        "er_1|>",
        "<|user_cursor|>",
        "<|file_sep|>",
        "<|endoftext|>",
        "<filename>",
        "<[fim-middle]>",
        "```",
        "NO_EDITS",
        "Here is the code:\n",
        "FOREIGN\n",
        "🙂",
    ]
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, str, str, bool]:
    """A window, a format, and an answer that is near one or far from it."""
    id, window = draw(st.sampled_from(sorted(FORMATS))), draw(WINDOWS)
    lines = lines_of(window)
    if draw(st.booleans()):
        text = "".join(draw(st.lists(PIECES, max_size=30)))
    else:
        at = draw(st.integers(0, len(lines)))
        gone = draw(st.integers(0, 2))
        text = (
            "\n".join(
                [*lines[:at], *draw(st.lists(st.sampled_from([*CODE, "y = 2"]), max_size=3)), *lines[at + gone :]]
            )
            + "\n"
        )
        if id == ZETA:
            last = len(boundaries(lines, *edit_format(ZETA).marker_lines))
            text = f"<|marker_1|>\n{text}<|marker_{last}|>"
        text += draw(st.sampled_from(["", "", "", "<|file_sep|>", "}\n", "<|fi"]))
    return window, id, text, draw(st.booleans())


@settings(max_examples=600)
@given(
    answers(), st.lists(st.integers(1, 12), min_size=1, max_size=8), st.sampled_from(["", "}\n", "x = 1\nprint(x)\n"])
)
@example(("a\n", SWEEP, "a\nFOREIGN\n<|file_sep|>", True), [1], "")
@example(("def f(a):", "nep-qwen2.5-coder", "def f(a):```", True), [1], "")
@example(("def f(a):", "nep-qwen2.5-coder", "def f(a):NO_EDITS", True), [1], "")
@example(("def f(a):", "nep-qwen2.5-coder", "<|markdef f(a):", True), [1], "")
def test_no_token_and_no_foreign_text_reaches_an_edit_and_it_stays_within_the_window(
    drawn: tuple[str, str, str, bool], sizes: list[int], below: str
) -> None:
    window, id, text, whole = drawn
    one, question = edit_format(id), EditQuestion(window=window, cursor=0, below=below)
    at_once, in_pieces = AnswerReader(one, question), AnswerReader(one, question)
    at_once.feed(text)
    at, turn = 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        if in_pieces.feed(text[at : at + size]):
            break
        at, turn = at + size, turn + 1
    found = at_once.end(whole=whole)
    assert in_pieces.end(whole=whole) == found, "the pieces do not matter"
    assert (found.edit is None) is (found.reason != "")
    if found.edit is None:
        return
    edit = found.edit
    after = applied(window, edit)
    assert after != window
    assert not one.owns(edit.text) and not one.owns(after)
    for token in ("<|", "<[", "```", "NO_EDIT"):
        assert after.count(token) <= window.count(token)
    said = re.split(r"<\|marker_\d+\|>", text)[1] if one.marker else text
    said = said.replace("\r\n", "\n").replace(one.cursor or "\r\n", "")
    assert edit.text.replace("\r\n", "\n").strip("\n") in said, "what is inserted was said there, in one piece"
    if window.endswith("\n"):
        assert after.endswith("\n") or not after
    assert "\r\n" in after or "\r" not in after
