"""What a suggestion does apart from being right: loops, and harm to the syntax of the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

LONGEST_UNIT = 12
LEAST_REPEATS = 4


def loops(ids: Sequence[int]) -> bool:
    """Whether a generation ends in the same few tokens again and again: a unit of up to 12, four times or more.

    One repeated token needs eight: a row of dashes or blanks is no loop.
    """
    for unit in range(1, LONGEST_UNIT + 1):
        repeats = max(LEAST_REPEATS, 8 // unit)
        tail = list(ids[-unit * repeats :])
        if len(tail) == unit * repeats and tail == tail[:unit] * repeats:
            return True
    return False


def error_counter() -> Callable[[str], int]:
    """Counts syntax errors of Python text: ERROR and MISSING nodes of tree-sitter's tree."""
    import tree_sitter
    import tree_sitter_python

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))

    def count(text: str) -> int:
        waiting: list[Any] = [parser.parse(text.encode()).root_node]
        found = 0
        while waiting:
            node = waiting.pop()
            if node.has_error or node.is_missing:
                found += node.is_error or node.is_missing
                waiting += node.children
        return found

    return count


def harms(before: str, suggestion: str, after: str, count: Callable[[str], int]) -> bool:
    """Whether the file has more syntax errors with the suggestion than it had without it."""
    return count(before + suggestion + after) > count(before + after)
