"""What is left of accepted text in the live document, against what an observer of every keystroke would say."""

import random

import pytest
from foretype_client.feedback.events import Graft
from foretype_client.telemetry.distance import fourgram_share, levenshtein
from foretype_client.telemetry.survival import Survival, measure
from foretype_context.syntax.document import Document, Edit
from foretype_wire.telemetry import SURVIVAL_AGES_S
from hypothesis import given
from hypothesis import strategies as st

URI = "file:///a.py"


def reference(a: str, b: str) -> int:
    """Levenshtein, as in any textbook."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        former, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            former, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, former + (x != y))
    return row[-1]


@given(st.text("abcé\n", max_size=30), st.text("abcé\n", max_size=30))
def test_levenshtein_is_the_textbooks(a: str, b: str) -> None:
    assert levenshtein(a, b) == reference(a, b)


def test_a_text_too_long_to_compare_gets_an_upper_bound() -> None:
    a, b = "x" * 5_000 + "same", "y" * 4_000 + "same"
    assert levenshtein(a, b) == 5_000


def test_four_grams_are_counted_with_their_repetitions() -> None:
    assert fourgram_share("abcdef", "abcdef") == 1.0
    assert fourgram_share("abcdef", "zzabcdzz") == pytest.approx(1 / 3)
    assert fourgram_share("ab", "xaby") == 1.0 and fourgram_share("ab", "ba") == 0.0
    assert fourgram_share("", "x") == 1.0


class Editor:
    """One document in which `accepted` was taken at second 0."""

    def __init__(self, before: str, accepted: str, after: str) -> None:
        self.survival = Survival()
        self.document = Document(URI, before + accepted + after)
        self.survival.opened(URI, self.document.text)
        self.survival.accepted(Graft("i1", "i1", URI, len(before), accepted, 0.0))

    def edit(self, old: str, new: str) -> None:
        start = self.document.text.index(old)
        self.apply(Edit(start, start + len(old), new))

    def apply(self, *edits: Edit) -> None:
        self.document.apply(edits, self.document.version + 1)
        self.survival.changed(self.document.change(0.0))

    def at(self, now: float) -> tuple[int, str, int, int]:
        (due,) = self.survival.due(now)
        return due.age_s, due.now, due.arc, measure(due).levenshtein


def test_untouched_text_survives_whole_at_every_age_once() -> None:
    editor = Editor("x = ", "foo(a)", "\n")
    for age in SURVIVAL_AGES_S:
        assert editor.survival.due(age - 0.1) == []
        assert editor.at(age) == (age, "foo(a)", 6, 0)
    assert editor.survival.due(1e9) == [] and len(editor.survival) == 0


def test_edits_elsewhere_move_it_and_edits_inside_cost_what_they_touch() -> None:
    editor = Editor("x = ", "foo(alpha)", "\nend\n")
    editor.edit("x = ", "import os\n\nvalue = ")
    editor.edit("end", "the end")
    assert editor.at(15) == (15, "foo(alpha)", 10, 0)
    editor.edit("alpha", "alpine")
    assert editor.at(30) == (30, "foo(alpine)", 8, 3)
    editor.edit("foo", "bar")
    assert editor.at(120) == (120, "bar(alpine)", 5, 6)
    editor.edit("bar(alpine)", "")
    assert editor.at(300) == (300, "", 0, 10)


def test_undoing_an_edit_gives_the_text_back_but_not_what_was_retained() -> None:
    editor = Editor("x = ", "foo", "\n")
    editor.edit("foo", "bar")
    editor.edit("bar", "foo")
    assert editor.at(15) == (15, "foo", 0, 0)


def test_a_formatter_that_writes_the_whole_file_again_touches_only_what_it_changed() -> None:
    editor = Editor("a=1\n", "value = compute(1)\n", "b=2\n")
    editor.apply(Edit(0, len(editor.document.text), "a = 1\nvalue = compute(1)\nb = 2\n"))
    assert editor.at(15) == (15, "value = compute(1)\n", 19, 0)


def test_a_report_before_its_change_and_other_line_breaks_are_found() -> None:
    editor = Editor("def f():", "\r\n", "")
    editor.survival.accepted(Graft("i2", "i2", URI, 8, "\n    pass\n", 0.0))
    editor.apply(Edit(8, 8, "\r\n    pass\r\n"))
    _, due = editor.survival.due(15)
    assert (due.now, due.arc) == ("\r\n    pass\r\n", 12)


def test_text_that_never_came_is_gone() -> None:
    survival = Survival()
    survival.opened(URI, "nothing\n")
    survival.accepted(Graft("i1", "i1", URI, 3, "something else", 0.0))
    (due,) = survival.due(15)
    assert (due.now, due.arc, measure(due).levenshtein) == ("", 0, 14)


def test_after_a_pause_only_the_age_that_is_true_is_told() -> None:
    editor = Editor("x = ", "foo", "\n")
    assert editor.at(400)[0] == 300
    assert editor.at(5_000)[0] == 1800


def test_a_closed_document_is_not_followed_and_there_is_a_limit() -> None:
    editor = Editor("x = ", "foo", "\n")
    editor.survival.closed(URI)
    assert editor.survival.due(15) == []
    survival = Survival(tracked=3)
    for number in range(9):
        survival.accepted(Graft(f"i{number}", "s", f"file:///{number % 2}.py", 0, "x", float(number)))
    assert len(survival) == 3 and survival.ids() == {"i6", "i7", "i8"}


@given(st.integers(0, 2**32))
def test_what_is_retained_agrees_with_marking_each_character(seed: int) -> None:
    """Random single edits with letters that tell every character apart, so that no edit can be read in two ways."""
    rng = random.Random(seed)
    accepted = "".join(chr(0x4E00 + index) for index in range(12))
    before, after = "abcd", "efgh"
    editor = Editor(before, accepted, after)
    marked = set(accepted)
    fresh = 0x5000
    for _ in range(rng.randrange(8)):
        start = rng.randrange(len(editor.document.text) + 1)
        end = min(len(editor.document.text), start + rng.randrange(4))
        new = "".join(chr(fresh + index) for index in range(rng.randrange(3)))
        fresh += len(new)
        editor.apply(Edit(start, end, new))
    (due,) = editor.survival.due(15)
    assert due.arc == sum(c in marked for c in editor.document.text)
    if due.arc:
        assert marked & set(editor.document.text) <= set(due.now)
