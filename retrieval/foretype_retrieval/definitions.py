"""Which nodes of a syntax tree define something that another file may name, for all grammars in one walk.

The walk goes through what can hold such definitions (classes, namespaces, decorators, conditional blocks) and never into a
function body, so that its cost is that of a file's outline.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from foretype_context.syntax.node_types import CLASSES, FUNCTION_VALUES, FUNCTIONS, NEVER, WRAPPERS, defined_name
from foretype_context.syntax.parsing import node_text
from tree_sitter import Node, Tree

MAX_DEPTH: Final = 12
MAX_VISITED: Final = 50_000


class ChunkKind(IntEnum):
    """What a chunk is. The values are stored on disk."""

    WINDOW = 0
    FUNCTION = 1
    CLASS = 2
    CONSTANT = 3


class Definition(NamedTuple):
    """One definition: `node` with decorators, export or template in front of it; `body` where there is one."""

    kind: ChunkKind
    name: str
    node: Node
    body: Node | None
    depth: int


_CLASSES: Final = CLASSES | {"type_spec", "type_alias_declaration", "type_item"}
_CONSTANTS: Final = frozenset({"const_item", "static_item", "const_spec", "variable_declarator"})
_NEVER: Final = (NEVER - {"expression_list"}) | {
    "import_from_statement",
    "import_statement",
    "statement_block",
    "use_declaration",
    "using_directive",
}
_BODIES_OF_CLASSES: Final = frozenset(
    {
        "block",
        "body_statement",
        "class_body",
        "compilation_unit",
        "declaration_list",
        "enum_body",
        "enum_body_declarations",
        "field_declaration_list",
        "interface_body",
        "module",
        "program",
        "source_file",
        "translation_unit",
    }
)


def definitions(tree: Tree, source: bytes) -> Iterator[Definition]:
    """Definitions of a file, `source` as `tree` was made of it, in the order of the text; a class comes before its members."""
    visited = 0
    stack: list[tuple[Node, Node, int, bool]] = [(tree.root_node, tree.root_node, 0, True)]
    while stack:
        node, outer, depth, top = stack.pop()
        visited += 1
        if visited > MAX_VISITED:
            return
        found = _definition(node, outer, depth, top, source)
        if found is not None:
            yield found
            if found.kind is not ChunkKind.CLASS:
                continue
            top = False
        if depth >= MAX_DEPTH or node.type in _NEVER:
            continue
        inner = outer if node.type in WRAPPERS else None
        if node.type in WRAPPERS and outer is node:
            inner = node
        stack.extend(
            (child, inner or child, depth + 1, top)
            for child in reversed(node.named_children)
            if child.end_byte - child.start_byte > 2 and child.type not in _NEVER
        )


def _definition(node: Node, outer: Node, depth: int, top: bool, source: bytes) -> Definition | None:
    kind = node.type
    if kind in FUNCTIONS:
        name, body = defined_name(node, source), node.child_by_field_name("body")
        return Definition(ChunkKind.FUNCTION, name, outer, body, depth) if name else None
    if kind in _CLASSES and node.named_child_count:
        name, body = defined_name(node, source), node.child_by_field_name("body")
        if body is None:
            body = next((child for child in node.named_children if child.type in _BODIES_OF_CLASSES), None)
        if not name or (kind.endswith("_specifier") and body is None):
            return None
        return Definition(ChunkKind.CLASS, name, outer, body, depth)
    if not top:
        return None
    if kind == "assignment":
        left = node.child_by_field_name("left")
        named = left is not None and left.type == "identifier"
        return Definition(ChunkKind.CONSTANT, node_text(left, source), outer, None, depth) if named else None
    if kind in _CONSTANTS:
        value, name = node.child_by_field_name("value"), defined_name(node, source)
        if not name:
            return None
        if value is not None and value.type in FUNCTION_VALUES:
            return Definition(ChunkKind.FUNCTION, name, outer, value.child_by_field_name("body"), depth)
        return Definition(ChunkKind.CONSTANT, name, outer, None, depth)
    return None
