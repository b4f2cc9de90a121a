"""Whether a suggestion parses where it would stand.

Its neighbourhood's tree is edited and parsed again, which costs what the suggestion touches, never the file. What a text leaves open is
closed: the first line of a call that goes on, and the head of a block whose body comes next, are no mistakes, only half of what
will be written. If it does not parse so, it gets a second look as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tree_sitter import Node, Parser, Tree

from foretype_context.syntax.brackets import missing_closers
from foretype_context.syntax.languages import language_spec, parser_for
from foretype_context.syntax.neighbourhood import edited_tree
from foretype_context.syntax.parsing import parse_in_steps
from foretype_context.text.document import Snapshot

__all__ = ["parses_in_place"]

_STEPS: Final = 250
"""Progress calls and reads of one parse: an ordinary one takes a third of them, and under a millisecond."""

_ERRORS_MAX: Final = 64
_TRY: Final = re.compile(r"\s*try\s*:$")
_DECORATOR: Final = re.compile(r"\s*@\w")


def parses_in_place(snapshot: Snapshot, offset: int, text: str, replaces: int = 0) -> bool | None:
    """Whether the document has no more syntax errors with `text` at `offset` than it has now.

    Args:
        replaces: characters right of `offset` that `text` takes the place of.

    Returns:
        None where nobody can tell: no grammar, a document that has moved on, or a parse that takes too long.
    """
    region = snapshot.syntax_at(offset)
    end = offset + replaces
    if region is None or not region.start <= offset <= end <= region.end:
        return None
    parser = _parser(snapshot.language, region.start > 0)
    if parser is None:
        return None
    line_start = snapshot.line_start(snapshot.line_of(offset))
    rest = _rest(snapshot, snapshot.text[line_start:offset] + text, text)
    around, at = snapshot.text[region.start : region.end], offset - region.start
    before: Tree = region.tree
    row = around.count("\n", 0, at)
    # A parse that fails takes four times as long as one that succeeds, and what leaves something open seldom parses as it is.
    for whole in (text + rest, text) if rest else (text,):
        edited = edited_tree(region.tree, around, at, at + replaces, whole)
        source = f"{around[:at]}{whole}{around[at + replaces :]}".encode("utf-8", "replace")
        after = parse_in_steps(parser, source, _STEPS, edited)
        if after is None:
            return None
        if not after.root_node.has_error:
            return True
        if len(_errors(after)) <= len(_errors(before)):
            return True
    elsewhere = any(node.start_point.row != row for node in _errors(before))
    return None if elsewhere else False


@lru_cache(maxsize=16)
def _parser(language: str, fragment: bool) -> Parser | None:
    """One for each language, for the event loop's thread alone asks."""
    return parser_for(language, fragment=fragment)


def _rest(snapshot: Snapshot, written: str, text: str) -> str:
    """What `text` leaves open at its end, closed: strings and brackets of its own, and in Python the block that it begins.

    Args:
        written: the cursor's line up to the end of `text`.
    """
    spec = language_spec(snapshot.language)
    closers = missing_closers(text, spec.line_comment)
    if spec.id != "python" or closers:
        return closers
    last = written.rpartition("\n")[2].rstrip()
    margin = last[: len(last) - len(last.lstrip())]
    if _TRY.fullmatch(last):
        return f" pass\n{margin}finally: pass"
    if last.endswith(":"):
        return " pass"
    return f"\n{margin}def _(): pass" if _DECORATOR.match(last) else ""


def _errors(tree: Tree) -> list[Node]:
    """ERROR and MISSING nodes, up to a bound: a file of nothing else tells nothing."""
    if not tree.root_node.has_error:
        return []
    found, stack = list[Node](), [tree.root_node]
    while stack and len(found) < _ERRORS_MAX:
        node = stack.pop()
        if node.is_error or node.is_missing:
            found.append(node)
        if node.has_error:
            stack.extend(node.children)
    return found
