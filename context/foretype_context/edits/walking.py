"""From the root of a tree to a name: what is cheap enough to be done for every place of one name between two keys."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from tree_sitter import Node

OCCURRENCES_MAX: Final = 300
"""Of one name in a file; what is named oftener is not followed, for that would take too long between two keys."""


class TreeStep(NamedTuple):
    """A node on the way, with what was read of it."""

    kind: str
    field: str | None
    start: int
    end: int
    node: Node


def words(source: bytes, name: str, start: int = 0, end: int | None = None) -> Iterator[re.Match[bytes]]:
    """Where a name stands as a whole word, from byte `start` to `end`."""
    said = re.escape(name.encode())
    word = re.compile(
        said + rb"(?<![\w\x80-\xff]" + said + rb")(?![\w\x80-\xff])"
    )  # the name first: it is searched for faster
    return word.finditer(source, start, len(source) if end is None else end)


def down(root: Node, byte: int) -> list[TreeStep]:
    """From the root to the leaf at `byte`."""
    cursor = root.walk()
    path: list[TreeStep] = []
    while True:
        node = cursor.node
        if node is None:
            return path
        path.append(TreeStep(node.type, cursor.field_name, node.start_byte, node.end_byte, node))
        if not node.child_count or cursor.goto_first_child_for_byte(byte) is None:
            return path


def end_around(root: Node, byte: int, kinds: AbstractSet[str], but: Container[tuple[int, int]]) -> int | None:
    """Where the outermost node of `kinds` around `byte` ends; None where there is none, or where its own name stands at `byte`.

    Args:
        but: nodes that do not count, by their spans.
    """
    cursor = root.walk()
    while (node := cursor.node) is not None:
        if node.type in kinds and (node.start_byte, node.end_byte) not in but:
            name = node.child_by_field_name("name")
            return None if name is not None and name.start_byte == byte else node.end_byte
        if not node.child_count or cursor.goto_first_child_for_byte(byte) is None:
            break
    return None


def place_of(path: list[TreeStep], at: int) -> tuple[str, str | None]:
    """The kind of node that a step is a child of, and as which field."""
    return (path[at - 1].kind, path[at].field) if at else ("", None)


def is_within(place: tuple[str, str | None], places: frozenset[str]) -> bool:
    """Whether a place is one of `places`: `parent` or `parent.field`."""
    parent, field = place
    return parent in places or f"{parent}.{field}" in places


def node_kinds(text: str) -> frozenset[str]:
    """Kinds of nodes, or places of them, between blanks: how the tables of the languages are written."""
    return frozenset(text.split())
