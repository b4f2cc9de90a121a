"""Fill-in-the-middle cuts and layouts of the grammar ``foretype-3``, as pure functions of text and a random source.

A *hole* is a character span of a file; a *layout* lays the three parts out as a list of pieces. Each piece is encoded
on its own, exactly as serving encodes its segments, so that the model meets the same ids at the same joints.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from foretype_context.prompt.healing import healed_end

GRAMMAR = "foretype-3"
GROWING_LINES = 20
FRESH_LINES = 2
"""Lines above the cursor's that a fresh prompt in ``psm_growing`` leaves behind the middle token, as serving does."""
FRESH_SHARE = 0.4
"""Of the holes in ``psm_growing``: nothing was typed since the lines above were frozen."""
ABOVE_FRESH_SHARE = 0.1
"""… and: the cursor has gone up since, to the first lines of what stands there."""
TAIL_LINES = 3
LONG_TAIL_SHARE = 0.25

HEALED_CHARS = 64
"""Looked at before the cursor for what a prompt leaves out."""

LINE_WEIGHTS = {"indentation": 0.3, "column 0": 0.12, "word": 0.23, "character": 0.35}
"""Where on its line a cursor stands: behind the indentation, as an editor's Enter leaves it; before it; at a word's edge; anywhere."""

HOLE_WEIGHTS = {"line": 0.56, "bracket": 0.12, "span": 0.06, "nothing": 0.06, "block": 0.18, "long": 0.02}
"""What is missing; see :func:`choose_hole`."""


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


@dataclass(frozen=True)
class Hole:
    """A cut: ``text[start:end]`` is the middle. ``kind`` is a key of :data:`HOLE_WEIGHTS`."""

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


def _drawn(weights: dict[str, float], draw: random.Random) -> str:
    return draw.choices(list(weights), list(weights.values()))[0]


def _cursor(text: str, start: int, end: int, draw: random.Random) -> int:
    """A place on the line ``text[start:end]``, drawn by :data:`LINE_WEIGHTS`."""
    first = start + indent_of(text[start:end])
    way = _drawn(LINE_WEIGHTS, draw)
    if way == "column 0":
        return start
    if way == "indentation" or end <= first:
        return first
    if way == "word":
        edges = [first + match.start() for match in re.finditer(r"\b|(?<=\s)(?=\S)", text[first:end])]
        return draw.choice(edges) if edges else first
    return draw.randint(first, end)


def _closing(text: str, start: int, end: int, draw: random.Random) -> tuple[int, int] | None:
    """A cursor between two brackets of a line and the place of the closing one: an editor has written it already."""
    open_at: list[int] = []
    pairs: list[tuple[int, int]] = []
    for at in range(start, end):
        if text[at] in "([{":
            open_at.append(at + 1)
        elif text[at] in ")]}" and open_at:
            pairs.append((open_at.pop(), at))
    if not pairs:
        return None
    first, close = draw.choice(pairs)
    return (first if draw.random() < 0.5 else draw.randint(first, close)), close


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
    """Draws a hole by :data:`HOLE_WEIGHTS`.

    ``line`` is the rest of a line, ``bracket`` what is missing before a bracket that is closed already, ``span`` a part of a
    line, ``nothing`` an empty answer at a line's end, ``block`` up to where the indentation falls, ``long`` 3 to 40 lines.

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
    kind = _drawn(HOLE_WEIGHTS, draw)
    if kind == "nothing":
        return Hole(end, end, kind)
    if kind == "bracket" and (pair := _closing(text, start, end, draw)) is not None:
        return Hole(*pair, kind)
    if kind in ("line", "bracket"):
        return Hole(cursor, end, "line")
    if kind == "span":
        return Hole(cursor, draw.randint(cursor, end), kind)
    if kind == "block":
        stop = _block_end(text, cursor, 20)
        return Hole(cursor, max(cursor, stop - (text[stop - 1 : stop] == "\r")), kind)
    stop = end
    for _ in range(draw.randint(2, 40)):
        stop = line_end(text, min(stop + 1, len(text)))
    return Hole(cursor, stop, kind)


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


def _lines_behind(draw: random.Random) -> int:
    """How many lines above the cursor's stand behind the middle token."""
    way = draw.random()
    if way < FRESH_SHARE:
        return FRESH_LINES
    if way < FRESH_SHARE + ABOVE_FRESH_SHARE:
        return draw.randrange(FRESH_LINES)
    return draw.randint(FRESH_LINES, GROWING_LINES)


def psm_growing(text: str, hole: Hole, draw: random.Random) -> list[Piece]:
    """Like :func:`psm_line_last`, but the lines above stop up to 20 lines earlier, :data:`FRESH_LINES` of them at least in most."""
    start = line_start(text, hole.start)
    for _ in range(_lines_behind(draw)):
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


def lay_out(text: str, hole: Hole, layout: str, draw: random.Random) -> tuple[list[Piece], int]:
    """Lays a hole out in a named layout, its prompt healed as serving heals it.

    A prompt that ended at the cursor would be cut where the vocabulary never cuts; so it ends at a pre-token's edge, and the answer
    begins with the characters that are left out.

    Returns:
        The pieces, the answer and its end last; and how many of the answer's characters the user has typed already.

    Raises:
        KeyError: no such layout.
    """
    ways: dict[str, Callable[[], list[Piece]]] = {
        "psm_line_last": lambda: psm_line_last(text, hole, draw),
        "psm_growing": lambda: psm_growing(text, hole, draw),
        "psm_classic": lambda: psm_classic(text, hole),
        "spm": lambda: spm(text, hole),
    }
    pieces = ways[layout]()
    left, answer = pieces[-3], pieces[-2]
    if not isinstance(left, str) or not isinstance(answer, str):
        return pieces, 0  # another program lays its prompt out so, and heals nothing
    healed = healed_end(left[-HEALED_CHARS:])
    return [*pieces[:-3], left[: len(left) - len(healed)], healed + answer, END], len(healed)
