"""Where members of classes are declared and named, as one table for the languages whose references are followed.

Places are `parent` or `parent.field` of a name in tree-sitter's tree, as in :mod:`foretype_context.edits.name_rules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from foretype_context.edits.walking import node_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRules:
    """One language.

    Attributes:
        declares: places where a member is declared, right in its class.
        bare: those of them whose names are seen without an object, too.
        accesses: places where a member is named behind its object.
        objects: the field of an access that holds the object.
        keys: places where a member is named within braces that say whose it is. Keys that are variables at once are left alone: who
            renames the one renames the other, too.
        selves: words for the object itself.
        classes: node types of classes; methods of `parted` ones stand apart from them and name them.
        parted: whether the name of a type tells it, and not the place of its declaration.
        typed: whether a variable's declaration tells the class of what it holds.
        own_self: node types in which the words for the object itself mean another one.
    """

    declares: frozenset[str]
    bare: frozenset[str] = frozenset()
    accesses: frozenset[str]
    objects: tuple[str, ...]
    keys: frozenset[str] = frozenset()
    selves: frozenset[str]
    classes: frozenset[str]
    parted: bool = False
    typed: bool = False
    own_self: frozenset[str] = frozenset()


_PYTHON: Final = MemberRules(
    declares=node_kinds("function_definition.name assignment.left"),
    bare=node_kinds("function_definition.name assignment.left"),
    accesses=node_kinds("attribute.attribute"),
    objects=("object",),
    selves=node_kinds("self cls"),
    classes=node_kinds("class_definition"),
)
_JAVASCRIPT: Final = MemberRules(
    declares=node_kinds(
        "method_definition.name field_definition.property public_field_definition.name method_signature.name "
        "abstract_method_signature.name required_parameter.pattern"
    ),
    bare=node_kinds("required_parameter.pattern"),
    accesses=node_kinds("member_expression.property"),
    objects=("object",),
    selves=node_kinds("this"),
    classes=node_kinds("class_declaration class abstract_class_declaration"),
    own_self=node_kinds("function_declaration function_expression generator_function generator_function_declaration"),
)
_JAVA: Final = MemberRules(
    declares=node_kinds("method_declaration.name variable_declarator.name"),
    bare=node_kinds("variable_declarator.name"),
    accesses=node_kinds("field_access.field method_invocation.name method_reference"),
    objects=("object",),
    selves=node_kinds("this"),
    classes=node_kinds("class_declaration enum_declaration interface_declaration record_declaration"),
    typed=True,
)
_GO: Final = MemberRules(
    declares=node_kinds("method_declaration.name field_declaration.name"),
    accesses=node_kinds("selector_expression.field"),
    objects=("operand",),
    keys=node_kinds("literal_element"),
    selves=frozenset(),
    classes=node_kinds("type_spec"),
    parted=True,
    typed=True,
)
_RUST: Final = MemberRules(
    declares=node_kinds("field_declaration.name function_item.name enum_variant.name"),
    accesses=node_kinds("field_expression.field scoped_identifier.name"),
    objects=("value", "path"),
    keys=node_kinds("field_initializer.field"),
    selves=node_kinds("self Self"),
    classes=node_kinds("struct_item enum_item impl_item"),
    parted=True,
    typed=True,
)

MEMBERS: Final = MappingProxyType(
    {
        "python": _PYTHON,
        "javascript": _JAVASCRIPT,
        "typescript": _JAVASCRIPT,
        "typescriptreact": _JAVASCRIPT,
        "go": _GO,
        "java": _JAVA,
        "rust": _RUST,
    }
)
"""By LSP language id."""
