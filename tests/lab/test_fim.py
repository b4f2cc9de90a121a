import random
from collections import Counter

import pytest
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.templates import Control, grammar, render
from foretype_lab.training import fim
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = """import os


def first(path):
    for name in sorted(os.listdir(path)):
        if name:
            return name
    return None


def second():
    return 2
"""

LINES = st.lists(st.text(alphabet="ab (): \té😀", max_size=12), min_size=1, max_size=30)


def shown(pieces: list[fim.Piece]) -> str:
    return "".join(piece.token if isinstance(piece, fim.Special) else piece for piece in pieces)


def at(needle: str, end: str = "\n") -> fim.Hole:
    start = TEXT.index(needle)
    return fim.Hole(start, TEXT.index(end, start), "line")


def seg(kind: Kind, text: str = "") -> Segment:
    return Segment(kind=kind, scope=Scope.FILE, source=Source(path="a.py"), text=text)


def rendered(*segments: Segment) -> str:
    pieces = render(grammar("foretype-1"), segments)
    return "".join(piece.token if isinstance(piece, Control) else piece.text for piece in pieces)


def test_line_last_is_what_serving_sends_followed_by_the_answer() -> None:
    hole = at("name in sorted", ":")
    above, line = TEXT[: TEXT.index("    for")], "    for "
    below = TEXT[TEXT.index("        if name") :]
    prompt = rendered(
        seg(Kind.PATH), seg(Kind.PREFIX, above), seg(Kind.SUFFIX, below), seg(Kind.TAIL, ":"), seg(Kind.MIDDLE, line)
    )
    ours = "<|file_sep|>a.py\n" + shown(fim.psm_line_last(TEXT, hole))
    assert ours == prompt + "name in sorted(os.listdir(path))" + "<|end_of_middle|>"


def test_a_hole_up_to_the_line_end_has_no_tail_token() -> None:
    assert "<|fim_tail|>" not in shown(fim.psm_line_last(TEXT, at("return name")))


def test_growing_moves_lines_behind_the_middle_token_and_changes_nothing_else() -> None:
    hole = at("return name")
    growing = shown(fim.psm_growing(TEXT, hole, random.Random(5)))
    last = shown(fim.psm_line_last(TEXT, hole))
    above, _, rest = growing.partition("<|fim_suffix|>")
    suffix, _, typed = rest.partition("<|fim_middle|>")
    above_last, _, rest_last = last.partition("<|fim_suffix|>")
    suffix_last, _, typed_last = rest_last.partition("<|fim_middle|>")
    assert suffix == suffix_last
    assert len(above) < len(above_last)
    assert above.endswith(("<|fim_prefix|>", "\n"))
    assert above + typed == above_last + typed_last


def test_classic_and_suffix_first_are_what_serving_sends() -> None:
    hole = at("name in sorted", ":")
    before, middle, after = TEXT[: hole.start], TEXT[hole.start : hole.end], TEXT[hole.end :]
    end = middle + "<|end_of_middle|>"
    classic = rendered(seg(Kind.PATH), seg(Kind.PREFIX, before), seg(Kind.SUFFIX, after), seg(Kind.MIDDLE, ""))
    assert "<|file_sep|>a.py\n" + shown(fim.psm_classic(TEXT, hole)) == classic + end
    suffix_first = rendered(seg(Kind.PATH), seg(Kind.SUFFIX, after), seg(Kind.PREFIX, before))
    assert "<|file_sep|>a.py\n" + shown(fim.spm(TEXT, hole)) == suffix_first + end


@pytest.mark.parametrize("layout", sorted(fim.LAYOUT_WEIGHTS))
@given(lines=LINES, seed=st.integers(0, 1 << 30), ends=st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=60, deadline=None)
def test_no_layout_loses_or_invents_a_character(layout: str, lines: list[str], seed: int, ends: str) -> None:
    text, draw = ends.join(lines), random.Random(seed)
    hole = fim.choose_hole(text, draw)
    if hole is None:
        return
    assert 0 <= hole.start <= hole.end <= len(text)
    pieces = fim.lay_out(text, hole, layout, draw)
    assert pieces[-1] == fim.END
    assert pieces[-2] == text[hole.start : hole.end]
    joined = "".join(piece for piece in pieces if isinstance(piece, str))
    lost = len(text) - len(joined)
    # PSM with the line last leaves out the line end behind the hole, which the editor has anyway.
    assert Counter(text) - Counter(joined) <= Counter("\r\n")
    assert 0 <= lost <= 2
    assert Counter(joined) <= Counter(text)


def test_middles_have_the_lengths_that_users_see() -> None:
    text, draw = TEXT * 40, random.Random(5)
    holes = [hole for _ in range(3000) if (hole := fim.choose_hole(text, draw))]
    share = {kind: count / len(holes) for kind, count in Counter(hole.kind for hole in holes).items()}
    inline = ("line", "bracket", "span", "nothing")
    assert 0.65 < sum(share[kind] for kind in inline) < 0.71
    assert 0.04 < share["nothing"] < 0.08
    assert 0.22 < share["block"] < 0.28
    assert 0.05 < share["long"] < 0.09
    assert all("\n" not in text[hole.start : hole.end] for hole in holes if hole.kind in inline)


def test_cursors_stand_where_people_leave_them() -> None:
    text, draw = TEXT * 40, random.Random(8)
    holes = [hole for _ in range(3000) if (hole := fim.choose_hole(text, draw))]
    indented = [
        hole for hole in holes if hole.kind in ("line", "block") and text[fim.line_start(text, hole.start)] == " "
    ]
    at_start = sum(hole.start == fim.line_start(text, hole.start) for hole in indented) / len(indented)
    assert 0.09 < at_start < 0.16, "column 0, where the answer brings the indentation"
    before_closing = [hole for hole in holes if hole.kind == "bracket"]
    assert len(before_closing) > 100
    assert all(text[hole.end] in ")]}" for hole in before_closing)


def test_a_fresh_hole_holds_as_many_lines_as_serving_gives_it_and_most_have_grown() -> None:
    assert grammar(fim.GRAMMAR).fresh_lines == fim.FRESH_LINES
    text, draw = "line = 1\n" * 40, random.Random(9)
    hole = fim.Hole(len(text) - 9, len(text) - 1, "line")
    above = Counter(
        shown(fim.psm_growing(text, hole, draw)).partition("<|fim_middle|>")[2].count("\n") for _ in range(1000)
    )
    assert set(above) == set(range(fim.GROWING_LINES + 1))
    assert 0.38 < above[fim.FRESH_LINES] / 1000 < 0.48
    assert 0.07 < sum(above[lines] for lines in range(fim.FRESH_LINES)) / 1000 < 0.13


def test_cuts_fall_inside_words_too() -> None:
    text, draw = TEXT * 40, random.Random(6)
    inside = 0
    for _ in range(1000):
        hole = fim.choose_hole(text, draw)
        assert hole is not None
        around = text[hole.start - 1 : hole.start + 1]
        inside += around.isalpha() and len(around) == 2
    assert inside > 150


def test_a_block_ends_where_the_indentation_falls_below_its_first_line() -> None:
    draw, ends = random.Random(7), set[str]()
    for _ in range(4000):
        hole = fim.choose_hole(TEXT, draw)
        if hole and hole.kind == "block" and fim.line_start(TEXT, hole.start) == TEXT.index("        if name"):
            ends.add(TEXT[hole.start : hole.end].rsplit("\n", 1)[-1].strip())
    assert ends == {"return name"}


def test_an_empty_text_has_no_hole() -> None:
    assert fim.choose_hole("", random.Random(0)) is None
    assert fim.choose_hole("\n\n  \n", random.Random(0)) is None
