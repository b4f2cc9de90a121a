"""Renames and changed signatures that a commit contains, told by its texts alone and not by what the engine takes for one. Pure.

A rename is a name that stands in the place of another one, at a declaration and at other places of the file. A changed signature is a
parameter list of a function that keeps its name, with more, fewer or moved parameters, and calls of that name whose arguments changed with it.
Either becomes a text in which that alone is undone: everything else of the commit stands as it did in the end.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from foretype_context.syntax.document import Edit
from foretype_context.syntax.languages import language_of, language_spec
from foretype_context.syntax.parsing import parse_bounded
from tree_sitter import Node

from foretype_eval.next_edit.changes import edits_between
from foretype_eval.next_edit.developer import File

_NAME: Final = re.compile(r"[^\W\d]\w*")
_DECLARING_PARENT: Final = re.compile(
    r".*(definition|declaration|declarator|_item|parameter|_spec|signature|class|method|assignment)$"
)
_DECLARING_FIELD: Final = frozenset({"name", "left", "pattern", "declarator", "parameter", "value_pattern"})
_PATTERNS: Final = re.compile(r"(.*_pattern|pattern_list|expression_list)$")
_CALLEES: Final = ("function", "name", "constructor", "type")


@dataclass(frozen=True, slots=True)
class NamedChange:
    """One rename or changed signature.

    Attributes:
        kind: of what is declared, for slices: `parameter`, `variable`, `function`, `type`, `member`, `import`, or `signature`.
        file: `first` is what is typed by hand, at the declaration.
        wanted: places of `file.wanted` that follow from it, each a range of characters.
    """

    kind: str
    name: str
    file: File
    wanted: tuple[tuple[int, int], ...]


def renames(path: str, old: str, new: str) -> list[NamedChange]:
    """Every rename that made a part of `new` out of `old`."""
    language = language_of(path)
    places = defaultdict[tuple[str, str], list[int]](list)
    shift = 0
    for edit in edits_between(old, new):
        start, end, text = edit
        gone = old[start:end].strip()
        if _NAME.fullmatch(gone) and _NAME.fullmatch(text.strip()) and gone != text.strip():
            places[gone, text.strip()].append(start + shift + len(text) - len(text.lstrip()))
        shift += len(text) - (end - start)
    if not any(len(found) > 1 for found in places.values()):
        return []
    fresh = _Tree.of(new, language)
    if fresh is None:
        return []
    found: list[NamedChange] = []
    for (before, after), starts in places.items():
        in_code = [at for at in starts if fresh.is_name(at, after)]
        if len(in_code) < 2:
            continue
        reverted = in_code
        if re.search(rf"(?<!\w){re.escape(after)}(?!\w)", old) is None:
            reverted = [
                m.start()
                for m in re.finditer(rf"(?<!\w){re.escape(after)}(?!\w)", new)
                if fresh.is_name(m.start(), after)
            ]
        kinds = {at: kind for at in reverted if (kind := fresh.declares(at)) is not None}
        others = tuple((at, at + len(after)) for at in in_code if at not in kinds)
        if kinds and others:
            undone = [(at, at + len(after), before) for at in sorted(reverted)]
            file = _undone(path, new, undone, [at in kinds for at, _, _ in undone])
            found.append(NamedChange(next(iter(kinds.values())), f"{before} → {after}", file, others))
    return found


def signatures(path: str, old: str, new: str) -> list[NamedChange]:
    """Every function whose parameters became others in number or order, with calls in the same file that followed."""
    language = language_of(path)
    one, other = _Tree.of(old, language), _Tree.of(new, language)
    if one is None or other is None:
        return []
    before, after = one.functions(), other.functions()
    found: list[NamedChange] = []
    hunks: list[tuple[int, int, str]] | None = None
    for name, lists in after.items():
        if (
            len(lists) != 1
            or len(before.get(name, ())) != 1
            or one.names_in(before[name][0]) == other.names_in(lists[0])
        ):
            continue
        if hunks is None:
            hunks = list(_hunks(old, new))
        calls, kept = other.calls(name), one.calls(name)
        if len(calls) != len(kept):
            continue
        pairs = zip(calls, kept, strict=True)
        changed = [other.range(call) for call, was in pairs if _reshaped(one.arguments(was), other.arguments(call))]
        declaration = other.range(lists[0])
        undone = [hunk for hunk in hunks if any(_inside(hunk, place) for place in (declaration, *changed))]
        followed = tuple(place for place in changed if any(_inside(hunk, place) for hunk in undone))
        by_hand = [_inside(hunk, declaration) for hunk in undone]
        if followed and any(by_hand):
            found.append(NamedChange("signature", name, _undone(path, new, undone, by_hand), followed))
    return found


def met(change: NamedChange, text: str) -> int:
    """How many of the places that follow are in `text` as they were wanted."""
    left = [(start, end) for start, end, _ in _hunks(text, change.file.wanted)]
    return sum(not any(a <= end and start <= b for a, b in left) for start, end in change.wanted)


def _undone(path: str, new: str, undone: Sequence[tuple[int, int, str]], by_hand: Sequence[bool]) -> File:
    """`new` with ranges of it, in order, as they were before; those `by_hand` are typed again first, one after the other."""
    base, done, shift, grown = "", 0, 0, 0
    first: list[Edit] = []
    for (start, end, was), mine in zip(undone, by_hand, strict=True):
        base += new[done:start] + was
        done = end
        if mine:
            at = start + shift + grown
            first.append(Edit(at, at + len(was), new[start:end]))
            grown += end - start - len(was)
        shift += len(was) - (end - start)
    return File(path, base + new[done:], new, tuple(first))


def _inside(hunk: tuple[int, int, str], place: tuple[int, int]) -> bool:
    return place[0] <= hunk[0] and hunk[1] <= place[1]


def _reshaped(one: Sequence[str], other: Sequence[str]) -> bool:
    """More or fewer arguments, or the same in another order."""
    return len(one) != len(other) or (list(one) != list(other) and sorted(one) == sorted(other))


def _hunks(old: str, new: str) -> Iterator[tuple[int, int, str]]:
    """What changed, in coordinates of `new`, and what was there before."""
    shift = 0
    for start, end, text in edits_between(old, new):
        yield start + shift, start + shift + len(text), old[start:end]
        shift += len(text) - (end - start)


class _Tree:
    """A parsed text, asked in characters."""

    def __init__(self, root: Node, text: str, language: str) -> None:
        self._root, self._text, self._bytes = root, text, text.encode()
        self._ascii = text.isascii()
        spec = language_spec(language)
        self._no_code = spec.comments | spec.strings

    @classmethod
    def of(cls, text: str, language: str) -> _Tree | None:
        tree = parse_bounded(text.encode("utf-8", "replace"), language)
        return None if tree is None else cls(tree.root_node, text, language)

    def range(self, node: Node) -> tuple[int, int]:
        return self._char(node.start_byte), self._char(node.end_byte)

    def is_name(self, at: int, name: str) -> bool:
        """Whether a name of code stands there, as a whole."""
        node = self._leaf(at)
        return node is not None and self.range(node) == (at, at + len(name)) and node.type not in self._no_code

    def declares(self, at: int) -> str | None:
        """The kind of what is declared there; None where nothing is."""
        node = self._leaf(at)
        while node is not None and node.parent is not None:
            parent = node.parent
            if "parameter" in parent.type:
                return "parameter" if _field(node) in (*_DECLARING_FIELD, None) else None
            if "import" in parent.type or parent.type in ("use_declaration", "use_list", "scoped_use_list"):
                return "import"
            field = _field(node)
            if field in _DECLARING_FIELD and _DECLARING_PARENT.match(parent.type):
                return _kind(parent)
            if not _PATTERNS.match(parent.type):
                return None
            node = parent
        return None

    def functions(self) -> dict[str, list[Node]]:
        """Parameter lists by the name of their function."""
        found = defaultdict[str, list[Node]](list)
        for node in self._all():
            name, parameters = node.child_by_field_name("name"), node.child_by_field_name("parameters")
            if name is not None and parameters is not None:
                found[self._said(name)].append(parameters)
        return found

    def names_in(self, parameters: Node) -> list[str]:
        """Of the parameters, in order."""
        found: list[str] = []
        for child in parameters.named_children:
            if child.type in self._no_code:
                continue
            names = child.children_by_field_name("name") or child.children_by_field_name("pattern")
            found += [self._said(name) for name in names] or [_first_word(self._said(child))]
        return found

    def calls(self, name: str) -> list[Node]:
        """Argument lists of the calls of that name."""
        found: list[Node] = []
        for node in self._all():
            arguments = node.child_by_field_name("arguments")
            callee = next((one for field in _CALLEES if (one := node.child_by_field_name(field)) is not None), None)
            if arguments is not None and callee is not None and re.split(r"\W+", self._said(callee))[-1] == name:
                found.append(arguments)
        return found

    def arguments(self, node: Node) -> list[str]:
        return [self._said(child) for child in node.named_children if child.type not in self._no_code - {"string"}]

    def _all(self) -> Iterator[Node]:
        left = [self._root]
        while left:
            node = left.pop()
            yield node
            left += reversed(node.named_children)

    def _leaf(self, at: int) -> Node | None:
        byte = at if self._ascii else len(self._text[:at].encode())
        return self._root.descendant_for_byte_range(byte, byte + 1)

    def _said(self, node: Node) -> str:
        return self._bytes[node.start_byte : node.end_byte].decode()

    def _char(self, byte: int) -> int:
        return byte if self._ascii else len(self._bytes[:byte].decode())


def _field(node: Node) -> str | None:
    parent = node.parent
    if parent is None:
        return None
    index = next(i for i, child in enumerate(parent.children) if child == node)
    return parent.field_name_for_child(index)


def _kind(declaration: Node) -> str:
    above = declaration.parent
    body = above.parent if above is not None else None
    if body is not None and re.search(r"class|impl|interface|trait|enum|struct", body.type):
        return "member"
    if re.search("class|struct|enum|interface|trait|type|record", declaration.type):
        return "type"
    if re.search("field|property|method", declaration.type):
        return "member"
    return "function" if "function" in declaration.type else "variable"


def _first_word(text: str) -> str:
    found = _NAME.search(text)
    return text if found is None else found[0]
