"""Which tokens may come first where an answer must begin with some text, for a library that leaves the choice of tokens to us. Pure."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

_BREAK: Final = re.compile(rb"\r?\n|\r\Z")


class Pieces:
    """The texts of a vocabulary's tokens, ordered.

    Args:
        pieces: by token id; empty for control tokens, which no text begins with.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        order = sorted(range(len(pieces)), key=pieces.__getitem__)
        self._order = array("q", order)
        self._sorted = [pieces[token_id] for token_id in order]
        self._breaks = array("q", [token_id for token_id, piece in enumerate(pieces) if _BREAK.match(piece)])

    def for_text(self, text: bytes) -> array[int]:
        """Ids of the tokens that begin with `text`, or that `text` begins with."""
        ranges = [(bisect_left(self._sorted, text), bisect_left(self._sorted, _after(text)))]
        for length in range(1, len(text)):
            first = bisect_left(self._sorted, text[:length])
            last = first
            while last < len(self._sorted) and self._sorted[last] == text[:length]:
                last += 1
            ranges.append((first, last))
        return array("q", [token_id for first, last in ranges for token_id in self._order[first:last]])

    @property
    def breaks(self) -> array[int]:
        """Ids of the tokens that begin with a line break, or a part of one."""
        return self._breaks


def _after(text: bytes) -> bytes:
    """The first text that is behind all that begin with `text`."""
    stripped = text.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\xff" * 64


class Beginning:
    """What is still to come of the text that an answer must begin with.

    Args:
        text: with a line break in it, one break stands for all of it.
    """

    def __init__(self, text: str) -> None:
        self._breaks = "\n" in text
        self._left = b"\n" if self._breaks else text.encode()

    def allowed(self, pieces: Pieces) -> array[int] | None:
        """Ids of the tokens that may come now; None where any may, or none would do."""
        if not self._left:
            return None
        found = pieces.breaks if self._breaks else pieces.for_text(self._left)
        return found if len(found) else None

    @property
    def left(self) -> str:
        """What is still to come."""
        return self._left.decode("utf-8", "replace")

    def came(self, piece: bytes) -> None:
        """A token's text came."""
        if self._breaks:
            self._left = b"" if b"\n" in piece else self._left
        else:
            self._left = self._left[len(piece) :]
