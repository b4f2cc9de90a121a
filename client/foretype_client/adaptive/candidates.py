"""Local candidates: what a client can suggest with no gateway, in microseconds.

The adaptive model (:mod:`foretype_client.adaptive`) is what ships; here are the port and the copy-line predictor, the rest
of the most recent line that starts like this one, which every evaluation prints beside it.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from foretype_context.syntax.document import Snapshot

_BLANKS: Final = " \t"
_INDENT_CHARS_MAX: Final = 200


_COPY_LINE_CONFIDENCE: Final = 0.3
"""Share of its candidates that were exactly right in 1,120 rest-of-line cuts of held-out repositories."""


class LocalCandidate(NamedTuple):
    """Text to insert, and how probable it is that all of it is right."""

    text: str
    confidence: float


class LocalModel(Protocol):
    """A predictor that answers on the spot: no engine, no network, no await."""

    @property
    def unfinished(self) -> bool:
        """The last `suggest` found nothing in the time it has; asked for the same place again it goes on from there."""
        ...

    def suggest(self, snapshot: Snapshot, offset: int) -> LocalCandidate | None:
        """What to insert at character `offset`, or None. Takes some milliseconds at most, at any document size."""
        ...

    def learn(self, uri: str, text: str) -> None:
        """Another file of the user's: opened, or a neighbour of an open one."""
        ...

    def prepare(self, uri: str) -> None:
        """Do now what the first `suggest` in this document would do first; a few milliseconds that no key waits for."""
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
        self.unfinished = False

    def learn(self, uri: str, text: str) -> None:
        """Looks into one file only."""

    def prepare(self, uri: str) -> None:
        """Nothing is kept."""

    def suggest(self, snapshot: Snapshot, offset: int) -> LocalCandidate | None:
        line = snapshot.line_of(offset)
        start, end = snapshot.line_start(line), snapshot.line_end(line)
        text = snapshot.text
        typed = text[start:offset].lstrip(_BLANKS)
        if len(typed) - sum(map(typed.count, _BLANKS)) < self._typed_chars_min:
            return None
        rest = self._above(text, typed, start) or self._below(text, typed, end)
        return LocalCandidate(rest, _COPY_LINE_CONFIDENCE) if rest else None

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
