"""Where generated text leaves the block it was written in, told by the grammar.

Generated text stops anywhere, so what stands open at its end is closed before it is parsed; a parser that has to guess where a
function ends guesses differently with every token.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tree_sitter import Node, Parser

from foretype_context.syntax.blocks import block_indent, indent_columns
from foretype_context.syntax.brackets import closes_more, missing_closers, statement_start
from foretype_context.syntax.languages import language_spec, parser_for
from foretype_context.syntax.parsing import parse_in_steps
from foretype_context.text.document import Snapshot

__all__ = ["block_end"]

_STEPS: Final = 400
_HEAD_CHARS: Final = 8_000


def _may_end(snapshot: Snapshot, offset: int, text: str) -> bool:
    """Whether it is worth parsing: a stream is looked at with every chunk, and most end no block."""
    spec, least = language_spec(snapshot.language), block_indent(snapshot, offset)
    words = [word for word in spec.closes_block if word.isalpha()]
    lines = [line for line in text.split("\n")[1:] if line.strip()]
    return any(indent_columns(line) < least or line.strip() in words for line in lines) or (
        bool(spec.closes_block) and closes_more(text, spec.line_comment)
    )


@lru_cache(maxsize=32)
def _parser(language: str, *, fragment: bool) -> Parser | None:
    return parser_for(language, fragment=fragment)


def block_end(snapshot: Snapshot, offset: int, text: str) -> int | None:
    """The offset in `text`, generated at `offset`, behind which the innermost block or definition around the cursor has ended.

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
    source = f"{whole}{missing_closers(whole, spec.line_comment)}\n".encode()
    tree = parse_in_steps(parser, source, _STEPS)
    if tree is None:
        return None
    cursor, end = len(head.rstrip().encode()), len(whole.rstrip().encode())
    node: Node | None = tree.root_node.descendant_for_byte_range(max(cursor - 1, 0), cursor)
    while node is not None and not (
        node.type in spec.blocks | spec.scopes and node.start_byte < cursor < node.end_byte
    ):
        node = node.parent
    # An error inside means that the parser guessed, which it does worse than indentation.
    if node is None or node.has_error or node.end_byte >= end:
        return None
    return max(len(source[: node.end_byte].decode("utf-8", "ignore")) - len(head), 0)
