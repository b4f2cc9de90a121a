"""When a text is worth a look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from foretype_client.adaptive.search import Next

_CHANCE_MIN: Final = 1e-3


class ShowRule(NamedTuple):
    """From when on a text is shown; decision 0007 says how its numbers were chosen, and what it gains.

    A text gains its length where it is right, and costs a look where it is not: `chance * (characters + cost)` is compared. And
    where the next key decides between this text and others, waiting for it costs one key where the text is right, and saves a look
    where it is not: the chance must stand against what the next key would rule out.

    Attributes:
        chance_min: what a text of no length would need.
        cost_chars: characters that a wrong text costs.
        floor: no text is shown below, however long.
        patience: how many times its chance a text may be ruled out by the next key.
    """

    chance_min: float = 0.36
    cost_chars: float = 40.0
    floor: float = 0.15
    patience: float = 0.6

    def least(self, agreed: float) -> float:
        """Chance that a text of any length needs; `agreed` is the chance that the next key is its first character."""
        return max(self.floor, (1 - agreed) / self.patience)

    def allows(self, text: str, chance: float, agreed: float) -> bool:
        """Whether to show `text`."""
        return chance >= max(self.least(agreed), self.chance_min * self.cost_chars / (len(text) + self.cost_chars))

    def scaled(self, scale: float) -> ShowRule:
        """The rule for chances that are multiplied by `scale` first."""
        if scale == 1:
            return self
        return ShowRule(self.chance_min / scale, self.cost_chars, self.floor / scale, self.patience * scale)


SHOW_RULE: Final = ShowRule()


def openings(following: Next, spelled: Callable[[int], str], half: str) -> dict[str, float]:
    """Chances of the next key, by character; a line end is one, and so is what comes after a word that is complete.

    Args:
        half: the half-typed word; every first candidate begins with it.
    """
    found: dict[str, float] = {}
    _open(following, spelled, [], len(half), 1.0, found)
    return found


def _open(
    following: Next, spelled: Callable[[int], str], path: list[int], skip: int, share: float, found: dict[str, float]
) -> None:
    answer = following(path)
    if answer is None:
        return
    ids, chance = answer
    for at in np.flatnonzero(chance * share >= _CHANCE_MIN).tolist():
        id, own = int(ids[at]), float(chance[at]) * share
        character = spelled(id)[skip : skip + 1]
        if character:
            found[character] = found.get(character, 0.0) + own
        elif not path:
            _open(following, spelled, [id], 0, own, found)
