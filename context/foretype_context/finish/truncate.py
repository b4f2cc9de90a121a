"""Where generated text leaves the block it was written in.

Brackets tell, up to the end of the closing line (`});`). Where words end a block the grammar does: what stands open at the end of a
text is closed before it is parsed, for a parser that has to guess where a function ends guesses differently with every token.
Indentation tells where it is all there is, of lines that begin as code.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from tree_sitter import Node, Parser

from foretype_context.finish.surroundings import in_text
from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import (
    LIST_ITEM,
    block_indent,
    ends_by_bracket,
    indent_columns,
    loose_opener,
    next_filled_line,
    opens_block,
    statement_start,
)
from foretype_context.syntax.document import Snapshot
from foretype_context.syntax.languages import LanguageSpec, language_spec, parser_for
from foretype_context.syntax.parsing import parse_in_steps
from foretype_context.syntax.plain_reading import PlainReading, is_plain
from foretype_context.syntax.reading import Reading, missing_closers

_STEPS: Final = 400
_HEAD_CHARS: Final = 8_000
_MAY_STAND_LEFT: Final = re.compile(r"\s*(?:$|[)\]}#<]|//|/?\*|(?:case|default)\b|\w[\w\s]*:(?!:)\s*(?:$|[/;{]))")
_CLOSING: Final = frozenset(")]}")
_CONTINUES: Final = re.compile(r"(?:\.|[-+*/%=&|?^]|\b(?:and|or))[ \t]*$")
_DECLARES: Final = re.compile(r"\s*(?!default\b)[$@-]{0,2}[a-zA-Z][\w-]*\s*:\s*[^;{}=]+;\s*")
_CONTINUED: Final = re.compile(
    r"[ \t]*(?:\??\.\w|[-+*/%=&|?^:]+[ \t]|(?:throws|extends|implements|permits|where|noexcept|override)\b)"
)


def _may_end(snapshot: Snapshot, offset: int, text: str) -> bool:
    """Whether it is worth parsing: a stream is looked at with every chunk, and most end no block."""
    spec, least = language_spec(snapshot.language), block_indent(snapshot, offset)
    words = [word for word in spec.closes_block if word.isalpha()]
    lines = [line for line in text.split("\n")[1:] if line.strip()]
    return bool(words) and any(indent_columns(line) < least or line.strip() in words for line in lines)


@lru_cache(maxsize=32)
def _parser(language: str, *, fragment: bool) -> Parser | None:
    return parser_for(language, fragment=fragment)


def block_end(snapshot: Snapshot, offset: int, text: str) -> int | None:
    """The offset in `text`, generated at `offset`, behind which the innermost block or definition around the cursor has ended by a word.

    None: it does not end within `text`, no block is open at the cursor, or the grammar cannot tell (none for the language, a
    statement that begins too far above, source that it does not take). Costs the enclosing outermost statement.
    """
    start = statement_start(snapshot, offset)
    if offset - start > _HEAD_CHARS or not _may_end(snapshot, offset, text):
        return None
    parser = _parser(snapshot.language, fragment=start > 0)
    if parser is None:
        return None
    spec = language_spec(snapshot.language)
    head = snapshot.text[start:offset]
    whole = head + text
    reading = Reading(snapshot.language, snapshot.lexical_at(snapshot.line_of(start)))
    reading.read(whole, 0, len(whole))
    source = f"{whole}{missing_closers(reading.state.stack, reading.state.waiting)}\n".encode()
    tree = parse_in_steps(parser, source, _STEPS)
    if tree is None:
        return None
    cursor, end = len(head.rstrip().encode()), len(whole.rstrip().encode())
    node: Node | None = tree.root_node.descendant_for_byte_range(max(cursor - 1, 0), cursor)
    while node is not None and not (
        node.type in spec.blocks | spec.scopes and node.start_byte < cursor < node.end_byte
    ):
        node = node.parent
    if node is not None and node.type in spec.blocks and node.parent is not None and opens_block(snapshot, offset):
        node = (
            node.parent if node.parent.type in spec.scopes else node
        )  # `ensure`: the definition's own end is its block's
    # An error inside means that the parser guessed, which it does worse than indentation.
    if node is None or node.has_error or node.end_byte >= end:
        return None
    return max(len(source[: node.end_byte].decode("utf-8", "ignore")) - len(head), 0)


def _is_outside(line: str, view: View, limit: int, reading: Reading | PlainReading) -> bool:
    """Whether a line stands further left than its block, and is nothing that may: a label, a directive, a closer, text."""
    margin, typed = line[: len(line) - len(line.lstrip())], view.typed
    return (
        indent_columns(line) < limit
        and typed.startswith(margin)
        and _MAY_STAND_LEFT.match(line) is None
        and not in_text(reading.state)
    )


def _begins_with(words: tuple[str, ...], line: str | None) -> bool:
    """Whether a line begins with one of some words or brackets, whatever comes then: `end.join`, `done <<EOF`, and not `end_time`."""
    stripped = (line or "").strip()
    return any(re.match(rf"{re.escape(word)}(?!\w)", stripped) for word in words)


def _line_below_opener(view: View, opener: int | None) -> str | None:
    """The next line of the file that says something, where it stands as the line that opens the block: then it is of that block."""
    line = next_filled_line(view.snapshot, view.line)
    return line if line is not None and indent_columns(line) == opener else None


def _without_empty_branches(lines: list[str], spec: LanguageSpec, opener: int | None) -> list[str]:
    """Without a last `else` that has no body yet."""
    kept = list(lines)
    while kept and (
        not kept[-1].strip() or (indent_columns(kept[-1]) == opener and _begins_with(spec.continues_block, kept[-1]))
    ):
        kept.pop()
    return kept


class _Floor(NamedTuple):
    """Columns below which a line has left its block; `items`: it has as well where it stands there and is none of a list."""

    least: int
    items: bool = False

    def is_left(self, line: str) -> bool:
        columns = indent_columns(line)
        return columns < self.least or (self.items and columns == self.least and LIST_ITEM.match(line) is None)


def _floor(least: int, lines: list[str], view: View, *, opened: bool) -> _Floor:
    """As asked for, or where nobody knows of an indentation that of the body's first line."""
    opener = loose_opener(view.snapshot, view.offset, lines[0] if opened else "")
    first = next((line for line in (lines[1:] if opened or view.typed.strip() else lines) if line.strip()), None)
    if opener is None or first is None or indent_columns(first) >= least:
        return _Floor(least)
    items = LIST_ITEM.match(first) is not None
    # No item is a body of another; and a line that is worth to be shown alone is shown with what is a block beyond doubt.
    if LIST_ITEM.match(opener) if items else opened:
        return _Floor(least)
    return _Floor(max(indent_columns(opener), indent_columns(first)), items)


def _goes_on(block: list[str], following: list[str]) -> bool:
    """Whether a block ends inside of an expression, told by its last line and by the beginning of the next.

    Behind declarations of a style sheet `.b` is the next rule, and no call of what the block gives.
    """
    if following and following[0].lstrip().startswith(".") and any(_DECLARES.fullmatch(line) for line in block[1:]):
        return False
    return bool(_CONTINUES.search(block[-1]) or (following and _CONTINUED.match(following[0])))


def _line_begun(view: View, *, by_bracket: bool) -> Reading | PlainReading:
    """At the start of the cursor's line: in the language, or where its brackets tell and nobody knows them of brackets alone."""
    if by_bracket and is_plain(view.snapshot.language):
        return PlainReading()
    return Reading(view.snapshot.language, view.snapshot.lexical_at(view.line))


def within_block(lines: list[str], view: View, spec: LanguageSpec, *, opened: bool) -> list[str]:
    """Ends with the line that closes the block, or before the first one that is outside of it.

    Args:
        opened: the first line opens the block; else it stands open at the cursor.
    """
    head = view.typed + lines[0] if opened else view.typed
    by_bracket = ends_by_bracket(spec) or ("}" in spec.closes_block and head.rstrip().endswith("{"))
    if opened:
        opener: int | None = indent_columns(head)
        least = opener + 1
    else:
        least = block_indent(view.snapshot, view.offset)
        opener = indent_columns(view.typed) if view.typed.strip() else None
    edge = _floor(least, lines, view, opened=opened)
    if edge == (0, False) and not by_bracket:
        return lines
    text, at = view.typed + "\n".join(lines), len(view.typed)
    reading = _line_begun(view, by_bracket=by_bracket)
    outer = reading.depth  # the opener's line may open more than one
    reading.read(text, 0, at)
    floor = reading.depth
    kept = list[str]()
    branch: int | None = None  # the first `else` whose end has not come
    below = _line_below_opener(view, opener)
    may_branch = not _begins_with(spec.continues_block, below)  # the file's own branch is the next one
    body = next((indent_columns(line) for line in lines[1:] if line.strip()), 0)
    limit = min(indent_columns(head), body) if view.typed.strip() else least
    for number, line in enumerate(lines):
        columns = indent_columns(line)
        if kept and not by_bracket and line.strip() and edge.is_left(line) and reading.depth <= floor:
            if columns == opener and _begins_with(spec.closes_block, line):
                kept.append(line)
                branch = None
                break
            if columns != opener or not may_branch or not _begins_with(spec.continues_block, line):
                break
            branch = len(kept) if branch is None else branch
        in_body = reading.depth <= floor or reading.in_braces
        if kept and by_bracket and in_body and _is_outside(line, view, limit, reading):
            break
        end = at + len(line) + 1
        reading.read(text, at, min(end, len(text)))
        at = end
        if opened and not kept:
            floor = reading.depth
        kept.append(line)
        if by_bracket and reading.depth < floor:
            following = lines[number + 1 : number + 2]
            is_inside = reading.depth > outer or (least and following and indent_columns(following[0]) >= least)
            closes_more = is_inside and following and following[0].lstrip()[:1] in _CLOSING
            if not closes_more and not _goes_on(kept, following):
                break
    else:
        if branch is not None and _begins_with(spec.closes_block, below):
            return _without_empty_branches(kept, spec, opener)
    return kept if branch is None else kept[:branch]
