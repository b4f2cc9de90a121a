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

from foretype_context.finish.python_check import Refusal, breaks_below, refused_by_python
from foretype_context.finish.python_two import holds_python_two
from foretype_context.syntax.blocks import lexical_state
from foretype_context.syntax.document import Snapshot
from foretype_context.syntax.languages import language_spec, parser_for
from foretype_context.syntax.neighbourhood import ParsedRegion, edited_tree
from foretype_context.syntax.parsing import parse_in_steps
from foretype_context.syntax.reading import Reading, Sort, missing_closers

_STEPS: Final = 250
"""Progress calls and reads of one parse: an ordinary one takes a third of them, and under a millisecond."""

_ERRORS_MAX: Final = 64
_TRY: Final = re.compile(r"\s*try\s*:$")
_CLOSING_LINE: Final = re.compile(r"[)\]}]+[;,]?")
_CLOSERS: Final = re.compile(rb"[\s)\]};,]+")
_DECORATOR: Final = re.compile(r"\s*@\w")


def parses_in_place(snapshot: Snapshot, offset: int, text: str, replaces: int = 0) -> bool | None:
    """Whether the document has no more syntax errors with `text` at `offset` than it has now.

    Args:
        replaces: characters right of `offset` that `text` takes the place of.

    Returns:
        None where nobody can tell: no grammar, a document that has moved on, or a parse that takes too long.
    """
    refused = refused_by_python(snapshot, offset, text, replaces) if snapshot.language == "python" else None
    if refused is not None and refused.indentation:
        return False
    line_start = snapshot.line_start(snapshot.line_of(offset))
    rest = left_open(snapshot, offset, snapshot.text[line_start:offset] + text)
    if snapshot.language == "python" and breaks_below(snapshot, offset, text, rest, replaces):
        return False
    parses = _parses(snapshot, offset, text, replaces, rest, refused)
    if parses is False and refused is None:
        body = _without_closing_line(snapshot, offset, text)
        if body != text:
            return parses_in_place(snapshot, offset, body, replaces) if body.strip() else None
    return parses


def _parses(
    snapshot: Snapshot, offset: int, text: str, replaces: int, rest: str, refused: Refusal | None
) -> bool | None:
    region = snapshot.syntax_at(offset)
    end = offset + replaces
    if region is None or not region.start <= offset <= end <= region.end:
        return None
    parser = _parser(snapshot.language, region.start > 0)
    if parser is None:
        return None
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
            first = len(around[:at].encode("utf-8", "replace"))
            written = len(whole.encode("utf-8", "replace"))
            if refused is None or not holds_python_two(after.root_node, source, first, first + written):
                return True
            given = around.encode("utf-8", "replace")
            return holds_python_two(before.root_node, given, 0, len(given))  # as the file itself does
        given = around.encode("utf-8", "replace")
        if refused is None and _count(after, source, region) <= _count(before, given, region):
            return True
    if _ends_text(snapshot, offset, text):
        return None  # what stands below was text before: its errors are the file's own
    if refused is not None:
        return False  # both refuse it; what one of them does not know yet the other does
    elsewhere = any(node.start_point.row != row for node in _errors(before))
    return None if elsewhere else False


def mends_line(snapshot: Snapshot, offset: int, text: str) -> bool:
    """Whether the cursor's line has an error of syntax that `text` takes away."""
    if snapshot.language == "python" and refused_by_python(snapshot, offset, "") is not None:
        return refused_by_python(snapshot, offset, text) is None
    region = snapshot.syntax_at(offset)
    parser = None if region is None else _parser(snapshot.language, region.start > 0)
    if region is None or parser is None:
        return False
    around, at = snapshot.text[region.start : region.end], offset - region.start
    row, before = around.count("\n", 0, at), _errors(region.tree)
    if not any(node.start_point.row <= row <= node.end_point.row for node in before):
        return False
    edited = edited_tree(region.tree, around, at, at, text)
    after = parse_in_steps(parser, f"{around[:at]}{text}{around[at:]}".encode("utf-8", "replace"), _STEPS, edited)
    return after is not None and len(_errors(after)) < len(before)


@lru_cache(maxsize=16)
def _parser(language: str, fragment: bool) -> Parser | None:
    """One for each language, for the event loop's thread alone asks."""
    return parser_for(language, fragment=fragment)


def _without_closing_line(snapshot: Snapshot, offset: int, text: str) -> str:
    """`text` without a last line that does nothing but close what stands open: where grammars fail, the reader still knows."""
    body, _, last = text.rpartition("\n")
    if _CLOSING_LINE.fullmatch(last.strip()) is None:
        return text
    line_start = snapshot.line_start(snapshot.line_of(offset))
    reading = Reading(snapshot.language, snapshot.lexical_at(snapshot.line_of(offset)))
    written = snapshot.text[line_start:offset] + text
    reading.read(written, 0, len(written) - len(last))
    depth = reading.depth
    reading.read(written, len(written) - len(last), len(written))
    closes = depth - reading.depth == sum(character in ")]}" for character in last) and not reading.faults
    return body if closes else text


def _ends_text(snapshot: Snapshot, offset: int, text: str) -> bool:
    """Whether a string or comment that goes on over lines ends within `text`."""
    now = lexical_state(snapshot, offset)
    if not now.stack or now.stack[-1].sort is not Sort.TEXT or now.stack[-1].lined or not now.stack[-1].closer:
        return False
    reading = Reading(snapshot.language, now)
    reading.floor = len(now.stack)
    line = snapshot.text[snapshot.line_start(snapshot.line_of(offset)) : offset]
    reading.read(line + text, len(line), len(line) + len(text))
    return bool(reading.lows)


def left_open(snapshot: Snapshot, offset: int, written: str) -> str:
    """What closes all that a text leaves open at its end: strings and brackets of its own, and in Python the block that it begins.

    Args:
        written: the cursor's line up to the end of the text.
    """
    spec = language_spec(snapshot.language)
    open_before = len(lexical_state(snapshot, offset).stack)
    reading = Reading(snapshot.language, snapshot.lexical_at(snapshot.line_of(offset)))
    reading.read(written, 0, len(written))
    closers = missing_closers(reading.state.stack[open_before:], reading.state.waiting)
    if spec.id != "python" or closers:
        return closers
    last = written.rpartition("\n")[2].rstrip()
    margin = last[: len(last) - len(last.lstrip())]
    if _TRY.fullmatch(last):
        return f" pass\n{margin}finally: pass"
    if last.endswith(":"):
        return " pass"
    return f"\n{margin}def _(): pass" if _DECORATOR.match(last) else ""


def _count(tree: Tree, source: bytes, region: ParsedRegion) -> int:
    """How many errors there are; of closers behind everything only those that nothing can have opened above the region."""
    return sum(
        not (
            region.start
            and node.is_error
            and (node.parent is None or node.parent.parent is None)
            and _CLOSERS.fullmatch(source[node.start_byte : node.end_byte])
        )
        for node in _errors(tree)
    )


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
