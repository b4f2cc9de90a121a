"""What the syntax says about a place: in a string or comment, at the start of a block, inside a body.

With a tree the questions are answered by it; without one by indentation and the ends of lines. All questions are asked about
the live document and cost the neighbourhood of the cursor, never the file.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.syntax.document import Snapshot
from foretype_context.syntax.languages import PLAINTEXT, LanguageSpec, language_spec
from foretype_context.syntax.lexis import Within
from foretype_context.syntax.reading import LexicalState, Reading, lexis_of, within_of
from foretype_context.text.openers import ends_open, opens

CLOSERS_ONLY: Final = re.compile(r"""^\s*[)>}\]"'`]*\s*[:{;,]?\s*$""")
"""What may stand right of the cursor without making it a mid-line place (Copilot's expression)."""

LIST_ITEM: Final = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)]|[A-Za-z][.)])(?:[ \t]|$)")
"""Of prose and YAML."""

_TAB_COLUMNS: Final = 4
_LOOK_LINES: Final = 200


def indent_columns(line: str) -> int:
    """Columns of white space that a line begins with; a tab goes to the next multiple of 4."""
    columns = 0
    for character in line:
        if character == " ":
            columns += 1
        elif character == "\t":
            columns += _TAB_COLUMNS - columns % _TAB_COLUMNS
        else:
            break
    return columns


def previous_filled_line(snapshot: Snapshot, line: int) -> str | None:
    """The nearest line above `line` that is not blank, without its ending."""
    above = _filled_above(snapshot, line)
    return None if above is None else snapshot.line_text(above)


def code_above(snapshot: Snapshot, line: int) -> str:
    """The nearest line above `line` that is not blank, without comments and blanks behind its code."""
    above = _filled_above(snapshot, line)
    if above is None:
        return ""
    reading = Reading(snapshot.language, snapshot.lexical_at(above))
    return reading.code(snapshot.text, snapshot.line_start(above), snapshot.line_end(above)).rstrip()


def _filled_above(snapshot: Snapshot, line: int) -> int | None:
    lines = range(line - 1, max(line - 1 - _LOOK_LINES, -1), -1)
    return next((above for above in lines if snapshot.line_text(above).strip()), None)


def next_filled_line(snapshot: Snapshot, line: int) -> str | None:
    """The nearest line below `line` that is not blank, without its ending."""
    for below in range(line + 1, min(line + 1 + _LOOK_LINES, snapshot.line_count)):
        text = snapshot.line_text(below)
        if text.strip():
            return text
    return None


class SuggestionKind(StrEnum):
    """How much a suggestion may write, told from the syntax at the cursor and from the first generated line."""

    MID_LINE = "mid_line"  # more than closers stand right of the cursor: fill in between
    LINE = "line"  # the rest of this line
    BLOCK = "block"  # several lines: a block begins here, or the cursor is on a blank line inside one
    OPENED = "opened"  # the rest of this line, which turned out to open a block, and that block


class NodeBeforeCursor(NamedTuple):
    """The smallest node that holds the character left of a place, and that place's byte offset in the node's tree."""

    node: Node
    byte: int


def spot_before(snapshot: Snapshot, offset: int) -> NodeBeforeCursor | None:
    """Looks into the tree around `offset`; None at the text's start and where there is no tree."""
    region = snapshot.syntax_at(offset)
    if region is None or offset == region.start:
        return None
    byte = len(snapshot.text[region.start : offset].encode())
    node = region.tree.root_node.descendant_for_byte_range(byte - 1, byte - 1)
    return None if node is None else NodeBeforeCursor(node, byte)


def in_comment_or_string(snapshot: Snapshot, offset: int) -> bool:
    """Whether text typed at `offset` is part of a comment or string."""
    return within(snapshot, offset) is not None


def within(snapshot: Snapshot, offset: int) -> Within | None:
    """Of what that is no code text typed at `offset` is part."""
    return within_of(snapshot.language, lexical_state(snapshot, offset))


def lexical_state(snapshot: Snapshot, offset: int) -> LexicalState:
    """What stands open at `offset`."""
    line = snapshot.line_of(offset)
    reading = Reading(snapshot.language, snapshot.lexical_at(line))
    reading.read(snapshot.text, snapshot.line_start(line), offset)
    return reading.state


def _is_outer(snapshot: Snapshot, line: int) -> bool:
    """Whether a line begins at the margin with something that is no closing bracket; its ending is whitespace, too."""
    start = snapshot.line_start(line)
    first = snapshot.text[start : start + 1]
    return bool(first) and not first.isspace() and first not in ")]}"


def statement_start(snapshot: Snapshot, offset: int) -> int:
    """Start of the nearest outermost line above `offset`, or of the line where the search ends."""
    line = first = snapshot.line_of(offset)
    while first > 0 and line - first < _LOOK_LINES and not _is_outer(snapshot, first):
        first -= 1
    return snapshot.line_start(first)


def ends_by_bracket(spec: LanguageSpec) -> bool:
    """Whether brackets alone tell where a block ends."""
    return bool(lexis_of(spec.id).brackets) and spec.closes_block == ("}",)


def opens_block(snapshot: Snapshot, offset: int) -> bool:
    """Whether the code before `offset` on its line ends with what opens a block (`:` in Python, `{` elsewhere)."""
    spec = language_spec(snapshot.language)
    line = snapshot.line_of(offset)
    typed = snapshot.text[snapshot.line_start(line) : offset].rstrip()
    if not ends_open(typed, spec.opens_block):
        return False
    end = snapshot.line_start(line) + len(typed)
    state = lexical_state(snapshot, end)
    if within_of(snapshot.language, state) is not None:
        return False
    return spec.id != "python" or (not state.stack and _is_statement_colon(snapshot, end, typed))


_COMPOUND: Final = re.compile(
    r"\s*(async\s+)?(def|class|if|elif|else|for|while|try|except|finally|with|match|case)\b|.*[)\]]\s*(->[^:]*)?:$"
)


def _is_statement_colon(snapshot: Snapshot, end: int, typed: str) -> bool:
    """A colon also stands in slices, dictionaries, annotations and lambdas; those open nothing."""
    spot = spot_before(snapshot, end)
    node = spot.node if spot is not None else None
    if node is not None and node.type == ":" and node.parent is not None:
        kind = node.parent.type
        if kind in ("slice", "pair", "typed_parameter", "typed_default_parameter", "lambda", "dictionary", "type"):
            return False
        if kind not in ("ERROR", "assignment", "expression_statement"):
            return True
    return _COMPOUND.match(typed) is not None


def block_indent(snapshot: Snapshot, offset: int) -> int:
    """Columns below which a suggestion at `offset` has left its block; 0 at the outer level.

    On a line that opens a block this is one more than the line's own indentation; on a blank line the indentation already
    typed, or where nothing was typed that of the body the line stands in; else the line's own indentation.
    """
    line = snapshot.line_of(offset)
    typed = snapshot.text[snapshot.line_start(line) : offset]
    if typed.strip():
        own = indent_columns(typed)
        return own + 1 if opens_block(snapshot, offset) else own
    if typed:
        return indent_columns(typed)
    above, below = previous_filled_line(snapshot, line), next_filled_line(snapshot, line)
    if above is None:
        return 0
    if ends_open(code_above(snapshot, line), language_spec(snapshot.language).opens_block):
        return indent_columns(above) + 1
    # A body goes on below; where it ended, nothing typed at the margin is the outer level.
    return min(indent_columns(above), indent_columns(below)) if below is not None else 0


def loose_opener(snapshot: Snapshot, offset: int, said: str = "") -> str | None:
    """The line that opens the block at `offset`, where text of that block may stand as far left as that line; None where it may not.

    That is so behind a colon in prose, and in YAML and all else that the table of languages has no entry for: nobody knows there
    whether a block is indented before its first line is there.

    Args:
        said: the rest of the cursor's line, if that is what opens the block.
    """
    spec = language_spec(snapshot.language)
    if spec.id != PLAINTEXT:
        return None
    line = snapshot.line_of(offset)
    opener: str | None = snapshot.text[snapshot.line_start(line) : offset] + said
    if not opener:
        opener = previous_filled_line(snapshot, line)
    return opener if opener is not None and opens(opener, (":",), spec.comment_marks) else None


def stop_indent(snapshot: Snapshot, offset: int) -> int:
    """Columns below which generation ends: as :func:`block_indent`, but the line that closes the block may still come."""
    opener = loose_opener(snapshot, offset)
    if opener is not None:
        return indent_columns(opener)
    indent = block_indent(snapshot, offset)
    typed = snapshot.text[snapshot.line_start(snapshot.line_of(offset)) : offset]
    closes = typed.strip() and language_spec(snapshot.language).closes_block and opens_block(snapshot, offset)
    return indent - 1 if closes else indent


def suggestion_kind(snapshot: Snapshot, offset: int, block: bool | None = None) -> SuggestionKind:
    """How much to suggest at `offset`. `block` overrules the syntax where nothing but closers is right of the cursor."""
    line = snapshot.line_of(offset)
    rest = snapshot.text[offset : snapshot.line_end(line)]
    if rest.strip() and not CLOSERS_ONLY.match(rest):
        return SuggestionKind.MID_LINE
    if block is not None:
        return SuggestionKind.BLOCK if block and not rest.strip() else SuggestionKind.LINE
    if rest.strip():
        return SuggestionKind.LINE
    typed = snapshot.text[snapshot.line_start(line) : offset]
    if in_comment_or_string(snapshot, offset):
        return SuggestionKind.LINE
    if typed.strip():
        return SuggestionKind.BLOCK if _empty_block_opens(snapshot, offset, line) else SuggestionKind.LINE
    return SuggestionKind.BLOCK if block_indent(snapshot, offset) > 0 else SuggestionKind.LINE


def _empty_block_opens(snapshot: Snapshot, offset: int, line: int) -> bool:
    return opens_block(snapshot, offset) and _nothing_inside(snapshot, line)


def _nothing_inside(snapshot: Snapshot, line: int) -> bool:
    """Whether the code below goes on no deeper than `line`, nor with a list that may stand as far left."""
    opener, below = snapshot.line_text(line), next_filled_line(snapshot, line)
    if below is None or indent_columns(below) != indent_columns(opener):
        return below is None or indent_columns(below) < indent_columns(opener)
    is_loose = language_spec(snapshot.language).id == PLAINTEXT
    return not (is_loose and LIST_ITEM.match(below) and not LIST_ITEM.match(opener))


def opened_indent(snapshot: Snapshot, offset: int) -> int | None:
    """Columns below which generation ends once the rest of the cursor's line has opened a block; None where it must not.

    It must not in a comment or string, where anything stands right of the cursor, and above a body that is there already.
    """
    line = snapshot.line_of(offset)
    if snapshot.text[offset : snapshot.line_end(line)].strip() or in_comment_or_string(snapshot, offset):
        return None
    if not _nothing_inside(snapshot, line):
        return None
    own = indent_columns(snapshot.text[snapshot.line_start(line) : offset])
    return own if language_spec(snapshot.language).closes_block else own + 1
