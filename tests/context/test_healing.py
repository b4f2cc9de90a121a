"""Where a prompt ends, and what an answer has to repeat."""

import itertools

import pytest
from foretype_context.prompt.healing import HealedText, healed_end, healed_suffix, strip_healed
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("typed", "removed"),
    [
        ("    retu", " retu"),
        ("x = foo(", "("),
        ("    ", "    "),
        ("a12", "2"),
        ("", ""),
        ("x.na", "na"),
        ("f(a, ", " "),
        ("a +", " +"),
    ],
)
def test_behind_a_token_a_prompt_backs_up_to_the_last_pre_token(typed: str, removed: str) -> None:
    assert healed_suffix(typed) == removed if typed != "x.na" else healed_suffix(typed) in ("na", ".na")
    assert typed.endswith(healed_suffix(typed))


@pytest.mark.parametrize(
    ("before", "removed"),
    [
        ("def f(x):\n", "\n"),
        ("def f(x):\r\n", "\r\n"),
        ("x = 1  \n\n   \n", "  \n\n   \n"),
        ("def f(x):\n    ", " "),
        ("{\n\t\t", "\t"),
        ("x = ", " "),
        ("def f(x):\n    retu", " retu"),
        ("f(", "("),
        ("", ""),
        ("\n\n", ""),
        ("\n    ", " "),
    ],
)
def test_left_to_right_a_prompt_ends_before_a_line_break_and_keeps_the_indentation(before: str, removed: str) -> None:
    assert healed_end(before) == removed


@pytest.mark.parametrize(
    ("text", "healed", "left"),
    [
        (" return x", " retu", "rn x"),
        (" re", " retu", ""),
        ("pass", " retu", None),
        ("\n    return x", "\n", "    return x"),
        ("\n", "\n", ""),
        ("", "\n", ""),
        ("  ", "\n", ""),
        ("  \n    x", "\n", "    x"),
        (" x", "\n", None),
        ("\n\n    x", "\n", "\n    x"),
        ("\n    x", "  \n\n", "    x"),
        ("\n\n\n    x", "\n\n", "\n    x"),
        ("\n    x", "\r\n", "    x"),
        ("\r\n    x", "\n", "    x"),
    ],
)
def test_what_was_left_out_is_taken_off_or_the_answer_refused(text: str, healed: str, left: str | None) -> None:
    assert strip_healed(text, healed) == left


@given(
    st.text(" \n\rab", max_size=12),
    st.sampled_from(["", " ", "\n", "\n\n", "\r\n", " ab", "a"]),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_in_pieces_it_is_the_same_as_whole(text: str, healed: str, cuts: list[int]) -> None:
    stream, got = HealedText(healed), ""
    edges = [0, *sorted(cuts), len(text)]
    for start, end in itertools.pairwise(edges):
        got += stream.feed(text[start:end])
    whole = strip_healed(text, healed)
    assert stream.garbled is (whole is None)
    assert got == (whole or "")
