"""The parameters of a declaration changed: its calls follow, where it is certain what they become; elsewhere there is only the way to them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.arguments import NOT_KNOWN, Given, fits, pairs_of, rewritten
from foretype_context.edits.bursts import Burst, ChangeOrigin
from foretype_context.edits.calls import Declaration, calls_elsewhere, calls_of, declaration_around, declaration_named
from foretype_context.edits.elsewhere import OtherFile, Site
from foretype_context.edits.imports import imported
from foretype_context.edits.names import is_variable_at
from foretype_context.edits.offsets import byte_of, char_of
from foretype_context.edits.parameters import Argument, Parameter, arguments_of, parameters_in, parameters_of
from foretype_context.syntax.document import Edit
from foretype_context.syntax.parsing import node_text
from foretype_context.text.strings import common_prefix, common_suffix

_LITERAL: Final = re.compile(r"-?\d[\w.]*|None|True|False|null|nil|true|false|undefined|\"[^\"\n]*\"|'[^'\n]*'")
_NAME: Final = re.compile(r"[^\W\d]\w*")


class Signature(NamedTuple):
    """The declaration whose name begins at character `at` of the text as it is now took `old`."""

    at: int
    old: tuple[Parameter, ...]


class _Change(NamedTuple):
    """What a signature became, without the object that a method is bound to."""

    name: str
    declaration: Declaration
    old: tuple[Parameter, ...]
    new: tuple[Parameter, ...]
    may_omit: bool
    """Who calls it in JavaScript may leave out what came at the end: only what is certainly given is worth a word."""


def signature_in(burst: Burst, root: Node, source: bytes, language: str) -> Signature | None:
    """The declaration whose parameters a burst changed.

    Args:
        root, source: of the text after the burst.
    """
    if burst.how in (ChangeOrigin.UNDONE, ChangeOrigin.FORMATTED):
        return None
    one = declaration_around(root, source, byte_of(burst.after, burst.edit.start))
    new = one and parameters_of(one.listed, source)
    if one is None or new is None:
        return None
    old = parameters_in(burst.before, char_of(burst.after, source, one.listed.start_byte), language)
    return None if old is None or old == new else Signature(char_of(burst.after, source, _name_of(one).start_byte), old)


class Signatures:
    """What one changed signature asks of calls."""

    def __init__(self, change: _Change, language: str) -> None:
        self._change = change
        self._language = language

    @staticmethod
    def of(signature: Signature, root: Node, source: bytes, text: str, language: str) -> Signatures | None:
        """None where the declaration is gone, has its old parameters again, or changed beyond what is followed."""
        one = declaration_named(root, source, byte_of(text, signature.at))
        new = one and parameters_of(one.listed, source)
        if one is None or new is None or new == signature.old:
            return None
        old = signature.old
        if one.bound:
            if not old or not new or old[0] != new[0]:
                return None
            old, new = old[1:], new[1:]
        may_omit = language == "javascript" and [p.name for p in new[: len(old)]] == [p.name for p in old]
        if pairs_of(old, new) is None:
            return None
        return Signatures(_Change(node_text(one.name, source), one, old, new, may_omit), language)

    @property
    def token(self) -> str:
        """What every call names."""
        return self._change.name

    @property
    def is_seen_elsewhere(self) -> bool:
        """Whether other files may call it by a name that they import."""
        return self._change.declaration.owner is None or self._change.declaration.constructs

    def sites(self, root: Node, source: bytes, text: str, touched: Sequence[tuple[int, int]]) -> list[Site]:
        """The calls of the declaration's own file.

        Args:
            touched: spans of characters that changed since the text was opened; what is done there is done.
        """
        calls = calls_of(self._change.declaration, root, source, self._language)
        spans = [(byte_of(text, start), byte_of(text, end)) for start, end in touched]
        return self._sites(calls, OtherFile("", self._language, text, root, source), spans)

    def elsewhere(self, path: str, file: OtherFile) -> list[Site]:
        """The calls of a file that imports the name from the one at `path`."""
        seen = imported(file.root, file.source, file.language, file.path, path)
        return self._sites(calls_elsewhere(self._change.name, seen, file.root, file.source, file.language), file, None)

    def _sites(self, calls: Sequence[Node], file: OtherFile, touched: Sequence[tuple[int, int]] | None) -> list[Site]:
        """`touched`: spans of bytes; None where nobody knows."""
        change = self._change
        read = [(node, given) for node in calls if (given := arguments_of(node, file.source)) is not None]
        nodes = [node for node, _ in read]
        shown = [
            given
            for node, given in read
            if touched and _overlaps(node, touched, nodes) and fits(change.new, given) and not fits(change.old, given)
        ]
        came = {one.name for one in change.new} - {one.name for one in change.old}
        sites: list[Site] = []
        waiting: list[Node] = []
        for node, given in reversed(read):  # a call among the arguments of another comes first
            if waiting and waiting[-1].end_byte <= node.end_byte:  # of those behind it the nearest
                continue
            if fits(change.new, given) and (touched is None or _overlaps(node, touched, nodes)):
                continue  # it is done, or nobody knows whether it is
            if any(one.value in came or one.keyword in came for one in given):
                continue  # it is given already, whatever else is to come
            said = rewritten(
                change.old,
                change.new,
                given,
                lambda wanted, node=node: self._value(wanted, node, shown, file),
                keywords=file.language == "python",
            )
            at = char_of(file.text, file.source, node.start_byte)
            listed = node_text(node, file.source)
            if said is NOT_KNOWN and not fits(change.new, given) and not change.may_omit:
                place = char_of(file.text, file.source, _missing(change, node, given, file.source))
                sites.append(Site(Edit(place, place, ""), jump_only=True))
                waiting.append(node)
            elif isinstance(said, list):
                sites.append(Site(_shortened(at, listed, _listed(node, given, said, file.source))))
                waiting.append(node)
        return sites[::-1]

    def _value(self, wanted: Parameter, call: Node, shown: Sequence[Sequence[Argument]], file: OtherFile) -> str | None:
        """What calls that were changed by hand give for a parameter, or a variable of its very name."""
        root, source, language = file.root, file.source, file.language
        texts = {text for given in shown if (text := _given_for(wanted, self._change.new, given)) is not None}
        own = is_variable_at(root, source, language, wanted.name, call.start_byte)
        if own and (not texts or wanted.name in texts):
            return wanted.name
        if len(texts) != 1 or self._change.may_omit:
            return None
        text = texts.pop()
        if _LITERAL.fullmatch(text):
            return text
        is_seen = _NAME.fullmatch(text) and is_variable_at(root, source, language, text, call.start_byte)
        return text if is_seen else None


def _missing(change: _Change, node: Node, given: Sequence[Argument], source: bytes) -> int:
    """The byte of a call where the first argument that it lacks belongs; its end where nobody can count."""
    known = {one.name for one in change.old}
    before = next((index for index, one in enumerate(change.new) if one.name not in known), len(given))
    if before < len(given) and not any(one.keyword for one in given):
        return given[before - 1].end if before else node.start_byte + 1
    closing = source[given[-1].end : node.end_byte] if given else b""
    return given[-1].end if b"\n" in closing else node.end_byte - 1


def _given_for(wanted: Parameter, parameters: Sequence[Parameter], given: Sequence[Argument]) -> str | None:
    for one in given:
        if one.keyword == wanted.name:
            return one.value
    index = next(index for index, one in enumerate(parameters) if one.name == wanted.name)
    before = given[: index + 1]
    return before[-1].value if len(before) == index + 1 and not any(one.keyword or one.many for one in before) else None


def _listed(node: Node, given: Sequence[Argument], said: Sequence[Given], source: bytes) -> str:
    """The brackets and what stands in them, laid out as it was."""
    start, end = node.start_byte, node.end_byte
    if not given:
        return "(" + ", ".join(one.text for one in said) + ")"
    head, tail = source[start : given[0].start].decode(), source[given[-1].end : end].decode()
    between = [source[a.end : b.start].decode() for a, b in itertools.pairwise(given)]
    usual = between[0] if between else "," + (head[1:] if "\n" in head else " ")
    if not said:
        return "()"
    parts = [head, said[0].text]
    for a, b in itertools.pairwise(said):
        follows = a.place is not None and b.place == a.place + 1
        parts += [between[a.place] if follows and a.place is not None else usual, b.text]
    return "".join([*parts, tail])


def _shortened(start: int, old: str, new: str) -> Edit:
    """The least that makes `old`, which begins at `start`, into `new`, by whole words."""
    head = common_prefix(old, new)
    while head and (_is_word(old[head - 1]) and (_is_word(old[head : head + 1]) or _is_word(new[head : head + 1]))):
        head -= 1
    tail = common_suffix(old, new, min(len(old), len(new)) - head)
    while tail and _is_word(old[-tail]) and (_is_word(old[-tail - 1]) or _is_word(new[-tail - 1])):
        tail -= 1
    return Edit(start + head, start + len(old) - tail, new[head : len(new) - tail])


def _is_word(text: str) -> bool:
    return text == "_" or text.isalnum()


def _overlaps(node: Node, spans: Sequence[tuple[int, int]], calls: Sequence[Node]) -> bool:
    """Whether a span reaches into a call, and not only into another call among its arguments."""
    first, last = node.start_byte, node.end_byte
    near = [(start, end) for start, end in spans if start <= last and end >= first]
    inner = [
        (one.start_byte, one.end_byte)
        for one in (calls if near else ())
        if first < one.start_byte and one.end_byte < last
    ]
    return any(not any(a <= start and end <= b for a, b in inner) for start, end in near)


def _name_of(one: Declaration) -> Node:
    """The declaration's own name, which a constructor has too."""
    return one.node.child_by_field_name("name") or one.name
