"""Python 2 in a tree: the grammar takes both languages for one and has no error for what Python 3 refuses."""

from __future__ import annotations

import re
from typing import Final

from tree_sitter import Node

from foretype_context.syntax.parsing import node_text

_STATEMENTS: Final = frozenset({"print_statement", "exec_statement"})
_OLD_NUMBER: Final = re.compile(r"0\d*[1-9]\d*|.*[lL]")
_OLD_QUOTE: Final = re.compile(r"(?i)`|u[rb]|ru")
_NODES_MAX: Final = 4_000


def holds_python_two(root: Node, source: bytes, start_byte: int, end_byte: int) -> bool:
    """Whether something that touches `[start_byte, end_byte)` of `source` is of Python 2 alone.

    Two values behind `except` are not asked for: Python 3.14 took that form up again, with another meaning.
    """
    stack, left = [root], _NODES_MAX
    while stack and left:
        left -= 1
        node = stack.pop()
        if _is_old(node, source):
            return True
        stack.extend(child for child in node.children if child.end_byte > start_byte and child.start_byte < end_byte)
    return False


def _is_old(node: Node, source: bytes) -> bool:
    kind = node.type
    above = node.parent.type if node.parent is not None else ""
    return (
        kind in _STATEMENTS
        or kind == "<>"
        or (kind == "integer" and _OLD_NUMBER.fullmatch(node_text(node, source)) is not None)
        or (kind == "string_start" and _OLD_QUOTE.match(node_text(node, source)) is not None)
        or (kind == "expression_list" and above == "raise_statement")
        or (kind == "tuple_pattern" and above in ("parameters", "lambda_parameters"))
    )
