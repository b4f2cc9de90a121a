"""The adaptive local model."""

from __future__ import annotations

import numpy as np
from foretype_client.adaptive.blend import Corpus, blend, gather
from foretype_client.adaptive.lexemes import LINE_END, Vocabulary, lex
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.stream import Ids, LexemeStream
from foretype_context.document import Document, Snapshot
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(alphabet="ab_ 1.(\té漢🙂", max_size=30)
LINES = st.lists(st.sampled_from(["a = 1", "  b(c)", "", "\t", "x.y.z  # é", "return a"]), max_size=12)


def snapshot(text: str, uri: str = "file:///a.py") -> Snapshot:
    return Document(uri, text, language="python").snapshot()


def at_end(model: AdaptiveModel, text: str) -> str | None:
    found = model.suggest(snapshot(text), len(text))
    return None if found is None else found.text


@given(TEXT)
def test_lexemes_join_to_the_line(line: str) -> None:
    assert "".join(lex(line)) == line


@given(st.lists(LINES, min_size=1, max_size=6))
def test_a_stream_that_followed_edits_equals_a_fresh_one(versions: list[list[str]]) -> None:
    vocabulary = Vocabulary()
    stream = LexemeStream(vocabulary)
    for lines in versions:
        text = "\n".join(lines)
        stream.update(text)
        fresh = LexemeStream(vocabulary, text)
        assert stream.ids.tolist() == fresh.ids.tolist()
        assert stream.starts.tolist() == fresh.starts.tolist()
        for number, line in enumerate(lines):
            begin, end = stream.span(number)
            spelled = "".join(vocabulary.lexeme(id) for id in stream.ids[begin:end].tolist())
            assert spelled == (line.strip() + "\n" if line.strip() else "")


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_gathering_finds_what_a_plain_search_finds(ids: list[int], history: list[int]) -> None:
    found = gather(Corpus(np.array(ids, np.int32)), history)
    plain: list[tuple[int, int]] = []
    for at in range(len(ids) - 1):
        length = 0
        while length < min(8, len(history)) and at - length >= 0 and ids[at - length] == history[-1 - length]:
            length += 1
        if length:
            plain.append((ids[at + 1], length))
    assert sorted(zip(found.following, found.lengths, strict=True)) == sorted(plain)


def test_the_line_being_written_is_no_evidence_for_itself() -> None:
    ids: Ids = np.array([5, 6, 0, 5, 7, 0], np.int32)
    assert gather(Corpus(ids, hole=(3, 6)), [5]).following == [6]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8)), min_size=1, max_size=30))
def test_blended_chances_are_probabilities(pairs: list[tuple[int, int]]) -> None:
    from foretype_client.adaptive.blend import Evidence

    chances = blend([Evidence([a for a, _ in pairs], [b for _, b in pairs])])
    assert all(0 < chance <= 1 for chance in chances.values())
    assert sum(chances.values()) <= 1.001


def test_it_completes_a_line_it_has_seen_and_adapts_the_rest_of_a_half_typed_word() -> None:
    seen = "parser.add_argument('--verbose')\n" * 3
    assert at_end(AdaptiveModel(), seen + "parser.add_arg") == "ument('--verbose')"


def test_it_knows_more_than_lines_that_start_alike() -> None:
    seen = "first = self.convert(value, param, ctx)\nsecond = self.convert(value, param, ctx)\n"
    assert at_end(AdaptiveModel(), seen + "third = self.convert(") == "value, param, ctx)"


def test_another_file_is_evidence_once_it_was_seen() -> None:
    model = AdaptiveModel()
    line = "logger = logging.getLogger(__name__)\n"
    assert at_end(model, "logger = logging.") is None
    model.learn("file:///b.py", line * 2)
    assert at_end(model, "logger = logging.") == "getLogger(__name__)"
    model.forget("file:///b.py")
    assert at_end(model, "logger = logging.") is None


def test_this_file_outvotes_another() -> None:
    model = AdaptiveModel()
    model.learn("file:///b.py", "total = add(1, 2)\n" * 3)
    assert at_end(model, "total = add(3, 4)\n" * 3 + "total = add(") == "3, 4)"


def test_it_is_silent_where_it_is_not_sure() -> None:
    different = "".join(f"value = call_{i}()\n" for i in range(9))
    assert at_end(AdaptiveModel(), different + "value = ") is None


def test_an_empty_file_and_a_cursor_in_white_space_are_answered_with_nothing() -> None:
    model = AdaptiveModel()
    assert at_end(model, "") is None
    assert at_end(model, "   \n\t ") is None


@given(st.lists(st.tuples(TEXT, st.sampled_from(["\n", "\r\n", "\r", "\n\r", "\u2028", "\x0c"]))), TEXT, st.data())
def test_any_text_is_answered_with_one_line_or_nothing(
    lines: list[tuple[str, str]], typed: str, data: st.DataObject
) -> None:
    text = "".join(map("".join, lines)) + typed
    offset = data.draw(st.integers(0, len(text)))
    answer = AdaptiveModel(confidence_min=0.01).suggest(snapshot(text), offset)
    assert answer is None or (answer.text and not {"\n", "\r"} & {*answer.text} and 0 < answer.confidence <= 1)


def test_lines_end_where_those_of_the_document_do() -> None:
    assert at_end(AdaptiveModel(), "total = add(1, 2)\r\n\rtotal = add(1, 2)\n\r\ntotal = add(") == "1, 2)"


def test_a_long_file_is_looked_at_through_a_window_around_the_cursor() -> None:
    model = AdaptiveModel(chars_max=4_000)
    filler = "".join(f"name_{i} = {i}\n" for i in range(2_000))
    near = filler + "result = compute(near, value)\n" * 2
    assert at_end(model, "result = compute(far, value)\n" * 2 + near + "result = compute(") == "near, value)"


def test_a_vocabulary_that_grew_too_large_starts_afresh() -> None:
    model = AdaptiveModel(vocabulary_max=50)
    for number in range(40):
        model.learn(f"file:///{number}.py", f"name_{number} = {number}\nother_{number} = 1\n")
    assert at_end(model, "a = b(c)\n" * 2 + "a = ") == "b(c)"


def test_line_ends_have_the_first_number() -> None:
    assert Vocabulary().ids(["\n"]) == [LINE_END]


def test_the_same_text_again_keeps_its_array() -> None:
    stream = LexemeStream(Vocabulary(), "a = 1\n")
    before = stream.ids
    stream.update("a = 1\n")
    assert stream.ids is before
    stream.update("")
    assert stream.span(0) == (0, 0)
