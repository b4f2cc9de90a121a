"""How much of a text is still there: Levenshtein distance and shared four-grams. Pure.

Numpy is here anyway, and a distance is asked for a few times per suggestion, off the keystroke: no library of its own is worth its weight.
It is imported when a distance is asked for first: a language server starts without it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from foretype_context.text.strings import common_prefix, common_suffix

_LONGEST: Final = 2_000
"""Characters of what differs, beyond which only bounds are told: a distance this large is "rewritten" anyway."""


def levenshtein(a: str, b: str) -> int:
    """Edit distance in characters.

    Common beginning and end are removed first; where more than `_LONGEST` characters remain on either side the longer
    remainder's length is returned, an upper bound of the distance.
    """
    start = common_prefix(a, b)
    end = common_suffix(a, b, min(len(a), len(b)) - start)
    a, b = a[start : len(a) - end], b[start : len(b) - end]
    if not a or not b or max(len(a), len(b)) > _LONGEST:
        return max(len(a), len(b))
    import numpy as np

    left = np.array([ord(c) for c in a], dtype=np.int32)
    right = np.array([ord(c) for c in b], dtype=np.int32)
    steps = np.arange(len(right) + 1, dtype=np.int32)
    row = steps.copy()
    for index in range(len(left)):
        best = np.empty_like(row)
        best[0] = index + 1
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (right != left[index]))
        # Insertions run along the row: the least of all cheaper starts to the left, one more for each step.
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])


def fourgram_share(accepted: str, now: str) -> float:
    """Share of the character four-grams of `accepted` (the whole text, where it is shorter) that `now` still has, 0–1."""
    size = min(4, len(accepted))
    if size == 0:
        return 1.0
    before = Counter(accepted[at : at + size] for at in range(len(accepted) - size + 1))
    after = Counter(now[at : at + size] for at in range(len(now) - size + 1))
    return (before & after).total() / before.total()
