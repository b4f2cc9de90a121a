"""Local candidates: what a client can suggest with no gateway, in microseconds.

For now the copy-line predictor: the rest of the most recent line that starts like this one. An adaptive model takes its
place behind the same port.
"""

from __future__ import annotations

from typing import Final, Protocol

from foretype_context.document import Snapshot

__all__ = ["CopyLine", "LocalModel"]

_BLANKS: Final = " \t"
_INDENT_CHARS_MAX: Final = 200


class LocalModel(Protocol):
    """A predictor that answers on the spot: no engine, no network, no await."""

    def suggest(self, snapshot: Snapshot, offset: int) -> str | None:
        """Text to insert at character `offset`, or None. Must take well below a millisecond at any document size."""
        ...


class CopyLine:
    """The rest of the most recent line above, else of the nearest below, that starts like this one after its indentation.

    Searching runs at the speed of `str.rfind` over a window, and gives up after some occurrences that do not start a
    line (`self` in the middle of lines), so that its worst case is bounded too.

    Args:
        typed_chars_min: non-blank characters that must have been typed; fewer match almost any line.
        above_chars, below_chars: window around the cursor's line.
        probes_max: occurrences looked at in each direction.
    """

    def __init__(
        self,
        *,
        typed_chars_min: int = 3,
        above_chars: int = 262_144,
        below_chars: int = 131_072,
        probes_max: int = 300,
    ) -> None:
        self._typed_chars_min = typed_chars_min
        self._above_chars = above_chars
        self._below_chars = below_chars
        self._probes_max = probes_max

    def suggest(self, snapshot: Snapshot, offset: int) -> str | None:
        line = snapshot.line_of(offset)
        start, end = snapshot.line_start(line), snapshot.line_end(line)
        text = snapshot.text
        typed = text[start:offset].lstrip(_BLANKS)
        if len(typed) - sum(map(typed.count, _BLANKS)) < self._typed_chars_min:
            return None
        return self._above(text, typed, start) or self._below(text, typed, end)

    def _above(self, text: str, typed: str, start: int) -> str | None:
        low = max(0, start - self._above_chars)
        at = start
        for _ in range(self._probes_max):
            at = text.rfind(typed, low, at)
            if at < 0:
                return None
            if rest := _rest_of_line(text, typed, at, low):
                return rest
        return None

    def _below(self, text: str, typed: str, end: int) -> str | None:
        high = end + self._below_chars
        at = end
        for _ in range(self._probes_max):
            at = text.find(typed, at, high)
            if at < 0:
                return None
            if rest := _rest_of_line(text, typed, at, end):
                return rest
            at += 1
        return None


def _rest_of_line(text: str, typed: str, at: int, low: int) -> str | None:
    """What follows `typed` on the line at `at`, if only indentation stands before it there."""
    look_from = max(low, at - _INDENT_CHARS_MAX)
    newline = max(text.rfind("\n", look_from, at), text.rfind("\r", look_from, at))
    if newline < 0 and look_from > 0:
        return None
    if text[newline + 1 : at].strip(_BLANKS):
        return None
    end = text.find("\n", at)
    rest = text[at + len(typed) : len(text) if end < 0 else end]
    return rest.partition("\r")[0].rstrip() or None
