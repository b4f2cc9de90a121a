"""Who is who: the places of one file that name the same variable, as far as its text alone can tell for certain.

Only the occurrences of one name are looked at, each by one walk down the tree: in a file of 5,000 lines that costs tens of microseconds
an occurrence, where all names together cost a quarter of a second.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.imports import Imported
from foretype_context.edits.name_rules import RULES, NameRules
from foretype_context.edits.walking import OCCURRENCES_MAX, TreeStep, down, end_around, is_within, place_of, words

_NAME: Final = re.compile(r"[^\W\d]\w*")
_USED: Final = re.compile(r"(?<![.\w])([^\W\d]\w*)(?!\s*=[^=]|\w)")
_VARIABLES: Final = frozenset(
    {"assignment", "variable_declarator", "short_var_declaration", "var_spec", "const_spec", "let_declaration"}
)
"""What gives a variable its value."""
_QUALIFIERS: Final = (("scoped_identifier", "path"), ("scoped_type_identifier", "path"))
_FORMATS: Final = frozenset(
    b"print println eprint eprintln format write writeln panic assert assert_eq assert_ne debug_assert debug_assert_eq "
    b"debug_assert_ne todo unreachable".split()
)
"""Macros of Rust that take names into their strings."""
_PLAIN_MACROS: Final = _FORMATS | {b"vec", b"dbg"}
"""Macros of Rust whose tokens are expressions."""
_BINDING: Final = frozenset({"|", "||", "=>", "let", "for", "match", "if"})
_IMPORTS: Final = frozenset({"import_statement", "import_from_statement", "import_declaration"})
_MEMBERS: Final = frozenset({"attribute", "member_expression", "selector_expression"})


class NamePlace(NamedTuple):
    """Where a name stands, in bytes of the source.

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
    """A place with the scopes around it, from the outermost in; `home` is the one that a declaration belongs to.

    Attributes:
        outside: it is the name of a function or a class, not a variable.
        qualifies: it stands before `::`, where a type does and no variable.
    """

    place: NamePlace
    scopes: tuple[_Scope, ...]
    home: _Scope
    outside: bool = False
    qualifies: bool = False


def places_renamed(
    root: Node, source: bytes, language: str, start: int, *, old: str, new: str
) -> list[NamePlace] | None:
    """Every place that still names as `old` what is declared as `new` at byte `start`, in order of the source.

    None where nothing is certain: a language without rules, no declaration there, a name that something poisons, more than
    `OCCURRENCES_MAX` of it, or a variable that is declared by its old name too.
    """
    rules = RULES.get(language)
    if rules is None:
        return None
    path = down(root, start)
    declared = _occurrence(path, rules)
    left = None if declared is None else _occurrences(root, source, rules, old, within=declared.home)
    ends = start + len(new.encode("utf-8", "surrogatepass"))
    if declared is None or left is None or not declared.place.declares or declared.place[:2] != (start, ends):
        return None
    homes = {one.home for one in left if one.place.declares}
    if declared.home in homes:
        return None
    homes.add(declared.home)
    is_type = path[-1].kind == "type_identifier"
    found = [one for one in left if _bound(one, homes, rules) == declared.home and (is_type or not one.qualifies)]
    valued = next((step.end for step in reversed(path[-6:-1]) if step.kind in _VARIABLES), 0)
    if any(one.place.start < valued and _function(one, rules) == _function(declared, rules) for one in found):
        return None  # `width = f(width)`: it meant something before
    places = [one.place for one in found]
    if language == "rust":
        places += _captured(root, source, rules, old, declared.home, homes)
    return sorted(places)


def _captured(
    root: Node, source: bytes, rules: NameRules, name: str, home: _Scope, homes: AbstractSet[_Scope]
) -> list[NamePlace]:
    """The places in format strings that name a variable: `{width}` and `{width:>4}`, unless the macro is given one of that name."""
    places: list[NamePlace] = []
    said = re.escape(name.encode())
    for seen, match in enumerate(
        re.finditer(rb"(?<!\{)(?:\{\{)*\{(" + said + rb")(?=[:}])", source[home.start : home.end])
    ):
        if seen >= OCCURRENCES_MAX:
            return []
        start, end = home.start + match.start(1), home.start + match.end(1)
        path = down(root, start)
        macro = next((step.node for step in reversed(path) if step.kind.startswith("macro")), None)
        called = macro and macro.child_by_field_name("macro")
        tokens = next((step.node for step in reversed(path) if step.kind == "token_tree"), None)
        if not any(step.kind == "string_literal" for step in path) or tokens is None:
            continue
        if called is None or called.text not in _FORMATS or _gives(tokens, source, name):
            continue
        one = _Occurrence(NamePlace(start, end, False, False), scopes := _scopes(path, rules), scopes[-1])
        if _bound(one, homes, rules) == home:
            places.append(one.place)
    return places


def _gives(tokens: Node, source: bytes, name: str) -> bool:
    """Whether a macro is given an argument by that name: `width = 1`."""
    children = tokens.children
    return any(
        one.type == "identifier" and source[one.start_byte : one.end_byte] == name.encode() and other.type == "="
        for one, other in itertools.pairwise(children)
    )


def is_named_near(
    root: Node, source: bytes, language: str, start: int, name: str, *, but: Callable[[int], bool]
) -> bool:
    """Whether `name` stands for anything in the scope that what is declared at byte `start` belongs to, or in one inside it.

    A rename to it might hide that, or be hidden by it. True as well where it is not certain.

    Args:
        but: places that do not count, by their byte.
    """
    rules = RULES.get(language)
    declared = None if rules is None else _occurrence(down(root, start), rules)
    if rules is None or declared is None or not declared.place.declares:
        return True
    home = declared.home
    found = _occurrences(root, source, rules, name, within=home)
    if found is None:
        return True
    others = [one for one in found if not but(one.place.start)]
    if home.kind in rules.unseen:  # what functions in it call so is another
        return any(home in (one.scopes[-1], one.home) for one in others)
    return any(home in one.scopes or one.home == home for one in others)


def is_declared_around(root: Node, source: bytes, language: str, start: int, name: str) -> bool:
    """Whether a scope around the one that what is declared at byte `start` belongs to declares `name` too.

    Who renamed what hid another thing may want the places that are left to mean that one. Members do not count: a parameter that is
    called as a field is renamed with its uses. True as well where it is not certain.
    """
    rules = RULES.get(language)
    declared = None if rules is None else _occurrence(down(root, start), rules)
    if rules is None or declared is None or not declared.place.declares:
        return True
    home, above = declared.home, declared.scopes[: declared.scopes.index(declared.home)]
    around = {scope for scope in above if scope.kind not in rules.members}
    ours = {scope[:2] for scope in declared.scopes}
    passed = walks = 0
    for match in words(source, name) if around else ():
        at = match.start()
        if at < passed or home.start <= at < home.end:
            continue
        passed = end_around(root, at, rules.functions, ours) or 0  # nothing in another function is declared here
        if passed:
            continue
        path = down(root, at)
        if any(step.kind in _IMPORTS for step in path):
            if source[match.end() : match.end() + 1] not in (b".", b"/"):
                return True
        elif path[-1].kind in rules.names and (path[-1].start, path[-1].end) == match.span():
            one = _occurrence(path, rules)
            if _scopes(path, rules)[-1] in above if one is None else one.place.declares and one.home in around:
                return True
        walks += 1
        if walks > OCCURRENCES_MAX:
            return True
    return False


def is_global(root: Node, language: str, start: int) -> bool:
    """Whether what is declared at byte `start` is declared for the whole file, so that others may import it."""
    rules = RULES.get(language)
    one = None if rules is None else _occurrence(down(root, start), rules)
    return one is not None and one.place.declares and one.home == one.scopes[0]


def places_bound(root: Node, source: bytes, language: str, start: int, name: str) -> list[NamePlace] | None:
    """Every other place that means what is declared as `name` at byte `start`; None where that is not certain, or it is declared twice."""
    rules = RULES.get(language)
    if rules is None:
        return None
    declared = _occurrence(down(root, start), rules)
    found = None if declared is None else _occurrences(root, source, rules, name, within=declared.home)
    if declared is None or found is None or not declared.place.declares:
        return None
    others = [one for one in found if one.place.start != start]
    if any(one.place.declares and one.home == declared.home for one in others):
        return None
    homes = {one.home for one in others if one.place.declares} | {declared.home}
    return [one.place for one in others if _bound(one, homes, rules) == declared.home]


class Declarations:
    """Where the variables of one file are declared, for one question: what was looked at is not looked at again."""

    def __init__(self, root: Node, source: bytes, language: str) -> None:
        self._root, self._source, self._rules = root, source, RULES.get(language)
        self._known: dict[tuple[str, _Scope], dict[int, _Occurrence] | None] = {}
        self._left = OCCURRENCES_MAX

    def place(self, name: str, start: int, around: list[TreeStep]) -> NamePlace | None:
        """The one place that declares what the name at byte `start` means, in a function or a class around it.

        None where it is not certain, or would take too long to know.

        Args:
            around: from the root to what the name is a part of.
        """
        rules = self._rules
        scopes = () if rules is None else _scopes(around, rules)
        for scope in reversed(scopes[1:]):
            if rules is None or scope.kind not in rules.functions:
                continue
            found = self._in(name, scope, rules)
            if found is None:
                return None
            homes = {one.home for one in found.values() if one.place.declares}
            home = _bound(found[start], homes, rules) if start in found else None
            declares = [one.place for one in found.values() if one.place.declares and one.home == home]
            if declares:
                return declares[0] if len(declares) == 1 else None
        return None

    def _in(self, name: str, scope: _Scope, rules: NameRules) -> dict[int, _Occurrence] | None:
        """The places of a name in a scope, by their first byte."""
        if (name, scope) not in self._known:
            found = _occurrences(self._root, self._source, rules, name, within=scope) if self._left > 0 else None
            self._left -= len(found or ())
            self._known[name, scope] = None if found is None else {one.place.start: one for one in found}
        return self._known[name, scope]


def is_variable_at(root: Node, source: bytes, language: str, name: str, at: int) -> bool:
    """Whether a parameter or a variable of that name, declared above, is certainly seen at byte `at`."""
    rules = RULES.get(language)
    found = None if rules is None else _occurrences(root, source, rules, name)
    if rules is None or not found:
        return False
    scopes = _scopes(down(root, at), rules)
    seen = [
        one
        for one in found
        if one.place.declares and one.home in scopes and one.place.start < at and one.home.kind not in rules.unseen
    ]
    return bool(seen) and not any(one.outside for one in seen)


def is_at_odds(edit: tuple[int, int, str], root: Node, source: bytes, language: str) -> bool:
    """Whether an edit that nothing but its likeness speaks for would part a name from its declaration.

    That is where it takes a declaration from names that are left, gives one use of a variable another name, or puts in a name that is
    a variable somewhere, but not here.

    Args:
        edit: in bytes.
    """
    rules = RULES.get(language)
    if rules is None:
        return False
    start, end, text = edit
    gone = {match[0] for match in _NAME.finditer(source[start:end].decode("utf-8", "replace"))}
    came = {match[1] for match in _USED.finditer(text)} if source[:start].rstrip()[-1:] != b"." else set[str]()
    declares = False
    for name in gone - came:
        found = _occurrences(root, source, rules, name)
        inside = [one for one in found or () if start <= one.place.start < end]
        for one in inside:
            homes = {other.home for other in found or () if other.place.declares}
            home = _bound(one, homes, rules)
            others = [other for other in found or () if other not in inside and _bound(other, homes, rules) == home]
            if one.place.declares and any(not other.place.declares for other in others):
                return True
            declares = declares or one.place.declares
            if not one.place.declares and home is not None and home != one.scopes[0] and _NAME.fullmatch(text.strip()):
                return True
    for name in set[str]() if declares else came - gone:
        found = _occurrences(root, source, rules, name)
        homes = {one.home for one in found or () if one.place.declares}
        scopes = _scopes(down(root, start), rules)
        if homes and not homes.intersection(scopes):
            return True
    return False


def places_elsewhere(
    root: Node, source: bytes, language: str, seen: Imported, *, old: str, new: str
) -> list[NamePlace] | None:
    """The places of a file that still name as `old` what another file declares as `new`, in order of the source.

    None where nothing is certain: a name that something poisons or declares again, or a new name that stands for something here.

    Args:
        seen: what this file has of the other.
    """
    rules = RULES.get(language)
    named = [one for one in seen.specifiers if one.name in (old, new)]
    if rules is None or any(one.local == old and one.name not in (old, new) for one in seen.specifiers):
        return None
    if seen.taken & {old, new}:
        return None
    places = [NamePlace(one.start, one.end, declares=True, shorthand=False) for one in named if one.name == old]
    if seen.whole or any(one.local == one.name for one in named):
        free, fresh = _free(root, source, rules, seen, old), _free(root, source, rules, seen, new)
        if free is None or fresh is None or (places and fresh[0]):
            return None
        if any(scope in fresh[1] for one in free[0] for scope in one.scopes):
            return None
        places += [one.place for one in free[0]]
    members = _members(root, source, rules, seen, old)
    return None if members is None else sorted(places + members)


def places_imported(root: Node, source: bytes, language: str, seen: Imported, name: str) -> list[NamePlace] | None:
    """The places of a file that mean what another file declares as `name`, except import statements; None where it is not certain."""
    rules = RULES.get(language)
    places = None if rules is None else _members(root, source, rules, seen, name)
    if rules is None or places is None:
        return None
    for local in {one.local for one in seen.specifiers if one.name == name} | ({name} if seen.whole else set[str]()):
        free = _free(root, source, rules, seen, local)
        if free is None:
            return None
        places += [one.place for one in free[0]]
    return sorted(places)


def _free(
    root: Node, source: bytes, rules: NameRules, seen: Imported, name: str
) -> tuple[list[_Occurrence], set[_Scope]] | None:
    """What no declaration of this file binds, and the scopes that declare it; None where the whole file declares it."""
    ours = {one.bound for one in seen.specifiers} | {one.start for one in seen.specifiers}
    found = _occurrences(root, source, rules, name, lambda at, _: at in ours)
    homes = {one.home for one in found or () if one.place.declares}
    if found is None or _Scope(root.start_byte, root.end_byte, root.type) in homes:
        return None
    return [one for one in found if _bound(one, homes, rules) is None], homes


def _members(root: Node, source: bytes, rules: NameRules, seen: Imported, name: str) -> list[NamePlace] | None:
    """`m.name` for each `m` that stands for the other file."""
    places: list[NamePlace] = []
    known = {one.bound for one in seen.modules}
    for module in {one.local for one in seen.modules}:
        owner = _occurrences(root, source, rules, module.split(".")[0], lambda at, inside: inside or at in known)
        if owner is None or any(one.place.declares for one in owner):
            return None
        for match in itertools.islice(words(source, name), OCCURRENCES_MAX):
            path = down(root, match.start())
            whole = path[-2] if len(path) > 1 and path[-2].kind in _MEMBERS else None
            if whole is None or (path[-1].start, whole.end) != match.span():
                continue
            if source[whole.start : match.start()] == f"{module}.".encode():
                places.append(NamePlace(match.start(), match.end(), declares=False, shorthand=False))
    return places


def _bound(one: _Occurrence, homes: AbstractSet[_Scope], rules: NameRules) -> _Scope | None:
    if one.place.declares:
        return one.home
    for scope in reversed(one.scopes):
        if scope in homes and (scope.kind not in rules.unseen or scope is one.scopes[-1]):
            return scope
    return None


def _function(one: _Occurrence, rules: NameRules) -> _Scope:
    return next((scope for scope in reversed(one.scopes) if scope.kind in rules.functions), one.scopes[0])


def _occurrences(
    root: Node,
    source: bytes,
    rules: NameRules,
    name: str,
    skip: Callable[[int, bool], bool] = lambda _, __: False,
    within: _Scope | None = None,
) -> list[_Occurrence] | None:
    """None where the name is poisoned or occurs too often.

    Args:
        skip: whether the name at a byte, in an import statement or not, is known and to be left out.
        within: what stands outside this scope does not matter.
    """
    span = (0, len(source)) if within is None else within[:2]
    found: list[_Occurrence] = []
    for seen, match in enumerate(words(source, name, *span)):
        if seen >= OCCURRENCES_MAX:
            return None
        path = down(root, match.start())
        leaf = path[-1]
        if (leaf.start, leaf.end) != match.span() or leaf.kind not in rules.names:
            continue
        if skip(match.start(), any(step.kind in _IMPORTS for step in path)):
            continue
        one = _occurrence(path, rules)
        if one is None:
            return None
        if one is not _NO_NAME:
            found.append(one)
    return found


_NO_NAME: Final = _Occurrence(NamePlace(0, 0, declares=False, shorthand=False), (), _Scope(0, 0, ""))


def _occurrence(path: list[TreeStep], rules: NameRules) -> _Occurrence | None:
    """What the last step of a path is; None where nobody can say."""
    at, leaf = len(path) - 1, path[-1]
    if is_within(place_of(path, at), rules.others) and not (
        path[-2].kind == "scoped_type_identifier" and leaf.start == path[-2].start
    ):
        return _NO_NAME
    if path[at - 1].kind == "token_tree":
        return _in_macro(path, rules)
    if is_within(place_of(path, at), rules.poisons) or any(step.kind in rules.poisons for step in path[-4:-1]):
        return None
    while at > 0 and is_within(place_of(path, at), rules.patterns):
        at -= 1
    where = place_of(path, at)
    if is_within(where, rules.poisons):
        return None
    outside = is_within(where, rules.declares_outside)
    declares = outside or is_within(where, rules.declares)
    if where == ("for_in_statement", "left") and path[at - 1].node.child_by_field_name("kind") is None:
        declares = False  # `for (x of …)` declares nothing, `for (const x of …)` does
    if where == ("range_clause", "left") and all(child.type != ":=" for child in path[at - 1].node.children):
        declares = False
    scopes = _scopes(path, rules)
    home = len(scopes) - 1
    if outside and home and path[at - 1].kind in rules.scopes:
        home -= 1
    elif declares and any(step.kind in rules.hoisted for step in path[max(at - 2, 0) : at]):
        while home and scopes[home].kind not in rules.functions:
            home -= 1
    shorthand = leaf.kind in rules.shorthands or (len(path) > 1 and path[-2].kind in rules.shorthands)
    qualifies = place_of(path, len(path) - 1) in _QUALIFIERS
    return _Occurrence(NamePlace(leaf.start, leaf.end, declares, shorthand), scopes, scopes[home], outside, qualifies)


def _in_macro(path: list[TreeStep], rules: NameRules) -> _Occurrence | None:
    """What the last step of a path is among the tokens of a macro or an attribute; None where nobody can say, as in most of them."""
    leaf, tokens = path[-1], path[-2].node.children
    macro = next((step.node for step in reversed(path) if step.kind.startswith("macro")), None)
    name = macro and macro.child_by_field_name("macro")
    if name is None or name.text not in _PLAIN_MACROS or any(token.type in _BINDING for token in tokens):
        return None
    at = next(index for index, token in enumerate(tokens) if token.start_byte == leaf.start)
    if at + 1 == len(tokens):  # never closed
        return None
    before, after = tokens[at - 1].type, tokens[at + 1].type
    if before in (".", "::") or after in ("!", ":", "="):
        return _NO_NAME
    if tokens[0].type == "{" and before in ("{", ",") and after in (",", "}"):
        return None  # a key may be a variable at once
    scopes = _scopes(path, rules)
    return _Occurrence(NamePlace(leaf.start, leaf.end, False, False), scopes, scopes[-1], qualifies=after == "::")


def _scopes(path: list[TreeStep], rules: NameRules) -> tuple[_Scope, ...]:
    found = [_Scope(path[0].start, path[0].end, path[0].kind)]
    for at, (above, step) in enumerate(itertools.pairwise(path), 1):
        if len(found) > 1 and is_within(place_of(path, at), rules.before):
            found.pop()
        if step.kind in rules.scopes and not (step.kind in rules.bodies and above.kind in rules.functions):
            found.append(_Scope(step.start, step.end, step.kind))
    return tuple(found)
