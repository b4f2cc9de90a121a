"""What a declaration takes and what a call gives, read from a tree: Python, JavaScript, TypeScript, Go, Java, Rust."""

from __future__ import annotations

from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.syntax.parsing import node_text, parse_bounded

_LIST_CHARS_MAX: Final = 2_000


class ParameterKind(Enum):
    """How an argument reaches a parameter."""

    POSITION = auto()
    EITHER = auto()
    KEYWORD = auto()
    REST = auto()
    """All other arguments that have no keyword."""
    KEYWORDS = auto()
    """All other keywords."""


class Parameter(NamedTuple):
    """`name` is the pattern where there is no name; `default`: it may be left out."""

    name: str
    kind: ParameterKind
    default: bool
    declared: str = ""


class Argument(NamedTuple):
    """One of a call, in bytes of the source.

    Attributes:
        keyword: empty for one that goes by its position.
        value: its text, without the keyword.
        many: it stands for several that nobody can count.
    """

    start: int
    end: int
    keyword: str
    value: str
    many: bool


_FRAMES: Final = MappingProxyType(
    {
        "python": ("def f", ": pass"),
        "javascript": ("function f", " {}"),
        "typescript": ("function f", " {}"),
        "typescriptreact": ("function f", " {}"),
        "go": ("package p\nfunc f", " {}"),
        "java": ("class A { void f", " {} }"),
        "rust": ("fn f", " {}"),
    }
)
_RECEIVERS: Final = frozenset({"self_parameter", "receiver_parameter"})
_PLAIN: Final = frozenset({"identifier", "object_pattern", "array_pattern"})
_DEFAULTS: Final = frozenset(
    {"default_parameter", "typed_default_parameter", "assignment_pattern", "required_parameter", "optional_parameter"}
)
_TYPED: Final = frozenset({"typed_parameter", "formal_parameter", "parameter"})
_REST: Final = frozenset(
    {"list_splat_pattern", "rest_pattern", "variadic_parameter_declaration", "spread_parameter", "variadic_parameter"}
)
_MANY: Final = frozenset({"list_splat", "dictionary_splat", "spread_element", "variadic_argument"})


def parameters_of(node: Node, source: bytes) -> tuple[Parameter, ...] | None:
    """Of a list of parameters, without what receives a method in Rust, Java and TypeScript; None where it is not understood."""
    if node.has_error:
        return None
    found: list[Parameter] = []
    kind = ParameterKind.EITHER
    for child in node.named_children:
        if child.type.endswith("comment") or child.type in _RECEIVERS or node_text(child, source).startswith("this:"):
            continue
        if child.type == "positional_separator":
            found = [one._replace(kind=ParameterKind.POSITION) for one in found]
        elif child.type == "keyword_separator":
            kind = ParameterKind.KEYWORD
        else:
            read = _read(child, source, kind)
            if not read:
                return None
            found += read
            kind = ParameterKind.KEYWORD if read[0].kind is ParameterKind.REST else kind
    names = [one.name for one in found]
    return tuple(found) if "" not in names and len(set(names)) == len(names) else None


def parameters_in(text: str, at: int, language: str) -> tuple[Parameter, ...] | None:
    """Of the list whose bracket stands at character `at` of a text that has no tree."""
    frame = _FRAMES.get(language)
    end = _closing(text, at)
    if frame is None or end is None:
        return None
    source = f"{frame[0]}{text[at:end]}{frame[1]}".encode("utf-8", "surrogatepass")
    tree = parse_bounded(source, language)
    node = tree and tree.root_node.descendant_for_byte_range(*[len(frame[0].encode())] * 2)
    while node is not None and node.child_by_field_name("parameters") is None:
        node = node.parent
    listed = node and node.child_by_field_name("parameters")
    return None if listed is None else parameters_of(listed, source)


def arguments_of(node: Node, source: bytes) -> list[Argument] | None:
    """Of a list of arguments; None where it holds comments or errors."""
    if node.has_error or node.type not in ("argument_list", "arguments"):
        return None
    found: list[Argument] = []
    for child in node.named_children:
        if child.type.endswith("comment"):
            return None
        keyword = value = None
        if child.type == "keyword_argument":
            keyword, value = child.child_by_field_name("name"), child.child_by_field_name("value")
        found.append(
            Argument(
                child.start_byte,
                child.end_byte,
                node_text(keyword, source),
                node_text(value or child, source),
                child.type in _MANY or child.type.startswith("generator"),
            )
        )
    return found


def _read(node: Node, source: bytes, kind: ParameterKind) -> list[Parameter]:
    declared = " ".join(node_text(node.child_by_field_name("type"), source).split())
    pattern = node.child_by_field_name("pattern") or node.child_by_field_name("left")
    name = pattern or node.child_by_field_name("name")
    if node.type in _PLAIN:
        return [Parameter(node_text(node, source), kind, default=False)]
    inner = node.named_children[0].type if node.named_children else ""
    if node.type in _REST or "rest_pattern" == (pattern and pattern.type) or inner in _REST:
        return [Parameter(node_text(node, source), ParameterKind.REST, default=True, declared=declared)]
    if "dictionary_splat_pattern" in (node.type, inner):
        return [Parameter(node_text(node, source), ParameterKind.KEYWORDS, default=True)]
    if node.type in _DEFAULTS:
        optional = node.type != "required_parameter" or node.child_by_field_name("value") is not None
        return [Parameter(node_text(name, source), kind, optional, declared)]
    if node.type == "parameter_declaration":  # Go: several names of one type
        names = node.children_by_field_name("name")
        return [Parameter(node_text(one, source), kind, default=False, declared=declared) for one in names]
    if node.type in _TYPED:
        return [Parameter(node_text(name or node.named_children[0], source), kind, default=False, declared=declared)]
    return []


def _closing(text: str, at: int) -> int | None:
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    quote = ""
    for index in range(at, min(len(text), at + _LIST_CHARS_MAX)):
        character = text[index]
        if quote:
            quote = "" if character == quote else quote
        elif character == '"':
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if not depth:
                return index + 1
    return None
