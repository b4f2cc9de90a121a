"""What an editor closes by itself comes and goes with each key, and nothing is computed again for it: `spm`."""

import pytest
from context.test_layout_places import ids_of, shared, text_of
from context.tiny import tiny
from foretype_context.prompt.assemble import Assembler, Plan, PlanState
from foretype_context.prompt.profile import Budgets, Profile
from foretype_context.prompt.segments import Kind
from foretype_context.syntax.document import Document, Edit
from hypothesis import given
from hypothesis import strategies as st

ABOVE = "import os\n\n\nfunction first(value) {\n  return value\n}\n\n"
BELOW = "\n\nfunction last(value) {\n  return value * 2\n}\n"


class Editor:
    """Types in a file of which a prompt was made after each change; closes what is opened, and steps over what closes."""

    def __init__(self, below: str = BELOW) -> None:
        tokenizer = tiny("foretype-1")
        budgets = Budgets(prompt_tokens=2000, suffix_tokens=300)
        profile = Profile(
            model="m", grammar="foretype-1", tokenizer_digest=tokenizer.digest, layout="spm", budgets=budgets
        )
        self.assembler = Assembler(tokenizer, profile, timer=lambda: 0.0)
        self.document = Document("file:///a.js", ABOVE + below, language="javascript", path="a.js")
        self.at, self.now, self.state = len(ABOVE), 0.0, PlanState.empty()

    def edit(self, text: str, closed: str = "") -> Plan:
        self.document.apply([Edit(self.at, self.at, text + closed)], self.document.version + 1)
        self.at += len(text)
        return self.plan()

    def plan(self, after_s: float = 0.2) -> Plan:
        self.now += after_s
        plan, self.state = self.assembler.plan(self.state, self.document.snapshot(), self.at, now=self.now)
        return plan

    def computed(self, before: Plan, after: Plan) -> int:
        """Tokens of the second prompt that do not stand in the first."""
        return after.prompt_tokens - shared(ids_of(self.assembler, before), ids_of(self.assembler, after))


@pytest.mark.parametrize("below", [BELOW, "", "\n", "\n\n"])
def test_brackets_that_come_and_are_stepped_over_change_no_suffix(below: str) -> None:
    editor = Editor(below)
    before = editor.edit("call")
    for text, closed, over in (("(", ")", 0), ("a", "", 0), ("[", "]", 0), ("0", "", 1), ("", "", 1), (" {", "}", 0)):
        editor.at += over
        after = editor.edit(text, closed)
        assert text_of(after, Kind.SUFFIX) == text_of(before, Kind.SUFFIX)
        assert editor.computed(before, after) < 12
        before = after
    assert [span.text for span in after.frozen_spans] == [""]


@pytest.mark.parametrize("below", [BELOW, "\n"])
def test_the_end_of_a_block_that_enter_brings_is_left_out_until_a_pause(below: str) -> None:
    editor = Editor(below)
    before = editor.edit("if (value) {", "}")
    after = editor.edit("\n  ", "\n")
    assert editor.document.text.startswith(ABOVE + "if (value) {\n  \n}" + below)
    assert text_of(after, Kind.SUFFIX) == text_of(before, Kind.SUFFIX) and editor.computed(before, after) < 12
    written = editor.edit("value")
    assert editor.computed(after, written) < 12
    assert text_of(editor.plan(after_s=10.0), Kind.SUFFIX) == "\n}" + below


def test_what_the_user_s_own_text_says_behind_the_cursor_is_shown() -> None:
    editor = Editor(") + offset" + BELOW)
    assert text_of(editor.edit("call("), Kind.SUFFIX).startswith(") + offset\n")
    assert not editor.plan().frozen_spans


@given(st.text('ab(){}[]\n; "', max_size=12), st.text('ab(){}[]\n; "', max_size=12))
def test_every_character_is_shown_or_named_as_left_out(left: str, right: str) -> None:
    editor = Editor(right + BELOW)
    plan = editor.edit(left)
    text, start = editor.document.text, editor.at
    for span in plan.frozen_spans:
        assert span.start == start and not span.text
        start = span.end
    suffix = text_of(plan, Kind.SUFFIX)
    assert text[start:].startswith(suffix) and (suffix or start == len(text))
