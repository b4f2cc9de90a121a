"""What is told of next edits: ids, times and lengths; and whether they were taken back."""

from typing import Any

import msgspec
import pytest
from foretype_client.feedback.feedback import Feedback
from foretype_client.telemetry.next_edits import NextEditOutcome, TakenEdit
from foretype_client.telemetry.recorder import Recorder
from foretype_context.syntax.document import Document, Edit
from foretype_wire.telemetry import NextEdit, NextSurvive

URI = "file:///w/a.py"
BEFORE, AFTER = "    return width\n", "    return size\n"
TAKEN = TakenEdit(URI, 10, BEFORE, AFTER, "width", "size")
OUTCOME = NextEditOutcome("n2", "n1", 2, "python", "rename", "accepted", 1.0, 4, 5, False, True, True, TAKEN)


class Desk:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.recorder = Recorder("s", Feedback(), clock=lambda: self.now_s, wall_ms=1_000_000, editor="Emacs")
        self.document = Document(URI, "def f(a):\n" + AFTER + "print()\n", language="python")
        self.recorder.opened(self.document.snapshot())

    def replace(self, old: str, new: str) -> None:
        at = self.document.text.index(old)
        self.document.apply([Edit(at, at + len(old), new)], self.document.version + 1)
        self.recorder.changed(self.document.change(self.now_s))

    def take(self, until_s: float) -> list[Any]:
        self.now_s = until_s
        assert self.recorder.due() == []
        return [one for one in self.recorder.take() if isinstance(one, NextEdit | NextSurvive)]


def test_one_that_was_visible_is_told_when_it_is_gone() -> None:
    desk = Desk()
    desk.now_s = 3.5
    desk.recorder.next_edits.ended(OUTCOME._replace(end="rejected", taken=None))
    (event,) = desk.take(4.0)
    assert (event.id, event.chain, event.order, event.evidence, event.end) == ("n2", "n1", 2, "rename", "rejected")
    assert (event.at_ms, event.visible_ms, event.inserted, event.deleted) == (1000.0, 2500.0, 4, 5)
    assert (event.jump, event.jumped, event.elsewhere) == (True, True, False)
    assert (event.language, event.editor) == ("python", "emacs")
    assert desk.take(4000.0) == []


@pytest.mark.parametrize(
    ("change", "inserted_kept", "deleted_kept", "reversed"),
    [
        (None, 4, 5, False),
        (("print()", "print(1)"), 4, 5, False),
        (("size", "size * 2"), 4, 5, False),
        (("size", "width"), 0, 0, True),
        (("size", "height"), 0, 5, False),
        (("size", "size + width"), 4, 0, False),
        (("def f(a):", "# more\ndef f(a):"), 4, 5, False),
    ],
)
def test_what_was_inserted_and_what_was_deleted_are_looked_at_again(
    change: tuple[str, str] | None, inserted_kept: int, deleted_kept: int, reversed: bool
) -> None:
    desk = Desk()
    desk.recorder.next_edits.ended(OUTCOME)
    assert [type(one) for one in desk.take(1.0)] == [NextEdit]
    if change is not None:
        desk.replace(*change)
    ages = [15, 30, 120, 300, 600, 1800]
    seen = [one for age in ages for one in desk.take(age + 0.5)]
    assert [one.age_s for one in seen] == ages
    assert {(one.inserted_kept, one.deleted_kept, one.reversed) for one in seen} == {
        (inserted_kept, deleted_kept, reversed)
    }


def test_nothing_of_the_code_is_in_any_event() -> None:
    desk = Desk()
    desk.recorder.next_edits.ended(OUTCOME)
    told = msgspec.json.encode(desk.take(2000.0)).decode()
    assert "next_survive" in told
    assert not any(word in told for word in ("width", "size", "return", "a.py"))


def test_what_is_closed_is_not_looked_at_any_more() -> None:
    desk = Desk()
    desk.recorder.next_edits.ended(OUTCOME)
    desk.recorder.closed(URI)
    assert [type(one) for one in desk.take(2000.0)] == [NextEdit]
