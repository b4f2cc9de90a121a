"""Places and strands: where a suggestion was asked for, and what it says at each place that typing along leads to.

A :class:`Place` is what a suggestion depends on, as the cache sees it: the uri, the text before the cursor in a window of
some lines, the next line below that says something, and the profile. A :class:`Strand` is one generated text together with the
place it begins at; it answers at that place and at every place reached by typing along it, line breaks included.

A place costs a few microseconds in a document of any size: it reads the window and a few lines below, never the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from foretype_context.prompt.profile import Profile
from foretype_context.syntax.closers import is_closers, is_closing_line
from foretype_context.syntax.document import Snapshot
from foretype_context.text.strings import plain_line_ends

WINDOW_LINES: Final = 16
WINDOW_CHARS: Final = 2000
_BELOW_LINES: Final = 20
_ROWS_MAX: Final = 40
_BREAKS_SLACK_CHARS: Final = 64


def profile_identity(profile: Profile | None) -> str:
    """What of a profile a cached suggestion depends on: model, grammar and experiment arm."""
    if profile is None:
        return ""
    return f"{profile.model}\0{profile.grammar}\0{profile.experiment}\0{profile.variant}"


@dataclass(frozen=True, slots=True)
class Place:
    """One cursor position, reduced to what a suggestion there depends on.

    Attributes:
        uri: document.
        profile: identity of the profile; what one model said is no answer of another, but stays visible where it is.
        base: digest of everything else that typing along does not change: uri, next line, rest of the line.
        above: up to `WINDOW_LINES` whole lines (and `WINDOW_CHARS` characters) above the cursor's line, ending in a newline.
        line_prefix: the cursor's line, left of the cursor; white space is significant.
        key: digest of `base` and `above`: equal for all places on one line.
    """

    uri: str
    profile: str
    base: bytes
    above: str
    line_prefix: str
    key: bytes

    @classmethod
    def of(cls, snapshot: Snapshot, offset: int, profile: Profile | None) -> Place:
        """The place at character `offset` of `snapshot`."""
        return cls.before(snapshot, offset, profile_identity(profile))

    @classmethod
    def before(cls, snapshot: Snapshot, offset: int, profile: str, typed: int = 0) -> Place:
        """The place at character `offset` as it was before the `typed` characters left of it were there.

        Args:
            profile: its identity.
        """
        line = snapshot.line_of(offset)
        text = snapshot.text
        rest = text[offset : snapshot.line_end(line)]
        base = blake2b(digest_size=16)
        for part in (
            snapshot.uri,
            lines_below(snapshot, line)[1],
            # Editors close what the user opens; that changes nothing about what is to come.
            "" if is_closers(rest, snapshot.language) else rest,
        ):
            base.update(part.encode("utf-8", "surrogatepass"))
            base.update(b"\0")
        digest, begin = base.digest(), offset - typed
        start = snapshot.line_start(snapshot.line_of(begin))
        above = _window(text[max(0, start - WINDOW_CHARS - _BREAKS_SLACK_CHARS) : start])
        return cls(snapshot.uri, profile, digest, above, text[start:begin], _row_key(digest, above))


@dataclass(slots=True)
class _Row:
    """One line of a strand: the key of its line, and where it begins in the text (below 0: before the cursor)."""

    key: bytes
    start: int


@dataclass(slots=True)
class Strand:
    """One generated text, growing or whole, and the place it begins at."""

    place: Place
    text: str = ""
    rows: list[_Row] = field(default_factory=list[_Row])

    def __post_init__(self) -> None:
        text, self.text = self.text, ""
        self.rows = [_Row(self.place.key, -len(self.place.line_prefix))]
        self.extend(text)

    def extend(self, text: str) -> None:
        """Append what was generated since."""
        before = len(self.text)
        self.text += text
        at = self.text.find("\n", before)
        while at >= 0 and len(self.rows) < _ROWS_MAX:
            above = self.place.above + self.place.line_prefix + self.text[: at + 1]
            self.rows.append(_Row(_row_key(self.place.base, _window(above)), at + 1))
            at = self.text.find("\n", at + 1)

    def typed(self, place: Place) -> int | None:
        """How many characters of this strand were typed to get to `place`.

        The count may exceed `len(text)` on the last line: the user is ahead of a stream that has not been contradicted.
        None when the strand does not lead there.
        """
        if place.base != self.place.base:
            return None
        for index, row in enumerate(self.rows):
            if row.key != place.key:
                continue
            last = index + 1 == len(self.rows)
            line = self._line(index)
            count = row.start + len(place.line_prefix)
            if count < 0:
                continue
            if line.startswith(place.line_prefix) or (last and place.line_prefix.startswith(line)):
                return count
        return None

    def rest_at(self, place: Place) -> str | None:
        """What is left to insert at `place`; None when the strand does not lead there or the user is ahead of it."""
        count = self.typed(place)
        if count is None or count > len(self.text):
            return None
        return self.text[count:]

    def share_of(self, rest: str, total: float) -> float | None:
        """What of a sum over the text and its end is due to `rest`, what is left of it: its share of the characters."""
        return total * len(rest) / len(self.text) if self.text else None

    def _line(self, index: int) -> str:
        row = self.rows[index]
        start = max(0, row.start)
        end = self.text.find("\n", start)
        line = self.text[start:] if end < 0 else self.text[start:end]
        return self.place.line_prefix + line if row.start < 0 or index == 0 else line


def _row_key(base: bytes, above: str) -> bytes:
    return blake2b(above.encode("utf-8", "surrogatepass"), digest_size=16, key=base).digest()


def _window(text: str) -> str:
    """The last `WINDOW_LINES` lines of `text` (which ends at a line start), at most `WINDOW_CHARS` characters of them."""
    text = plain_line_ends(text)[-WINDOW_CHARS:]
    at = len(text)
    for _ in range(WINDOW_LINES + 1):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


def lines_below(snapshot: Snapshot, line: int) -> tuple[list[str], str]:
    """The next lines below `line` that close something, which editors insert by themselves, and the first that says something else."""
    closing: list[str] = []
    for index in range(line + 1, min(snapshot.line_count, line + 1 + _BELOW_LINES)):
        text = snapshot.line_text(index)
        if not is_closing_line(text, snapshot.language):
            return closing, text
        if text.strip():
            closing.append(text.rstrip())
    return closing, ""
