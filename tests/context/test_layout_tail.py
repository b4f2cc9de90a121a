"""Tails of several lines: what stands between the cursor and a frozen suffix, and that nothing is lost or shown twice."""

import pytest
from context.test_layout_places import SOURCE, ids_of, opened, shared, text_of
from context.tiny import tiny
from foretype_context.prompt.assemble import Assembler, Plan, PlanState
from foretype_context.prompt.profile import Budgets, Profile
from foretype_context.prompt.segments import Kind
from foretype_context.prompt.templates import grammar
from foretype_context.syntax.document import Document, Edit, Snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

HOLE = SOURCE.index("    return value * 20 ")


def assembler(layout: str = "psm_growing", grammar_id: str = "foretype-2", **budgets: int) -> Assembler:
    tokenizer = tiny(grammar_id)
    chosen = Budgets(**{"prompt_tokens": 4000, "suffix_tokens": 300, **budgets})
    profile = Profile(model="m", grammar=grammar_id, tokenizer_digest=tokenizer.digest, layout=layout, budgets=chosen)
    return Assembler(tokenizer, profile, timer=lambda: 0.0)


class Typist:
    """Types into a document and plans after every step."""

    def __init__(self, one: Assembler, text: str, offset: int) -> None:
        self.one, self.offset, self.state, self.now = one, offset, PlanState.empty(), 0.0
        self.document = Document("file:///a.py", text, language="plaintext", path="a.py")
        self.plan = self.at(offset)

    def at(self, offset: int) -> Plan:
        self.offset, self.now = offset, self.now + 1
        self.plan, self.state = self.one.plan(self.state, self.document.snapshot(), offset, now=self.now)
        return self.plan

    def type(self, left: str, right: str = "") -> Plan:
        self.document.apply([Edit(self.offset, self.offset, left + right)], self.document.version + 1)
        return self.at(self.offset + len(left))


def whole_text(plan: Plan, snapshot: Snapshot, offset: int) -> None:
    """The prompt is the live text from its first line to its last, except in the spans that it lists as frozen."""
    above, middle, tail, below = (text_of(plan, k) for k in (Kind.PREFIX, Kind.MIDDLE, Kind.TAIL, Kind.SUFFIX))
    assert snapshot.text[:offset].endswith(above + middle)
    assert snapshot.text.startswith(tail, offset)
    ends = snapshot.line_of(offset + len(tail))
    # A rest of a line that is too long for its budget is cut; else the suffix begins where the tail ends.
    assert offset + len(tail) == snapshot.line_end(ends) or ends == snapshot.line_of(offset)
    start = snapshot.next_line_start(ends)
    if plan.frozen_spans:
        assert [span.text for span in plan.frozen_spans] == [below] and plan.frozen_spans[0].start == start
    else:
        assert snapshot.text.startswith(below, start)


def test_enter_between_two_brackets_appends() -> None:
    typist = Typist(assembler(), SOURCE[:HOLE] + "\n" + SOURCE[HOLE:], HOLE)
    before = typist.type("call(", ")")
    after = typist.type("\n    ", "\n")
    assert text_of(after, Kind.TAIL) == "\n)"
    assert text_of(after, Kind.SUFFIX) == text_of(before, Kind.SUFFIX) and not after.frozen_spans
    assert text_of(after, Kind.PREFIX) == text_of(before, Kind.PREFIX)
    lost = after.prompt_tokens - shared(ids_of(typist.one, before), ids_of(typist.one, after))
    assert lost < 12 + typist.one.tokenizer.count(before.middle), "the tail, and the hole that stands behind it"
    typed = typist.type("value")
    assert [one.segment.text for one in typed.segments[:-1]] == [one.segment.text for one in after.segments[:-1]]
    assert typed.middle == after.middle + "value"


@pytest.mark.parametrize("grammar_id", ["foretype-1", "qwen2.5-coder"])
def test_a_family_that_has_not_learned_it_gets_the_rest_of_the_line_alone(grammar_id: str) -> None:
    typist = Typist(assembler(grammar_id=grammar_id), SOURCE[:HOLE] + "\n" + SOURCE[HOLE:], HOLE)
    typist.type("call(", ")")
    after = typist.type("\n    ", "\n")
    assert text_of(after, Kind.TAIL) == ("" if typist.one.grammar.tail else "\n")
    assert text_of(after, Kind.TAIL) + text_of(after, Kind.SUFFIX) in typist.document.text
    assert "\n)\n" in typist.document.text and "\n)\n"[1:] in text_of(after, Kind.SUFFIX) + text_of(after, Kind.TAIL)


def test_going_up_inside_the_hole_keeps_the_suffix_for_three_lines() -> None:
    typist = Typist(assembler(), SOURCE[:HOLE] + "\n" + SOURCE[HOLE:], HOLE)
    before = typist.type("one = 1\ntwo = 2\nthree = 3\nfour = 4\nfive = 5")
    suffix = text_of(before, Kind.SUFFIX)
    for line, at in (("two = 2", 3), ("one = 1", 4)):
        plan = typist.at(typist.document.text.index(line) + len(line))
        kept = text_of(plan, Kind.TAIL).count("\n") == at and text_of(plan, Kind.SUFFIX) == suffix
        assert kept == (at <= 3)
        whole_text(plan, typist.document.snapshot(), typist.offset)


def test_lines_that_do_not_fit_into_the_tail_are_shown_by_a_new_suffix() -> None:
    typist = Typist(assembler(prompt_tokens=400, suffix_tokens=120), SOURCE[:HOLE] + "\n" + SOURCE[HOLE:], HOLE)
    for filler in ("x = [" + "1, " * 60 + "]", " " * 900 + "x"):
        plan = typist.type("call(", f"\n{filler}\n)")
        assert "\n" not in text_of(plan, Kind.TAIL)
        whole_text(plan, typist.document.snapshot(), typist.offset)


def test_a_fresh_hole_begins_above_the_cursors_line_in_families_of_small_models() -> None:
    lines = "".join(f"line_{number} = {number}\n" for number in range(9))
    end = len(lines)
    two = "line_7 = 7\nline_8 = 8\n"
    for family, middle in (("foretype-1", two), ("foretype-2", two), ("qwen2.5-coder", "")):
        plan = Typist(assembler(grammar_id=family), lines + "x\n" + lines, end).plan
        assert (text_of(plan, Kind.PREFIX), plan.middle) == (lines.removesuffix(middle), middle)
    typist = Typist(assembler(), lines + "\n" + lines, end)
    first = typist.plan
    for text in ("a = 1", "\nb = 2"):
        plan = typist.type(text)
        assert text_of(plan, Kind.PREFIX) == text_of(first, Kind.PREFIX), "Enter appends"
    assert plan.middle == "line_7 = 7\nline_8 = 8\na = 1\nb = 2"
    assert Typist(assembler(), "one = 1\n" + lines, len("one = 1\n")).plan.middle == "one = 1\n", (
        "where the file has no more"
    )


def test_lines_too_long_for_the_hole_stay_above_it() -> None:
    long = "value = [" + "1, " * 400 + "]\n"
    one = assembler(prompt_tokens=1200)
    plan = Typist(one, "a = 1\n" + long + "b = 2\n\n", len("a = 1\n" + long + "b = 2\n")).plan
    assert plan.middle == "b = 2\n"
    whole_text(plan, opened("a = 1\n" + long + "b = 2\n\n").snapshot(), len("a = 1\n" + long + "b = 2\n"))


@pytest.mark.parametrize("layout", ["psm_line_last", "psm_growing"])
def test_a_line_of_which_only_the_end_is_shown_has_no_line_above_it(layout: str) -> None:
    one, line = assembler(layout, prompt_tokens=600), "z" * 900
    plan = Typist(one, f"a = 1\n{line}\n", len(f"a = 1\n{line}")).plan
    assert 100 < len(plan.middle) < 900 and set(plan.middle) == {"z"}
    assert text_of(plan, Kind.PREFIX) == ""


@pytest.mark.parametrize("layout", ["psm_line_last", "psm_growing"])
@pytest.mark.parametrize("rest", ["", ")", " + offset" * 8, " + offset" * 80])
def test_where_the_tail_begins_the_suffix_both_stay_within_its_budget(layout: str, rest: str) -> None:
    one = assembler(layout, "qwen2.5-coder", suffix_tokens=120)
    assert not one.grammar.tail
    plan = Typist(one, SOURCE[:HOLE] + rest + SOURCE[HOLE:], HOLE).plan
    shown = text_of(plan, Kind.TAIL) + text_of(plan, Kind.SUFFIX)
    assert (rest + SOURCE[HOLE:]).startswith(shown)
    assert 60 < one.tokenizer.count(shown) <= 120


def test_the_last_lines_of_a_file_may_be_the_tail() -> None:
    typist = Typist(assembler(), "def f():\n    ", len("def f():\n    "))
    typist.type("call(", ")")
    plan = typist.type("\n        ", "\n    ")
    assert (text_of(plan, Kind.TAIL), text_of(plan, Kind.SUFFIX)) == ("\n    )", "")
    assert plan.middle == "def f():\n    call(\n        "


def test_the_grammar_renders_a_tail_of_lines_as_text_behind_one_token() -> None:
    family = grammar("foretype-2")
    assert (family.tail_lines, family.layouts[0]) == (3, "psm_growing")
    assert family.controls() == grammar("foretype-1").controls()
    assert (grammar("foretype-1").tail_lines, grammar("foretype-1").layouts[0]) == (0, "psm_line_last")


@pytest.mark.parametrize("grammar_id", ["foretype-1", "foretype-2"])
@pytest.mark.parametrize("layout", ["psm_line_last", "psm_growing"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_is_edited_and_wherever_one_goes_the_prompt_is_the_live_text(
    layout: str, grammar_id: str, data: st.DataObject
) -> None:
    one = assembler(layout, grammar_id, prompt_tokens=600, suffix_tokens=150)
    document = opened(SOURCE[:2_500].replace("\n", data.draw(st.sampled_from(["\n", "\r\n"]))))
    state, now = PlanState.empty(), 0.0
    places = [data.draw(st.integers(0, 2_500)) for _ in range(3)]
    for _ in range(data.draw(st.integers(2, 14))):
        now += data.draw(st.sampled_from([0.2, 1.0, 5.0]))
        at = min(data.draw(st.sampled_from(places)), len(document.text))
        text = data.draw(st.sampled_from(["", "x", "\n", "\n    y = 1\n", "é🙂", "):\n", "\n)", "\r", "z" * 60]))
        end = min(at + data.draw(st.sampled_from([0, 0, 1, 30])), len(document.text))
        document.apply([Edit(at, end, text)], document.version + 1)
        snapshot = document.snapshot()
        offset = at + data.draw(st.sampled_from([0, len(text)]))
        offset = min(offset, snapshot.line_end(snapshot.line_of(offset)))
        plan, after = one.plan(state, snapshot, offset, now=now)
        assert (plan, after) == one.plan(state, snapshot, offset, now=now)
        whole_text(plan, snapshot, offset)
        assert plan.prompt_tokens == len(ids_of(one, plan)) <= plan.budget_tokens
        state = after
