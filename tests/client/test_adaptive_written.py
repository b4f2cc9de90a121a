"""What was written lately, and the latest place that is like this one."""

import numpy as np
import pytest
from foretype_client.adaptive.evidence import alike_in_file, latest_in_file, places_in_written, standing
from foretype_client.adaptive.lexemes import Vocabulary
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.stream import Ids, LexemeStream
from foretype_client.adaptive.user_text import RecentlyWritten
from foretype_context.syntax.document import Document, Snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

LINES = st.lists(st.sampled_from(["a = 1", "  b(c)", "", "x.y.z", "return a"]), max_size=8)


def spelled(vocabulary: Vocabulary, lines: list[list[int]]) -> list[str]:
    return ["".join(map(vocabulary.lexeme, line)).strip() for line in lines]


def snapshot(text: str, uri: str) -> Snapshot:
    return Document(uri, text, language="python").snapshot()


def test_a_line_counts_as_written_once_the_cursor_has_left_it() -> None:
    vocabulary = Vocabulary()
    stream = LexemeStream(vocabulary, "a = 1\n\nb = 2")
    assert stream.take_written() == [], "a file that is opened was not written"
    stream.update("a = 1\nc\nb = 2", 1)
    stream.retype("a = 1\nc(\nb = 2", 1, 6, 8)
    stream.retype("a = 1\nc()\nb = 2", 1, 6, 9)
    assert stream.take_written() == [], "it is still being typed"
    stream.update("a = 1\nc()\nd\nb = 2", 2)
    assert spelled(vocabulary, stream.take_written()) == ["c()"]
    assert stream.take_written() == []


def test_what_was_not_typed_was_not_written() -> None:
    stream = LexemeStream(Vocabulary(), "a = 1\nb = 2")
    stream.update("b = 2\na = 1")
    assert stream.take_written() == [], "a line that moved"
    stream.update("\n".join(f"x = {number}" for number in range(100)))
    assert stream.take_written() == [], "another branch"


@settings(deadline=None)
@given(st.lists(st.tuples(LINES, st.integers(-1, 8)), min_size=1, max_size=6))
def test_whatever_changes_what_was_written_are_whole_lines(versions: list[tuple[list[str], int]]) -> None:
    vocabulary = Vocabulary()
    stream = LexemeStream(vocabulary, "a = 1")
    seen: set[str] = {"a = 1"}
    for lines, at in versions:
        stream.update("\n".join(lines), at if at < len(lines) else -1)
        seen |= {line.strip() for line in lines}
        assert set(spelled(vocabulary, stream.take_written())) <= seen - {""}


def test_the_oldest_lines_are_forgotten_and_the_array_stays_for_whoever_holds_it() -> None:
    written = RecentlyWritten()
    written.add([[1, 0]] * 10)
    held = written.ids
    written.add([[2] * 999 + [0]] * 3)
    assert held.tolist() == [1, 0] * 10
    assert written.ids.tolist() == ([2] * 999 + [0]) * 3


def test_the_latest_place_speaks_for_itself_and_says_whether_the_one_before_agrees() -> None:
    ids: Ids = np.array([5, 6, 0, 5, 7, 0, 5, 7, 0, 5, -1], np.int32)
    rows = latest_in_file(ids, 10, alike_in_file(ids, standing(ids, 10, 5), [5]))
    assert [(row.ids, row.variety) for row in rows] == [([7], 2)]
    assert [
        (row.ids, row.variety)
        for row in latest_in_file(ids[:6], 6, alike_in_file(ids[:6], standing(ids[:6], 6, 5), [5]))
    ] == [([7], 1)]
    assert [
        (row.ids, row.variety)
        for row in latest_in_file(ids[:3], 3, alike_in_file(ids[:3], standing(ids[:3], 3, 5), [5]))
    ] == [([6], 0)]
    assert latest_in_file(ids, 10, alike_in_file(ids, standing(ids, 10, 9), [9])) == []


def test_places_in_what_was_written_end_before_its_end() -> None:
    assert places_in_written(np.zeros(0, np.int32), [5]) == []
    assert places_in_written(np.array([6, 5], np.int32), [5]) == [], "nothing follows it"
    (found,) = places_in_written(np.array([5, 6, 0, 5, 7, 0], np.int32), [5])
    assert found.following.tolist() == [6, 7]


@pytest.mark.parametrize("forget", [False, True])
def test_what_was_written_in_one_file_is_evidence_in_another_until_it_is_forgotten(forget: bool) -> None:
    model = AdaptiveModel()
    before, typed = "import os\n\n", "client.close(timeout=5)"
    model.learn("file:///a.py", before)
    for end in range(1, len(typed) + 1):
        text = before + typed[:end]
        model.candidate(snapshot(text, "file:///a.py"), len(text))
    model.candidate(snapshot(before + typed + "\n", "file:///a.py"), len(before) + len(typed) + 1)
    model.learn("file:///a.py", before)  # and taken away again: no file holds it
    if forget:
        model.forget_written()
    text = "server.open()\nclient."
    levels = model.evidence(model.spot(snapshot(text, "file:///b.py"), len(text)), [])
    assert (levels is not None and model.id_of("close") in levels.ids) is not forget
