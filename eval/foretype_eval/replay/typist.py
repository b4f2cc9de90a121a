"""A typist: draws the gap before each key, and knows what one key enters.

Gaps follow the distribution measured in one real session (p10 22, p25 67, p50 132, p75 248,
p90 722, p95 1,405 ms; after one typed character the median is 112, after a newline 223). One fast developer: a profile to
compare with, not the truth.
"""

from __future__ import annotations

from bisect import bisect_right
from random import Random
from typing import Final

_QUANTILES: Final = (
    (0.0, 8.0),
    (0.10, 22.0),
    (0.25, 67.0),
    (0.50, 132.0),
    (0.75, 248.0),
    (0.90, 722.0),
    (0.95, 1405.0),
    (0.98, 2600.0),
    (1.0, 6000.0),
)
_SCALE_CHARACTER: Final = 112 / 132
_SCALE_NEWLINE: Final = 223 / 132


def gap_s(rng: Random, *, after_newline: bool) -> float:
    """Seconds until the next key, by linear interpolation between measured quantiles."""
    u = rng.random()
    i = min(bisect_right(_QUANTILES, (u, float("inf"))), len(_QUANTILES) - 1)
    (p0, g0), (p1, g1) = _QUANTILES[i - 1], _QUANTILES[i]
    gap_ms = g0 + (g1 - g0) * (u - p0) / (p1 - p0)
    return gap_ms * (_SCALE_NEWLINE if after_newline else _SCALE_CHARACTER) / 1000


def next_key(remaining: str) -> str:
    """Text entered by one key: a character, or a line end together with the indentation that an editor adds by itself."""
    if not remaining.startswith("\n"):
        return remaining[:1]
    line = remaining[1:].split("\n", 1)[0]
    return "\n" + (line[: len(line) - len(line.lstrip())] if line.strip() else "")


def keys_of(text: str) -> int:
    """How many keys enter `text`."""
    count = 0
    while text:
        line, newline, rest = text.partition("\n")
        count += len(line)
        if not newline:
            break
        count += 1
        text = rest[len(next_key(newline + rest)) - 1 :]
    return count
