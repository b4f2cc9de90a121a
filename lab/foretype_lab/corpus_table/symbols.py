"""From a text store to symbols: common lexemes by number, rare words by how far back the same word stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from foretype_context.text.lexemes import FILE_START, REFERENCES_MAX, SYMBOLS_EXTRA, is_word, lex

from foretype_lab.corpus.store import Store

_BLANKS: Final = " \t\r\f\v"
_BOUNDARY: Final = -1

Ids = npt.NDArray[np.int32]
Symbols = npt.NDArray[np.int32]


class Corpus(NamedTuple):
    """Lexeme numbers by repository, files parted by -1; `lexemes[0]` is the end of a line."""

    lexemes: list[str]
    repositories: list[Ids]


def read_corpus(store: Store, *, bytes_per_repository: int, only: str | None = None) -> Corpus:
    """Read files of a store, up to so many bytes of each repository, in an order that does not follow their names.

    Args:
        only: ending of the paths that are read, such as ".py"; None for all.
    """
    numbers: dict[str, int] = {"\n": 0}
    repositories: list[Ids] = []
    for first, last in store.repository_range.values():
        ids: list[int] = []
        room = bytes_per_repository
        for file in sorted(range(first, last), key=lambda n: (n * 2654435761) % (1 << 32)):
            size = store.index[file][3]
            if size > room or (only is not None and not store.index[file][1].endswith(only)):
                continue
            room -= size
            for line in _lines(store.text(file)):
                ids += [numbers.setdefault(lexeme, len(numbers)) for lexeme in lex(line)]
                ids.append(0)
            ids.append(_BOUNDARY)
        repositories.append(np.array(ids, np.int32))
    return Corpus(list(numbers), repositories)


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if stripped := line.strip(_BLANKS):
            yield stripped


def vocabulary_of(corpus: Corpus, size: int) -> list[int]:
    """Numbers of the `size` lexemes that the most repositories use (of equals, the more frequent), the line end first."""
    spread = np.zeros(len(corpus.lexemes), np.int64)
    count = np.zeros(len(corpus.lexemes), np.int64)
    for ids in corpus.repositories:
        times = np.bincount(ids[ids >= 0], minlength=len(spread))
        spread += times > 0
        count += times
    order = np.lexsort((np.arange(len(spread)), -count, -spread))
    return [0, *(int(i) for i in order[:size] if i)][:size]


def symbols_of(corpus: Corpus, vocabulary: list[int]) -> Iterator[Symbols]:
    """Each repository as symbols of a table with this vocabulary; numbering as :data:`SYMBOLS_EXTRA` says."""
    size = len(vocabulary)
    code = np.full(len(corpus.lexemes), -1, np.int32)
    code[vocabulary] = np.arange(size, dtype=np.int32)
    word = np.array([is_word(lexeme) for lexeme in corpus.lexemes])
    spaced = np.array([lexeme.startswith(" ") for lexeme in corpus.lexemes])
    stems: dict[str, int] = {}
    stem = np.array([stems.setdefault(lexeme.lstrip(" "), len(stems)) for lexeme in corpus.lexemes])
    for ids in corpus.repositories:
        inside = ids >= 0
        safe = np.where(inside, ids, 0)
        symbols = np.where(inside, code[safe], size + FILE_START).astype(np.int32)
        unknown = inside & (symbols < 0)
        rare = np.flatnonzero(unknown & word[safe])
        names = stem[safe[rare]]
        file = np.cumsum(~inside)[rare]
        back = np.zeros(len(rare), np.int32)
        for d in range(REFERENCES_MAX, 0, -1):
            same = (names[d:] == names[:-d]) & (file[d:] == file[:-d])
            back[d:][same] = d
        symbols[rare] = size + (REFERENCES_MAX + 1) * spaced[safe[rare]] + back
        other = np.flatnonzero(unknown & ~word[safe])
        symbols[other] = size + SYMBOLS_EXTRA - 3 + spaced[safe[other]]
        yield symbols
