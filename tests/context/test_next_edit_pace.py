"""When a next edit may be shown."""

import pytest
from foretype_context.edits.evidence import Evidence
from foretype_context.edits.next_edit import SETTLED_S
from foretype_context.edits.pace import (
    LINE_COOL_DOWN_S,
    LINE_S,
    USER_COOL_DOWN_S,
    Eagerness,
    Pace,
    RememberedEdit,
    is_in_line,
)
from foretype_context.syntax.document import Edit
from hypothesis import given
from hypothesis import strategies as st

TOLD = RememberedEdit("file:///a", "return width", "width", "size")
ELSEWHERE = TOLD._replace(line="print(x)", old="x", new="y")


@pytest.fixture
def pace() -> Pace:
    return Pace()


def test_a_document_has_to_be_quiet_and_an_accepted_edit_is_followed_at_once(pace: Pace) -> None:
    assert pace.wait_s(0.0, 0.0, eagerness=Eagerness.LOW) == SETTLED_S
    assert pace.wait_s(SETTLED_S / 2, 0.0, eagerness=Eagerness.LOW) == SETTLED_S / 2
    assert pace.wait_s(10.0, 0.0, eagerness=Eagerness.LOW) == 0.0
    assert pace.wait_s(0.0, 0.0, eagerness=Eagerness.LOW, chained=True) == 0.0


def test_a_line_that_is_being_edited_has_to_be_quiet_for_longer_unless_next_edits_are_wanted_eagerly(
    pace: Pace,
) -> None:
    waits = {eagerness: pace.wait_s(0.0, 0.0, eagerness=eagerness, in_line=True) for eagerness in Eagerness}
    assert waits == LINE_S and waits[Eagerness.HIGH] < waits[Eagerness.LOW]
    assert pace.wait_s(0.0, 0.0, eagerness=Eagerness.LOW, chained=True, in_line=True) == 0.0
    for _ in range(4):
        pace.rejected(TOLD, 0.0)
    assert pace.wait_s(0.0, 0.0, eagerness=Eagerness.HIGH, in_line=True) == 3.0  # as who wants few
    asked = [pace.wait_s(quiet_s, 0.0, eagerness=Eagerness.LOW, in_line=True, by_hand=True) for quiet_s in (0.0, 9.0)]
    assert asked == [SETTLED_S, 0.0]


def test_the_line_of_a_change_is_every_line_that_it_touches() -> None:
    text = "one\nwidth = 1\n\ntwo\n"
    assert [is_in_line(text, Edit(4, 4, "width"), at) for at in (3, 4, 13, 14)] == [False, True, True, False]
    two_lines = Edit(8, 8, "h = 1\n")
    assert [is_in_line(text, two_lines, at) for at in (3, 4, 14, 15)] == [False, True, True, False]


def test_refusals_make_the_wait_longer_and_fade(pace: Pace) -> None:
    waits = [pace.wait_s(0.0, 0.0, eagerness=Eagerness.LOW)]
    for _ in range(20):
        pace.rejected(TOLD, 0.0)
        waits.append(pace.wait_s(0.0, 0.0, eagerness=Eagerness.LOW))
    assert waits == sorted(waits) and waits[-1] == 3.0
    assert waits[-1] > pace.wait_s(0.0, 500.0, eagerness=Eagerness.LOW) > SETTLED_S
    assert pace.wait_s(0.0, 600.0, eagerness=Eagerness.LOW) == SETTLED_S


def test_acceptances_make_the_wait_shorter_but_never_shorter_than_a_burst_needs(pace: Pace) -> None:
    pace.rejected(TOLD, 0.0)
    longer = pace.wait_s(0.0, 1.0, eagerness=Eagerness.LOW)
    for _ in range(5):
        pace.accepted(1.0)
    assert SETTLED_S == pace.wait_s(0.0, 1.0, eagerness=Eagerness.LOW) < longer


def test_a_refusal_is_followed_by_silence_which_an_acceptance_ends(pace: Pace) -> None:
    assert pace.cool_down_s(0.0) == 0.0
    pace.rejected(TOLD, 10.0)
    assert pace.cool_down_s(10.0) == USER_COOL_DOWN_S
    assert pace.cool_down_s(10.0 + USER_COOL_DOWN_S) == 0.0
    pace.accepted(11.0)
    assert pace.cool_down_s(11.0) == 0.0


def test_the_line_of_a_refusal_and_what_says_the_same_wait_longer(pace: Pace) -> None:
    pace.rejected(TOLD, 0.0)
    at_s = USER_COOL_DOWN_S + 1
    for told, expected in (
        (TOLD, False),
        (TOLD._replace(old="x", new="y"), False),  # the same line
        (TOLD._replace(line="print(width)"), False),  # the same edit elsewhere
        (ELSEWHERE, True),
        (TOLD._replace(uri="file:///b"), True),
    ):
        assert pace.allows(Evidence.RENAME, Eagerness.LOW, told, 1.0, at_s) is expected
    assert pace.allows(Evidence.RENAME, Eagerness.LOW, TOLD, 1.0, LINE_COOL_DOWN_S)


def test_each_level_shows_what_the_one_before_shows() -> None:
    shown = [{one for one in Evidence if Pace().allows(one, level, TOLD, 1.0, 0.0)} for level in Eagerness]
    assert Evidence.RENAME in shown[0] and Evidence.LIKE_EDITS not in shown[0]
    assert {Evidence.DECLARATION, Evidence.LIKE_EDITS} <= shown[1] and Evidence.DECLARATION not in shown[0]
    assert shown[0] <= shown[1] <= shown[2] == set(Evidence) - {Evidence.ONE_EXAMPLE}


def test_who_refuses_most_is_shown_only_what_is_surest(pace: Pace) -> None:
    for _ in range(3):
        pace.rejected(TOLD, 0.0)
    assert pace.allows(Evidence.LIKE_EDITS, Eagerness.HIGH, ELSEWHERE, 1.0, 10.0)  # three say nothing yet
    pace.rejected(TOLD, 0.0)
    assert not pace.allows(Evidence.LIKE_EDITS, Eagerness.HIGH, ELSEWHERE, 1.0, 10.0)
    assert pace.allows(Evidence.RENAME, Eagerness.HIGH, ELSEWHERE, 1.0, 10.0)
    assert pace.allows(Evidence.LIKE_EDITS, Eagerness.HIGH, ELSEWHERE, 1.0, 700.0)  # forgotten


def test_long_after_the_last_change_only_what_is_certain_is_shown_and_then_nothing(pace: Pace) -> None:
    assert pace.allows(Evidence.LIKE_EDITS, Eagerness.HIGH, TOLD, 9.0, 0.0)
    assert not pace.allows(Evidence.LIKE_EDITS, Eagerness.HIGH, TOLD, 11.0, 0.0)
    assert pace.allows(Evidence.RENAME, Eagerness.HIGH, TOLD, 11.0, 0.0)
    assert not pace.allows(Evidence.RENAME, Eagerness.HIGH, TOLD, 301.0, 0.0)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 900)), max_size=30), st.floats(0, 10), st.floats(900, 2000))
def test_no_history_makes_a_wait_that_is_none_or_one_for_ever(history, quiet_s, now_s) -> None:
    pace = Pace()
    for accepted, at_s in sorted(history, key=lambda one: one[1]):
        pace.accepted(at_s) if accepted else pace.rejected(TOLD, at_s)
    assert 0 <= pace.wait_s(quiet_s, now_s, eagerness=Eagerness.LOW) <= 3.0
