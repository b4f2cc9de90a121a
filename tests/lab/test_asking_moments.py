"""When the client would ask during a recording, and what is said to have happened before."""

from foretype_context.syntax.document import Edit
from foretype_eval.replay.edit_events import Changed, Event, Loaded, Moved, Recording
from foretype_lab.prefill.asking_moments import Cause, Moment, moments_of
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = "".join(f"line {number}\n" for number in range(60))


def typed(path: str, at: int, text: str, start_s: float, gap_s: float = 0.2) -> list[Event]:
    return [Changed(start_s + n * gap_s, path, (Edit(at + n, at + n, c),)) for n, c in enumerate(text)]


def asked(*events: Event, after_deletions: bool = True) -> list[Moment]:
    return list(moments_of(Recording("test", tuple(events)), after_deletions=after_deletions))


def typing_at(caret: int, *events: Event, **options: bool) -> list[Moment]:
    return asked(Loaded(0, "a.py", TEXT), Moved(0, "a.py", caret), *events, **options)


def line_end(number: int) -> int:
    return TEXT.index(f"line {number}\n") + len(f"line {number}")


def test_each_key_asks_unless_the_next_one_comes_within_the_debounce() -> None:
    end = line_end(3)
    slow = typing_at(end, *typed("a.py", end, "abc", 1.0, gap_s=0.2))
    assert [moment.inserted for moment in slow] == [("a",), ("b",), ("c",)]
    assert [moment.cause for moment in slow] == [Cause.COLD, Cause.IN_LINE, Cause.IN_LINE]
    assert [moment.offset for moment in slow] == [end + 1, end + 2, end + 3]
    fast = typing_at(end, *typed("a.py", end, "abc", 1.0, gap_s=0.05))
    assert [(moment.inserted, moment.typed) for moment in fast] == [(("abc",), ("abc",))]


def test_the_middle_of_a_line_is_not_asked_about() -> None:
    at = line_end(3) - 3
    assert not typing_at(at, *typed("a.py", at, "xyz", 1.0))


def test_text_of_more_than_two_characters_counts_as_inserted_but_not_as_typed() -> None:
    end = line_end(3)
    pasted = Changed(1.0, "a.py", (Edit(end, end, " pasted"),))
    (moment,) = typing_at(end, pasted)
    assert (moment.inserted, moment.typed) == ((" pasted",), ())


def test_causes_follow_the_caret() -> None:
    end = line_end(20)
    moments = asked(
        Loaded(0, "a.py", TEXT),
        Loaded(0, "b.py", TEXT),
        Moved(0, "a.py", end),
        *typed("a.py", end, "x", 1.0),
        *typed("a.py", end + 1, "\n", 2.0),
        Moved(3.0, "a.py", line_end(12)),
        *typed("a.py", line_end(12), "y", 3.5),
        Moved(4.0, "a.py", line_end(1)),
        *typed("a.py", line_end(1), "z", 4.5),
        Moved(5.0, "b.py", line_end(1)),
        *typed("b.py", line_end(1), "z", 5.5),
        *typed("a.py", line_end(1) + 1, "z", 6.5),
    )
    causes = [Cause.COLD, Cause.ENTER, Cause.NEAR_JUMP, Cause.FAR_JUMP, Cause.COLD, Cause.FILE_SWITCH]
    assert [moment.cause for moment in moments] == causes


def test_enter_between_brackets_is_enter_although_text_moves_behind_the_caret() -> None:
    text = "call()\n" + TEXT
    moments = asked(
        Loaded(0, "a.py", text),
        Moved(0, "a.py", 5),
        Changed(1.0, "a.py", (Edit(5, 5, "1"),)),
        Changed(2.0, "a.py", (Edit(6, 6, "\n    \n"),)),
        Moved(2.002, "a.py", 11),
    )
    assert [(moment.cause, moment.offset) for moment in moments] == [(Cause.COLD, 6), (Cause.ENTER, 11)]


def test_a_change_above_moves_the_place_and_is_no_jump() -> None:
    end = line_end(20)
    tool = Changed(2.0, "a.py", (Edit(0, 0, "import this\n" * 20),))
    moments = typing_at(end, *typed("a.py", end, "x", 1.0), tool, *typed("a.py", end + 241, "y", 3.0))
    assert [moment.cause for moment in moments] == [Cause.COLD, Cause.IN_LINE]
    assert moments[1].inserted == ("import this\n" * 20, "y")


def test_what_a_tool_changes_away_from_the_caret_asks_nothing() -> None:
    end = line_end(20)
    streamed = [
        Changed(1 + n, "a.py", (Edit(line_end(30 + n), line_end(30 + n), "  # made by a tool"),)) for n in range(5)
    ]
    assert not typing_at(end, *streamed)


def test_deletions_ask_unless_told_otherwise() -> None:
    end = line_end(20)
    events = (*typed("a.py", end, "x", 1.0), Changed(2.0, "a.py", (Edit(end, end + 1, ""),)))
    assert [moment.inserted for moment in typing_at(end, *events)] == [("x",), ()]
    assert [moment.inserted for moment in typing_at(end, *events, after_deletions=False)] == [("x",)]


def test_moves_and_selections_ask_nothing() -> None:
    events = (
        Loaded(0, "a.py", TEXT),
        Moved(1.0, "a.py", line_end(4)),
        Moved(2.0, "a.py", line_end(8), selecting=True),
        Moved(3.0, "a.py", line_end(9)),
    )
    assert not asked(*events)


def test_files_that_are_never_sent_are_not_asked_about() -> None:
    assert not asked(Loaded(0, ".env", "KEY=1\n"), Moved(0, ".env", 5), *typed(".env", 5, "2", 1.0))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_inserted_text_is_lost_or_counted_twice(data: st.DataObject) -> None:
    events: list[Event] = [Loaded(0, "a.py", TEXT)]
    length, now_s, wanted = len(TEXT), 0.0, ""
    for _ in range(data.draw(st.integers(1, 30))):
        now_s += data.draw(st.sampled_from([0.01, 0.06, 0.2, 4.0]))
        at = data.draw(st.integers(0, length))
        text = data.draw(st.text("ab\n", min_size=1, max_size=5))
        events.append(Changed(now_s, "a.py", (Edit(at, at, text),)))
        length, wanted = length + len(text), wanted + text
    # At the very end one that certainly asks: a line of its own.
    events += [
        Moved(now_s + 9, "a.py", 0),
        Changed(now_s + 10, "a.py", (Edit(0, 0, "\n"),)),
        Moved(now_s + 10, "a.py", 0),
    ]
    moments = asked(*events)
    assert "".join(run for moment in moments for run in moment.inserted) == wanted + "\n"
    assert all(0 <= moment.offset <= len(moment.snapshot.text) for moment in moments)
