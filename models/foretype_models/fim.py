"""Fill-in-the-middle cuts and layouts of the grammar ``foretype-1``, as pure functions of text and a random source.

A *hole* is a character span of a file; a *layout* lays the three parts out as a list of pieces. Each piece is encoded
on its own, exactly as serving encodes its segments, so that the model meets the same ids at the same joints.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

GRAMMAR = "foretype-1"
GROWING_LINES = 20
TAIL_LINES = 3
LONG_TAIL_SHARE = 0.25

LAYOUT_WEIGHTS = {"psm_line_last": 0.35, "psm_growing": 0.45, "spm": 0.1, "psm_classic": 0.1}
"""Most weight on what serving sends by default; the others so that an A/B of layouts compares like with like."""


@dataclass(frozen=True)
class Special:
    """A control token in a list of pieces; plain strings are ordinary text."""

    token: str


Piece = str | Special

PREFIX = Special("<|fim_prefix|>")
SUFFIX = Special("<|fim_suffix|>")
MIDDLE = Special("<|fim_middle|>")
TAIL = Special("<|fim_tail|>")
END = Special("<|end_of_middle|>")
FILE = Special("<|file_sep|>")
REPOSITORY = Special("<|repo_name|>")
END_OF_TEXT = Special("<|endoftext|>")


@dataclass(frozen=True)
class Hole:
    """A cut: ``text[start:end]`` is the middle. ``kind`` is ``line``, ``span``, ``block``, ``long`` or ``nothing``."""

    start: int
    end: int
    kind: str


def line_start(text: str, at: int) -> int:
    """Offset of the first character of the line that ``at`` is on."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Offset of the newline that ends the line ``at`` is on, or the text's end."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def indent_of(line: str) -> int:
    """Number of leading blanks."""
    return len(line) - len(line.lstrip(" \t"))


def _cursor(text: str, start: int, end: int, draw: random.Random) -> int:
    """A column on a line: after the indentation, at a word's edge, or at any character."""
    first = start + indent_of(text[start:end])
    way = draw.random()
    if way < 0.35 or end <= first:
        # After Enter most editors have indented already; some have not, and the model is to write it then.
        return first if draw.random() < 0.8 else draw.randint(start, first)
    if way < 0.6:
        edges = [first + match.start() for match in re.finditer(r"\b|(?<=\s)(?=\S)", text[first:end])]
        return draw.choice(edges) if edges else first
    return draw.randint(first, end)


def _block_end(text: str, start: int, limit: int) -> int:
    """End of the block that begins on the line of ``start``: lines at least as deep, at most ``limit`` of them."""
    first = line_start(text, start)
    end = line_end(text, start)
    depth = indent_of(text[first:end])
    for _ in range(limit - 1):
        if end >= len(text):
            break
        following = line_end(text, end + 1)
        line = text[end + 1 : following]
        if line.strip() and indent_of(line) < depth:
            break
        end = following
    while end > start and text[end - 1 : end] in ("\n", "\r", " ", "\t"):
        end -= 1
    return line_end(text, end)


def choose_hole(text: str, draw: random.Random) -> Hole | None:
    """Draws a hole of the lengths users see: rest of a line 60 %, block 30 %, longer 10 %.

    Returns:
        None where the text has no line to cut.
    """
    for _ in range(8):
        at = draw.randrange(len(text)) if text else 0
        start, end = line_start(text, at), line_end(text, at)
        if text[start:end].strip():
            break
    else:
        return None
    if end > start and text[end - 1] == "\r":
        end -= 1
    cursor = _cursor(text, start, end, draw)
    way = draw.random()
    if way < 0.03:
        # Nothing is missing: the model has to learn to say so.
        return Hole(end, end, "nothing")
    if way < 0.48:
        return Hole(cursor, end, "line")
    if way < 0.60:
        return Hole(cursor, draw.randint(cursor, end), "span")
    limit = 20 if way < 0.9 else 40
    if way < 0.9:
        stop = _block_end(text, cursor, limit)
        return Hole(cursor, max(cursor, stop - (text[stop - 1 : stop] == "\r")), "block")
    stop = end
    for _ in range(draw.randint(2, limit)):
        stop = line_end(text, min(stop + 1, len(text)))
    return Hole(cursor, stop, "long")


def _below(text: str, end: int, tail_lines: int) -> tuple[str, str]:
    """Tail (rest of the line right of the hole, and ``tail_lines`` lines after it) and the lines from the next one on."""
    stop = line_end(text, end)
    for _ in range(tail_lines):
        stop = line_end(text, min(stop + 1, len(text)))
    return text[end:stop].rstrip("\r"), text[stop + 1 :]


def psm_line_last(text: str, hole: Hole, draw: random.Random | None = None, *, above: int | None = None) -> list[Piece]:
    """Lines above, lines below, tail, then the typed part of the line and the middle.

    Args:
        text: the file, or the window of it that is in view.
        hole: the cut.
        draw: decides whether the tail has lines more, as it has in serving where text was typed above a frozen suffix;
            None for the rest of the line alone.
        above: offset where the lines above end, a line's start; the line of the cursor where None.
    """
    start = line_start(text, hole.start) if above is None else above
    lines = draw.randint(1, TAIL_LINES) if draw is not None and draw.random() < LONG_TAIL_SHARE else 0
    tail, below = _below(text, hole.end, lines)
    pieces: list[Piece] = [PREFIX, text[:start], SUFFIX, below]
    if tail:
        pieces += [TAIL, tail]
    return [*pieces, MIDDLE, text[start : hole.start], text[hole.start : hole.end], END]


def psm_growing(text: str, hole: Hole, draw: random.Random) -> list[Piece]:
    """Like :func:`psm_line_last`, but the lines above stop up to 20 lines earlier."""
    start = line_start(text, hole.start)
    for _ in range(draw.randint(1, GROWING_LINES)):
        if start == 0:
            break
        start = line_start(text, start - 1)
    return psm_line_last(text, hole, draw, above=start)


def psm_classic(text: str, hole: Hole) -> list[Piece]:
    """Prefix up to the cursor, suffix from the end of the middle, then the middle."""
    return [PREFIX, text[: hole.start], SUFFIX, text[hole.end :], MIDDLE, text[hole.start : hole.end], END]


def spm(text: str, hole: Hole) -> list[Piece]:
    """Suffix first, then prefix and middle behind the middle token."""
    return [PREFIX, SUFFIX, text[hole.end :], MIDDLE, text[: hole.start], text[hole.start : hole.end], END]


def lay_out(text: str, hole: Hole, layout: str, draw: random.Random) -> list[Piece]:
    """Lays a hole out in a named layout.

    Raises:
        KeyError: no such layout.
    """
    ways: dict[str, Callable[[], list[Piece]]] = {
        "psm_line_last": lambda: psm_line_last(text, hole, draw),
        "psm_growing": lambda: psm_growing(text, hole, draw),
        "psm_classic": lambda: psm_classic(text, hole),
        "spm": lambda: spm(text, hole),
    }
    return ways[layout]()


def choose_layout(draw: random.Random) -> str:
    """Draws a layout by :data:`LAYOUT_WEIGHTS`."""
    return draw.choices(list(LAYOUT_WEIGHTS), list(LAYOUT_WEIGHTS.values()))[0]
