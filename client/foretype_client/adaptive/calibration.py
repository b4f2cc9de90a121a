"""How sure the model may be of itself in front of this user: what it showed, held against what was written there.

One number, added to the log-odds of every text: a step of Newton's method from nought towards the most probable offset, with a normal
prior around nought. It moves a little where little was shown, and forgets slowly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["Calibration"]

_PRIOR: Final = 30.0
"""As much as some 150 texts of a chance of 0.3 weigh."""
_KEPT: Final = 0.99
"""Of what is known, for each further text."""
_OFFSET_MAX: Final = 1.5
_OPEN_MAX: Final = 50


class _Open(NamedTuple):
    """A text whose line is not finished: what stood there, and the whole line if the text is right."""

    before: str
    line: str
    chance: float


class Calibration:
    """The offset, and the texts it is learnt from.

    Attributes:
        offset: nats that are added to the log-odds of a chance.
    """

    def __init__(self) -> None:
        self.offset = 0.0
        self._right = self._expected = self._variance = 0.0
        self._open: list[_Open] = []

    def adjusted(self, chance: float) -> float:
        """The chance as this user's lines have it."""
        return _moved(chance, self.offset)

    def raw(self, chance: float) -> float:
        """The chance that :meth:`adjusted` makes this of."""
        return _moved(chance, -self.offset)

    def shown(self, before: str, text: str, chance: float) -> None:
        """`text`, of that chance before any offset, was offered behind `before`, of a line without its indentation.

        While a text is typed as it was offered, it is the same.
        """
        line = before + text
        if len(self._open) < _OPEN_MAX and all(one.line != line for one in self._open):
            self._open.append(_Open(before, line, chance))

    def left(self, lines: Iterable[str]) -> None:
        """These lines were written, and the cursor has left them: what began one of them was right or wrong."""
        for line in lines:
            waiting, self._open = self._open, []
            for one in waiting:
                if line.startswith(one.before):
                    self._learn(one.chance, right=line == one.line)
                else:
                    self._open.append(one)

    def forget_open(self) -> None:
        """Texts whose lines are not finished yet are not learnt from."""
        self._open.clear()

    def _learn(self, chance: float, *, right: bool) -> None:
        self._right = self._right * _KEPT + right
        self._expected = self._expected * _KEPT + chance
        self._variance = self._variance * _KEPT + chance * (1 - chance)
        offset = (self._right - self._expected) / (self._variance + _PRIOR)
        self.offset = min(max(offset, -_OFFSET_MAX), _OFFSET_MAX)


def _moved(chance: float, nats: float) -> float:
    if not 0 < chance < 1:
        return chance
    return 1 / (1 + (1 - chance) / chance * math.exp(-nats))
