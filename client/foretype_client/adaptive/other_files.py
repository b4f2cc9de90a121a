"""The files beside the one that is typed, as one searchable text: a file more costs a merge, not a sort of everything.

Sorting 300,000 lexemes takes 30 ms, which every change to another file cost the next key. Each file is therefore sorted once, and
what changes is put behind a base that is left alone until enough has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.evidence import Occurrences
from foretype_client.adaptive.stream import SHAPE, Ids, LexemeStream

_TAIL_FILES: Final = 8
"""Files behind the base before they become part of it."""
_GAP: Final = np.zeros(1, np.int64)


class OtherFiles(NamedTuple):
    """Other files, latest last, and what can be searched of them.

    Attributes:
        shapes: of the written lines of all of them, one after another, a 0 behind each file.
        begins: where in `shapes` each file begins.
    """

    streams: Sequence[LexemeStream]
    occurrences: Occurrences
    shapes: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]


class OtherFileOccurrences:
    """Occurrences of lexemes in other files, latest file last.

    Args:
        lexemes_max: looked into, latest files first; a quarter more for a while, until the base is made anew.
    """

    def __init__(self, lexemes_max: int) -> None:
        self._lexemes_max = lexemes_max
        self._runs: dict[int, tuple[Ids, Occurrences]] = {}
        self._base_files: list[Ids] = []
        self._base = Occurrences.merged([])
        self._files: list[Ids] = []
        self._found = _beside([], self._base)

    def of(self, streams: Sequence[LexemeStream]) -> OtherFiles:
        """What is in them; arrays are told apart by identity, since none is ever changed in place."""
        files = [stream.ids for stream in streams]
        if not _same(files, self._files):
            self._found, self._files = _beside(streams, self._merged(files)), files
        return self._found

    def _merged(self, files: Sequence[Ids]) -> Occurrences:
        tail = files[len(self._base_files) :]
        lexemes = len(self._base.ids) + sum(map(len, tail))
        if not _same(files[: len(self._base_files)], self._base_files) or lexemes > self._lexemes_max * 5 // 4:
            found = Occurrences.merged([self._run(ids) for ids in self._latest(files)])
        else:
            found = self._base.with_tail(Occurrences.merged(list(map(self._run, tail))))
            if len(tail) <= _TAIL_FILES:
                return found
        self._base, self._base_files = found, list(files)
        current = set(map(id, files))
        self._runs = {key: run for key, run in self._runs.items() if key in current}
        return found

    def _latest(self, files: Sequence[Ids]) -> list[Ids]:
        kept: list[Ids] = []
        room = self._lexemes_max
        for ids in reversed(files):
            if len(ids) > room:
                break
            kept.append(ids)
            room -= len(ids)
        return kept[::-1]

    def _run(self, ids: Ids) -> Occurrences:
        known = self._runs.get(id(ids))
        if known is None:
            known = self._runs[id(ids)] = (ids, Occurrences(ids))  # holds `ids`, so that its identity stays its own
        return known[1]


def _beside(streams: Sequence[LexemeStream], occurrences: Occurrences) -> OtherFiles:
    parts = [part for stream in streams for part in (stream.looks[:, SHAPE], _GAP)]
    shapes = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    begins = np.cumsum([0, *(len(stream.looks) + 1 for stream in streams)], dtype=np.int64)[:-1]
    return OtherFiles(streams, occurrences, shapes, begins)


def _same(left: Sequence[Ids], right: Sequence[Ids]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
