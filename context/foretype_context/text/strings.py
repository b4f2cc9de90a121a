"""What two texts have in common, and texts as editors and disks have them, with halves of characters and line ends of three kinds. Pure."""

from __future__ import annotations

import re
from typing import Final

_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def common_prefix(a: str, b: str) -> int:
    """Characters that `a` and `b` begin with in common. Compares slices, so a megabyte costs well under a millisecond."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_suffix(a: str, b: str, most: int) -> int:
    """Characters that `a` and `b` end with in common, at most `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def well_formed(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD, one for one, so that offsets stay what they were."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("�" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text


def join_surrogates(text: str) -> str:
    """Make one character of each high surrogate that is followed by a low one."""
    if text.isascii() or _PAIR.search(text) is None:
        return text
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)


def plain_line_ends(text: str) -> str:
    r"""`text` with `\n` for every line end: the same code is the same text, whichever its line ends are."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
