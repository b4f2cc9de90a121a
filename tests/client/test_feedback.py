from typing import Any

import msgspec
import pytest
from foretype_client.feedback.feedback import (
    Accepted,
    Displayed,
    DisplaySource,
    Ended,
    EndReason,
    Feedback,
    FeedbackEvent,
    PartiallyAccepted,
    Taken,
)
from foretype_client.flow.strands import Place
from foretype_context.syntax.document import Document, Edit
from hypothesis import given
from hypothesis import strategies as st

URI = "file:///a.py"


class Editor:
    """A document with a cursor, and the feedback about what is offered in it."""

    def __init__(self, text: str, language: str = "plaintext") -> None:
        self.feedback = Feedback()
        self.cursor = text.index("|")
        self.document = Document(URI, text.replace("|", "", 1), language=language)
        self.events: list[FeedbackEvent] = []

    def place(self) -> Place:
        return Place.of(self.document.snapshot(), self.cursor, None)

    def offer(self, text: str, now: float, id: str = "s1", replaces: int = 0) -> None:
        snapshot = self.document.snapshot()
        self.events += self.feedback.offered(
            id,
            snapshot,
            self.cursor,
            place=self.place(),
            text=text,
            replaces=replaces,
            source="network",
            now=now,
        )

    def edit(self, start: int, end: int, text: str, now: float) -> None:
        self.document.apply([Edit(start, end, text)], self.document.version + 1)
        self.cursor = start + len(text)
        self.events += self.feedback.changed(self.document.change(now))

    def press(self, text: str, now: float) -> None:
        self.edit(self.cursor, self.cursor, text, now)

    def move(self, text: str, now: float) -> None:
        self.cursor = self.document.text.index(text) + len(text)
        self.events += self.feedback.moved(self.place(), self.cursor, now)

    def wait(self, now: float) -> None:
        self.events += self.feedback.settle(now)

    def of(self, kind: Any) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def offered(text: str, suggestion: str, language: str = "plaintext", **more: Any) -> Editor:
    """An editor in which a suggestion came at second 0."""
    editor = Editor(text, language)
    editor.offer(suggestion, 0.0, **more)
    return editor


def test_typed_through_for_750_ms_is_displayed_once_and_said_to_be_inferred() -> None:
    editor = offered("x = |", "foo(a)\nbar")
    for number, key in enumerate("foo"):
        editor.press(key, 0.3 * (number + 1))
        editor.offer("foo(a)\nbar"[number + 1 :], 0.3 * (number + 1))
    (displayed,) = editor.of(Displayed)
    assert displayed == Displayed(
        id="s1",
        session="s1",
        at_s=0.0,
        display_source=DisplaySource.INFERRED,
        characters=10,
        lines=2,
        served_from="network",
    )
    assert editor.events == [displayed]


def test_what_diverges_before_750_ms_was_not_shown_and_is_not_rejected() -> None:
    editor = offered("x = |", "foo")
    place = editor.place()
    editor.press("b", 0.7)
    editor.wait(6.0)
    assert editor.events == [
        Ended(
            id="s1",
            session="s1",
            served_from="network",
            at_s=0.7,
            reason=EndReason.DIVERGED,
            rejected=False,
            visible_ms=pytest.approx(700),
            characters=3,
            lines=1,
            display_source=DisplaySource.INFERRED,
            typed_characters=0,
        )
    ]
    assert not editor.feedback.refused(place, "foo", 6.0)


def test_what_was_shown_and_diverged_is_not_offered_there_for_ten_minutes() -> None:
    editor = Editor("x = |")
    place = editor.place()
    editor.offer("foo", 0.0)
    editor.press("b", 1.0)
    assert not editor.feedback.refused(place, "foo", 2.0)
    editor.wait(7.0)
    (ended,) = editor.of(Ended)
    assert ended.rejected and ended.at_s == 1.0
    assert editor.feedback.refused(place, "foo", 7.0)
    assert not editor.feedback.refused(place, "bar", 7.0)
    assert editor.feedback.refused(place, "foo", 600.0)
    assert not editor.feedback.refused(place, "foo", 602.0)


def test_what_was_rejected_may_come_back_once_the_line_went_on() -> None:
    editor = offered("x = |", "foo()")
    editor.press("b", 1.0)
    editor.wait(7.0)
    for typed, refused in (("x = |", True), ("x |= ", False), ("x = f|", False), ("y = |", False)):
        place = Editor(typed).place()
        line = "x = foo()"
        assert editor.feedback.refused(place, line[len(place.line_prefix) :], 2.0) is refused, typed


def test_a_rejected_text_is_refused_earlier_on_its_line_too() -> None:
    editor = offered("x|", " = foo")
    editor.press(" = ", 0.5)
    editor.offer("foo", 0.5)
    editor.press("b", 1.0)
    editor.wait(7.0)
    assert editor.feedback.refused(Editor("x|").place(), " = foo", 7.0)


def test_leaving_a_shown_suggestion_rejects_it() -> None:
    editor = offered("above\nx = |", "foo")
    editor.move("above", 1.0)
    (ended,) = editor.of(Ended)
    assert (ended.reason, ended.rejected, ended.visible_ms) == (EndReason.LEFT, True, 1000)


def test_a_new_suggestion_in_its_place_is_no_rejection() -> None:
    editor = offered("x = |", "foo")
    editor.offer("bar", 1.0, id="s2")
    (ended,) = editor.of(Ended)
    assert (ended.id, ended.reason, ended.rejected) == ("s1", EndReason.REPLACED, False)


def test_closing_the_document_ends_it() -> None:
    editor = offered("x = |", "foo")
    editor.events += editor.feedback.closed(URI, 1.0)
    (ended,) = editor.of(Ended)
    assert (ended.reason, ended.rejected) == (EndReason.CLOSED, False)
    assert editor.feedback.visible(URI) is None


@pytest.mark.parametrize(
    ("language", "text", "suggestion", "changes", "left"),
    [
        ("html", "<|\n", "li>one</li>", ["l", "i", ">", "|</li>"], "one</li>"),
        ("html", "<|\n", "li>one</li>", ["l", "i", ">|</li>"], "one</li>"),
        ("html", "<|\n", "li>one</li>", ["li", ">|</li>", "o"], "ne</li>"),
        ("html", "<|>\n", "li>one</li>", ["l", "i>|</li>"], "one</li>"),
        ("javascriptreact", "<|\n", "b>{x}</b>", ["b", ">|</b>", "{|}", "x"], "}</b>"),
        ("html", "<ul>|\n", "\n  <li>\n</ul>", ["\n  |\n</ul>"], "<li>\n</ul>"),
        ("ruby", "def a|\n", "(b)\n  b\nend", ["(b)", "\n  |\nend", "b"], "\nend"),
        ("ruby", "def a|\n", "(b)\n  b\nend", ["(b)", "\n  ", "|\nend"], "b\nend"),
        ("shellscript", "for a in b; do|\n", "\n  c\ndone", ["\n  |\ndone"], "c\ndone"),
        ("plaintext", "f|\n", "(a)", ["(", "|)"], "a)"),
    ],
)
def test_what_an_editor_closes_by_itself_is_typed_through_and_refuses_nothing(
    language: str, text: str, suggestion: str, changes: list[str], left: str
) -> None:
    """Whether it comes with the key or right behind it; the cursor stands at the `|`."""
    editor = offered(text, suggestion, language)
    for number, change in enumerate(changes):
        typed, _, added = change.partition("|")
        editor.press(typed + added, 1.0 + number / 2)
        editor.cursor -= len(added)
        editor.events += editor.feedback.moved(editor.place(), editor.cursor, 1.0 + number / 2)
    offer = editor.feedback.visible(URI)
    assert offer is not None and offer.rest == offer.strand.rest_at(editor.place()) == left
    editor.wait(10.0)
    assert not editor.of(Ended) and not editor.feedback.refused(editor.place(), left, 10.0)


@pytest.mark.parametrize(
    ("language", "text", "suggestion", "change"),
    [
        ("html", "<|\n", "li>one</li>", "p></p>"),
        ("html", "<li>|\n", "one</li>", "</li>"),
        ("python", "<li|\n", ">one</li>", ">|</li>"),
        ("ruby", "def a|\n", "\n  b\nend", "\n  end"),
        ("plaintext", "f(|\n", "a)", ")"),
    ],
)
def test_what_the_user_closes_otherwise_refuses_it(language: str, text: str, suggestion: str, change: str) -> None:
    editor = offered(text, suggestion, language)
    typed, _, added = change.partition("|")
    editor.press(typed + added, 1.0)
    editor.cursor -= len(added)
    editor.events += editor.feedback.moved(editor.place(), editor.cursor, 1.0)
    editor.wait(10.0)
    assert [event.rejected for event in editor.of(Ended)] == [True]


def test_mistake_partial_accept_ends_tracking() -> None:
    editor = offered("x = |", "alpha beta gamma delta")
    for number, word in enumerate(("alpha ", "beta ", "gamma ")):
        editor.press(word, 1.0 + number)
    assert len(editor.of(Displayed)) == 1
    assert [event.accepted_characters for event in editor.of(PartiallyAccepted)] == [6, 11, 17]
    assert editor.of(Ended) == []
    offer = editor.feedback.visible(URI)
    assert offer is not None and offer.rest == "delta"
    editor.press("delta", 5.0)
    (accepted,) = editor.of(Accepted)
    assert (accepted.at_s, accepted.how, accepted.characters, accepted.added_characters) == (5.0, Taken.INFERRED, 22, 5)
    assert sum(event.added_characters for event in editor.of(PartiallyAccepted)) == 17


@pytest.mark.parametrize(
    ("suggestion", "key"),
    [("\n    pass", "\n    "), ("\n    pass", "\r\n    "), ("\r\n    pass", "\r\n    ")],
)
def test_enter_with_its_indentation_is_typing(suggestion: str, key: str) -> None:
    editor = offered("def f():|", suggestion)
    editor.press(key, 0.1)
    assert editor.events == []
    offer = editor.feedback.visible(URI)
    assert offer is not None and offer.rest == "pass"


def test_one_change_that_inserts_all_of_it_is_an_accept_even_when_it_replaces_closers() -> None:
    editor = offered("foo(|)\n", "a, b)", replaces=1)
    editor.edit(editor.cursor, editor.cursor + 1, "a, b)", 0.1)
    assert [type(event) for event in editor.events] == [Displayed, Accepted]
    assert editor.of(Accepted)[0].how is Taken.INFERRED


def test_one_change_that_writes_the_typed_beginning_anew_is_an_accept() -> None:
    """As Helix does, whose Escape takes what is selected in its menu."""
    editor = offered("    value = val|\n", "ue * 2")
    editor.edit(4, editor.cursor, "value = value * 2", 0.1)
    assert [type(event) for event in editor.events] == [Displayed, Accepted]
    assert editor.of(Accepted)[0].how is Taken.INFERRED


def test_typing_it_out_is_told_apart_from_taking_it() -> None:
    editor = offered("x = |", "ab")
    editor.press("a", 1.0)
    editor.press("b", 1.1)
    (accepted,) = editor.of(Accepted)
    assert accepted.how is Taken.TYPED


def test_what_the_editor_reports_is_not_inferred_again() -> None:
    editor = offered("x = |", "foo")
    editor.events += editor.feedback.shown("s1", 0.1)
    editor.events += editor.feedback.shown("s1", 0.2)
    editor.events += editor.feedback.accepted("s1", 2.0)
    editor.press("foo", 2.1)
    assert [(type(event), event.at_s) for event in editor.events] == [(Displayed, 0.1), (Accepted, 2.0)]
    assert editor.of(Displayed)[0].display_source is DisplaySource.EDITOR


def test_an_accept_reported_after_the_change_counts_once() -> None:
    editor = offered("x = |", "foo")
    editor.press("foo", 1.0)
    editor.events += editor.feedback.accepted("s1", 1.1)
    assert len(editor.of(Accepted)) == 1


@pytest.mark.parametrize("late", [False, True])
def test_an_accept_reported_after_an_inferred_rejection_takes_the_rejection_back(late: bool) -> None:
    editor = Editor("x = |")
    place = editor.place()
    editor.offer("foo", 0.0)
    editor.press("Foo", 1.0)  # a formatter changed what was accepted
    if late:
        editor.wait(7.0)
    assert editor.feedback.refused(place, "foo", 7.0) is late
    editor.events += editor.feedback.accepted("s1", 7.1)
    assert not editor.feedback.refused(place, "foo", 7.2)
    (accepted,) = editor.of(Accepted)
    assert accepted.how is Taken.REPORTED


def test_reported_partial_accepts_count_from_the_start_and_only_grow() -> None:
    editor = offered("x = |", "alpha beta")
    for characters in (5, 5, 3, 99):
        editor.events += editor.feedback.partially_accepted("s1", characters, 1.0)
    assert [event.accepted_characters for event in editor.of(PartiallyAccepted)] == [5, 10]


@pytest.mark.parametrize("report_first", [True, False])
def test_a_partial_accept_that_is_reported_and_seen_counts_once(report_first: bool) -> None:
    editor = offered("x = |", "alpha beta gamma")
    for rest, word in (("alpha beta gamma", "alpha "), ("beta gamma", "beta ")):
        editor.offer(rest, 1.0)
        if report_first:
            editor.events += editor.feedback.partially_accepted("s1", len(word), 1.0)
        editor.press(word, 1.0)
        if not report_first:
            editor.events += editor.feedback.partially_accepted("s1", len(word), 1.0)
    assert [event.accepted_characters for event in editor.of(PartiallyAccepted)] == [6, 11]


def test_unknown_ids_are_ignored() -> None:
    feedback = Feedback()
    assert feedback.shown("?", 0.0) == feedback.accepted("?", 0.0) == feedback.partially_accepted("?", 1, 0.0) == []


def test_time_alone_makes_a_display_certain() -> None:
    editor = offered("x = |", "foo")
    assert editor.feedback.settle(0.5) == []
    assert [type(event) for event in editor.feedback.settle(0.75)] == [Displayed]
    assert editor.feedback.settle(2.0) == []


LINE = "import os\n\nresult = |\n\nprint(result)\n"


def rest(editor: Editor) -> str | None:
    offer = editor.feedback.visible(URI)
    return None if offer is None else offer.rest


def test_a_typo_that_is_taken_back_refuses_nothing() -> None:
    editor = offered(LINE, "item.price")
    editor.press("x", 1.0)
    editor.offer("yz", 1.1, id="s2")
    editor.edit(editor.cursor - 1, editor.cursor, "", 2.0)
    editor.events += editor.feedback.moved(editor.place(), editor.cursor, 2.0)
    assert rest(editor) == "item.price"
    assert not editor.feedback.refused(editor.place(), "item.price", 2.0)
    editor.wait(9.0)
    assert [(event.id, event.rejected) for event in editor.of(Ended)] == [("s2", False)]


def test_a_typo_that_stays_refuses_once() -> None:
    editor = offered(LINE, "item.price")
    editor.press("x", 1.0)
    editor.press("y", 2.0)
    editor.events += editor.feedback.moved(editor.place(), editor.cursor, 2.0)
    editor.wait(7.0)
    editor.wait(9.0)
    assert [(event.id, event.rejected, event.at_s) for event in editor.of(Ended)] == [("s1", True, 1.0)]


@pytest.mark.parametrize(
    "edits",
    [
        [(2, 3, ""), (2, 2, "=")],
        [(1, 3, ""), (1, 1, " =")],
        [(2, 3, ""), (1, 2, ""), (1, 1, " "), (2, 2, "=")],
        [(2, 3, ""), (2, 2, "+"), (2, 3, ""), (2, 2, "=")],
        [(2, 3, "=="), (3, 4, "")],
        [(2, 3, "+"), (2, 3, "=")],
        [(2, 3, ""), (2, 2, "= ")],
        [(3, 3, " 1"), (2, 5, ""), (2, 2, "=")],
        [(3, 3, " 1"), (2, 5, "= 2"), (4, 5, "")],
        [(3, 3, " 1"), (0, 5, "x"), (1, 1, " =")],
        [(2, 3, ""), (-50, -50, "y\n"), (4, 4, "=")],
        [(3, 3, "1"), (-50, -50, "y\n"), (5, 6, "")],
    ],
)
def test_what_is_taken_away_ahead_of_it_and_put_back_refuses_nothing(edits: list[tuple[int, int, str]]) -> None:
    """And it goes on where it stands, as far as it is typed."""
    editor = offered("\n" * 60 + "x =|\n", " 1 + 2")
    for number, (start, end, text) in enumerate(edits):
        editor.edit(60 + start, 60 + end, text, 1.0 + number / 2)
        editor.cursor = editor.document.text.rindex("\n")
        editor.events += editor.feedback.moved(editor.place(), editor.cursor, 1.0 + number / 2)
    left = editor.feedback.visible(URI)
    assert left is not None and left.rest == left.strand.rest_at(editor.place())
    for key in left.rest[:3]:
        editor.press(key, 4.0)
    assert rest(editor) == left.strand.rest_at(editor.place()) != ""
    editor.wait(9.0)
    assert not editor.feedback.refused(editor.place(), rest(editor) or "", 9.0) and not editor.of(Ended)


@pytest.mark.parametrize(
    "edits",
    [
        [(2, 3, ""), (2, 2, "+")],
        [(2, 3, "")],
        [(2, 3, ""), (2, 2, "==")],
        [(2, 3, ""), (2, 2, "\nx =")],
    ],
)
def test_what_is_taken_away_ahead_of_it_and_replaced_by_something_else_refuses_it(
    edits: list[tuple[int, int, str]],
) -> None:
    editor = offered("x =|\n", " 1 + 2")
    for number, edit in enumerate(edits):
        editor.edit(*edit, 1.0 + number)
        editor.events += editor.feedback.moved(editor.place(), editor.cursor, 1.0 + number)
        assert rest(editor) is None
    editor.wait(9.0)
    assert [event.rejected for event in editor.of(Ended)] == [True]


def test_the_undo_of_a_part_goes_back_to_what_it_was() -> None:
    editor = offered(LINE, "item.price")
    editor.press("item", 1.0)
    editor.offer(".price", 1.0)
    editor.edit(editor.cursor - 4, editor.cursor, "", 2.0)
    assert rest(editor) == "item.price"
    for typed, key in enumerate("item", 1):
        editor.press(key, 2.0 + typed)
        assert rest(editor) == "item.price"[typed:]
    editor.wait(20.0)
    assert editor.of(Ended) == []
    assert [event.accepted_characters for event in editor.of(PartiallyAccepted)] == [4]


@pytest.mark.parametrize("typed", ["", "item"])
@pytest.mark.parametrize("above", [0, 40])
def test_edits_elsewhere_move_it_and_refuse_nothing(typed: str, above: int) -> None:
    editor = offered("import os\n" + "x = 1\n" * above + "\nresult = |\n\nprint(result)\n\n# the end\n", "item.price")
    if typed:
        editor.press(typed, 1.0)
    for first, last, text in ((0, 0, "import sys\n"), (0, 3, ""), (-4, -1, "")):
        start, end = (at if at >= 0 else len(editor.document.text) + at for at in (first, last))
        cursor = editor.cursor + (len(text) - (end - start) if end <= editor.cursor else 0)
        editor.edit(start, end, text, 2.0)
        editor.cursor = cursor
        editor.events += editor.feedback.moved(editor.place(), editor.cursor, 2.0)
        assert rest(editor) == "item.price"[len(typed) :]
    editor.press("item.price"[len(typed) :], 3.0)
    assert editor.of(Ended) == [] and len(editor.of(Accepted)) == 1


@pytest.mark.parametrize("text", ["a = §\nb = |\n", "a = |\nb = §\n", "f(§, |)\n", "§\n§ = |\n" + "\n" * 20 + "§\n"])
def test_what_is_typed_at_several_cursors_is_typed_through_at_one(text: str) -> None:
    marks = [at - text[:at].count("|") for at in range(len(text)) if text[at] == "§"]
    others = [at - number for number, at in enumerate(marks)]
    editor = offered(text.replace("§", ""), "compute")
    for count, key in enumerate("comp", 1):
        places = sorted([*others, editor.cursor], reverse=True)
        editor.document.apply([Edit(at, at, key) for at in places], editor.document.version + 1)
        others = [at + 1 + sum(one < at for one in (*others, editor.cursor)) for at in others]
        editor.cursor += len([at for at in places if at <= editor.cursor])
        editor.events += editor.feedback.changed(editor.document.change(float(count)))
        editor.events += editor.feedback.moved(editor.place(), editor.cursor, float(count))
        assert rest(editor) == "compute"[count:]
    assert editor.of(Ended) == []


STEP = st.one_of(
    st.tuples(st.just("type"), st.sampled_from(["s", "se", "x", "\n", "secret_name", "()"])),
    st.tuples(st.just("offer"), st.sampled_from(["secret_name", "secret()\n  more", "e"])),
    st.tuples(st.just("delete"), st.just("")),
    st.tuples(st.just("accept"), st.sampled_from(["0", "1", "2"])),
    st.tuples(st.just("move"), st.sampled_from(["a", "b"])),
)


@given(st.lists(st.tuples(STEP, st.floats(0, 2)), max_size=25))
def test_every_suggestion_ends_at_most_once_and_no_event_carries_text(
    steps: list[tuple[tuple[str, str], float]],
) -> None:
    editor, now, offers = Editor("a\n|\nb"), 0.0, 0
    for (what, text), wait_s in steps:
        now += wait_s
        if what == "type":
            editor.press(text, now)
        elif what == "offer":
            editor.offer(text, now, id=str(offers))
            offers += 1
        elif what == "delete" and editor.cursor > 0:
            editor.edit(editor.cursor - 1, editor.cursor, "", now)
        elif what == "accept":
            editor.events += editor.feedback.accepted(text, now)
        elif what == "move" and text in editor.document.text:
            editor.move(text, now)
    displayed = [event.id for event in editor.of(Displayed)]
    assert len(displayed) == len(set(displayed))
    ended = [event.id for event in editor.of(Ended)]
    taken = [event.id for event in editor.of(Accepted)]
    assert len(ended) == len(set(ended)) and len(taken) == len(set(taken))
    assert {event.id for event in editor.of(Ended) if event.rejected} <= set(displayed)
    assert b"ecret" not in msgspec.json.encode(editor.events)
