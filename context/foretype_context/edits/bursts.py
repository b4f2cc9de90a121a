"""Keystrokes become bursts: what a developer did in one place before going on elsewhere, as one replacement. Pure, with injected time.

What was not typed is known as such and is no evidence: undo and redo give back a text from before the burst, a formatter changes blanks
or many places at once, a paste brings lines, and the caller says when it applies a suggestion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from foretype_context.syntax.document import Edit, difference

_GAP_CHARS: Final = 1
"""A change this near belongs to the burst, as the other quote or bracket does."""
_PASTE_CHARS: Final = 40
_REMEMBERED: Final = 64
"""Texts that an undo may come back to."""


class ChangeOrigin(StrEnum):
    """How a text changed."""

    TYPED = "typed"
    ACCEPTED = "accepted"
    PASTED = "pasted"
    FORMATTED = "formatted"
    UNDONE = "undone"


class Burst(NamedTuple):
    """One replacement: `edit` made `before` into `after`.

    Attributes:
        edit: as short as it can be; of a burst that came to nothing, empty.
        ended_s: when its last key was typed, on the teller's clock.
    """

    before: str
    after: str
    edit: Edit
    how: ChangeOrigin
    ended_s: float


class Bursts:
    """The bursts of one document."""

    def __init__(self, text: str) -> None:
        self._base: str = text
        self._text: str = text
        self._start = self._end = 0  # of the burst's text, in what the text is now
        self._how: ChangeOrigin = ChangeOrigin.TYPED
        self._ended_s = 0.0
        self._past = deque[bytes](maxlen=_REMEMBERED)  # texts before this burst
        self._passed = [_digest(text)]  # of this burst
        self.undone = False
        """The last change gave back a text from before the burst that was open."""

    @property
    def open(self) -> Burst | None:
        """The burst that may still grow; None where nothing differs."""
        return None if self._base == self._text else self._burst()

    def changed(self, edits: Sequence[Edit], after: str, now_s: float, *, accepted: bool = False) -> Burst | None:
        """The text became `after` by `edits`, each in the coordinates that the one before it left.

        Args:
            accepted: it is a suggestion that was taken.

        Returns:
            The burst that this change ended, where it stands elsewhere or was made otherwise.
        """
        if after == self._text:
            return None
        how = self._told(edits, after, accepted=accepted)
        joins = self._base != self._text and how is self._how is ChangeOrigin.TYPED and self._touches(edits)
        ended = None if joins or self._base == self._text else self._burst()
        self.undone = how is ChangeOrigin.UNDONE
        if not joins:
            self._past += self._passed
            self._passed.clear()
            self._base, self._how = self._text, how
            self._start = self._end = edits[0].start if edits else 0
        for edit in edits:
            self._grow(edit)
        self._text, self._ended_s = after, now_s
        self._passed.append(_digest(after))
        if self.undone:  # what was taken back is no evidence, and what it gives back is none either
            self._base = after
            return None
        return ended

    def end(self) -> Burst | None:
        """The developer went on: whatever is open is over."""
        ended = self.open
        self._base = self._text
        return ended

    def _told(self, edits: Sequence[Edit], after: str, *, accepted: bool) -> ChangeOrigin:
        if accepted:
            return ChangeOrigin.ACCEPTED
        if (after != self._base or self._how is ChangeOrigin.ACCEPTED) and _digest(after) in self._past:
            return ChangeOrigin.UNDONE
        inserted = "".join(edit.text for edit in edits)
        if len(edits) > 2 or _same_but_blanks(self._text, after):
            typed = len(edits) == 1 and (edits[0].text.strip(" \t\r\n") == "" and len(edits[0].text) < _PASTE_CHARS)
            return ChangeOrigin.TYPED if typed else ChangeOrigin.FORMATTED
        if len(inserted) >= _PASTE_CHARS or inserted.strip("\r\n").count("\n") >= 1:
            return ChangeOrigin.PASTED
        return ChangeOrigin.TYPED

    def _touches(self, edits: Sequence[Edit]) -> bool:
        return all(edit.start <= self._end + _GAP_CHARS and edit.end >= self._start - _GAP_CHARS for edit in edits)

    def _grow(self, edit: Edit) -> None:
        self._start, self._end = min(self._start, edit.start), max(self._end, edit.end) + edit.growth

    def _burst(self) -> Burst:
        return Burst(self._base, self._text, difference(self._base, self._text), self._how, self._ended_s)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()


def _same_but_blanks(before: str, after: str) -> bool:
    if abs(len(before) - len(after)) > 4096:
        return False
    edit = difference(before, after)
    return "".join(before[edit.start : edit.end].split()) == "".join(edit.text.split())
