"""Parses that end and leave nothing behind."""

import gc
import tracemalloc

import pytest
from foretype_context.syntax.document import Document, Edit
from foretype_context.syntax.languages import parser_for
from foretype_context.syntax.parsing import node_text, parse_in_steps

SOURCE = b"def f(value):\n    return value + 1\n\n\n" * 800


@pytest.mark.slow
def test_what_a_parser_read_is_freed() -> None:
    parser = parser_for("python")
    assert parser is not None
    assert parse_in_steps(parser, SOURCE, 100_000) is not None
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            assert parse_in_steps(parser, bytes(bytearray(SOURCE)), 100_000) is not None
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < len(SOURCE)


@pytest.mark.slow
def test_keys_keep_no_memory() -> None:
    document = Document("file:///a.py", SOURCE.decode(), path="a.py")
    at = len(SOURCE) // 2

    def key(number: int) -> None:
        document.apply([Edit(at, at + number % 2, "x" * (1 - number % 2))], number)
        assert document.snapshot().syntax_at(at) is not None

    tracemalloc.start()
    try:
        # The first keys replace a tree that was made before anybody counted.
        for number in range(40):
            key(number)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100):
            key(number)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < len(SOURCE)


@pytest.mark.parametrize("text", [b"", b"x", b"(" * 30_000, "é🙂\n".encode() * 3_000])
def test_a_parser_is_given_up_after_its_steps_and_works_again(text: bytes) -> None:
    parser = parser_for("python")
    assert parser is not None
    assert parse_in_steps(parser, SOURCE, 3) is None
    tree = parse_in_steps(parser, text, 100_000)
    assert tree is not None and tree.root_node.end_byte <= len(text)
    whole = parse_in_steps(parser, SOURCE, 100_000)
    assert whole is not None and whole.root_node.named_child_count == 800


def test_a_nodes_text_does_not_depend_on_the_steps_that_its_parse_left() -> None:
    # Asked of a tree whose steps were all but spent, the text was waited for, for ever.
    parser = parser_for("python")
    assert parser is not None
    source = b"".join(b"def function_%d(value):\n    return value\n\n" % at for at in range(500))
    least = next(steps for steps in range(2, 10_000) if parse_in_steps(parser, source, steps) is not None)
    tree = parse_in_steps(parser, source, least)
    named = [node.child_by_field_name("name") for node in tree.root_node.named_children]
    assert [node_text(node, source) for node in named] == [f"function_{at}" for at in range(500)]
    assert [node.text for node in named if node is not None] == [b"function_%d" % at for at in range(500)]
    assert node_text(None, source) == ""
