"""Names outside the function that follow a parameter of it: keywords of its calls.

Python alone, of the languages whose names are followed, has arguments that go by their parameter's name.
"""

from __future__ import annotations

from typing import Final

from tree_sitter import Node

from foretype_context.edits.members import member_at, members_of
from foretype_context.edits.names import NamePlace, places_bound
from foretype_context.edits.walking import TreeStep, down
from foretype_context.syntax.parsing import node_text

_PARAMETERS: Final = frozenset({"parameters", "default_parameter", "typed_parameter", "typed_default_parameter"})
_MAKES: Final = ("__init__", "__new__")


def keywords_renamed(root: Node, source: bytes, language: str, start: int, *, old: str, new: str) -> list[NamePlace]:
    """The keywords `old` in calls of the function whose parameter at byte `start` is `new` now; empty where that is not certain."""
    function = _function_of(down(root, start)) if language == "python" else None
    name = None if function is None else function.child_by_field_name("name")
    if (
        function is None
        or name is None
        or (function.parent is not None and function.parent.type == "decorated_definition")
    ):
        return []  # what a decorator makes of it may take other names
    called = node_text(name, source)
    if called in _MAKES:
        owner = _class_of(function)
        name = None if owner is None else owner.child_by_field_name("name")
        if name is None:
            return []
        called = node_text(name, source)
    elif _class_of(function) is not None:
        member = member_at(root, source, language, name.start_byte)
        found = None if member is None else members_of(member, root, source, language, called)
        uses = [one.place for one in found or () if not one.declares and not one.assigns]
        return _keywords(root, source, uses, old, new)
    uses = places_bound(root, source, language, name.start_byte, called)
    return _keywords(root, source, uses or [], old, new)


def _function_of(path: list[TreeStep]) -> Node | None:
    """The function whose parameter the last step of a path declares."""
    at = len(path) - 2
    while at > 0 and path[at].kind in _PARAMETERS:
        at -= 1
    is_parameter = at < len(path) - 2 and path[at + 1].kind == "parameters"
    return path[at].node if is_parameter and path[at].kind == "function_definition" else None


def _class_of(function: Node) -> Node | None:
    """The class that a function is a method of."""
    body = function.parent
    owner = None if body is None else body.parent
    return owner if owner is not None and owner.type == "class_definition" else None


def _keywords(root: Node, source: bytes, uses: list[NamePlace], old: str, new: str) -> list[NamePlace]:
    places: list[NamePlace] = []
    for use in uses:
        call = _call_of(down(root, use.start), use)
        arguments = None if call is None else call.child_by_field_name("arguments")
        names = [] if arguments is None else [one.child_by_field_name("name") for one in arguments.named_children]
        given = {node_text(name, source): name for name in names if name is not None}
        if old in given and new not in given:
            name = given[old]
            places.append(NamePlace(name.start_byte, name.end_byte, declares=False, shorthand=False))
    return places


def _call_of(path: list[TreeStep], use: NamePlace) -> Node | None:
    """The call whose function a name, or the attribute that it ends, is."""
    for step in reversed(path[:-1]):
        if step.kind == "call":
            function = step.node.child_by_field_name("function")
            return step.node if function is not None and function.end_byte == use.end else None
        if step.kind != "attribute":
            return None
    return None
