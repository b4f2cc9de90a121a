"""Noticing text that runs in circles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["is_repetitive", "without_repeated_lines"]

_LIMITS: Final = ((1, 10), (10, 30), (20, 45), (30, 60))
"""Longest period and how many of the last tokens must follow it (as in Copilot's anomaly detection)."""

_SHORT_PERIOD: Final = 4
_SHORT_RUN: Final = 10
"""A cycle of at most so many tokens may not go on for longer than this, wherever it stands: `, str, str, str, str, str, 1`."""

_STUTTER: Final = re.compile(r"(\w)\1{11}|(\w{2,12}?)\2{3}")
"""Inside a word: one sign twelve times, or a piece four times."""

_TOKEN: Final = re.compile(r"\w+|[^\w\s]+|\s+")
_TIMES: Final = 3
_CYCLE_LINES: Final = 8


def _period(tokens: Sequence[str]) -> int:
    """Smallest period of a sequence, by the failure function of Knuth, Morris and Pratt."""
    failure = [0] * len(tokens)
    for at in range(1, len(tokens)):
        matched = failure[at - 1]
        while matched and tokens[at] != tokens[matched]:
            matched = failure[matched - 1]
        failure[at] = matched + (tokens[at] == tokens[matched])
    return len(tokens) - failure[-1]


def is_repetitive(text: str) -> bool:
    """Whether the end of `text` repeats itself, white space counted or not, or a short cycle runs on anywhere in it."""
    if _STUTTER.search(text):
        return True
    tokens = _TOKEN.findall(text)
    for sequence in (tokens, [token for token in tokens if not token.isspace()]):
        for longest, last in _LIMITS:
            if len(sequence) >= last and _period(sequence[-last:]) <= longest:
                return True
    return _runs_on([token for token in tokens if not token.isspace()])


def _runs_on(tokens: Sequence[str]) -> bool:
    for period in range(1, _SHORT_PERIOD + 1):
        run = 0
        for at in range(period, len(tokens)):
            run = run + 1 if tokens[at] == tokens[at - period] else 0
            if run >= _SHORT_RUN:
                return True
    return False


def without_repeated_lines(lines: Sequence[str]) -> list[str]:
    """Cuts before a group of lines that is repeated for the second time (three times in a row in all); one is kept."""
    for cycle in range(1, _CYCLE_LINES + 1):
        for start in range(len(lines) - cycle * _TIMES + 1):
            group = lines[start : start + cycle]
            if any(line.strip() for line in group) and all(
                lines[start + cycle * time : start + cycle * (time + 1)] == group for time in range(1, _TIMES)
            ):
                return list(lines[: start + cycle])
    return list(lines)
