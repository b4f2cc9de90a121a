"""Whether what was renamed has become another thing: its value, its parameters or what it returns was changed as well."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.offsets import byte_of, char_of
from foretype_context.edits.walking import node_kinds

_LATELY_S: Final = 60.0
"""Between both: who changed a value long ago has renamed what holds it since."""
_DECLARATIONS: Final = node_kinds(
    "assignment assignment_expression variable_declarator short_var_declaration var_spec const_spec let_declaration "
    "const_item static_item named_expression as_pattern for_statement for_in_clause for_in_statement "
    "enhanced_for_statement for_expression range_clause resource default_parameter typed_parameter typed_default_parameter "
    "required_parameter optional_parameter formal_parameter parameter_declaration parameter field_declaration "
    "field_definition public_field_definition property_signature function_definition function_declaration "
    "method_definition method_declaration function_item"
)
_NAMES: Final = node_kinds(
    "identifier property_identifier field_identifier expression_list pattern_list tuple_pattern mut_pattern "
    "as_pattern_target attribute member_expression selector_expression field_expression field_access "
    "variable_declarator_id"
)
"""Between a name and what declares it."""
_PARTS: Final = ("value", "right", "parameters", "return_type", "result")
_WORD: Final = re.compile(r"\w+")


class Touched(NamedTuple):
    """Characters `[start, end)` of the text as it is now, which were edited last at `at_s`."""

    start: int
    end: int
    at_s: float


def is_redefined(
    at: int, root: Node, source: bytes, text: str, touched: Sequence[Touched], renamed: Collection[str]
) -> bool:
    """Whether the value, parameters or returned type of what is declared at character `at` were edited at about the time of its name.

    What was typed at once with the name, as new code is, does not count.

    Args:
        root, source: of `text`, as it is now.
        renamed: new names; where one stands, something else was renamed.
    """
    named_s = max((one.at_s for one in touched if one.start <= at <= one.end), default=None)
    if named_s is None:
        return False
    for first, last in _parts(root, byte_of(text, at)):
        start, end = char_of(text, source, first), char_of(text, source, last)
        for one in touched:
            if one.start >= end or one.end <= start or one.start <= at < one.end or abs(one.at_s - named_s) > _LATELY_S:
                continue
            if not any(
                word.start() <= one.start and one.end <= word.end() and word[0] in renamed
                for word in _WORD.finditer(text, start, end)
            ):
                return True
    return False


def _parts(root: Node, at: int) -> list[tuple[int, int]]:
    """In bytes: what makes the thing that the name at `at` declares."""
    node = root.descendant_for_byte_range(at, at)
    while node is not None and node.type not in _DECLARATIONS:
        node = node.parent if node.type in _NAMES else None
    if node is None:
        return []
    found = [node.child_by_field_name(name) for name in _PARTS]
    if node.type == "as_pattern":
        found.append(node.named_child(0))
    return [
        (one.start_byte, one.end_byte) for one in found if one is not None and not one.start_byte <= at < one.end_byte
    ]
