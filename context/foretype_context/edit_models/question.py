"""What a model that predicts the next edit is asked: a window of whole lines around the cursor, and what was done before. Pure.

These types cross the wire (:mod:`foretype_wire.messages`), so they cost msgspec and nothing else. Offsets are characters of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

MAX_WINDOW_CHARS: Final = 16_384
MAX_QUESTION_CHARS: Final = 1 << 17
"""Of all its texts together."""
_MAX_AROUND_CHARS: Final = 1 << 16
_MAX_EDITS: Final = 32
_MAX_EDIT_CHARS: Final = 4_096
_MAX_RELATED: Final = 16
_MAX_RELATED_CHARS: Final = 16_384
_MAX_PATH_CHARS: Final = 1_024

_Path = Annotated[str, Meta(max_length=_MAX_PATH_CHARS, pattern=r"^[^\r\n]*$(?!\n)")]
_EditText = Annotated[str, Meta(max_length=_MAX_EDIT_CHARS)]
_WindowText = Annotated[str, Meta(max_length=MAX_WINDOW_CHARS)]
_AroundText = Annotated[str, Meta(max_length=_MAX_AROUND_CHARS)]
_Number = Annotated[int, Meta(ge=0)]


class EditWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile says of the model that predicts next edits, and how it wants to be asked.

    Attributes:
        model: name for people and logs.
        format: how it is asked, e.g. `zeta-2.1`.
        lines_above, lines_below: of the window, beside the cursor's line.
        around_lines: above the window and below it, that the model sees too and cannot change.
        edits: how many recent ones it is shown, at most.
        related: whether pieces of other files have a place in its prompt.
    """

    model: str = ""
    format: str = ""
    lines_above: int = 10
    lines_below: int = 10
    around_lines: int = 0
    edits: int = 8
    related: bool = False


class RecentEdit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done in one place: whole lines before and after.

    Attributes:
        path: of the file, relative to its folder.
        line: of the first of them, from 0.
    """

    path: _Path = ""
    old: _EditText = ""
    new: _EditText = ""
    line: _Number = 0


class RelatedText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of another file."""

    path: _Path = ""
    text: Annotated[str, Meta(max_length=_MAX_RELATED_CHARS)]


class WindowEdit(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the characters `[start, end)` of the window by `text`."""

    start: int
    end: int
    text: str


class EditQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question.

    Attributes:
        path: of the file, relative to its folder.
        window: whole lines; the model may change these alone.
        cursor: where it is, in characters of the window.
        first_line: number of the window's first line in the file, from 0.
        above, below: whole lines right before the window, and right behind it.
        before: what the window was before the last edit in this file; None where that is not known.
        edits: the recent ones, the oldest first.
        related: pieces of other files, the best first.
    """

    path: _Path = ""
    window: _WindowText
    cursor: _Number
    first_line: _Number = 0
    above: _AroundText = ""
    below: _AroundText = ""
    before: _WindowText | None = None
    edits: Annotated[list[RecentEdit], Meta(max_length=_MAX_EDITS)] = []
    related: Annotated[list[RelatedText], Meta(max_length=_MAX_RELATED)] = []

    @property
    def characters(self) -> int:
        """Of all its texts."""
        own = len(self.window) + len(self.above) + len(self.below) + len(self.before or "") + len(self.path)
        edits = sum([len(one.path) + len(one.old) + len(one.new) for one in self.edits])
        return own + edits + sum([len(one.path) + len(one.text) for one in self.related])

    def wrong(self) -> tuple[str, str] | None:
        """The first field that the types alone do not refuse, and what it must be; None where all is right."""
        if not self.window:
            return "window", "is empty; send the lines around the cursor"
        if self.cursor > len(self.window):
            return "cursor", f"{self.cursor} is behind the window, which has {len(self.window)} characters"
        if self.characters > MAX_QUESTION_CHARS:
            told = f"{self.characters} characters of text altogether, at most {MAX_QUESTION_CHARS} are allowed"
            return "related" if self.related else "edits", f"{told}; send fewer"
        return None


class _Range(NamedTuple):
    start: int
    end: int


def window_at(text: str, offset: int, lines_above: int, lines_below: int) -> _Range:
    """The characters `[start, end)` of `text` that are the line of `offset` and so many whole lines above and below it."""
    start = end = min(max(offset, 0), len(text))
    for _ in range(lines_above + 1):
        start = text.rfind("\n", 0, start)
        if start < 0:
            break
    start += 1
    for _ in range(lines_below + 1):
        end = text.find("\n", end)
        if end < 0:
            return _Range(start, len(text))
        end += 1
    return _Range(start, end)


def window_before(before: str, start: int, end: int, inserted: int, window: tuple[int, int]) -> str | None:
    """What stood where the window `[start, end)` of a text stands now, before one edit of it; None where nothing can be said.

    Args:
        before: the whole text then.
        start, end, inserted: the edit replaced `[start, end)` of it by so many characters.
        window: in the text as it is now.
    """
    shift = inserted - (end - start)
    first, last = window
    was_first = first if first <= start else first - shift if first >= start + inserted else start
    was_last = last - shift if last >= start + inserted else last if last <= start else end
    if not 0 <= was_first <= was_last <= len(before):
        return None
    was_first = before.rfind("\n", 0, was_first) + 1
    at = was_last if was_last > 0 and before[was_last - 1 : was_last] == "\n" else before.find("\n", was_last) + 1
    found = before[was_first : at or len(before)]
    return found if len(found) <= MAX_WINDOW_CHARS else None


def recent_edit(
    path: str, before: str, start: int, end: int, inserted: str, *, around_lines: int = 3
) -> RecentEdit | None:
    """An edit that replaced `[start, end)` of `before` by `inserted`, as whole lines; None where it is too large to be told.

    Args:
        around_lines: above and below, which it left as they were.
    """
    first = window_at(before, start, around_lines, 0).start
    last = window_at(before, end, 0, around_lines).end
    old, new = before[first:last], before[first:start] + inserted + before[end:last]
    if old == new or max(len(old), len(new)) > _MAX_EDIT_CHARS:
        return None
    return RecentEdit(path=path, old=old, new=new, line=before.count("\n", 0, first))


def question_at(
    text: str,
    offset: int,
    wanted: EditWindow,
    *,
    path: str = "",
    before: str | None = None,
    edits: Sequence[RecentEdit] = (),
    related: Sequence[RelatedText] = (),
) -> EditQuestion | None:
    """The question at a place, as the profile wants it; None where the window is too long to be asked about.

    Args:
        before: what the window was before the last edit in this file.
        edits: the oldest first; as many of the last ones are taken as are wanted.
    """
    start, end = window_at(text, offset, wanted.lines_above, wanted.lines_below)
    if not text[start:end] or end - start > MAX_WINDOW_CHARS:
        return None
    above = text[window_at(text, start, wanted.around_lines, 0).start : start] if wanted.around_lines else ""
    below = text[end : window_at(text, end, 0, wanted.around_lines - 1).end] if wanted.around_lines else ""
    question = EditQuestion(
        path=path,
        window=text[start:end],
        cursor=offset - start,
        first_line=text.count("\n", 0, start),
        above=above if len(above) <= _MAX_AROUND_CHARS else "",
        below=below if len(below) <= _MAX_AROUND_CHARS else "",
        before=before,
        edits=list(edits)[-min(wanted.edits, _MAX_EDITS) :] if wanted.edits else [],
        related=list(related)[:_MAX_RELATED] if wanted.related else [],
    )
    return question if question.wrong() is None else None
