"""Words of source text: identifiers, and the sub-words that camel case and underscores make of them.

Sub-words beat whole identifiers as terms for BM25 (recall@5 0.821 against 0.731 on held-out functions), because the text
around a cursor names a thing as seldom exactly as its definition does.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

MAX_IDENTIFIER_CHARS: Final = 80
"""Longer runs of letters are data (base64, hashes)."""

_IDENTIFIER: Final = re.compile(r"[^\W\d]\w+")
_DIGITS: Final = "0123456789"
_SPACES: Final = bytes(at if chr(at).isalnum() or chr(at) == "_" else ord(" ") for at in range(128)).ljust(256)
"""Makes spaces of all ASCII that no identifier holds."""

_SMALL: Final = bytes(at if chr(at).islower() else ord(" ") for at in range(128)).ljust(256)

_SUBWORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STOP: Final = _words(
    "def class return self import from if else elif for while in is not and or the of to an this new function const let var "
    "none null true false public private static void int str string async await try except catch throw raise with as "
    "pass end then do func fn pub use mut impl struct type package final override"
)
_IMPORT_LINE: Final = re.compile(
    r"\n[^\S\n]*+(?=[#cefliruv])(?:from\b|import\b|use\b|using\b|require\b|require_once\b|require_relative\b|#[^\S\n]*include\b"
    r"|include\b|export\b.*\bfrom\b|(?:const|let|var)\b.*\brequire\()"
)
"""Looks for a line feed first, which is found fast: a file has few such lines among hundreds."""

_IMPORT_WORDS: Final = _words(
    "from import as use using require require_once require_relative include export const let var type static self super crate "
    "pub"
)
_HEAD_LINES: Final = 800
_IMPORTED_MAX: Final = 2_000


def _runs(text: str) -> list[str]:
    """What stands between spaces and marks; of text that is not ASCII the identifiers, which takes four times as long."""
    if text.isascii():
        return text.encode().translate(_SPACES).decode().split()
    return _IDENTIFIER.findall(text)


def identifiers(text: str) -> list[str]:
    """Identifiers of two characters and more, in the order of the text, repeated ones included."""
    # A number's digits are no part of a name behind them: digits come before letters and the underscore.
    found = [run if run > ":" else run.lstrip(_DIGITS) for run in _runs(text)]
    return [run for run in found if 1 < len(run) <= MAX_IDENTIFIER_CHARS]


def count_identifiers(text: str) -> Counter[str]:
    """How often each of :func:`identifiers` occurs."""
    counted = Counter(_runs(text))
    for run in [run for run in counted if run < ":" or not 1 < len(run) <= MAX_IDENTIFIER_CHARS]:
        times, rest = counted.pop(run), run.lstrip(_DIGITS)
        if 1 < len(rest) <= MAX_IDENTIFIER_CHARS:
            counted[rest] += times
    return counted


@lru_cache(maxsize=65_536)
def subwords(identifier: str) -> tuple[str, ...]:
    """Lower-case parts of an identifier, without keywords and single letters: `parseHTTPHeader_v2` is parse, http, header."""
    words = (word.lower() for word in _SUBWORD.findall(identifier))
    return tuple(word for word in words if len(word) > 1 and word not in _STOP)


def count_terms(found: Iterable[str]) -> Counter[str]:
    """How often each sub-word occurs in these identifiers."""
    plain: list[str] = []
    others: list[str] = []
    for identifier in found:
        (plain if identifier.islower() and identifier.isascii() else others).append(identifier)
    # Small letters between digits and underscores are what :func:`subwords` finds there.
    counted = Counter(" ".join(plain).encode().translate(_SMALL).decode().split())
    for word in [word for word in counted if len(word) < 2 or word in _STOP]:
        del counted[word]
    for identifier, times in Counter(others).items():
        for word in subwords(identifier):
            counted[word] += times
    return counted


def symbol_term(name: str) -> str:
    """The term under which a definition is found by its exact name; no sub-word looks like it."""
    return "=" + name


def import_names(lines: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """What the import lines of a file name.

    Returns:
        All identifiers on them (modules and names alike), and their lower-case forms for comparison with path parts.
    """
    # The head of a file is the same from key to key.
    return _import_names("\n".join(lines[:_HEAD_LINES]))


@lru_cache(maxsize=64)
def _import_names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    found = dict.fromkeys(identifiers("\n".join(_import_lines("\n" + text))))
    names = frozenset(itertools.islice(found, _IMPORTED_MAX)) - _IMPORT_WORDS
    return names, frozenset(name.lower() for name in names)


def _import_lines(text: str) -> Iterator[str]:
    """Import lines, and those up to the end of a bracket that one of them opens. `text` begins with a line feed."""
    end = 0
    while (found := _IMPORT_LINE.search(text, end)) is not None:
        end, open_bracket = found.start(), True
        while open_bracket and end < len(text):
            start = end + 1
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            line = text[start:end]
            yield line
            opened, closed = line.count("(") + line.count("{"), line.count(")") + line.count("}")
            open_bracket = opened > closed or (start > found.start() + 1 and closed == 0)
