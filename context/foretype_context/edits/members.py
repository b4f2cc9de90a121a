"""The places of a file that certainly name one field or method of one class. Everything else of that name is left alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.member_rules import MEMBERS, MemberRules
from foretype_context.edits.names import NamePlace
from foretype_context.edits.owners import Owner, Owners
from foretype_context.edits.walking import OCCURRENCES_MAX, TreeStep, down, is_within, place_of, words
from foretype_context.syntax.parsing import node_text

_BEFORE_BYTES: Final = 80
_OBJECT: Final = re.compile(rb"(?:([\w$\x80-\xff]+)|[)\]}>])\s*(?:[?!]?\.|::)\s*$")
"""What a name is behind."""
_CONSTRUCTORS: Final = frozenset({"__init__", "constructor"})
_ASSIGNMENTS: Final = frozenset({"assignment", "assignment_expression"})
_PATTERNS: Final = frozenset({"pattern_list", "tuple_pattern"})
_SPLIT: Final = frozenset({"java", "rust"})
"""Languages where a field and a method may have one name."""
_CALLED: Final = frozenset({"method_declaration", "function_item", "enum_variant"})


class Member(NamedTuple):
    """A field or a method.

    Attributes:
        called: it is a method of a language where a field may have the same name.
        bare: its name is seen without an object as well.
        hidden: other files do not see it.
        first: its class's body or constructor declares it, and not any assignment to the object.
    """

    owner: Owner
    called: bool = False
    bare: bool = False
    hidden: bool = False
    first: bool = True


class _Found(NamedTuple):
    """`declares`: in the class's body or its constructor; `assigns`: an assignment to the object."""

    place: NamePlace
    declares: bool = False
    assigns: bool = False


class _Members:
    def __init__(self, root: Node, source: bytes, language: str, rules: MemberRules) -> None:
        self._root, self._source, self._language, self._rules = root, source, language, rules
        self._owners = Owners(root, source, language, rules)

    def declared(self, start: int) -> Member | None:
        return self._declared(down(self._root, start))

    def named(self, member: Member, name: str) -> list[_Found] | None:
        """Every place of a name that certainly means a member of that class; None where another class has to do with it."""
        found: list[_Found] = []
        for seen, match in enumerate(words(self._source, name)):
            if seen >= OCCURRENCES_MAX:
                return None
            at = match.start()
            behind = _OBJECT.search(self._source, max(at - _BEFORE_BYTES, 0), at)
            if behind is not None and not self._rules.typed:  # most are somebody else's: known without a walk
                said = (behind[1] or b"").decode("utf-8", "replace")
                if said not in self._rules.selves and said != member.owner.name:
                    continue
            path = down(self._root, at)
            if path[-1].end != match.end() or path[-1].start not in (at, at - 1):
                continue
            one = self._found(path, member)
            if one is not None:
                found.append(one._replace(place=one.place._replace(start=at)))
            elif (other := self._declared(path)) is not None and (
                other.called == member.called and self._owners.are_related(member.owner, path, other.owner)
            ):
                return None
        return found

    def _declared(self, path: list[TreeStep]) -> Member | None:
        """What the last step of a path declares."""
        where = place_of(path, len(path) - 1)
        if is_within(where, self._rules.declares):
            return self._in_class(path, bare=is_within(where, self._rules.bare))
        if is_within(where, self._rules.accesses) and _is_assigned(path):
            owner = self._owners.of_object(path, Owner("", -1))
            first = self._owners.method_around(path) in _CONSTRUCTORS
            return None if owner is None else Member(owner, first=first)
        return None

    def _in_class(self, path: list[TreeStep], *, bare: bool) -> Member | None:
        at = len(path) - 2
        node, kind = path[at].node, path[at].kind
        called = self._language in _SPLIT and kind in _CALLED
        said = {node_text(child, self._source) for child in node.children if child.type == "accessibility_modifier"}
        if kind == "required_parameter":  # `constructor(private width)` declares a field, too
            if not said or at < 2 or path[at - 2].kind != "method_definition":
                return None
            at -= 2
        if kind == "method_declaration" and self._language == "go":
            owner = self._owners.of_receiver(node)
            return None if owner is None else Member(owner)
        around = self._owners.around(path, at)
        if around is None or around.child_by_field_name("trait") is not None:
            return None
        for step in path[at - 1 : at + 1]:
            for child in step.node.children:
                if child.type == "modifiers":
                    said |= set(node_text(child, self._source).split())
        return Member(self._owners.owner(around), called, bare, hidden="private" in said)

    def _found(self, path: list[TreeStep], member: Member) -> _Found | None:
        """The last step of a path, where it names a member of that class."""
        leaf, where = path[-1], place_of(path, len(path) - 1)
        place = NamePlace(leaf.start, leaf.end, declares=False, shorthand=False)
        if is_within(where, self._rules.accesses):
            if self._language in _SPLIT and self._is_called(path) != member.called:
                return None
            if self._owners.of_object(path, member.owner) != member.owner:
                return None
            if not _is_assigned(path):
                return _Found(place)
            return _Found(place, declares=self._owners.method_around(path) in _CONSTRUCTORS, assigns=True)
        if is_within(where, self._rules.keys):
            mine = not member.called and self._owners.of_braces(path) == member.owner
            return _Found(place) if mine else None
        other = self._declared(path)
        if other is None or other.owner != member.owner or other.called != member.called:
            return None
        return _Found(place, declares=True)

    def _is_called(self, path: list[TreeStep]) -> bool:
        """Whether an access names a method."""
        access, above = path[-2], path[-3]
        if access.kind == "field_expression":
            return above.kind in ("call_expression", "generic_function") and access.field == "function"
        return access.kind != "field_access"


def member_at(root: Node, source: bytes, language: str, start: int) -> Member | None:
    """The member that the name at byte `start` declares."""
    rules = MEMBERS.get(language)
    return None if rules is None else _Members(root, source, language, rules).declared(start)


def is_seen_from_outside(root: Node, source: bytes, language: str, start: int) -> bool:
    """Whether the name at byte `start` declares a member that other files name behind variables of its class."""
    rules, member = MEMBERS.get(language), member_at(root, source, language, start)
    if rules is None or member is None or not rules.typed or member.hidden:
        return False
    return member.owner.start < 0 or any(child.start_byte == member.owner.start for child in root.children)


def members_renamed(member: Member, root: Node, source: bytes, language: str, old: str) -> list[NamePlace] | None:
    """Every place behind an object that still names a member as `old`, in order of the source.

    None where it is not certain: it is declared by its old name too, or a class that this one comes from, or one that comes from it,
    declares that name.
    """
    found = members_of(member, root, source, language, old)
    if found is None or any(one.declares or (one.assigns and not member.first) for one in found):
        return None
    return sorted(one.place for one in found)


def members_of(member: Member, root: Node, source: bytes, language: str, name: str) -> list[_Found] | None:
    rules = MEMBERS.get(language)
    return None if rules is None else _Members(root, source, language, rules).named(member, name)


def is_member_free(
    member: Member, root: Node, source: bytes, language: str, name: str, *, but: Callable[[int], bool]
) -> bool:
    """Whether a class has nothing else of that name. False as well where it is not certain.

    Args:
        but: places that do not count, by their byte.
    """
    found = members_of(member, root, source, language, name)
    return found is not None and all(but(one.place.start) for one in found)


def _is_assigned(path: list[TreeStep]) -> bool:
    """Whether the access at the end of a path is given a value."""
    at = len(path) - 2
    while at > 1 and path[at - 1].kind in _PATTERNS:
        at -= 1
    return path[at].field == "left" and path[at - 1].kind in _ASSIGNMENTS
