"""Numbers for lexemes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foretype_context.lexemes import lex

__all__ = ["LINE_END", "Vocabulary", "lex"]

LINE_END: Final = 0
"""Id of the end of a line. Indentation and blank lines are not part of the stream: they differ where meaning does not."""


class Vocabulary:
    """Numbers for lexemes, given out as they come. Grows with what is read; :meth:`__len__` lets an owner start afresh.

    Args:
        first: lexemes that have the numbers from 0 on; the first must be the line end.
    """

    def __init__(self, first: Sequence[str] = ("\n",)) -> None:
        self._lexemes: list[str] = list(first)
        self._ids: dict[str, int] = {lexeme: id for id, lexeme in enumerate(self._lexemes)}

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
