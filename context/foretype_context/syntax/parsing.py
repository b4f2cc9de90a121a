"""Parsing that ends: a parser is given up after so many of its own steps, and leaves nothing behind in memory.

tree-sitter's Python binding (0.26.1) never frees what the read callback returned (py-tree-sitter#464, #483): in a file of 10,000
lines that was 400 KB with every key. The references it forgets are given back here, counted one by one, so that a
binding without the fault loses nothing.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Final

from tree_sitter import Node, Parser, Tree

from foretype_context.syntax.languages import parser_for

PARSE_STEPS: Final = 3_500
"""Progress calls and reads of a file's parse before it is given up: 30 to 150 ms. Ordinary files of 50 KB take a tenth of it."""

PARSE_SECONDS: Final = 1.0
"""Of processor time, thirty times what the slowest ordinary file takes: the same text always gets the same verdict, except in an attack."""

_READ_BYTES: Final = 4096
_EDIT_READ_BYTES: Final = 512
"""An incremental parse looks at about a hundred places, a few bytes each."""


def parse_bounded(
    text: bytes,
    language: str,
    *,
    steps: int = PARSE_STEPS,
    seconds: float = PARSE_SECONDS,
    clock: Callable[[], float] = time.thread_time,
) -> Tree | None:
    """A tree of a whole file, or None where there is no grammar or the parser needs too long (adversarial or broken source).

    Args:
        steps: progress calls and reads; equal for equal text, so that an index does not depend on how busy the machine is.
        seconds: of processor time, for source that makes single steps slow.
    """
    parser = parser_for(language)
    if parser is None:
        return None
    until = clock() + seconds
    return parse_in_steps(parser, text, steps, late=lambda: clock() > until)


def parse_in_steps(
    parser: Parser, source: bytes, steps: int, base: Tree | None = None, *, late: Callable[[], bool] | None = None
) -> Tree | None:
    """The tree of `source`, or None where the parser needs more than `steps` progress calls and reads together.

    Steps and not time, so that the same text gives the same tree on every machine. Reads count, since a grammar's own scanner may
    run to the end of the text again and again between two progress calls (Ruby's does after `%w(`: seconds).

    The text of the tree's nodes is told by :func:`node_text`; `Node.text` reads through the
    parser's callback, slower, and forgets to free what it read.

    Args:
        base: an older tree, edited to the same text; what did not change is taken from it.
        late: asked at every progress call: whether to give up, whatever the steps.
    """
    size, left = _READ_BYTES if base is None else _EDIT_READ_BYTES, steps
    view, chunks = memoryview(source), list[bytes]()

    done = False

    def read(byte: int, _: object) -> bytes:
        nonlocal left
        if done:
            # `Node.text` asks here, and where it got nothing asks again, for ever: what the steps leave is no limit any more.
            return bytes(view[byte : byte + size])
        left -= 1
        if left < 0:
            return b""  # ends the text here; the next progress call ends the parse
        # A copy, never `source` itself: each chunk's references are counted below.
        chunk = bytes(view[byte : byte + size])
        chunks.append(chunk)
        return chunk

    def overdue(_: int, __: bool) -> bool:
        nonlocal left
        left -= 1
        if late is not None and late():
            left = -1
        return left < 0

    try:
        if base is None:
            tree = parser.parse(read, encoding="utf8", progress_callback=overdue)
        else:
            tree = parser.parse(read, base, "utf8", overdue)
        return tree if left >= 0 else None  # what the parser took for the end was none
    except ValueError:
        # The progress callback stopped it; without a reset the next parse would go on with this text.
        parser.reset()
        return None
    finally:
        done = True
        _release(chunks)


def node_text(node: Node | None, source: bytes) -> str:
    """The text of a node in the source that its tree was made of; empty for None."""
    return "" if node is None else source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _release(chunks: list[bytes]) -> None:
    """Gives back the reference to each chunk that nobody holds any more."""
    sample = bytes(bytearray(2))
    own = sys.getrefcount(sample)
    while chunks:
        chunk = chunks.pop()
        # Bytes of length 0 and 1 are shared by the whole process.
        if len(chunk) > 1 and sys.getrefcount(chunk) == own + 1:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(chunk))
