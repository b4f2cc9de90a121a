"""The tree around the cursor says what the tree of the whole file says, at the cost of the neighbourhood."""

import gc
import random
import tracemalloc
from typing import Any

import pytest
from foretype_context.syntax.blocks import in_comment_or_string, opens_block, spot_before, suggestion_kind
from foretype_context.syntax.document import Document, Edit, Snapshot
from foretype_context.syntax.languages import LANGUAGES, parser_for
from foretype_context.syntax.neighbourhood import ABOVE_CHARS, BELOW_CHARS, PARSE_STEPS
from hypothesis import given, settings
from hypothesis import strategies as st

PYTHON = '''
def function_{0}(value: int) -> str:
    """Say what {0} is.

A line of the documentation that stands at the margin, (and opens a bracket.
    """
    names = ["a", 'b # no comment', value]  # a comment "{0}"
    return f"{{names}} of {{value}}"


class Thing{0}:
    def method(self):
        return {{"key": """a text (
of two lines
"""}}

'''
GO = """
// Function{0} says 'what'.
func Function{0}(value int) string {{
	text := `a raw
text {{ with "quotes`
	return fmt.Sprintf("%d {{", value) + text /* "and" */
}}

type Thing{0} struct {{
	Name string
}}
"""
PHP = """
// function {0} says 'what'
function f{0}($value) {{
    return "the {{$value}} of" . 'it'; # "
}}
"""


STATEMENTS = {
    "python": (
        "def f(a: int = 1) -> int:\n    return a\n",
        "def f(a: int):\n    b: int = a[1:2]\n    return b\n",
        "x = {\n    1:\n    2,\n}\n",
        "x = y[\n    1:\n    2\n]\n",
        "x = lambda:\\\n    1\n",
        "if x:\n    pass\nelse:\n    x = 1\n",
        "# x:\n",
        'x = """1:\n"""\n',
    ),
    "javascript": (
        "function f(a) {\n    return a;\n}\n",
        "x = {\n    y: 1,\n};\n",
        "if (x) {\n    y();\n} else {\n    z();\n}\n",
        "// x {\n",
        "x = `1 {\n`;\n",
        "const f = (a) => {\n    return 1;\n};\n",
    ),
    "go": (
        "func f(a int) int {\n\treturn a\n}\n",
        "type T struct {\n\tName string\n}\n",
        "var x = []int{\n\t1,\n}\n",
        "// x {\n",
        "var x = `1 {\n`\n",
    ),
}


def long_text(template: str, count: int = 120, head: str = "") -> str:
    return head + "".join(template.format(number) for number in range(count))


def snapshot_of(text: str, language: str) -> Snapshot:
    return Document("u", text, language=language).snapshot()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", long_text(PYTHON)),
        ("go", long_text(GO, 240, head="package main\n")),
        ("php", long_text(PHP, 400, head="<?php\n")),
    ],
)
def test_a_neighbourhood_answers_as_the_whole_file_does(language: str, text: str) -> None:
    assert len(text) > 2 * (ABOVE_CHARS + BELOW_CHARS)
    parser = parser_for(language)
    whole = parser.parse(text.encode()).root_node
    spec = LANGUAGES[language]
    rng = random.Random(7)
    document = Document("u", text, language=language)
    for _ in range(200):
        offset = rng.randrange(1, len(text))
        node: Any = whole.descendant_for_byte_range(offset - 1, offset - 1)
        kinds: set[str] = set()
        while node is not None:
            kinds.add(node.type)
            node = node.parent
        if not kinds & (spec.comments | spec.strings):
            assert not in_comment_or_string(document.snapshot(), offset), text[offset - 40 : offset]
        region = document.snapshot().syntax_at(offset)
        assert not region.tree.root_node.has_error, text[region.start : region.start + 80]
        found: Any = region.tree.root_node.descendant_for_byte_range(
            offset - 1 - region.start, offset - 1 - region.start
        )
        same: Any = whole.descendant_for_byte_range(offset - 1, offset - 1)
        if found.parent is not None:
            assert (found.type, found.start_byte + region.start) == (same.type, same.start_byte)


def test_edits_anywhere_keep_the_region_in_step() -> None:
    document = Document("u", long_text(PYTHON), language="python")
    rng = random.Random(3)
    place = len(document.text) // 2
    for version in range(150):
        length = len(document.text)
        start = rng.choice([0, place, place, place, length, rng.randrange(length), max(place - ABOVE_CHARS, 0)])
        end = min(start + rng.choice([0, 0, 0, 1, 30]), length)
        new = rng.choice(["x", "(", ")", "\n", "'", "é🙂", "", "def f():\n    pass\n"])
        document.apply([Edit(start, end, new)], version)
        if end < place:
            place += len(new) - (end - start)
        region = document.snapshot().syntax_at(place)
        if region is not None:
            text = document.text[region.start : region.end]
            assert region.start <= place <= region.end
            assert region.tree.root_node.end_byte <= len(text.encode())
            fresh = parser_for("python").parse(text.encode()).root_node  # type: ignore[union-attr]
            if not fresh.has_error:
                assert str(region.tree.root_node) == str(fresh)


Change = tuple[int, str, int]
"""Which statement, what it becomes, and at which line end is asked."""


def said_at(snapshot: Snapshot, offset: int) -> tuple[object, ...]:
    spot = spot_before(snapshot, offset)
    nodes: list[tuple[str, int, int]] = []
    node = spot.node if spot else None
    while node is not None:
        nodes.append((node.type, node.start_byte, node.end_byte))
        node = node.parent
    return nodes, opens_block(snapshot, offset), suggestion_kind(snapshot, offset)


@pytest.mark.parametrize("language", sorted(STATEMENTS))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_same_is_said_after_edits_as_of_the_text_read_anew(language: str, data: st.DataObject) -> None:
    """Neither a node nor its id outlives an edit: ids are given anew, to other nodes too."""
    pieces = st.sampled_from(STATEMENTS[language])
    statements = ["package main\n" if language == "go" else "\n", *data.draw(st.lists(pieces, min_size=3, max_size=12))]
    document = Document("u", "".join(statements), language=language)
    changes: list[Change] = data.draw(
        st.lists(st.tuples(st.integers(1, 12), st.one_of(pieces, st.just("")), st.integers(0, 99)), max_size=12)
    )
    for version, (number, new, asked) in enumerate(changes, 1):
        number = min(number, len(statements) - 1)
        start = sum(map(len, statements[:number]))
        edit = Edit(start, start + len(statements[number]), new)
        statements[number] = new
        document.apply([edit], version)
        ends = [at for at, character in enumerate(document.text) if character == "\n"]
        offset = ends[asked % len(ends)]
        anew = Document("u", document.text, language=language)
        assert said_at(document.snapshot(), offset) == said_at(anew.snapshot(), offset)


def test_a_neighbourhood_is_all_that_a_large_document_keeps() -> None:
    text = long_text(PYTHON, 1500)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        document = Document("u", text, language="python")
        for place in range(0, len(text), len(text) // 20):
            document.apply([Edit(place, place, "x")], place)
            assert document.snapshot().syntax_at(place) is not None
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 8 * len(text)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("c", "*(a)" * 4_000),
        ("ruby", "%w(" * 5_000),
        ("cpp", "a<" * 8_000),
        ("typescript", "a<" * 1_500),
        ("python", "[{(" * 5_000),
    ],
)
def test_adversarial_text_ends_after_its_steps(language: str, text: str) -> None:
    """Without limits some of these take longer than a test may: what is counted is steps, so no clock is needed."""
    document = Document("u", text, language=language)
    for version in range(6):
        document.apply([Edit(len(document.text), len(document.text), "a")], version)
        snapshot = document.snapshot()
        region = snapshot.syntax_at(len(document.text))
        assert region is None or region.end == len(document.text)
        assert in_comment_or_string(snapshot, len(document.text)) in (True, False)


def test_what_was_given_up_is_tried_again_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []

    def never(_parser: object, _source: bytes, steps: int, _base: object = None) -> None:
        limits.append(steps)

    monkeypatch.setattr("foretype_context.syntax.neighbourhood.parse_in_steps", never)
    document = Document("u", "x = 1\n", language="python")
    tries: list[int] = []
    for version in range(40):
        document.apply([Edit(0, 0, "x")], version)
        before = len(limits)
        assert document.snapshot().syntax_at(0) is None
        if len(limits) > before:
            tries.append(version)
    assert tries == [0, 2, 5, 10, 19, 36] and set(limits) == {PARSE_STEPS}
    monkeypatch.undo()
    for version in range(40, 40 + 64):
        document.apply([Edit(0, 0, "x")], version)
        if document.snapshot().syntax_at(0) is not None:
            break
    document.apply([Edit(0, 0, "x")], 200)
    assert document.snapshot().syntax_at(0) is not None


def test_very_long_lines_have_no_tree() -> None:
    text = "x = [" + "1, " * 40_000 + "]\n"
    assert snapshot_of(text, "python").syntax_at(60_000) is None
    assert snapshot_of("x = 1\n" * 10_000 + text, "python").syntax_at(100) is not None


def test_a_language_without_grammar_has_no_tree() -> None:
    assert snapshot_of("x = 1\n", "plaintext").syntax_at(3) is None


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet="ab(\n\"'#é🙂 :", max_size=80),
    st.integers(0, 90),
    st.integers(0, 90),
    st.text("a\n('", max_size=6),
)
def test_a_region_of_a_short_text_is_all_of_it(text: str, start: int, end: int, new: str) -> None:
    start, end = sorted((min(start, len(text)), min(end, len(text))))
    document = Document("u", text, language="python")
    assert document.snapshot().syntax_at(start) is not None
    document.apply([Edit(start, end, new)], 1)
    region = document.snapshot().syntax_at(0)
    assert region is not None and (region.start, region.end) == (0, len(document.text))
