"""The definition that a place in a document belongs to: where its header ends, what its body is, whether it is documented.

By the grammar's tree; where there is none, by a header that looks like one and what is indented below it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from foretype_context.syntax.blocks import indent_columns
from foretype_context.syntax.languages import language_spec
from foretype_context.syntax.node_types import CLASSES, FUNCTION_VALUES, FUNCTIONS, WRAPPERS, defined_name
from foretype_context.syntax.outline import defines
from foretype_context.syntax.parsing import node_text, parse_bounded
from foretype_context.text.strings import well_formed
from tree_sitter import Node

_COMMENTS: Final = frozenset({"comment", "line_comment", "block_comment"})
_BODY_TYPES: Final = frozenset({"block", "statement_block", "compound_statement", "body_statement", "function_body"})
_OUTER: Final = WRAPPERS | {"variable_declarator", "lexical_declaration", "variable_declaration"}
_LOOK_BACK_LINES: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A function or class; offsets are characters of the document.

    Attributes:
        start: of its first line, decorators and `export` included.
        end: behind its last character.
        header_end: behind what opens its body, else behind its header.
        body: start and end of what stands in the body, blanks around it not included; None where that is nothing.
        documentation: start and end of what documents it inside the body; None where nothing does.
        documented: by that, or by a comment right above it.
        indent: blanks that its header line begins with.
    """

    name: str
    function: bool
    start: int
    end: int
    header_end: int
    body: tuple[int, int] | None
    documentation: tuple[int, int] | None
    documented: bool
    indent: str


def definition_at(text: str, language: str, offset: int, *, function: bool = False) -> Definition | None:
    """The innermost definition around `offset`, or None.

    Blocking: parses the text, which takes up to 150 ms.

    Args:
        function: a class is none.
    """
    text = well_formed(text)
    place, columns = _settled(text, offset)
    source = text.encode()
    tree = parse_bounded(source, language)
    if tree is not None:
        found = _by_tree(text, source, tree.root_node, language, place, columns, function=function)
        if found is not None:
            return found
    return _by_indentation(text, language, place, columns)


def _settled(text: str, offset: int) -> tuple[int, int | None]:
    """A place with code in it, and on a blank line how far that is indented: it stands in what is indented less."""
    offset = min(max(offset, 0), len(text))
    start, end = text.rfind("\n", 0, offset) + 1, text.find("\n", offset)
    line = text[start : len(text) if end < 0 else end]
    if line.strip():
        return max(offset, start + len(line) - len(line.lstrip())), None
    return max(0, len(text[:start].rstrip()) - 1), indent_columns(text[start:offset])


def _by_tree(
    text: str, source: bytes, root: Node, language: str, place: int, columns: int | None, *, function: bool
) -> Definition | None:
    ascii_only = len(source) == len(text)

    def chars(byte: int) -> int:
        return byte if ascii_only else len(source[:byte].decode())

    byte = len(text[:place].encode())
    node = root.descendant_for_byte_range(byte, byte)
    while node is not None and node.parent is not None:  # some grammars call the root a module, as Ruby its name spaces
        if (inner := _defining(node)) is not None and not (function and inner.type in CLASSES):
            found = _of(text, source, inner, language, chars)
            if columns is None or indent_columns(found.indent) < columns:
                return found
        node = node.parent
    return None


def _defining(node: Node) -> Node | None:
    """The definition that a node is or holds together."""
    if node.type in WRAPPERS:
        held = next((child for child in node.named_children if child.type in FUNCTIONS | CLASSES), None)
        return held or next(filter(None, map(_defining, node.named_children)), None)
    if node.type in FUNCTIONS or node.type in CLASSES:
        return node if node.is_named else None
    if node.type in ("lexical_declaration", "variable_declaration"):
        return next(filter(None, map(_defining, node.named_children)), None)
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        return value if value is not None and value.type in FUNCTION_VALUES else None
    named = node.parent is not None and node.parent.type == "variable_declarator"
    return node if node.type in FUNCTION_VALUES and named and node.is_named else None


def _of(text: str, source: bytes, node: Node, language: str, chars: Callable[[int], int]) -> Definition:
    outer, named = node, node
    while outer.parent is not None and outer.parent.type in _OUTER:
        outer = outer.parent
        if outer.type == "variable_declarator":
            named = outer
    body = node.child_by_field_name("body") or next((c for c in node.named_children if c.type in _BODY_TYPES), None)
    start, end = chars(outer.start_byte), chars(outer.end_byte)
    line_start = text.rfind("\n", 0, chars(node.start_byte)) + 1
    header_end, inside = _inside(text, node, body, chars)
    documentation = _docstring(body, chars) if language_spec(language).id == "python" else None
    above = outer.prev_named_sibling
    commented = above is not None and above.type in _COMMENTS and above.end_point.row + 1 >= outer.start_point.row
    if commented and above is not None and node_text(above, source).endswith("\n"):
        commented = above.end_point.row == outer.start_point.row  # some grammars count the line's end to the comment
    return Definition(
        name=defined_name(named, source),
        function=node.type in FUNCTIONS or (node.type in FUNCTION_VALUES and node.type != "class"),
        start=text.rfind("\n", 0, start) + 1,
        end=end,
        header_end=header_end,
        body=inside,
        documentation=documentation,
        documented=documentation is not None or commented,
        indent=_blanks(text, line_start),
    )


def _inside(
    text: str, node: Node, body: Node | None, chars: Callable[[int], int]
) -> tuple[int, tuple[int, int] | None]:
    """Where the header ends, and what the body holds without its braces."""
    if body is None:
        end = text.find("\n", chars(node.start_byte))
        return (len(text) if end < 0 else end), None
    first, last = chars(body.start_byte), chars(body.end_byte)
    if text[first : first + 1] == "{":
        header_end, first = first + 1, first + 1
        last -= text[last - 1 : last] == "}"
    else:
        colon = next(
            (child for child in node.children if child.type == ":" and child.end_byte <= body.start_byte), None
        )
        end = text.find("\n", chars(node.start_byte))
        header_end = chars(colon.end_byte) if colon is not None else len(text) if end < 0 else end
        first = max(first, header_end)
    held = text[first:last]
    if not held.strip():
        return header_end, None
    return header_end, (first + len(held) - len(held.lstrip()), first + len(held.rstrip()))


def _docstring(body: Node | None, chars: Callable[[int], int]) -> tuple[int, int] | None:
    first = None if body is None else next(iter(body.named_children), None)
    if first is None or first.type != "expression_statement" or not first.named_children:
        return None
    held = first.named_children[0]
    return (chars(first.start_byte), chars(first.end_byte)) if held.type in ("string", "concatenated_string") else None


def _by_indentation(text: str, language: str, place: int, columns: int | None) -> Definition | None:
    at = text.rfind("\n", 0, place) + 1
    limit = columns
    for _ in range(_LOOK_BACK_LINES):
        end = text.find("\n", at)
        line = text[at : len(text) if end < 0 else end]
        if line.strip():
            own = indent_columns(line)
            if defines(line) and (limit is None or own < limit):
                return _indented(text, language, at, line)
            limit = own if limit is None else min(limit, own)
        if at == 0:
            return None
        at = text.rfind("\n", 0, at - 1) + 1
    return None


def _indented(text: str, language: str, start: int, header: str) -> Definition:
    """A header with what is indented below it, and the line that closes it."""
    columns, header_end = indent_columns(header), start + len(header.rstrip())
    end, at, body = header_end, start + len(header) + 1, None
    for line in text[at:].splitlines(keepends=True):
        filled, inner = line.strip(), indent_columns(line) > columns
        if filled and not inner:
            closes = language_spec(language).closes_block
            end = at + len(line.rstrip()) if filled.rstrip(";,)") in closes else end
            break
        if filled:
            end = at + len(line.rstrip())
            body = (at + len(line) - len(line.lstrip()) if body is None else body[0], end)
        at += len(line)
    above = text[:start].rstrip("\r\n").rpartition("\n")[2].strip()
    name = header.strip().partition("(")[0].split()[-1:] or [""]
    return Definition(
        name=name[0].rstrip(":{"),
        function=not header.lstrip().startswith(("class ", "struct ", "interface ", "enum ", "trait ")),
        start=start,
        end=end,
        header_end=header_end,
        body=body,
        documentation=None,
        documented=above.startswith((language_spec(language).line_comment, "*/")) or above.endswith("*/"),
        indent=_blanks(text, start),
    )


def _blanks(text: str, start: int) -> str:
    end = start
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    return text[start:end]
