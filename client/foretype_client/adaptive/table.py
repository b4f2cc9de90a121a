"""The corpus table: what follows what in published code, mapped from a file that the package ships.

The format is that of :mod:`foretype_lab.corpus_table.build`. Rare words stand in it by how far back the same word stands, so that
`self.width =` is followed by `width` though no corpus ever had that name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from foretype_context.text.lexemes import FILE_START, REFERENCES_MAX, SYMBOLS_EXTRA, hash_contexts, is_word

from foretype_client.adaptive.lexemes import Vocabulary
from foretype_client.errors import TableError

_logger = logging.getLogger(__name__)

HISTORY_MAX: Final = 64
"""Lexemes before the cursor that are looked at, for words that come again."""

_ORDER_MAX: Final = 8
_MAGIC: Final = b"FTTABLE1"
_SPAN: Final = REFERENCES_MAX + 1


class ContextRow(NamedTuple):
    """One row of the corpus table: what a context of `order` symbols says. Lexeme ids and their shares; how often it was met and how varied it is (buckets)."""

    order: int
    ids: list[int]
    shares: list[float]
    total: int
    variety: int


class CorpusTable:
    """A table on disk, read only.

    Args:
        path: the file.

    Raises:
        TableError: missing, cut short, or of another format.
    """

    def __init__(self, path: Path) -> None:
        remedy = "restore it with `git checkout -- models` in a clone, or reinstall foretype"
        try:
            raw: npt.NDArray[np.uint8] = np.memmap(path, np.uint8, "r").view(np.ndarray)
        except (OSError, ValueError) as error:
            raise TableError(f"{path} cannot be read ({error}); {remedy}") from error
        try:
            if bytes(raw[:8]) != _MAGIC:
                raise ValueError("it is no corpus table")
            size = int.from_bytes(bytes(raw[8:12]), "little")
            header: dict[str, Any] = json.loads(bytes(raw[12 : 12 + size]))
            contexts, followers = int(header["contexts"]), int(header["followers"])
            at = (12 + size + 7) // 8 * 8
            if len(raw) != at + 6 * contexts + 3 * followers + int(header["lexeme_bytes"]):
                raise ValueError(f"it has {len(raw)} bytes, which is not what its header says")
            self.language: str = str(header["language"])
            self._order = int(header["order"])
            if not 1 <= self._order <= _ORDER_MAX:
                raise ValueError(f"its contexts have {self._order} lexemes")
            ends = np.cumsum([at, 4 * contexts, contexts, contexts, 2 * followers, followers]).tolist()
            self._hashes = raw[ends[0] : ends[1]].view("<u4")
            self._kinds = raw[ends[1] : ends[2]]
            sizes = raw[ends[2] : ends[3]].astype(np.int64)
            self._followers = raw[ends[3] : ends[4]].view("<u2")
            self._shares = raw[ends[4] : ends[5]]
            self._begins = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
            if int(self._begins[-1]) != followers:
                raise ValueError("its followers do not add up")
            self.lexemes: list[str] = bytes(raw[ends[5] :]).decode().split("\0")
            if self.lexemes[0] != "\n" or len(self.lexemes) != int(header["lexemes"]):
                raise ValueError("its lexemes do not add up")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TableError(f"{path} cannot be used: {error}; {remedy}") from error
        self._share_of: list[float] = ((np.arange(256) / 255) ** 2).tolist()

    def rows(self, history: Sequence[int], vocabulary: Vocabulary) -> list[ContextRow]:
        """What the table says after `history` (all of a short file, or its last `HISTORY_MAX` ids), shortest context first.

        `vocabulary` must begin with the table's own lexemes.
        """
        symbols, rare = self._symbols(history, vocabulary)
        hashes = hash_contexts(symbols, self._order)
        places = np.searchsorted(self._hashes, np.array(hashes, np.uint32)).tolist()
        found: list[ContextRow] = []
        for order, (hash, at) in enumerate(zip(hashes, places, strict=True), start=1):
            if at < len(self._hashes) and int(self._hashes[at]) == hash:
                row = self._row(order, at, rare, vocabulary)
                if row.ids:
                    found.append(row)
        return found

    def _symbols(self, history: Sequence[int], vocabulary: Vocabulary) -> tuple[list[int], list[str]]:
        """Symbols of lexemes, and the rare words among them, the last one last."""
        common = len(self.lexemes)
        symbols: list[int] = [] if len(history) >= HISTORY_MAX else [common + FILE_START]
        rare: list[str] = []
        for id in history:
            if id < common:
                symbols.append(id)
                continue
            lexeme = vocabulary.lexeme(id)
            spaced = lexeme.startswith(" ")
            if not is_word(lexeme):
                symbols.append(common + SYMBOLS_EXTRA - 3 + spaced)
                continue
            stem = lexeme[spaced:]
            recent = rare[: -REFERENCES_MAX - 1 : -1]
            symbols.append(common + _SPAN * spaced + (recent.index(stem) + 1 if stem in recent else 0))
            rare.append(stem)
        return symbols, rare

    def _row(self, order: int, at: int, rare: list[str], vocabulary: Vocabulary) -> ContextRow:
        begin, end = int(self._begins[at]), int(self._begins[at + 1])
        ids: list[int] = []
        shares: list[float] = []
        common = len(self.lexemes)
        pairs = zip(map(int, self._followers[begin:end]), map(int, self._shares[begin:end]), strict=True)
        for symbol, byte in pairs:
            id = symbol
            if symbol >= common:
                spaced, back = divmod(symbol - common, _SPAN)
                if spaced > 1 or not 0 < back <= len(rare):
                    continue  # a rare word that was not here before: there is nothing to write
                id = vocabulary.ids([" " * spaced + rare[-back]])[0]
            ids.append(id)
            shares.append(self._share_of[byte])
        kind = int(self._kinds[at])
        return ContextRow(order, ids, shares, kind & 7, kind >> 3 & 3)


def shipped_table() -> CorpusTable | None:
    """The table of an installed package that offers one (entry points `foretype.tables`), verified; None without."""
    for entry in entry_points(group="foretype.tables"):
        try:
            return CorpusTable(entry.load()())
        except Exception as error:  # noqa: BLE001 - suggestions go on without it, whatever is wrong with a package
            _logger.warning("no corpus table: %s", error)
    return None
