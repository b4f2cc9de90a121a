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
    before, after = _difference(_parts(old), _parts(new))
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


def _difference(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    limit = min(len(old), len(new))
    head = 0
    while head < limit and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < limit - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return old[head : len(old) - tail], new[head : len(new) - tail]


def _cased(found: str, old: str, new: str) -> str:
    if found == old:
        return new
    if found.isupper() and len(found) > 1:
        return new.upper()
    if found[:1].isupper():
        return new[:1].upper() + new[1:]
    return new.lower() if found.islower() else new
