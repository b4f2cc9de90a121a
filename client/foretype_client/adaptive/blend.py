"""Finding contexts and blending what followed them.

All occurrences of the last lexeme are found in the arrays, each with the length of context that agrees before it. Levels of
context are then blended from short to long, and within a length from far to near, each by Witten and Bell's rule: a level
with `n` occurrences of `u` different lexemes counts with `n / (n + u)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from foretype_client.adaptive.stream import Ids

__all__ = ["CONTEXT_MAX", "Corpus", "Evidence", "blend", "gather"]

CONTEXT_MAX: Final = 8
_OCCURRENCES_MAX: Final = 192
_UNSEEN: Final = 1e-6


class Corpus(NamedTuple):
    """Text to look in: `hole` is a half-open range that must not be used, the line that is being written."""

    ids: Ids
    hole: tuple[int, int] = (0, 0)


class Evidence(NamedTuple):
    """What followed: next lexeme per occurrence, and how much context agreed (1 to `CONTEXT_MAX`)."""

    following: list[int]
    lengths: list[int]


def gather(corpus: Corpus, history: Sequence[int]) -> Evidence:
    """Occurrences of the end of `history`, the longest contexts first kept."""
    ids, (low, high) = corpus
    if not history or len(ids) < 2:
        return Evidence([], [])
    at = np.flatnonzero(ids[:-1] == history[-1])
    if high > low:
        at = at[(at < low - 1) | (at >= high)]
    lengths = np.ones(len(at), np.int8)
    alive = np.arange(len(at))
    for k in range(1, min(CONTEXT_MAX, len(history))):
        back = at[alive] - k
        alive = alive[(back >= 0) & (ids[back] == history[-1 - k])]
        if not len(alive):
            break
        lengths[alive] = k + 1
    if len(at) > _OCCURRENCES_MAX:
        best = np.argsort(-lengths, kind="stable")[:_OCCURRENCES_MAX]
        at, lengths = at[best], lengths[best]
    return Evidence(ids[at + 1].tolist(), lengths.tolist())


def blend(near_last: Sequence[Evidence], allowed: set[int] | None = None) -> dict[int, float]:
    """Probability of each candidate for the next lexeme.

    Args:
        near_last: evidence by corpus, the nearest (this file) last.
        allowed: only these lexemes (those that continue a half-typed word); the rest is ruled out before counting.
    """
    levels: list[dict[int, int]] = []
    longest = max((length for evidence in near_last for length in evidence.lengths), default=0)
    for k in range(1, longest + 1):
        for evidence in near_last:
            counts: dict[int, int] = {}
            for id, length in zip(evidence.following, evidence.lengths, strict=True):
                if length >= k and (allowed is None or id in allowed):
                    counts[id] = counts.get(id, 0) + 1
            if counts:
                levels.append(counts)
    chances: dict[int, float] = {}
    for counts in levels:
        n, u = sum(counts.values()), len(counts)
        keep = u / (n + u)
        for id in chances:
            chances[id] *= keep
        for id, count in counts.items():
            chances[id] = chances.get(id, _UNSEEN * keep) + (1 - keep) * count / n
    return chances
