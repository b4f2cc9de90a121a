"""Outlines: what of a file another file needs to know. Signatures, class headers, first lines of documentation; no bodies.

Pure functions of text. One walk serves all grammars: it goes through what can hold definitions (classes, namespaces, decorators,
conditional blocks) and never into a function's body. Where there is no grammar, or a parser would take too long, indentation
tells what is outer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tree_sitter import Node

from foretype_context.syntax.languages import LanguageSpec, language_spec
from foretype_context.syntax.node_types import (
    BODIES,
    CLASSES,
    CONSTANTS,
    FUNCTION_VALUES,
    FUNCTIONS,
    IMPORTS,
    NEVER,
    WRAPPERS,
    defined_name,
)
from foretype_context.syntax.parsing import node_text, parse_bounded
from foretype_context.text.strings import well_formed

OUTLINE_CHARS: Final = 1_000
"""200 to 300 tokens of source."""

_TEXT_CHARS_MAX: Final = 100_000
_MAX_DEPTH: Final = 12
_MAX_VISITED: Final = 20_000
_MAX_PARTS: Final = 600
_SIGNATURE_LINES: Final = 12
_SIGNATURE_CHARS: Final = 600
_PLAIN_LINES: Final = 8
_LINE_CHARS: Final = 200
_DOCUMENTATION_CHARS: Final = 100
_COMMENT_LINES: Final = 20


_DOC_MARKS: Final = re.compile(r"^(?:///?!?|/\*+!?|\*+/?|#+!?|--+(?:\[=*\[)?)\s?|\s*(?:\*+/|\]=*\])$")
_PYTHON_DOC: Final = re.compile(r"^[rRuUbB]{0,2}(\"\"\"|'''|\"|')\s*(.*?)\s*(\1.*)?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OutlinePiece:
    """One piece of an outline.

    Attributes:
        name: what it defines; empty for an import.
        head: signature or header, whole lines without documentation.
        documentation: first line of it, as a line of source; may be empty.
        members: of a class: fields and methods, in the order of the text.
        foot: the line that closes a class, where its language has one.
        start, end: half-open span in bytes of the text's UTF-8.
    """

    name: str
    head: str
    start: int
    end: int
    documentation: str = ""
    members: tuple[OutlinePiece, ...] = ()
    foot: str = ""
    is_import: bool = False

    @property
    def public(self) -> bool:
        return not self.name.startswith("_") or (self.name.startswith("__") and self.name.endswith("__"))

    def lines(self, *, documented: bool = True, private: bool = True) -> Iterator[str]:
        said = [self.documentation] if documented and self.documentation else []
        is_docstring = self.documentation.lstrip().startswith('"')
        yield from [self.head, *said] if is_docstring else [*said, self.head]
        for member in self.members:
            if private or member.public:
                yield from member.lines(documented=documented, private=private)
        if self.foot:
            yield self.foot


def outline(
    text: str,
    language: str,
    *,
    names: Collection[str] = (),
    imports: bool = False,
    limit_chars: int = OUTLINE_CHARS,
) -> str:
    """The outline of a file: whole lines, each with its ending, in the order of the text; empty where it defines nothing.

    Never raises, and adversarial source costs a bounded time. Where the whole does not fit into `limit_chars`, documentation
    goes first, then private members, then what stands last.

    Args:
        language: LSP language id.
        names: only definitions of these names, or that have members so named; all where none is found.
        imports: show the import lines too.
    """
    parts = [part for part in parts_of(text, language) if imports or not part.is_import]
    if names:
        chosen = frozenset(names)
        parts = [found for part in parts if (found := _narrowed(part, chosen)) is not None] or parts
    shown: list[str] = []
    for documented, private in ((True, True), (False, True), (False, False)):
        shown = [
            line
            for part in parts
            if private or part.public
            for line in part.lines(documented=documented, private=private)
        ]
        if sum(map(len, shown)) + len(shown) <= limit_chars:
            break
    return _capped(shown, limit_chars)


def _narrowed(part: OutlinePiece, names: frozenset[str]) -> OutlinePiece | None:
    if part.name in names or (part.is_import and any(name in part.head for name in names)):
        return part
    members = tuple(found for member in part.members if (found := _narrowed(member, names)) is not None)
    return replace(part, members=members) if members else None


def _capped(lines: Sequence[str], limit_chars: int) -> str:
    kept: list[str] = []
    used = 0
    for line in lines:
        if used + len(line) + 1 > limit_chars:
            break
        kept.append(line + "\n")
        used += len(line) + 1
    return "".join(kept)


def parts_of(text: str, language: str) -> list[OutlinePiece]:
    """What a file imports and defines at its outer level, classes with their members, in the order of the text."""
    text = well_formed(text[:_TEXT_CHARS_MAX])
    data = text.encode()
    tree = parse_bounded(data, language)
    if tree is None:
        return list(_by_indentation(text, language))
    return _Walk(data, language_spec(language)).parts(tree.root_node)


class _Walk:
    def __init__(self, data: bytes, spec: LanguageSpec) -> None:
        self._data = data
        self._python = spec.id == "python"
        self._ends_with = spec.signature_ends_with
        self._mark = spec.line_comment
        self._left = _MAX_VISITED

    def parts(self, root: Node) -> list[OutlinePiece]:
        found: list[OutlinePiece] = []
        for part in self._inside(root, 0, top=True):
            # `const a = 1, b = 2` is one line for two names.
            if not found or (found[-1].start, found[-1].head) != (part.start, part.head):
                found.append(part)
            if len(found) >= _MAX_PARTS:
                break
        return found

    def _inside(self, node: Node, depth: int, *, top: bool) -> Iterator[OutlinePiece]:
        for child in node.named_children:
            self._left -= 1
            if self._left < 0:
                return
            yield from self._of(child, child, depth, top=top)

    def _of(self, node: Node, outer: Node, depth: int, *, top: bool) -> Iterator[OutlinePiece]:
        kind = node.type
        if kind in IMPORTS:
            if top:
                yield OutlinePiece("", self._lines(outer, 4), outer.start_byte, outer.end_byte, is_import=True)
        elif kind in FUNCTIONS:
            if name := defined_name(node, self._data):
                yield self._function(name, node, outer)
        elif kind in CLASSES:
            name, body = defined_name(node, self._data), _body(node)
            if name and body is not None:
                yield self._class(name, outer, body, depth)
            elif name and not kind.endswith("_specifier"):
                yield OutlinePiece(name, self._lines(outer), outer.start_byte, outer.end_byte, self._above(outer))
        elif kind in CONSTANTS or kind == "assignment":
            yield from self._constant(node, outer)
        elif depth < _MAX_DEPTH and kind not in NEVER and (top or kind in WRAPPERS or kind in BODIES):
            for child in node.named_children:
                self._left -= 1
                if self._left < 0:
                    return
                holds = kind in WRAPPERS or kind == "expression_statement" or kind.endswith("_declaration")
                holds = holds and (kind in WRAPPERS or child.start_point[0] == node.start_point[0])
                yield from self._of(child, outer if holds else child, depth + 1, top=top)
        elif top and node.end_byte - node.start_byte < _LINE_CHARS and self._imports(node):
            yield OutlinePiece("", self._lines(outer, 1), outer.start_byte, outer.end_byte, is_import=True)

    def _imports(self, node: Node) -> bool:
        """Whether a call or command of one line names another file (`require`, `source`)."""
        shown = node_text(node, self._data)
        return "\n" not in shown and _IMPORT_LINE.match(shown) is not None

    def _function(self, name: str, node: Node, outer: Node) -> OutlinePiece:
        body = _body(node)
        head = self._declared(self._head(outer, body)) if body is not None else self._lines(outer)
        return OutlinePiece(name, head, outer.start_byte, outer.end_byte, self._documentation(outer, body))

    def _class(self, name: str, outer: Node, body: Node, depth: int) -> OutlinePiece:
        if outer.start_point[0] == outer.end_point[0]:
            return OutlinePiece(name, self._lines(outer, 1), outer.start_byte, outer.end_byte, self._above(outer))
        members = tuple(self._members(body, depth + 1)) if depth < _MAX_DEPTH else ()
        last = self._line_at(outer.end_byte)
        foot = last if last.strip() and last.strip()[0] in "}e" and outer.end_point[0] > outer.start_point[0] else ""
        if self._python or not (foot.strip().startswith("}") or foot.strip() == "end"):
            foot = ""
        head = self._head(outer, body)
        return OutlinePiece(
            name, head, outer.start_byte, outer.end_byte, self._documentation(outer, body), members, foot
        )

    def _members(self, body: Node, depth: int) -> Iterator[OutlinePiece]:
        """Methods and inner classes by their heads; fields and what else stands there by their first lines."""
        plain = 0
        doc = self._doc_node(body) if self._python else None
        after = doc.end_byte if doc is not None else -1
        for child in body.named_children:
            self._left -= 1
            if self._left < 0:
                return
            found = list(self._of(child, child, depth, top=False))
            if found:
                yield from found
            elif child.type in BODIES:
                yield from self._members(child, depth + 1)
            elif (
                "comment" not in child.type
                and child.end_byte != after
                and child.type not in ("pass_statement", "decorator")
            ):
                plain += 1
                if plain <= _PLAIN_LINES:
                    yield OutlinePiece(
                        defined_name(child, self._data), self._lines(child, 1), child.start_byte, child.end_byte
                    )

    def _constant(self, node: Node, outer: Node) -> Iterator[OutlinePiece]:
        left = node.child_by_field_name("left")
        if node.type == "assignment" and (left is None or left.type != "identifier"):
            return
        name = node_text(left, self._data) if node.type == "assignment" else defined_name(node, self._data)
        if not name:
            return
        value = node.child_by_field_name("value")
        if value is not None and value.type in FUNCTION_VALUES:
            head = self._declared(self._head(outer, value.child_by_field_name("body")))
            yield OutlinePiece(name, head, outer.start_byte, outer.end_byte, self._above(outer))
            return
        whole = node.type in ("type_spec", "type_definition", "type_alias_declaration", "type_item")
        head = self._lines(outer, _SIGNATURE_LINES if whole else 1)
        yield OutlinePiece(name, head, outer.start_byte, outer.end_byte, self._above(outer))

    def _declared(self, head: str) -> str:
        """A function's head without the brace that opens its body: nothing would close it."""
        head = head.removesuffix("{").rstrip()
        if head.endswith("=>"):
            return head + " ..."
        return head if head.endswith(self._ends_with) else head + self._ends_with

    def _head(self, outer: Node, body: Node | None) -> str:
        """From the start of the first line to the body. A brace that opens the body on the signature's line stays."""
        if body is None:
            return self._lines(outer)
        start = self._from(outer)
        end = body.start_byte
        if self._data[end : end + 1] == b"{":
            end += 1
        head = self._data[start:end].decode("utf-8", "replace").rstrip()
        if head.endswith("{") and "\n" in head and head.rsplit("\n", 1)[1].strip() == "{":
            head = head.rsplit("\n", 1)[0].rstrip() + " {"
        return _short(head, _SIGNATURE_LINES)

    def _lines(self, node: Node, most: int = _SIGNATURE_LINES) -> str:
        start = self._from(node)
        end = node.end_byte
        if self._data[end : end + 1] in (b";", b",", b":"):
            end += 1
        return _short(self._data[start:end].decode("utf-8", "replace").rstrip(), most)

    def _documentation(self, outer: Node, body: Node | None) -> str:
        if not self._python or body is None:
            return self._above(outer)
        doc = self._doc_node(body)
        if doc is None:
            return ""
        found = _PYTHON_DOC.match(node_text(doc, self._data))
        first = found.group(2).split("\n", 1)[0].strip() if found else ""
        if not first or len(first) > _DOCUMENTATION_CHARS:
            return ""
        indent = self._data[self._line_start(doc.start_byte) : doc.start_byte].decode("utf-8", "replace")
        return f'{indent}"""{first}"""' if not indent.strip() else ""

    def _doc_node(self, body: Node) -> Node | None:
        first = body.named_children[0] if body.named_child_count else None
        if first is not None and first.type == "expression_statement" and first.named_child_count == 1:
            first = first.named_children[0]
        return first if first is not None and first.type == "string" else None

    def _above(self, outer: Node) -> str:
        """First line of the comment that ends on the line above a definition, as a line comment behind its head."""
        comment = outer.prev_named_sibling
        if comment is None or "comment" not in comment.type or comment.end_point[0] + 1 < outer.start_point[0]:
            return ""
        if comment.start_point[0] == outer.start_point[0]:
            return ""
        for _ in range(_COMMENT_LINES):
            before = comment.prev_named_sibling
            if before is None or "comment" not in before.type:
                break
            if before.end_point[0] + 1 < comment.start_point[0] or node_text(comment, self._data).startswith("/*"):
                break
            comment = before
        indent = self._data[self._line_start(comment.start_byte) : comment.start_byte].decode("utf-8", "replace")
        shown = node_text(comment, self._data)
        words = next((line for raw in shown.split("\n") if (line := _DOC_MARKS.sub("", raw.strip()).strip())), "")
        if not words or len(words) > _DOCUMENTATION_CHARS or indent.strip():
            return ""
        mark = "#" if shown.startswith("#") else self._mark
        return f"{indent}{mark} {words}"

    def _from(self, node: Node) -> int:
        """Where a node's first line begins, or the node itself where other code precedes it there."""
        start = self._line_start(node.start_byte)
        return node.start_byte if self._data[start : node.start_byte].strip() else start

    def _line_start(self, byte: int) -> int:
        return self._data.rfind(b"\n", 0, byte) + 1

    def _line_at(self, byte: int) -> str:
        start = self._line_start(max(byte - 1, 0))
        return self._data[start:byte].decode("utf-8", "replace").rstrip()


def _short(text: str, most_lines: int) -> str:
    lines = text.replace("\r", "").split("\n")[:most_lines]
    return "\n".join(line[:_LINE_CHARS].rstrip() for line in lines if line.strip())[:_SIGNATURE_CHARS]


def _body(node: Node) -> Node | None:
    body = node.child_by_field_name("body")
    return body or next((child for child in node.named_children if child.type in BODIES), None)


_DEFINES: Final = re.compile(
    r"^\s*(?:(?:local|export|default|public|private|protected|internal|static|abstract|final|async|pub(?:\([^)]*\))?|virtual|override|"
    r"inline|extern|const|unsafe)\s+)*"
    r"(?:def|class|function|func|fun|fn|interface|struct|enum|trait|impl|type|module|namespace|record|sub|let|const|var)\s+"
    r"(?P<name>[\w$.:]+)"
)
_IMPORT_LINE: Final = re.compile(
    r"^(?:import|from|use|using|require|require_relative|include|#include|package|@import|source)\b"
)
_ASSIGNS: Final = re.compile(r"^(?P<name>[A-Za-z_$][\w$]*)\s*(?:\(|[:=])")


def defines(line: str) -> bool:
    """Whether a line looks like the first one of a definition, in any language."""
    return _DEFINES.match(line) is not None


def _by_indentation(text: str, language: str) -> Iterator[OutlinePiece]:
    """Outer lines that define something, and inner ones that say so by a word; bodies are what is indented below."""
    comment = language_spec(language).line_comment
    at = produced = 0
    for raw in text.splitlines(keepends=True):
        line, start, at = raw.rstrip(), at, at + len(raw)
        stripped = line.strip()
        if not stripped or len(line) > 4 * _LINE_CHARS or stripped.startswith((comment, "*", "/*")):
            continue
        outer = not line[0].isspace()
        found = _DEFINES.match(line) or (_ASSIGNS.match(line) if outer else None)
        imported = outer and _IMPORT_LINE.match(line) is not None
        if found is None and not imported:
            continue
        if not outer and re.match(r"\s*(?:let|const|var)\b", line):
            continue
        name = "" if imported else found["name"] if found is not None else ""
        yield OutlinePiece(name, line[:_LINE_CHARS], start, at, is_import=imported)
        produced += 1
        if produced >= _MAX_PARTS:
            return
