"""Numbers for lexemes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foretype_context.text.lexemes import is_word, lex

__all__ = ["CLASSES", "LINE_END", "Vocabulary", "lex", "shape_of"]

LINE_END: Final = 0
"""Id of the end of a line. Indentation and blank lines are not part of the stream: they differ where meaning does not."""

CLASSES: Final = 4
"""Numbers below are classes: a name, a number, and both with a space before; what is neither is a class of its own."""
_KEYWORDS_TEXT: Final = """
    and as assert async await break case catch class cls const continue def default del do elif else enum except export extends
    false finally fn for from func function global if impl import in instanceof interface is lambda let match mut new nil None
    nonlocal not null or package pass private protected pub public raise range return self static struct super switch this throw
    trait true True False try type typeof use var void while with yield
    """
_KEYWORDS: Final = frozenset(_KEYWORDS_TEXT.split())
"""Of all languages together: names that stand for themselves, and are never substituted by another."""


def shape_of(classes: Sequence[int]) -> int:
    """One number for a line's classes, never 0; lines that differ in names and numbers alone have the same."""
    return hash(tuple(classes)) or 1


class Vocabulary:
    """Numbers for lexemes, given out as they come. Grows with what is read; :meth:`__len__` lets an owner start afresh.

    Args:
        first: lexemes that have the numbers from 0 on; the first must be the line end.
    """

    def __init__(self, first: Sequence[str] = ("\n",)) -> None:
        self._lexemes: list[str] = list(first)
        self._ids: dict[str, int] = {lexeme: id for id, lexeme in enumerate(self._lexemes)}
        self._classes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._lexemes)

    def ids(self, lexemes: Sequence[str]) -> list[int]:
        """Numbers of `lexemes`, new ones included."""
        known, names = self._ids, self._lexemes
        found: list[int] = []
        for lexeme in lexemes:
            id = known.get(lexeme)
            if id is None:
                id = known[lexeme] = len(names)
                names.append(lexeme)
            found.append(id)
        return found

    def lexeme(self, id: int) -> str:
        return self._lexemes[id]

    def classes(self, ids: Sequence[int]) -> list[int]:
        """What each lexeme is: below `CLASSES` a name or a number, else itself."""
        known = self._classes
        return [known[id] if id in known else self._class(id) for id in ids]

    def _class(self, id: int) -> int:
        lexeme = self._lexemes[id]
        bare = lexeme.lstrip(" ")
        spaced = lexeme != bare
        if is_word(lexeme):
            found = id + CLASSES if bare in _KEYWORDS else int(spaced)
        else:
            found = 2 + spaced if bare[:1].isdigit() else id + CLASSES
        self._classes[id] = found
        return found
