"""What was written lately, in whatever file: who changes something in one place often changes the same elsewhere next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np

from foretype_client.adaptive.stream import Ids

_LEXEMES_MAX: Final = 3_000


class RecentlyWritten:
    """Lines in the order they were written, latest last; the oldest are forgotten.

    Attributes:
        ids: their lexemes, each line with its end. Never changed in place.
    """

    def __init__(self) -> None:
        self._lines: deque[list[int]] = deque()
        self._size = 0
        self.ids: Ids = np.zeros(0, np.int32)

    def add(self, lines: Iterable[list[int]]) -> None:
        before = len(self._lines)
        for line in lines:
            self._lines.append(line)
            self._size += len(line)
        if len(self._lines) == before:
            return
        while self._size > _LEXEMES_MAX:
            self._size -= len(self._lines.popleft())
        self.ids = np.array([id for line in self._lines for id in line], np.int32)
