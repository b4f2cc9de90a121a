"""What of a text a newer one changes."""

from __future__ import annotations

from foretype_context.document import Edit

__all__ = ["difference"]


def difference(old: str, new: str) -> Edit:
    """The one edit between two texts: what is left without their common start and end."""
    start = _common(old, new)
    end = _common(old[: start - 1 if start else None : -1], new[: start - 1 if start else None : -1])
    return Edit(start, len(old) - end, new[start : len(new) - end])


def _common(a: str, b: str) -> int:
    """Length of the common start, by comparing ever smaller slices: memory speed instead of a loop over characters."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
