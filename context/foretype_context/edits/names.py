"""Who is who: the places of one file that name the same variable, as far as its text alone can tell for certain.

Only the occurrences of one name are looked at, each by one walk down the tree: in a file of 5,000 lines that costs tens of microseconds
an occurrence, where all names together cost a quarter of a second.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.imports import Imported
from foretype_context.edits.name_rules import RULES, NameRules

__all__ = ["OCCURRENCES_MAX", "Place", "is_global", "is_named_near", "places_elsewhere", "places_renamed"]

OCCURRENCES_MAX: Final = 500
"""Of one name in a file; what is named oftener is not followed, for that would take too long between two keys."""


_IMPORTS: Final = frozenset({"import_statement", "import_from_statement", "import_declaration"})
_MEMBERS: Final = frozenset({"attribute", "member_expression", "selector_expression"})


class Place(NamedTuple):
    """Of a name, in bytes of the source.

    Attributes:
        shorthand: it is a key at the same time, which another name has to repeat.
    """

    start: int
    end: int
    declares: bool
    shorthand: bool


class _Scope(NamedTuple):
    start: int
    end: int
    kind: str


class _Occurrence(NamedTuple):
    """A place with the scopes around it, from the outermost in; `home` is the one that a declaration belongs to."""

    place: Place
    scopes: tuple[_Scope, ...]
    home: _Scope


class _Step(NamedTuple):
    kind: str
    field: str | None
    start: int
    end: int


def places_renamed(root: Node, source: bytes, language: str, start: int, *, old: str, new: str) -> list[Place] | None:
    """Every place that still names as `old` what is declared as `new` at byte `start`, in order of the source.

    None where nothing is certain: a language without rules, no declaration there, a name that something poisons, more than
    `OCCURRENCES_MAX` of it, or a variable that is declared by its old name too.
    """
    rules = RULES.get(language)
    if rules is None:
        return None
    declared = _occurrence(root, _down(root, start), rules)
    left = _occurrences(root, source, rules, old)
    ends = start + len(new.encode("utf-8", "surrogatepass"))
    if declared is None or left is None or not declared.place.declares or declared.place[:2] != (start, ends):
        return None
    homes = {one.home for one in left if one.place.declares}
    if declared.home in homes:
        return None
    homes.add(declared.home)
    return [one.place for one in left if _bound(one, homes, rules) == declared.home]


def is_named_near(root: Node, source: bytes, language: str, start: int, name: str, *, but: int) -> bool:
    """Whether `name` stands for anything in the scope that what is declared at byte `start` belongs to, or in one inside it.

    A rename to it might hide that, or be hidden by it. True as well where it is not certain.

    Args:
        but: the place at this byte does not count.
    """
    rules = RULES.get(language)
    found = None if rules is None else _occurrences(root, source, rules, name)
    if rules is None or found is None:
        return True
    home = next((one.home for one in found if one.place.start == start), None)
    others = [one for one in found if one.place.start != but]
    return home is None or any(home in one.scopes or one.home == home for one in others)


def is_global(root: Node, language: str, start: int) -> bool:
    """Whether what is declared at byte `start` is declared for the whole file, so that others may import it."""
    rules = RULES.get(language)
    one = None if rules is None else _occurrence(root, _down(root, start), rules)
    return one is not None and one.place.declares and one.home == one.scopes[0]


def places_elsewhere(
    root: Node, source: bytes, language: str, seen: Imported, *, old: str, new: str
) -> list[Place] | None:
    """The places of a file that still name as `old` what another file declares as `new`, in order of the source.

    None where nothing is certain: a name that something poisons or declares again, or a new name that stands for something here.

    Args:
        seen: what this file has of the other.
    """
    rules = RULES.get(language)
    ours = {one.start for one in seen.specifiers}
    named = [one for one in seen.specifiers if one.name in (old, new)]
    if rules is None or any(one.local == old and one.name not in (old, new) for one in seen.specifiers):
        return None
    places = [Place(one.start, one.end, declares=True, shorthand=False) for one in named if one.name == old]
    if seen.whole or any(one.local == one.name for one in named):
        left = _occurrences(root, source, rules, old, lambda at, _: at in ours)
        fresh = _occurrences(root, source, rules, new, lambda at, _: at in ours)
        if left is None or fresh is None or (places and fresh):
            return None
        homes = {one.home for one in left if one.place.declares}
        free = [one for one in left if _bound(one, homes, rules) is None]
        taken = {one.home for one in fresh if one.place.declares}
        if _Scope(root.start_byte, root.end_byte, root.type) in homes | taken:
            return None
        if any(scope in taken for one in free for scope in one.scopes):
            return None
        places += [one.place for one in free]
    known = {one.start for one in seen.modules}
    for module in seen.modules:
        owner = _occurrences(root, source, rules, module.local.split(".")[0], lambda at, inside: inside or at in known)
        if owner is None or any(one.place.declares for one in owner):
            return None
        places += _members(root, source, old, f"{module.local}.".encode())
    return sorted(places)


def _members(root: Node, source: bytes, name: str, prefix: bytes) -> Iterator[Place]:
    for seen, match in enumerate(_words(source, name)):
        if seen >= OCCURRENCES_MAX:
            return
        path = _down(root, match.start())
        if len(path) < 2 or (path[-1].start, path[-1].end) != match.span() or path[-2].kind not in _MEMBERS:
            continue
        if path[-2].end == match.end() and source[path[-2].start : match.start()] == prefix:
            yield Place(match.start(), match.end(), declares=False, shorthand=False)


def _words(source: bytes, name: str) -> Iterator[re.Match[bytes]]:
    return re.finditer(rb"(?<![\w\x80-\xff])" + re.escape(name.encode()) + rb"(?![\w\x80-\xff])", source)


def _bound(one: _Occurrence, homes: AbstractSet[_Scope], rules: NameRules) -> _Scope | None:
    if one.place.declares:
        return one.home
    for scope in reversed(one.scopes):
        if scope in homes and (scope.kind not in rules.unseen or scope is one.scopes[-1]):
            return scope
    return None


def _occurrences(
    root: Node, source: bytes, rules: NameRules, name: str, skip: Callable[[int, bool], bool] = lambda _, __: False
) -> list[_Occurrence] | None:
    """None where the name is poisoned or occurs too often.

    Args:
        skip: whether the name at a byte, in an import statement or not, is known and to be left out.
    """
    found: list[_Occurrence] = []
    for seen, match in enumerate(_words(source, name)):
        if seen >= OCCURRENCES_MAX:
            return None
        path = _down(root, match.start())
        leaf = path[-1]
        if (leaf.start, leaf.end) != match.span() or leaf.kind not in rules.names:
            continue
        if skip(match.start(), any(step.kind in _IMPORTS for step in path)):
            continue
        one = _occurrence(root, path, rules)
        if one is None:
            return None
        if one is not _NO_NAME:
            found.append(one)
    return found


_NO_NAME: Final = _Occurrence(Place(0, 0, declares=False, shorthand=False), (), _Scope(0, 0, ""))


def _occurrence(root: Node, path: list[_Step], rules: NameRules) -> _Occurrence | None:
    """What the last step of a path is; None where nobody can say."""
    at, leaf = len(path) - 1, path[-1]
    if _within(_place(path, at), rules.others):
        return _NO_NAME
    if _within(_place(path, at), rules.poisons) or any(step.kind in rules.poisons for step in path[-4:-1]):
        return None
    while at > 0 and _within(_place(path, at), rules.patterns):
        at -= 1
    where = _place(path, at)
    outside = _within(where, rules.declares_outside)
    declares = outside or _within(where, rules.declares)
    if where == ("for_in_statement", "left") and not _has_kind(root, leaf.start):
        declares = False  # `for (x of …)` declares nothing, `for (const x of …)` does
    scopes = _scopes(path, rules)
    home = len(scopes) - 1
    if outside and home:
        home -= 1
    elif declares and any(step.kind in rules.hoisted for step in path[max(at - 2, 0) : at]):
        while home and scopes[home].kind not in rules.functions:
            home -= 1
    shorthand = leaf.kind in rules.shorthands or (len(path) > 1 and path[-2].kind in rules.shorthands)
    return _Occurrence(Place(leaf.start, leaf.end, declares, shorthand), scopes, scopes[home])


def _down(root: Node, byte: int) -> list[_Step]:
    """From the root to the leaf at `byte`."""
    cursor = root.walk()
    path: list[_Step] = []
    while True:
        node = cursor.node
        if node is None:
            return path
        path.append(_Step(node.type, cursor.field_name, node.start_byte, node.end_byte))
        if not node.child_count or cursor.goto_first_child_for_byte(byte) is None:
            return path


def _scopes(path: list[_Step], rules: NameRules) -> tuple[_Scope, ...]:
    found = [_Scope(path[0].start, path[0].end, path[0].kind)]
    for above, step in itertools.pairwise(path):
        if step.kind in rules.scopes and not (step.kind in rules.bodies and above.kind in rules.functions):
            found.append(_Scope(step.start, step.end, step.kind))
    return tuple(found)


def _place(path: list[_Step], at: int) -> tuple[str, str | None]:
    return (path[at - 1].kind, path[at].field) if at else ("", None)


def _within(place: tuple[str, str | None], places: frozenset[str]) -> bool:
    parent, field = place
    return parent in places or f"{parent}.{field}" in places


def _has_kind(root: Node, byte: int) -> bool:
    node = root.descendant_for_byte_range(byte, byte)
    while node is not None and node.type != "for_in_statement":
        node = node.parent
    return node is not None and node.child_by_field_name("kind") is not None
