"""The adaptive local model."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from foretype_client.adaptive.evidence import (
    CONTEXT_MAX,
    Followers,
    Occurrences,
    agreement,
    alike_in_file,
    places_in_file,
    standing,
)
from foretype_client.adaptive.levels import CountedFollowers
from foretype_client.adaptive.lexemes import LINE_END, Vocabulary, lex
from foretype_client.adaptive.mixture import CELLS, TEMPLATE_WEIGHTS, chances, fitted_weights
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.other_files import OtherFileOccurrences
from foretype_client.adaptive.search import best_line
from foretype_client.adaptive.stream import Ids, LexemeStream
from foretype_client.adaptive.table import ContextRow
from foretype_client.adaptive.threshold import ShowRule
from foretype_context.syntax.document import Document, Snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

ANYTHING = ShowRule(chance_min=0.01, floor=0.01, patience=math.inf)
TEXT = st.text(alphabet="ab_ 1.(\té漢🙂", max_size=30)
LINES = st.lists(st.sampled_from(["a = 1", "  b(c)", "", "\t", "x.y.z  # é", "return a"]), max_size=12)


def snapshot(text: str, uri: str = "file:///a.py") -> Snapshot:
    return Document(uri, text, language="python").snapshot()


def at_end(model: AdaptiveModel, text: str) -> str | None:
    found = model.candidate(snapshot(text), len(text), least=0.15)
    return None if found is None else found.text


def is_as_read_afresh(stream: LexemeStream, vocabulary: Vocabulary, text: str) -> None:
    fresh = LexemeStream(vocabulary, text)
    for name in ("ids", "starts", "marks"):
        assert getattr(stream, name).tolist() == getattr(fresh, name).tolist(), name


@settings(deadline=None)
@given(TEXT)
def test_lexemes_join_to_the_line(line: str) -> None:
    assert "".join(lex(line)) == line


@settings(deadline=None)
@given(st.lists(LINES, min_size=1, max_size=6))
def test_a_stream_that_followed_edits_equals_a_fresh_one(versions: list[list[str]]) -> None:
    vocabulary = Vocabulary()
    stream = LexemeStream(vocabulary)
    for lines in versions:
        text = "\n".join(lines)
        stream.update(text)
        is_as_read_afresh(stream, vocabulary, text)
        assert stream.written.tolist() == [number for number, line in enumerate(lines or [""]) if line.strip()]
        for number, line in enumerate(lines):
            begin, end = stream.span(number)
            spelled = "".join(vocabulary.lexeme(id) for id in stream.ids[begin:end].tolist())
            assert spelled == (line.strip() + "\n" if line.strip() else "")


@settings(deadline=None)
@given(LINES, LINES, st.data())
def test_typing_in_a_line_equals_reading_afresh(before: list[str], after: list[str], data: st.DataObject) -> None:
    vocabulary = Vocabulary()
    stream = LexemeStream(vocabulary, "\n".join(before))
    lines = data.draw(st.sampled_from([before, after])) or [""]
    line = data.draw(st.integers(0, len(lines) - 1))
    lines = [*lines[:line], data.draw(TEXT), *lines[line + 1 :]]
    start = sum(len(other) + 1 for other in lines[:line])
    stream.retype("\n".join(lines), line, start, start + len(lines[line]))
    is_as_read_afresh(stream, vocabulary, "\n".join(lines))


@settings(deadline=None)
@given(LINES, st.data())
def test_a_line_end_that_is_typed_equals_reading_afresh(before: list[str], data: st.DataObject) -> None:
    vocabulary = Vocabulary()
    stream = LexemeStream(vocabulary, "\n".join(before))
    before = before or [""]
    line = data.draw(st.integers(0, len(before) - 1))
    at = data.draw(st.integers(0, len(before[line])))
    margin = data.draw(st.sampled_from(["", "    "]))
    lines = [*before[:line], before[line][:at], margin + before[line][at:], *before[line + 1 :]]
    start = sum(len(other) + 1 for other in lines[: line + 1])
    stream.retype("\n".join(lines), line + 1, start, start + len(lines[line + 1]))
    is_as_read_afresh(stream, vocabulary, "\n".join(lines))
    stream.retype("\n".join(before), line, start - at - 1, start - at - 1 + len(before[line]))
    assert stream.ids.tolist() == LexemeStream(vocabulary, "\n".join(before)).ids.tolist()


def plain_search(ids: list[int], history: list[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for at in range(len(ids) - 1):
        length = 0
        while length < min(CONTEXT_MAX, len(history)) and at - length >= 0 and ids[at - length] == history[-1 - length]:
            length += 1
        if length:
            found[at] = length
    return found


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_agreement_is_what_a_plain_search_finds(ids: list[int], history: list[int]) -> None:
    array: Ids = np.array(ids, np.int32)
    at = np.flatnonzero(array[:-1] == history[-1])
    lengths = agreement(array, at, history)
    assert dict(zip(at.tolist(), lengths.tolist(), strict=True)) == plain_search(ids, history)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=0, max_size=60), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_sorted_text_knows_every_place_of_a_pair(ids: list[int], history: list[int]) -> None:
    found = set(Occurrences(np.array(ids, np.int32)).find(history).tolist())
    plain = plain_search(ids, history) if len(ids) > 1 else {}
    pairs = {at for at, length in plain.items() if length > 1}
    if pairs:
        assert found == pairs
    else:
        assert found == set(plain)


FILES = st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=30)


@settings(deadline=None)
@given(FILES, st.data())
def test_other_files_are_searched_as_if_sorted_afresh(texts: list[list[int]], data: st.DataObject) -> None:
    """Files come, go and move to the end in any order; below the limit nothing is forgotten, above it the latest stay."""
    files = [LexemeStream(Vocabulary()) for _ in texts]
    for file, text in zip(files, texts, strict=True):
        file.ids = np.array(text, np.int32)
    limit = data.draw(st.sampled_from([40, 1000]))
    others = OtherFileOccurrences(limit)
    for _ in range(6):
        chosen = data.draw(st.lists(st.sampled_from(range(len(files))), unique=True))
        known = others.of([files[number] for number in chosen])
        assert others.of([files[number] for number in chosen]) is known
        found = known.occurrences
        assert len(found.ids) <= limit * 5 // 4
        text = [lexeme for number in chosen for lexeme in texts[number]]
        assert found.ids.tolist() == text[len(text) - len(found.ids) :]
        if limit == 1000:
            assert len(found.ids) == len(text)
        history = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=2))
        begin, places = 0, set[int]()
        for number in chosen if limit == 1000 else []:
            pairs = zip(texts[number], texts[number][1:-1], strict=False)
            places |= {begin + at + 1 for at, pair in enumerate(pairs) if list(pair) == history}
            begin += len(texts[number])
        if places:
            assert set(found.find(history).tolist()) == places


def test_the_line_being_written_is_no_evidence_for_itself() -> None:
    ids: Ids = np.array([5, 6, 5, -1, 5, 8, 0], np.int32)
    assert places_in_file(ids, 3, alike_in_file(ids, standing(ids, 3, 5), [5]))[0].following.tolist() == [6, 8]


PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, CONTEXT_MAX), st.sampled_from([1, 3, 4])), max_size=30)


@settings(deadline=None)
@given(PAIRS, st.integers(0, 40), st.lists(st.integers(0, 4), unique=True, max_size=3))
def test_chances_are_probabilities_and_those_not_allowed_have_none(
    pairs: list[tuple[int, int, int]], in_line: int, row: list[int]
) -> None:
    places = [
        Followers(
            np.array([p[0] for p in pairs if p[2] == source], np.int32),
            np.array([p[1] for p in pairs if p[2] == source], np.int64),
            source,
        )
        for source in (1, 3, 4)
    ]
    rows = [ContextRow(2, row, [0.3] * len(row), 5, 3)] if row else []

    counted = CountedFollowers(places, rows, in_line)
    for allowed in (None, counted.ids > 1):
        levels = counted.levels(allowed)
        if levels is None:
            continue
        chance = chances(levels, fitted_weights().levels)
        assert ((0 <= chance) & (chance <= 1)).all()
        assert chance.sum() < 1
        if allowed is not None:
            assert (levels.ids > 1).all()
        assert levels.cells.max() < CELLS


def test_more_context_that_agrees_counts_more() -> None:
    few = Followers(np.array([1], np.int32), np.array([CONTEXT_MAX]), 3)
    many = Followers(np.array([2] * 3, np.int32), np.array([1] * 3), 3)
    both = Followers(np.concatenate((few.following, many.following)), np.concatenate((few.lengths, many.lengths)), 3)
    levels = CountedFollowers([both], [], 40).levels()
    chance = dict(zip(levels.ids.tolist(), chances(levels, fitted_weights().levels).tolist(), strict=True))
    assert chance[1] > chance[2]


def fixed(answers: dict[tuple[int, ...], list[tuple[int, float]]]) -> Callable[[list[int]], object]:
    def following(path: list[int]) -> object:
        found = answers.get(tuple(path))
        return None if found is None else (np.array([a for a, _ in found]), np.array([b for _, b in found]))

    return following


def test_the_best_line_need_not_begin_with_the_best_lexeme() -> None:
    following = fixed({(): [(1, 0.55), (2, 0.45)], (1,): [(0, 0.3), (3, 0.3)], (2,): [(0, 0.95)], (1, 3): [(0, 0.9)]})
    found = best_line(following, least=0.01, steps_max=10)  # pyright: ignore[reportArgumentType]
    assert found.ids == [2]
    assert found.chance == pytest.approx(0.45 * 0.95)


def test_a_line_below_the_least_chance_or_beyond_the_steps_is_not_found() -> None:
    following = fixed({(): [(1, 0.5)], (1,): [(LINE_END, 0.5)]})
    assert best_line(following, least=0.3, steps_max=10) is None  # pyright: ignore[reportArgumentType]
    assert best_line(following, least=0.2, steps_max=1) is None  # pyright: ignore[reportArgumentType]
    assert best_line(following, least=0.2, steps_max=10) is not None  # pyright: ignore[reportArgumentType]


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
    different = "".join(f"value = {name}()\n" for name in ("load", "parse", "check", "write", "send", "merge"))
    text = different + "value = "
    assert AdaptiveModel().suggest(snapshot(text), len(text)) is None


def test_an_empty_file_and_a_cursor_in_white_space_are_answered_with_nothing() -> None:
    model = AdaptiveModel()
    assert at_end(model, "") is None
    assert at_end(model, "   \n\t ") is None


@settings(deadline=None)
@given(st.lists(st.tuples(TEXT, st.sampled_from(["\n", "\r\n", "\r", "\n\r", "\u2028", "\x0c"]))), TEXT, st.data())
def test_any_text_is_answered_with_one_line_or_nothing(
    lines: list[tuple[str, str]], typed: str, data: st.DataObject
) -> None:
    text = "".join(map("".join, lines)) + typed
    offset = data.draw(st.integers(0, len(text)))
    answer = AdaptiveModel(show=ANYTHING).suggest(snapshot(text), offset)
    assert answer is None or (answer.text and not {"\n", "\r"} & {*answer.text} and 0 < answer.confidence <= 1)


def test_a_line_of_thousands_of_lexemes_is_answered_with_nothing() -> None:
    table = "names = [" + ", ".join(f"one.n{i}" for i in range(2_000)) + ", "
    assert at_end(AdaptiveModel(show=ANYTHING), "names = [one.n0, one.n1]\n" * 3 + table) is None


def test_lines_end_where_those_of_the_document_do() -> None:
    assert at_end(AdaptiveModel(), "total = add(1, 2)\r\n\rtotal = add(1, 2)\n\r\ntotal = add(") == "1, 2)"


def test_a_long_file_is_looked_at_through_a_window_around_the_cursor() -> None:
    model = AdaptiveModel(chars_max=4_000)
    filler = "".join(f"name_{i} = {i}\n" for i in range(2_000))
    near = filler + "result = compute(near, value)\n" * 2
    assert at_end(model, "result = compute(far, value)\n" * 2 + near + "result = compute(") == "near, value)"


def test_at_the_top_of_a_long_file_the_window_ends_before_the_file_does() -> None:
    model = AdaptiveModel(chars_max=4_000)
    typed, filler = "result = compute(", "".join(f"name_{i} = {i}\n" for i in range(2_000))
    far = "result = compute(far, value)\n" * 4
    near = model.candidate(snapshot(f"{typed}\n{far}{filler}", "file:///near.py"), len(typed))
    assert near is not None and near.text == "far, value)"
    model.forget("file:///near.py")
    assert model.candidate(snapshot(f"{typed}\n{filler}{far}"), len(typed)) is None


def test_a_vocabulary_that_grew_too_large_starts_afresh() -> None:
    model = AdaptiveModel(vocabulary_max=50)
    for number in range(40):
        model.learn(f"file:///{number}.py", f"name_{number} = {number}\nother_{number} = 1\n")
    assert at_end(model, "a = b(c)\n" * 2 + "a = ") == "b(c)"


def test_the_same_text_again_keeps_its_array() -> None:
    stream = LexemeStream(Vocabulary(), "a = 1\n")
    before = stream.ids
    stream.update("a = 1\n")
    assert stream.ids is before
    stream.update("")
    assert stream.span(0) == (0, 0)


def test_weights_are_shares() -> None:
    weights = fitted_weights()
    assert weights.levels.shape == (CELLS,)
    assert ((weights.levels > 0) & (weights.levels < 1)).all()
    assert weights.templates.shape == (TEMPLATE_WEIGHTS,)


class Counting(Vocabulary):
    """Says how many lines were lexed."""

    lines = 0

    def ids(self, lexemes: Sequence[str]) -> list[int]:
        self.lines += 1
        return super().ids(lexemes)


@pytest.mark.parametrize(("first", "then"), [((0, 300), (100, 400)), ((100, 400), (0, 300)), ((0, 300), (150, 300))])
def test_a_window_that_moves_lexes_what_it_did_not_show_and_nothing_of_it_was_written(
    first: tuple[int, int], then: tuple[int, int]
) -> None:
    text = [f"value_{at} = compute(first, {at})" if at % 3 else "" for at in range(400)]
    vocabulary = Counting()
    stream = LexemeStream(vocabulary, "\n".join(text[slice(*first)]))
    lexed = vocabulary.lines
    moved = text[slice(*then)]
    moved[120] = "typed = 1"  # as the first key after it comes with the move
    stream.retype("\n".join(moved), 120, start := len("\n".join(moved[:120])) + 1, start + len(moved[120]))
    is_as_read_afresh(stream, vocabulary, "\n".join(moved))
    assert stream.take_written() == []
    assert vocabulary.lines - lexed <= len(moved) * 2 // 3 + 121, "a fresh one lexes all, the window what is new to it"


def test_the_first_key_in_a_prepared_document_merges_no_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    merged = 0
    merge = OtherFileOccurrences._merged  # pyright: ignore[reportPrivateUsage]

    def counted(others: OtherFileOccurrences, files: Sequence[Ids]) -> Occurrences:
        nonlocal merged
        merged += 1
        return merge(others, files)

    monkeypatch.setattr(OtherFileOccurrences, "_merged", counted)
    for prepared in (False, True):
        model = AdaptiveModel(show=ANYTHING)
        text = "".join(f"value_{i} = compute(first, second)\n" for i in range(9))
        model.learn("file:///other.py", text)
        model.learn("file:///a.py", text + "val")
        if prepared:
            model.prepare("file:///a.py")
        before = merged
        model.suggest(snapshot(text + "valu"), len(text) + 4)
        assert merged - before == (not prepared)


def test_a_document_that_is_not_known_is_not_prepared() -> None:
    AdaptiveModel().prepare("file:///none.py")
