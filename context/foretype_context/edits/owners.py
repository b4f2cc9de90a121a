"""Whose a member is: the class that a declaration stands in, and the class of the object that a name is behind.

An object tells its class only where it is the object itself (`self`, `this`, a receiver), the class by its name, or a variable that is
declared with it. Everything else is nobody's.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.member_rules import MemberRules
from foretype_context.edits.names import Declarations, places_bound
from foretype_context.edits.walking import TreeStep, down
from foretype_context.syntax.parsing import node_text

_BETWEEN: Final = frozenset(
    [
        "decorated_definition",
        "block",
        "class_body",
        "declaration_list",
        "field_declaration_list",
        "enum_variant_list",
        "enum_body",
        "interface_body",
        "enum_body_declarations",
        "struct_type",
        "field_declaration",
        "expression_statement",
    ]
)
"""Node types between a class and what is declared in it."""
_TYPE: Final = MappingProxyType(
    {
        "java": re.compile(r"(\w+)\s*(?:<.*)?", re.DOTALL),
        "go": re.compile(r"\*?(\w+)\s*(?:\[.*)?", re.DOTALL),
        "rust": re.compile(r"(?:&\s*|'\w+\s+|mut\s+)*(\w+)\s*(?:<.*)?", re.DOTALL),
    }
)
"""How a variable's type says that it holds an object of a class, and no list of them."""
_MADE: Final = MappingProxyType(
    {
        "java": re.compile(r"new\s+(\w+)\s*[(<]"),
        "go": re.compile(r"&?(\w+)(?:\[[^]]*\])?\{"),
        "rust": re.compile(r"&?(\w+)\s*\{"),
    }
)
"""How a value begins that is of a class for certain."""
_MAKES: Final = frozenset({"object_creation_expression", "composite_literal", "struct_expression"})


class Owner(NamedTuple):
    """A class. `start`: its first byte; negative where its name alone tells, as in Go and Rust and in other files."""

    name: str
    start: int


class Owners:
    """The classes of one file, for one question."""

    def __init__(self, root: Node, source: bytes, language: str, rules: MemberRules) -> None:
        self._root, self._source, self._language, self._rules = root, source, language, rules
        self._bound: dict[Owner, set[int]] = {}
        self._types: dict[int, str] = {}
        self._declarations = Declarations(root, source, language)

    def around(self, path: list[TreeStep], at: int) -> Node | None:
        """The class that what a step of a path declares stands right in."""
        for index in range(at - 1, 0, -1):
            step = path[index]
            if step.kind in self._rules.classes:
                return step.node
            if step.kind not in _BETWEEN or (step.kind == "field_declaration" and path[at].kind == step.kind):
                return None
        return None

    def owner(self, around: Node) -> Owner:
        name = around.child_by_field_name("name") or around.child_by_field_name("type")
        said = node_text(name, self._source).split("<")[0].strip()
        return Owner(said, -1 if self._rules.parted else around.start_byte)

    def of_receiver(self, method: Node) -> Owner | None:
        """The type that a method of Go belongs to."""
        receiver = method.child_by_field_name("receiver")
        declared = (
            receiver.named_children[0].child_by_field_name("type") if receiver and receiver.named_children else None
        )
        name = self._named_by(declared)
        return Owner(name, -1) if name else None

    def of_object(self, path: list[TreeStep], wanted: Owner) -> Owner | None:
        """The class of the object that the last step of a path is behind, as far as it is `wanted` or the object itself tells it."""
        at = len(path) - 2
        access, leaf = path[at].node, path[-1]
        if leaf.kind == "private_property_identifier":
            around = next((step.node for step in reversed(path) if step.kind in self._rules.classes), None)
            return None if around is None else self.owner(around)
        thing = next(
            (one for field in self._rules.objects if (one := access.child_by_field_name(field)) is not None), None
        )
        if access.type == "method_reference":
            thing = access.named_children[0]
        if thing is None:  # a call without an object
            return self._itself(path, at, "this")
        said = node_text(thing, self._source)
        if said in self._rules.selves:
            return self._itself(path, at, said)
        if said.split("<")[0] == wanted.name:
            return wanted if self._is_class(wanted, thing.start_byte) else None
        return wanted if self._rules.typed and self._class_of(thing, path[:-1]) == wanted.name else None

    def of_braces(self, path: list[TreeStep]) -> Owner | None:
        """The class of what is written down in the braces that the last step of a path is a key of."""
        for index in range(len(path) - 2, max(len(path) - 6, 0), -1):
            step = path[index]
            if step.kind == "literal_element" and step.field != "key":
                return None
            if step.kind in ("composite_literal", "struct_expression", "struct_pattern"):
                typed = step.node.child_by_field_name("type") or step.node.child_by_field_name("name")
                if node_text(typed, self._source) == "Self":
                    return self._itself(path, index, "Self")
                return Owner(self._named_by(typed), -1)
        return None

    def method_around(self, path: list[TreeStep]) -> str:
        """The name of the function around the end of a path."""
        for step in reversed(path):
            if step.kind in ("function_definition", "method_definition"):
                return node_text(step.node.child_by_field_name("name"), self._source)
        return ""

    def are_related(self, owner: Owner, path: list[TreeStep], other: Owner) -> bool:
        """Whether the class around the end of a path comes from another, or that from it, or both are called the same."""
        around = next((step.node for step in reversed(path[:-1]) if step.kind in self._rules.classes), None)
        own = None if owner.start < 0 else self._root.descendant_for_byte_range(owner.start, owner.start)
        while own is not None and own.type not in self._rules.classes:
            own = own.parent
        return owner.name == other.name or other.name in self._bases(own) or owner.name in self._bases(around)

    def _bases(self, around: Node | None) -> set[str]:
        body = around and around.child_by_field_name("body")
        head = self._source[around.start_byte : body.start_byte] if around and body else b""
        return set(re.findall(r"\w+", head.decode("utf-8", "replace"))[2:])

    def _itself(self, path: list[TreeStep], at: int, said: str) -> Owner | None:
        """The class whose object, or which itself, a word means at a step of a path."""
        for index in range(at, 0, -1):
            step = path[index]
            if self._language == "python":
                if step.kind in ("function_definition", "lambda") and said in (names := self._parameters(step.node)):
                    decorated = path[index - 1].node if path[index - 1].kind == "decorated_definition" else None
                    static = (
                        decorated is not None and b"@staticmethod" in self._source[decorated.start_byte : step.start]
                    )
                    around = None if static or names[0] != said else self.around(path, index)
                    return None if around is None else self.owner(around)
            elif step.kind in self._rules.own_self or (
                step.kind in ("method_definition", "class_body")
                and path[index - 1].kind in ("object", "object_creation_expression")
            ):
                return None
            elif step.kind in self._rules.classes and step.kind not in ("struct_item", "enum_item"):
                return self.owner(step.node)
        return None

    def _parameters(self, node: Node) -> list[str]:
        """First words of a function's parameters, for Python."""
        listed = node.child_by_field_name("parameters")
        said = [node_text(one, self._source) for one in (listed.named_children if listed is not None else ())]
        return [re.split(r"\W", one.lstrip("*"), maxsplit=1)[0] for one in said]

    def _is_class(self, owner: Owner, byte: int) -> bool:
        """Whether the name of a class means it there."""
        if owner.start < 0 or self._language == "java":
            return True
        if owner not in self._bound:
            name = self._root.descendant_for_byte_range(owner.start, owner.start)
            while name is not None and name.child_by_field_name("name") is None:
                name = name.parent
            name = name and name.child_by_field_name("name")
            bound = name and places_bound(self._root, self._source, self._language, name.start_byte, owner.name)
            self._bound[owner] = {place.start for place in bound or ()}
        return byte in self._bound[owner]

    def _class_of(self, thing: Node, around: list[TreeStep]) -> str:
        """What a variable is declared as, or what is made on the spot; empty where it is not said."""
        if thing.type != "identifier":
            return self._made(thing) if thing.type in _MAKES else ""
        place = self._declarations.place(node_text(thing, self._source), thing.start_byte, around)
        if place is None:
            return ""
        if place.start not in self._types:
            self._types[place.start] = self._declared_as(down(self._root, place.start))
        return self._types[place.start]

    def _declared_as(self, path: list[TreeStep]) -> str:
        for step in reversed(path[-5:-1]):
            declared = step.node.child_by_field_name("type")
            value = step.node.child_by_field_name("value") or step.node.child_by_field_name("right")
            if declared is not None and node_text(declared, self._source) != "var":
                return self._named_by(declared)
            if value is not None:
                return self._made(value)
        return ""

    def _named_by(self, declared: Node | None) -> str:
        found = _TYPE[self._language].fullmatch(node_text(declared, self._source))
        return found[1] if found else ""

    def _made(self, value: Node) -> str:
        found = _MADE[self._language].match(node_text(value, self._source))
        return found[1] if found else ""
