"""What a name becomes where another name was replaced: `get_width` to `get_height` makes `_width` into `_height`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|_+|.")
_CHARS_MIN: Final = 2


@lru_cache(32_768)
def renamed(name: str, old: str, new: str) -> str | None:
    """`name` with the parts that make `old` differ from `new` replaced likewise; None where it has no such part.

    Parts are those of camel case and underscores; upper and lower case follow what is replaced.
    """
    parts, changed = _parts(old), _parts(new)
    head, tail = common_ends(parts, changed)
    before, after = parts[head : len(parts) - tail], changed[head : len(changed) - tail]
    if sum(map(len, before)) < _CHARS_MIN or not after:
        return None
    parts = _parts(name)
    wanted = [part.lower() for part in before]
    for at in range(len(parts) - len(before) + 1):
        if [part.lower() for part in parts[at : at + len(before)]] == wanted:
            replaced = _cased("".join(parts[at : at + len(before)]), "".join(before), "".join(after))
            return "".join((*parts[:at], replaced, *parts[at + len(before) :]))
    return None


def _parts(name: str) -> list[str]:
    return _PART.findall(name)


def common_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many are equal at the start, and at the end of what remains."""
    limit = min(len(old), len(new))
    head = 0
    while head < limit and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < limit - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _cased(found: str, old: str, new: str) -> str:
    if found == old:
        return new
    if found.isupper() and len(found) > 1:
        return new.upper()
    if found[:1].isupper():
        return new[:1].upper() + new[1:]
    return new.lower() if found.islower() else new
