"""Parsing that ends: a parser is given up after so many of its own steps, and leaves nothing behind in memory.

tree-sitter's Python binding (0.26.1) never frees what the read callback returned (py-tree-sitter#464, #483): in a file of 10,000
lines that was 400 KB with every key. The references it forgets are given back here, counted one by one, so that a
binding without the fault loses nothing.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Final

from tree_sitter import Parser, Tree

__all__ = ["parse_in_steps"]

_READ_BYTES: Final = 4096
_EDIT_READ_BYTES: Final = 512
"""An incremental parse looks at about a hundred places, a few bytes each."""


def parse_in_steps(
    parser: Parser, source: bytes, steps: int, base: Tree | None = None, *, late: Callable[[], bool] | None = None
) -> Tree | None:
    """The tree of `source`, or None where the parser needs more than `steps` progress calls and reads together.

    Steps and not time, so that the same text gives the same tree on every machine. Reads count, since a grammar's own scanner may
    run to the end of the text again and again between two progress calls (Ruby's does after `%w(`: seconds).

    Args:
        base: an older tree, edited to the same text; what did not change is taken from it.
        late: asked at every progress call: whether to give up, whatever the steps.
    """
    size, left = _READ_BYTES if base is None else _EDIT_READ_BYTES, steps
    view, chunks = memoryview(source), list[bytes]()

    def read(byte: int, _: object) -> bytes:
        nonlocal left
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
        return tree if left >= 0 else None
    except ValueError:
        # The progress callback stopped it; without a reset the next parse would go on with this text.
        parser.reset()
        return None
    finally:
        _release(chunks)


def _release(chunks: list[bytes]) -> None:
    """Gives back the reference to each chunk that nobody holds any more."""
    sample = bytes(bytearray(2))
    own = sys.getrefcount(sample)
    while chunks:
        chunk = chunks.pop()
        # Bytes of length 0 and 1 are shared by the whole process.
        if len(chunk) > 1 and sys.getrefcount(chunk) == own + 1:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(chunk))
