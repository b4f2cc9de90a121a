"""Lexemes: words, numbers and single signs, each with the space before it, so that joining them gives the text back.

What the adaptive model reads, and what its corpus table is counted over: both must split alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_LEXEME: Final = re.compile(r" ?[^\W\d]\w*| ?\d\w*| {2,}| ?[^\w\s]|\s")
_WORD: Final = re.compile(r" ?[^\W\d]\w*\Z")

REFERENCES_MAX: Final = 8
"""How many rare words back a rare word is recognised as the same again."""
SYMBOLS_EXTRA: Final = 2 * (REFERENCES_MAX + 1) + 3
"""Symbols beside the vocabulary of a table of `V` lexemes: `V + 9 * space + d` is a rare word, the same as the `d`-th rare
word before it (0: none of the last eight); then a rare number without and with a space, and the start of a file."""
FILE_START: Final = SYMBOLS_EXTRA - 1

_PRIME: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


def lex(line: str) -> list[str]:
    """Lexemes of one line. `"".join(lex(line)) == line` for any text without line ends."""
    return _LEXEME.findall(line)


def is_word(lexeme: str) -> bool:
    """Whether it is a name or a keyword, rather than a number, a sign or blanks."""
    return _WORD.match(lexeme) is not None


def hash_contexts(symbols: Sequence[int], longest: int) -> list[int]:
    """32-bit hashes of the last 1, 2, … `longest` symbols. The table's builder does the same over arrays."""
    found: list[int] = []
    state = 0
    for symbol in symbols[: -longest - 1 : -1]:
        state = ((state ^ (symbol + 1)) * _PRIME) & _MASK
        state ^= state >> 29
        found.append(state >> 32)
    return found
