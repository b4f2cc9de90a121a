"""Where the user will be after taking the visible suggestion. Pure: texts and places, no clock.

A suggestion that fills its line is followed by Enter and the editor's indentation; anything else is followed by nothing. The
place behind that is known before the user gets there, so it can be asked about while the suggestion is still being read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from foretype_context.syntax.blocks import opens_block
from foretype_context.syntax.document import Snapshot

_LOOK_CHARS: Final = 64
_STEP: Final = "    "


class WayPoint(Enum):
    """How far a document has come on the way to a place."""

    ON_WAY = auto()
    ARRIVED = auto()
    LEFT = auto()


@dataclass(frozen=True, slots=True)
class Way:
    """From a document to the same document with `text` in place of `replaces` characters at `offset`.

    Attributes:
        before: the document that the suggestion was made for.
        text: the suggestion, and the line end and indentation that follow it.
        target: the document as it will be; it has no tree, for that belongs to the document that is edited.
    """

    before: Snapshot
    offset: int
    text: str
    replaces: int
    target: Snapshot

    @property
    def target_offset(self) -> int:
        return self.offset + len(self.text)

    def same_end(self, other: Way) -> bool:
        """Whether both lead to one document: the same suggestion, seen from further along."""
        return self.target_offset == other.target_offset and self.target.text == other.target.text

    def seen_in(self, snapshot: Snapshot) -> WayPoint:
        """How far `snapshot`, a later state of the document, has come."""
        text, base, offset = snapshot.text, self.before.text, self.offset
        if text[max(0, offset - _LOOK_CHARS) : offset] != base[max(0, offset - _LOOK_CHARS) : offset]:
            return WayPoint.LEFT
        if len(text) - len(base) + self.replaces >= len(self.text) and text.startswith(self.text, offset):
            return WayPoint.ARRIVED
        # What the suggestion replaces goes with the acceptance; typed through, it is still there.
        for replaced in {0, self.replaces}:
            come = len(text) - len(base) + replaced
            rest = base[offset + replaced : offset + replaced + _LOOK_CHARS]
            if (
                0 <= come <= len(self.text)
                and text.startswith(self.text[:come], offset)
                and text[offset + come : offset + come + _LOOK_CHARS] == rest
            ):
                return WayPoint.ON_WAY
        return WayPoint.LEFT


def way_after(snapshot: Snapshot, offset: int, suggestion: str, replaces: int) -> Way:
    """The way that begins with taking `suggestion` at `offset` of `snapshot`."""
    line = snapshot.line_of(offset)
    line_end = snapshot.line_end(line)
    taken = _with(snapshot, offset, replaces, suggestion)
    follows = ""
    if not snapshot.text[offset + replaces : line_end].strip():
        ending = snapshot.text[line_end : snapshot.next_line_start(line)] or "\n"
        follows = ending + _indentation(taken, offset + len(suggestion))
        taken = _with(snapshot, offset, replaces, suggestion + follows)
    return Way(snapshot, offset, suggestion + follows, replaces, taken)


def _indentation(snapshot: Snapshot, offset: int) -> str:
    """What an editor puts before the cursor when Enter is pressed at `offset`."""
    line = snapshot.text[snapshot.line_start(snapshot.line_of(offset)) : offset]
    own = line[: len(line) - len(line.lstrip(" \t"))]
    if not opens_block(snapshot, offset):
        return own
    return own + ("\t" if own.endswith("\t") else _STEP)


def _with(snapshot: Snapshot, offset: int, replaces: int, text: str) -> Snapshot:
    whole = f"{snapshot.text[:offset]}{text}{snapshot.text[offset + replaces :]}"
    lines = snapshot.lines.after(offset, offset + replaces, len(text), whole)
    return replace(snapshot, text=whole, lines=lines, syntax=_no_tree)


def _no_tree(*_: object) -> None:
    return None
