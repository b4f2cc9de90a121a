"""Lexemes: words, numbers and single signs, each with the space before it, so that joining them gives the text back."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LINE_END", "Vocabulary", "lex"]

LINE_END: Final = 0
"""Id of the end of a line. Indentation and blank lines are not part of the stream: they differ where meaning does not."""

_LEXEME: Final = re.compile(r" ?[^\W\d]\w*| ?\d\w*| {2,}| ?[^\w\s]|\s")


def lex(line: str) -> list[str]:
    """Lexemes of one line. `"".join(lex(line)) == line` for any text without line ends."""
    return _LEXEME.findall(line)


class Vocabulary:
    """Numbers for lexemes, given out as they come. Grows with what is read; :meth:`__len__` lets an owner start afresh."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {"\n": LINE_END}
        self._lexemes: list[str] = ["\n"]

    def __len__(self) -> int:
        return len(self._lexemes)

    def ids(self, lexemes: list[str]) -> list[int]:
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
