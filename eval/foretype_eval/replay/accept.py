"""When a simulated developer accepts.

All rules know the text that was really written, so they are upper bounds: rank systems with them, never forecast an
acceptance rate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

MIN_LINE_CHARS = 3
MIN_WORD_CHARS = 5
MIN_LONG_CHARS = 20
_WORD = re.compile(r"\s*(?:\w+|[^\w\s]+)")
_INSIDE_WORD = re.compile(r"\w\w")


class Rule(StrEnum):
    """`A-line` is the primary one. `A-long` takes right lines from 20 characters on, `A-never` nothing: habits, to learn from."""

    LINE = "A-line"
    BLOCK = "A-block"
    PREFIX = "A-prefix"
    WORD = "A-word"
    NOISY = "A-noisy"
    LONG = "A-long"
    NEVER = "A-never"


@dataclass(frozen=True, slots=True)
class Accepted:
    """What is taken: `characters` of the suggestion, for `keys` key presses; `wrong` where it was a mistake."""

    characters: int
    keys: int = 1
    wrong: bool = False


def _line(suggestion: str, remaining: str) -> Accepted | None:
    # At the end of a line a suggestion begins with the next one: that is the line it is about.
    breaks = len(suggestion) - len(suggestion.lstrip("\n"))
    if suggestion[:breaks] != remaining[:breaks]:
        return None
    suggested, true = suggestion[breaks:].split("\n", 1)[0], remaining[breaks:].split("\n", 1)[0]
    if len(true.rstrip()) < MIN_LINE_CHARS or suggested.rstrip() != true.rstrip():
        return None
    return Accepted(breaks + len(true.rstrip()))


def _long(suggestion: str, remaining: str) -> Accepted | None:
    found = _line(suggestion, remaining)
    return found if found is not None and found.characters >= MIN_LONG_CHARS else None


def _never(suggestion: str, remaining: str) -> Accepted | None:
    return None


def _block(suggestion: str, remaining: str) -> Accepted | None:
    taken = 0
    suggested, true = suggestion.split("\n"), remaining.split("\n")
    for count, (ours, theirs) in enumerate(zip(suggested, true, strict=False), start=1):
        if ours.rstrip() != theirs.rstrip():
            break
        taken = count
    text = "\n".join(true[:taken]).rstrip()
    return Accepted(len(text)) if len(text) >= MIN_LINE_CHARS and remaining.startswith(text) else None


def _prefix(suggestion: str, remaining: str) -> Accepted | None:
    text = suggestion.rstrip()
    return Accepted(len(text)) if len(text) >= MIN_LINE_CHARS and remaining.startswith(text) else None


def _word(suggestion: str, remaining: str) -> Accepted | None:
    end = words = 0
    for match in _WORD.finditer(suggestion):
        # A word must agree whole: what follows it in the true text may not continue it.
        stop = match.end()
        continues = _INSIDE_WORD.match(remaining, stop - 1) is not None
        if not remaining.startswith(suggestion[:stop]) or continues:
            break
        end, words = stop, words + 1
    return Accepted(end, keys=words) if end >= MIN_WORD_CHARS else None


_RULES: dict[Rule, Callable[[str, str], Accepted | None]] = {
    Rule.LINE: _line,
    Rule.BLOCK: _block,
    Rule.PREFIX: _prefix,
    Rule.WORD: _word,
    Rule.LONG: _long,
    Rule.NEVER: _never,
}


def decide(
    rule: Rule, suggestion: str, remaining: str, rng: Random, *, false_accept: float = 0.02, miss: float = 0.2
) -> Accepted | None:
    """Whether the developer takes `suggestion` where `remaining` is what was really written next.

    Args:
        false_accept, miss: error rates of A-noisy per shown suggestion; its wrong accepts must be deleted again.
    """
    if rule is not Rule.NOISY:
        return _RULES[rule](suggestion, remaining)
    right = _line(suggestion, remaining)
    if right is not None:
        return None if rng.random() < miss else right
    first = suggestion.split("\n", 1)[0].rstrip()
    return Accepted(len(first), wrong=True) if first and rng.random() < false_accept else None
