"""Prompts of models that predict edits, byte for byte and id for id, and what is left out of a question that is too large."""

import itertools
from functools import cache

import pytest
from context.tiny import raw
from foretype_context.edit_models.format import FORMATS, edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.edit_models.question import EditQuestion, RecentEdit, RelatedText
from foretype_context.edit_models.regions import boundaries, hunks, read_cursor
from foretype_context.errors import EditQuestionError, UnknownControlError, UnknownFormatError
from foretype_context.grammars.grammar import GRAMMARS
from foretype_context.tokens.tokenizer import Tokenizer, tokenizer_from_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Inner

ZETA, SWEEP, NEP = "zeta-2.1", "sweep-next-edit", "nep-qwen2.5-coder"
MARKERS = frozenset(f"<|marker_{number}|>" for number in range(1, 9)) | {"<|user_cursor|>", "<filename>"}

QUESTION = EditQuestion(
    path="src/shop.py",
    window="def total(basket):\n    sum = 0\n    return sum\n",
    cursor=30,
    first_line=4,
    above="import os\n\n",
    below="\n\nprint(total([]))\n",
    before="def total(items):\n    sum = 0\n    return sum\n",
    edits=[RecentEdit(path="src/shop.py", old="def total(items):\n", new="def total(basket):\n", line=4)],
    related=[RelatedText(path="src/pay.py", text="def pay(basket): ...\n")],
)

WRITTEN = {
    ZETA: (
        "<[fim-suffix]>\n\n\nprint(total([]))\n"
        "<[fim-prefix]><filename>src/pay.py\ndef pay(basket): ...\n\n"
        "<filename>edit_history\n--- a/src/shop.py\n+++ b/src/shop.py\n@@ -5 +5 @@\n-def total(items):\n+def total(basket):\n\n"
        "<filename>src/shop.py\nimport os\n\n<|marker_1|>\ndef total(basket):\n    sum = 0<|user_cursor|>\n    return sum\n"
        "<|marker_2|>\n<[fim-middle]>"
    ),
    SWEEP: (
        "<|file_sep|>src/pay.py\ndef pay(basket): ...\n"
        "<|file_sep|>src/shop.py.diff\noriginal:\ndef total(items):\nupdated:\ndef total(basket):\n"
        "<|file_sep|>original/src/shop.py\ndef total(items):\n    sum = 0\n    return sum\n"
        "<|file_sep|>current/src/shop.py\ndef total(basket):\n    sum = 0\n    return sum\n"
        "<|file_sep|>updated/src/shop.py\n"
    ),
    NEP: (
        "<|original_code|>\ndef total(items):\n    sum = 0\n    return sum\n"
        "<|edits_diff|>\n--- src/shop.py\n+++ src/shop.py\n@@ -5,3 +5,3 @@\n-def total(items):\n+def total(basket):\n     sum = 0\n"
        "     return sum\n"
        "<|current_version|>\ndef total(basket):\n    sum = 0\n    return sum\n"
        "<|next_version|>\n"
    ),
}


@cache
def file_of(id: str, *, words: bool = False) -> bytes:
    """A tiny vocabulary with the tokens of a format; `words`: with its markers too."""
    one = edit_format(id)
    return raw("qwen2", frozenset({*one.controls(), *one.end_tokens, *(MARKERS if words else ())}))


def tokenizer_of(id: str, *, words: bool = False) -> Tokenizer:
    return tokenizer_from_bytes(file_of(id, words=words))


def prompts(id: str, *, words: bool = False) -> EditPrompts:
    return EditPrompts(tokenizer_of(id, words=words), edit_format(id))


def test_the_formats_that_ship_say_where_they_were_read_and_ask_for_lines() -> None:
    assert set(FORMATS) == {ZETA, SWEEP, NEP}
    for id, one in FORMATS.items():
        assert one.id == id and one.source and one.models
        assert one.window.lines_above > 0 < one.window.lines_below
        assert one.end_tokens[0] in one.controls()
    assert {token.token for token in FORMATS[ZETA].start} == {token.token for token in GRAMMARS["seed-coder"].start}
    assert FORMATS[ZETA].end_tokens[0] == GRAMMARS["seed-coder"].end_tokens[0]
    assert GRAMMARS["qwen2.5-coder"].controls() <= set(FORMATS[SWEEP].end_tokens)
    with pytest.raises(UnknownFormatError, match=r"zeta-2\.1"):
        edit_format("zeta-3")


@pytest.mark.parametrize("id", sorted(FORMATS))
def test_a_prompt_is_what_its_source_shows(id: str) -> None:
    assert prompts(id).encode(QUESTION, most_tokens=2000).text == WRITTEN[id]


@pytest.mark.parametrize(
    ("id", "words"), [(ZETA, False), (ZETA, True), (SWEEP, False), (NEP, False)], ids=["zeta", "zeta+", "sweep", "nep"]
)
def test_ids_are_those_of_a_tokenizer_that_finds_the_tokens_in_the_whole_text(id: str, words: bool) -> None:
    made = prompts(id, words=words).encode(QUESTION, most_tokens=2000)
    theirs = Inner.from_str(file_of(id, words=words).decode())
    start = "".join(token.token for token in edit_format(id).start)
    assert made.ids.tolist() == theirs.encode(start + made.text, add_special_tokens=False).ids
    marker = theirs.token_to_id("<|marker_1|>")
    assert (marker in made.ids) is words, "a marker is one token where the vocabulary has it"


def test_without_edits_and_texts_nothing_is_written_of_them() -> None:
    bare = EditQuestion(path="a.py", window="x = 1", cursor=5)
    assert prompts(ZETA).encode(bare, most_tokens=2000).text == (
        "<[fim-suffix]>\n<[fim-prefix]><filename>a.py\n<|marker_1|>\nx = 1<|user_cursor|>\n<|marker_2|>\n<[fim-middle]>"
    )
    assert prompts(SWEEP).encode(bare, most_tokens=2000).text == (
        "<|file_sep|>original/a.py\nx = 1\n<|file_sep|>current/a.py\nx = 1\n<|file_sep|>updated/a.py\n"
    )


def test_a_vocabulary_without_a_token_of_the_format_is_refused() -> None:
    with pytest.raises(UnknownControlError, match="endoftext"):
        EditPrompts(tokenizer_of(ZETA), edit_format(SWEEP))


@pytest.mark.parametrize("field", ["path", "window"])
def test_a_text_that_holds_a_token_cannot_be_asked_about(field: str) -> None:
    given = {"path": "a.py", "window": "x = 1\n", "cursor": 0} | {field: "a <|marker_2|>"}
    with pytest.raises(EditQuestionError, match=field):
        prompts(ZETA).encode(EditQuestion(**given), most_tokens=2000)


def test_what_stands_around_and_holds_a_token_is_left_out() -> None:
    token = "<|file_sep|>other.py\n"
    asked = EditQuestion(
        path="a.py",
        window="x = 1\n",
        cursor=0,
        before=token,
        edits=[RecentEdit(path="a.py", old=token, new="x\n"), RecentEdit(path="a.py", old="y\n", new="x\n")],
        related=[RelatedText(path="b.py", text=token), RelatedText(path="c.py", text="z\n")],
    )
    made = prompts(SWEEP).encode(asked, most_tokens=2000)
    assert [one.path for one in made.question.related] == ["c.py"] and len(made.question.edits) == 1
    assert made.question.before is None and "other.py" not in made.text
    separator = tokenizer_of(SWEEP).control("<|file_sep|>")
    assert list(made.ids).count(separator) == made.text.count("<|file_sep|>") == 5


def test_what_is_too_much_goes_by_its_worth() -> None:
    asked = EditQuestion(
        path="a.py",
        window="x = 1\n",
        cursor=0,
        above="above\n" * 40,
        below="below\n" * 40,
        edits=[RecentEdit(path="a.py", old=f"old {n}\n", new=f"new {n}\n") for n in range(4)],
        related=[RelatedText(path="b.py", text="text\n" * 40)] * 2,
    )
    made = prompts(ZETA)
    whole = made.encode(asked, most_tokens=5000)
    most = len(whole.ids) + whole.answer_tokens
    less = made.encode(asked, most_tokens=most - 1)
    assert len(less.question.related) == 1 and len(less.question.edits) == 4
    for tokens in range(most, 0, -37):
        try:
            some = made.encode(asked, most_tokens=tokens)
        except EditQuestionError as error:
            assert error.field == "window"
            break
        assert len(some.ids) + some.answer_tokens <= tokens
        assert some.question.window == asked.window
        if some.question.edits != asked.edits:
            assert (
                not some.question.related
                and some.question.edits == asked.edits[len(asked.edits) - len(some.question.edits) :]
            )
        if some.question.above != asked.above:
            assert not some.question.edits
            assert asked.above.endswith(some.question.above) and asked.below.startswith(some.question.below)
    else:
        pytest.fail("no prompt was too large")


LINES = st.lists(st.sampled_from(["", "  ", "a = 1", "b", "}"]), max_size=60)


@given(LINES, st.integers(1, 8), st.integers(0, 20))
def test_markers_stand_at_both_ends_and_neither_too_near_nor_too_far(lines: list[str], fewest: int, more: int) -> None:
    most = 2 * fewest + more
    found = boundaries(lines, fewest, most)
    assert found[0] == 0 and found[-1] == len(lines)
    sizes = [end - start for start, end in itertools.pairwise(found)]
    assert all(size <= most for size in sizes)
    assert len(sizes) < 2 or all(size >= fewest for size in sizes)


@settings(max_examples=60)
@given(LINES, LINES, st.integers(0, 9))
def test_hunks_make_the_one_text_of_the_other(old: list[str], new: list[str], line: int) -> None:
    told, made, at = hunks(old, new, line), list[str](), 0
    for one in told:
        if one.startswith("@@"):
            begin, _, count = one.split()[1][1:].partition(",")
            first = int(begin) - line - (count != "0")
            made += old[at:first]
            at = first
        elif one[0] == "+":
            made.append(one[1:])
        else:
            assert old[at] == one[1:]
            at += 1
            made += [one[1:]] * (one[0] == " ")
    assert made + old[at:] == new


@given(st.text(st.sampled_from("ab\r\n"), max_size=30), st.data())
def test_the_cursor_stays_at_its_character(text: str, data: st.DataObject) -> None:
    cursor = data.draw(st.integers(0, len(text)))
    read = text.replace("\r\n", "\n")
    at = read_cursor(text, cursor)
    inside = text[:cursor].endswith("\r") and text[cursor:].startswith("\n")
    assert 0 <= at <= len(read)
    assert read[at:] == text[cursor - inside :].replace("\r\n", "\n")
