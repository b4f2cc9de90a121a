"""Noticing text that runs in circles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_LIMITS: Final = ((1, 10), (10, 30), (20, 45), (30, 60))
"""Longest period and how many of the last tokens must follow it (as in Copilot's anomaly detection)."""

_SHORT_PERIOD: Final = 4
_SHORT_RUN: Final = 10
"""A cycle of at most so many tokens may not go on for longer than this, wherever it stands: `, str, str, str, str, str, 1`."""
_ROW_RUN: Final = _LIMITS[1][1]
"""How long one of a table may."""

_STUTTER: Final = re.compile(r"([^\W\d])\1{11,}(?![\"'`\w])|([^\W\d_]\w{1,23}?|_\w{1,23}?)\2{3}")
"""Inside a word: one letter twelve times, or a piece four times."""

_NUMBER: Final = re.compile(
    r"(?<!\w)(?:(?:0[xXbBoO][\da-fA-F_']+?|[1-9][\d_]{0,39}|0{1,12}(?:\.0{0,40}[1-9]\d{0,19})?)(?:[uUlL]{1,3}|[uif]\d{1,3}|[a-zA-Z])?"
    r"|(?=0*[1-9a-fA-F])[\da-fA-F]{8,64})(?!\w)"
)
"""Masks, powers of ten, small fractions, numbers of cards and hashes repeat digits by their nature, whatever letters say their type."""

_ZEROS: Final = re.compile(r"0{13,}")
CLOSERS: Final = frozenset(")]}\"'`>;")
"""What a row ends with."""

_TOKEN: Final = re.compile(r"\w+|[^\w\s]+|\s+")
_TIMES: Final = 3
_TIMES_MOST: Final = 5
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


def is_repetitive(text: str, *, closed_behind: bool = False) -> bool:
    """Whether the end of `text` repeats itself, white space counted or not, or a short cycle runs on anywhere in it.

    A row that came to its end, by a closing bracket or quote, is a table or a format and no loop.

    Args:
        closed_behind: the text has ended by itself before a closer that stands there. That says less than a closer of its own: such a row
            may only be as long as one of numbers.
    """
    named = _NUMBER.sub("0", text)
    if _ZEROS.search(named) or any(found[1] or len(set(found[2])) > 1 for found in _STUTTER.finditer(named)):
        return True
    tokens = _TOKEN.findall(text)
    filled = [token for token in tokens if not token.isspace()]
    for sequence in (filled,) if closed_behind else (tokens, filled):
        for longest, last in _LIMITS[1:] if closed_behind else _LIMITS:
            if len(sequence) >= last and _period(sequence[-last:]) <= longest:
                return True
    return _runs_on(filled, closed_behind=closed_behind)


def _runs_on(tokens: Sequence[str], *, closed_behind: bool) -> bool:
    for period in range(1, _SHORT_PERIOD + 1):
        run = 0
        for at in range(period, len(tokens)):
            if tokens[at] == tokens[at - period]:
                run += 1
                continue
            if run >= _longest(tokens[at - period : at]) and not CLOSERS.issuperset(tokens[at][:1]):
                return True
            run = 0
        if run >= (_ROW_RUN if closed_behind else _longest(tokens[len(tokens) - period :])):
            return True
    return False


def _longest(cycle: Sequence[str]) -> int:
    """How long a cycle may go on: numbers stand in tables."""
    return _SHORT_RUN if any(token[0].isalpha() or token[0] == "_" for token in cycle) else _ROW_RUN


def without_repeated_lines(lines: Sequence[str], *, file_repeats: bool = False) -> list[str]:
    """Cuts before a group of lines that is repeated for the second time (three times in a row in all); one is kept.

    A few repetitions behind which the text goes on otherwise are no loop.

    Args:
        file_repeats: such lines follow one another near the cursor as well, so that a few repetitions are no loop at the text's end either.
    """
    for cycle in range(1, _CYCLE_LINES + 1):
        for start in range(len(lines) - cycle * _TIMES + 1):
            group = list(lines[start : start + cycle])
            if not any(line.strip() for line in group):
                continue
            end = start + cycle
            while list(lines[end : end + cycle]) == group:
                end += cycle
            times, rest = (end - start) // cycle, "\n".join(lines[end:]).rstrip().split("\n")
            if times > _TIMES_MOST or (
                times >= _TIMES and not file_repeats and (rest == [""] or rest == group[: len(rest)])
            ):
                return list(lines[: start + cycle])
    return list(lines)
