import random
from collections import Counter

import pytest
from context.tiny import tiny
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.templates import Control, grammar, render
from foretype_context.syntax.document import Document
from foretype_lab.adapter import holes
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


def shown(pieces: list[holes.Piece]) -> str:
    return "".join(piece.token if isinstance(piece, holes.Special) else piece for piece in pieces)


def at(needle: str, end: str = "\n") -> holes.Hole:
    start = TEXT.index(needle)
    return holes.Hole(start, TEXT.index(end, start), "line")


def seg(kind: Kind, text: str = "") -> Segment:
    return Segment(kind=kind, scope=Scope.FILE, source=Source(path="a.py"), text=text)


def rendered(*segments: Segment) -> str:
    pieces = render(grammar("foretype-3"), segments)
    return "".join(piece.token if isinstance(piece, Control) else piece.text for piece in pieces)


def test_line_last_is_what_serving_sends_followed_by_the_answer() -> None:
    hole = at("name in sorted", ":")
    above, line = TEXT[: TEXT.index("    for")], "    for "
    below = TEXT[TEXT.index("        if name") :]
    prompt = rendered(
        seg(Kind.PATH), seg(Kind.PREFIX, above), seg(Kind.SUFFIX, below), seg(Kind.TAIL, ":"), seg(Kind.MIDDLE, line)
    )
    ours = "<|file_sep|>a.py\n" + shown(holes.psm_line_last(TEXT, hole))
    assert ours == prompt + "name in sorted(os.listdir(path))" + "<|end_of_middle|>"


def test_a_hole_up_to_the_line_end_has_no_tail_token() -> None:
    assert "<|fim_tail|>" not in shown(holes.psm_line_last(TEXT, at("return name")))


def test_growing_moves_lines_behind_the_middle_token_and_changes_nothing_else() -> None:
    hole = at("return name")
    growing = shown(holes.psm_growing(TEXT, hole, random.Random(5)))
    last = shown(holes.psm_line_last(TEXT, hole))
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
    assert "<|file_sep|>a.py\n" + shown(holes.psm_classic(TEXT, hole)) == classic + end
    suffix_first = rendered(seg(Kind.PATH), seg(Kind.SUFFIX, after), seg(Kind.PREFIX, before))
    assert "<|file_sep|>a.py\n" + shown(holes.spm(TEXT, hole)) == suffix_first + end


@pytest.mark.parametrize(
    ("needle", "typed"),
    [("eturn name", " r"), ("return name", " "), ("os.listdir(path)", "("), ("def second", "\n\n\n")],
)
def test_a_prompt_ends_where_serving_ends_it_and_the_answer_begins_with_what_is_left_out(
    needle: str, typed: str
) -> None:
    hole = at(needle)
    pieces, count = holes.lay_out(TEXT, hole, "spm", random.Random(1))
    left, answer = pieces[-3], pieces[-2]
    assert isinstance(left, str) and isinstance(answer, str)
    assert (answer[:count], answer[count:]) == (typed, TEXT[hole.start : hole.end])
    snapshot = Document("file:///a.py", TEXT[: hole.start] + TEXT[hole.end :], path="a.py").snapshot()
    tokenizer = tiny("foretype-3")
    profile = Profile(model="m", grammar="foretype-3", tokenizer_digest=tokenizer.digest, layout="spm")
    plan, _ = Assembler(tokenizer, profile).plan(PlanState.empty(), snapshot, hole.start, now=0.0)
    assert plan.healed == typed
    served = "".join(p.segment.text for p in plan.segments if p.segment.kind in (Kind.PREFIX, Kind.MIDDLE))
    assert served == left


@pytest.mark.parametrize("layout", ["spm", "psm_growing", "psm_line_last", "psm_classic"])
@given(lines=LINES, seed=st.integers(0, 1 << 30), ends=st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=60, deadline=None)
def test_no_layout_loses_or_invents_a_character(layout: str, lines: list[str], seed: int, ends: str) -> None:
    text, draw = ends.join(lines), random.Random(seed)
    hole = holes.choose_hole(text, draw)
    if hole is None:
        return
    assert 0 <= hole.start <= hole.end <= len(text)
    pieces, typed = holes.lay_out(text, hole, layout, draw)
    answer = pieces[-2]
    assert pieces[-1] == holes.END and isinstance(answer, str)
    assert answer == text[hole.start - typed : hole.end]
    joined = "".join(piece for piece in pieces if isinstance(piece, str))
    lost = len(text) - len(joined)
    # PSM with the line last leaves out the line end behind the hole, which the editor has anyway.
    assert Counter(text) - Counter(joined) <= Counter("\r\n")
    assert 0 <= lost <= 2
    assert Counter(joined) <= Counter(text)


def test_middles_have_the_lengths_that_users_see() -> None:
    text, draw = TEXT * 40, random.Random(5)
    found = [hole for _ in range(3000) if (hole := holes.choose_hole(text, draw))]
    share = {kind: count / len(found) for kind, count in Counter(hole.kind for hole in found).items()}
    inline = ("line", "bracket", "span", "nothing")
    assert 0.77 < sum(share[kind] for kind in inline) < 0.83
    assert 0.04 < share["nothing"] < 0.08
    assert 0.15 < share["block"] < 0.21
    assert 0.01 < share["long"] < 0.04
    assert all("\n" not in text[hole.start : hole.end] for hole in found if hole.kind in inline)


def test_cursors_stand_where_people_leave_them() -> None:
    text, draw = TEXT * 40, random.Random(8)
    found = [hole for _ in range(3000) if (hole := holes.choose_hole(text, draw))]
    indented = [
        hole for hole in found if hole.kind in ("line", "block") and text[holes.line_start(text, hole.start)] == " "
    ]
    at_start = sum(hole.start == holes.line_start(text, hole.start) for hole in indented) / len(indented)
    assert 0.09 < at_start < 0.16, "column 0, where the answer brings the indentation"
    before_closing = [hole for hole in found if hole.kind == "bracket"]
    assert len(before_closing) > 100
    assert all(text[hole.end] in ")]}" for hole in before_closing)


def test_a_fresh_hole_holds_as_many_lines_as_serving_gives_it_and_most_have_grown() -> None:
    assert grammar(holes.GRAMMAR).fresh_lines == holes.FRESH_LINES
    text, draw = "line = 1\n" * 40, random.Random(9)
    hole = holes.Hole(len(text) - 9, len(text) - 1, "line")
    above = Counter(
        shown(holes.psm_growing(text, hole, draw)).partition("<|fim_middle|>")[2].count("\n") for _ in range(1000)
    )
    assert set(above) == set(range(holes.GROWING_LINES + 1))
    assert 0.38 < above[holes.FRESH_LINES] / 1000 < 0.48
    assert 0.07 < sum(above[lines] for lines in range(holes.FRESH_LINES)) / 1000 < 0.13


def test_cuts_fall_inside_words_too() -> None:
    text, draw = TEXT * 40, random.Random(6)
    inside = 0
    for _ in range(1000):
        hole = holes.choose_hole(text, draw)
        assert hole is not None
        around = text[hole.start - 1 : hole.start + 1]
        inside += around.isalpha() and len(around) == 2
    assert inside > 150


def test_a_block_ends_where_the_indentation_falls_below_its_first_line() -> None:
    draw, ends = random.Random(7), set[str]()
    for _ in range(4000):
        hole = holes.choose_hole(TEXT, draw)
        if hole and hole.kind == "block" and holes.line_start(TEXT, hole.start) == TEXT.index("        if name"):
            ends.add(TEXT[hole.start : hole.end].rsplit("\n", 1)[-1].strip())
    assert ends == {"return name"}


def test_an_empty_text_has_no_hole() -> None:
    assert holes.choose_hole("", random.Random(0)) is None
    assert holes.choose_hole("\n\n  \n", random.Random(0)) is None
