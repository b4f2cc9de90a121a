"""A declaration that takes parameters, and the calls of one file that are certainly calls of it."""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.imports import Imported
from foretype_context.edits.names import NamePlace, places_bound, places_imported
from foretype_context.edits.walking import OCCURRENCES_MAX, words
from foretype_context.syntax.parsing import node_text

_CALLS: Final = frozenset(
    {"call", "call_expression", "new_expression", "method_invocation", "object_creation_expression"}
)
_MEMBERS: Final = frozenset(
    {
        "attribute",
        "member_expression",
        "selector_expression",
        "field_expression",
        "scoped_identifier",
        "generic_function",
        "generic_type",
    }
)
_CALLED: Final = ("function", "constructor", "name", "type")
_CLASSES: Final = frozenset(
    {"class_definition", "class_declaration", "class", "impl_item", "enum_declaration", "record_declaration"}
)
_CONSTRUCTORS: Final = frozenset({"__init__", "constructor"})
_UNCHANGED_BY: Final = (
    "staticmethod",
    "classmethod",
    "cache",
    "lru_cache",
    "wraps",
    "abstractmethod",
    "override",
    "final",
)
_OWN_THIS: Final = frozenset({"function_declaration", "function_expression", "generator_function"})


class Declaration(NamedTuple):
    """Of a function or a method.

    Attributes:
        name: its own; of a constructor, that of its class.
        owner: the class that it is a method of.
        listed: its parameters.
        bound: the first parameter is the object itself.
    """

    node: Node
    name: Node
    owner: Node | None
    listed: Node
    constructs: bool
    bound: bool
    fixed: bool
    """It is called on the class: static."""


def declaration_around(root: Node, source: bytes, byte: int) -> Declaration | None:
    """The one whose list of parameters holds `byte`."""
    node = root.descendant_for_byte_range(byte, byte)
    while node is not None:
        listed = node.child_by_field_name("parameters")
        if listed is not None and listed.start_byte < byte <= listed.end_byte:
            return _declaration(node, listed, source)
        if listed is not None:
            return None
        node = node.parent
    return None


def declaration_named(root: Node, source: bytes, byte: int) -> Declaration | None:
    """The one whose name, or whose constructor's word, begins at `byte`."""
    node = root.descendant_for_byte_range(byte, byte)
    for _ in range(4):
        if node is None:
            return None
        listed = node.child_by_field_name("parameters")
        if listed is not None:
            return _declaration(node, listed, source)
        if node.type in ("variable_declarator", "field_definition", "public_field_definition"):
            value = node.child_by_field_name("value")
            listed = value and value.child_by_field_name("parameters")
            return None if value is None or listed is None else _declaration(value, listed, source)
        node = node.parent
    return None


def calls_of(one: Declaration, root: Node, source: bytes, language: str) -> list[Node]:
    """The lists of arguments of its calls in its own file, in order; empty if another declaration may be meant."""
    name = node_text(one.name, source)
    if one.owner is not None and _is_overloaded(one, source):
        return []
    if one.owner is not None and (not one.constructs or language == "java"):
        found = (
            _method_call(one, root, source, place.start())
            for place in itertools.islice(words(source, name), OCCURRENCES_MAX)
        )
        return [listed for listed in found if listed is not None]
    places = places_bound(root, source, language, one.name.start_byte, name)
    return _calls_at(root, places)


def calls_elsewhere(name: str, seen: Imported, root: Node, source: bytes, language: str) -> list[Node]:
    """The lists of arguments of calls in another file of what it imports as `name`."""
    return _calls_at(root, places_imported(root, source, language, seen, name))


def _calls_at(root: Node, places: list[NamePlace] | None) -> list[Node]:
    found = [_arguments(root.descendant_for_byte_range(place.start, place.end)) for place in places or ()]
    return [one for one in found if one is not None]


def _arguments(leaf: Node | None) -> Node | None:
    """Of the call of what `leaf` names."""
    node = leaf
    while node is not None and node.parent is not None and node.parent.type in _MEMBERS:
        parent = node.parent
        if parent.type.startswith("generic"):
            if parent.start_byte != node.start_byte:
                return None
        elif parent.end_byte != node.end_byte:
            return None  # something of it is called
        node = parent
    call = node and node.parent
    if call is None or call.type not in _CALLS:
        return None
    return (
        call.child_by_field_name("arguments")
        if any(call.child_by_field_name(field) == node for field in _CALLED)
        else None
    )


def _declaration(node: Node, listed: Node, source: bytes) -> Declaration | None:
    holder = node.parent
    name = node.child_by_field_name("name")
    if holder is not None and node.type in ("arrow_function", "function_expression"):
        if holder.type not in ("variable_declarator", "field_definition", "public_field_definition"):
            return None
        name = holder.child_by_field_name("name") or holder.child_by_field_name("property")
    if name is None or node.type in (
        "function_signature",
        "method_signature",
        "abstract_method_signature",
        "function_signature_item",
    ):
        return None
    head = _head(node, source)
    if head is None:
        return None
    if node.type == "method_declaration" and (receiver := node.child_by_field_name("receiver")) is not None:
        return Declaration(node, name, receiver, listed, constructs=False, bound=False, fixed=False)  # Go
    owner = _owner(node)
    static, on_class = "static" in head, "classmethod" in head
    constructs = owner is not None and (
        node_text(name, source) in _CONSTRUCTORS or node.type == "constructor_declaration"
    )
    if constructs and owner is not None:
        name = owner.child_by_field_name("name")
    if name is None or (owner is not None and owner.child_by_field_name("trait") is not None):
        return None
    if owner is not None and node.type == "function_item":
        static = not any(child.type == "self_parameter" for child in listed.named_children)
    python = node.type == "function_definition"
    bound = python and owner is not None and not static
    return Declaration(node, name, owner, listed, constructs, bound, fixed=static or on_class)


def _head(node: Node, source: bytes) -> set[str] | None:
    """Words before a declaration that say how it is called; None where a decorator may change its parameters."""
    found: set[str] = set()
    around = node.parent
    if around is not None and around.type == "decorated_definition":
        for child in around.children:
            if child.type == "decorator":
                word = node_text(child, source).lstrip("@").split("(")[0].split(".")[-1].strip()
                if word not in _UNCHANGED_BY:
                    return None
                found.add("static" if word == "staticmethod" else word)
    for child in node.children:
        if child.type in ("static", "modifiers"):
            found.update(node_text(child, source).split())
        if child.type == "decorator":
            return None
    return found


def _owner(node: Node) -> Node | None:
    """The class right around a declaration."""
    above = node.parent
    while above is not None and above.type in (
        "decorated_definition",
        "block",
        "class_body",
        "declaration_list",
        "field_definition",
        "public_field_definition",
        "enum_body",
        "enum_body_declarations",
    ):
        above = above.parent
    return above if above is not None and above.type in _CLASSES else None


def _is_overloaded(one: Declaration, source: bytes) -> bool:
    """Whether its class has another one of its name."""
    body = one.owner and one.owner.child_by_field_name("body")
    name = one.node.child_by_field_name("name")
    members = [child.child_by_field_name("definition") or child for child in (body.named_children if body else ())]
    same = [
        child for child in members if node_text(child.child_by_field_name("name"), source) == node_text(name, source)
    ]
    return name is not None and len(same) > 1


def _method_call(one: Declaration, root: Node, source: bytes, byte: int) -> Node | None:
    """The arguments of a call by the object itself, or by its class."""
    leaf = root.descendant_for_byte_range(byte, byte)
    listed = _arguments(leaf)
    if leaf is None or listed is None or leaf.parent is None or one.owner is None:
        return None
    called = leaf.parent
    if one.constructs:
        return listed if called.type in ("object_creation_expression", "generic_type") else None
    receiver = next(
        (
            child
            for field in ("object", "operand", "value", "path")
            if (child := called.child_by_field_name(field)) is not None
        ),
        None,
    )
    said = node_text(receiver, source)
    if called.type == "method_invocation":
        if receiver is not None and said != "this" and not (one.fixed and said == _name(one.owner, source)):
            return None
    elif called.type not in _MEMBERS or receiver is None:
        return None
    elif one.owner.type == "parameter_list":
        return listed if said and said == _go_receiver(leaf, one.owner, source) else None
    elif said not in _receivers(one, source):
        return None
    if said and said == _name(one.owner, source):
        return listed
    around, crossed = leaf.parent, False
    while around is not None and around.type not in _CLASSES:
        crossed = (
            crossed
            or around.type in _OWN_THIS
            or (around.type == "object_creation_expression" and around.child_count > 4)
        )
        around = around.parent
    if around is None or crossed:
        return None
    same = around == one.owner or (around.type == "impl_item" and _name(around, source) == _name(one.owner, source))
    return listed if same else None


def _receivers(one: Declaration, source: bytes) -> set[str]:
    own = {_name(one.owner, source), "Self", "cls", "self"} if one.fixed else {"self", "this"}
    return own | ({"this"} if one.node.type != "function_definition" else set())


def _go_receiver(leaf: Node, receiver: Node, source: bytes) -> str:
    """What the method around a leaf calls its object, where that is of the same type."""
    around: Node | None = leaf
    while around is not None and around.type != "method_declaration":
        around = around.parent
    own = around and around.child_by_field_name("receiver")
    if own is None or _go_type(own, source) != _go_type(receiver, source):
        return ""
    name = own.named_children[0].child_by_field_name("name") if own.named_children else None
    return node_text(name, source)


def _go_type(receiver: Node, source: bytes) -> str:
    declared = receiver.named_children[0].child_by_field_name("type") if receiver.named_children else None
    return node_text(declared, source).lstrip("*")


def _name(node: Node | None, source: bytes) -> str:
    named = node and (node.child_by_field_name("name") or node.child_by_field_name("type"))
    return node_text(named, source)
