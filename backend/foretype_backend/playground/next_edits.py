"""Next edits for a text that a browser holds, by the rules of the language server.

Nothing is kept here: a question brings what happened to the text since it was another one, and the engine is told it anew. So any worker
answers any question, and what a page says cannot be in disorder with what it said before.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from foretype_context.edits.evidence import NextEdit, named
from foretype_context.edits.followed import Followed
from foretype_context.edits.pace import Eagerness, Pace, RememberedEdit, is_in_line
from foretype_context.syntax.document import Edit
from foretype_wire.errors import InvalidRequestError

from foretype_backend.playground.plans import MAX_TEXT_CHARS

_MOST_EVENTS: Final = 128
_MOST_EDITS: Final = 64
_MOST_MS: Final = 86_400_000.0

_Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_TEXT_CHARS)]
_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]


class Happened(msgspec.Struct, frozen=True):
    """One thing that happened, so long before the question.

    Attributes:
        kind: what changed the text: keys, a suggestion at the cursor that was taken, a next edit that was; `refused` changed nothing.
        edits: `[start, end, text]`, each of the text that the one before it left.
    """

    kind: Literal["typed", "suggested", "accepted", "refused"]
    ago_ms: Annotated[float, msgspec.Meta(ge=0, le=_MOST_MS)]
    edits: Annotated[list[tuple[_Offset, _Offset, _Text]], msgspec.Meta(min_length=1, max_length=_MOST_EDITS)]


class PageEditRequest(msgspec.Struct, frozen=True):
    """`text` as it was before all that `happened`, the oldest first; `cursor` in the text as it is now. Offsets are code points."""

    text: _Text
    cursor: _Offset
    happened: Annotated[list[Happened], msgspec.Meta(max_length=_MOST_EVENTS)]
    language: Annotated[str, msgspec.Meta(max_length=256)] = "python"
    eagerness: Eagerness = Eagerness.LOW


class Offered(NamedTuple):
    """`found` None: nothing, or nothing yet: where `wait_s` is above zero, the page may ask again after so long."""

    found: NextEdit | None
    wait_s: float = 0.0


def next_edit(asked: PageEditRequest) -> Offered:
    """What is likely wanted next. Blocking: it parses. Raises InvalidRequestError where edits do not fit the text."""
    engine, pace = Followed(asked.language, asked.text), Pace()
    now_s = max((one.ago_ms for one in asked.happened), default=0.0) / 1000
    last: tuple[Happened, Edit] | None = None
    for number, one in enumerate(asked.happened):
        at_s, edits = now_s - one.ago_ms / 1000, tuple(Edit(*edit) for edit in one.edits)
        try:
            if one.kind == "refused":
                _refuse(engine, pace, edits[0], at_s)
                continue
            engine.changed(edits, at_s, accepted=one.kind != "typed")
        except ValueError as error:
            raise InvalidRequestError(
                f"happened[{number}].edits", f"{error}; send each of the text before it"
            ) from error
        if one.kind == "accepted":
            pace.accepted(at_s)
        last = one, edits[-1]
    if asked.cursor > len(engine.text):
        raise InvalidRequestError("cursor", f"is behind the text, which has {len(engine.text)} characters now")
    if last is None:
        return Offered(None)
    change, edit = last
    chained = change.kind == "accepted"
    quiet_s, in_line = change.ago_ms / 1000, is_in_line(engine.text, edit, asked.cursor)
    wait_s = pace.wait_s(quiet_s, now_s, eagerness=asked.eagerness, chained=chained, in_line=in_line)
    if (wait_s := max(wait_s, pace.cool_down_s(now_s))) > 0:
        return Offered(None, wait_s)
    found = engine.next(asked.cursor, now_s)
    if found is None or not pace.allows(
        found.evidence, asked.eagerness, _told(engine.text, found.edit), quiet_s, now_s
    ):
        return Offered(None)
    return Offered(found)


def _refuse(engine: Followed, pace: Pace, edit: Edit, at_s: float) -> None:
    if not edit.start <= edit.end <= len(engine.text):
        raise ValueError(f"edit [{edit.start}, {edit.end}) outside a text of {len(engine.text)} characters")
    engine.refused(engine.text, edit)
    pace.rejected(_told(engine.text, edit), at_s)


def _told(text: str, edit: Edit) -> RememberedEdit:
    return RememberedEdit("", named(text, edit)[0], text[edit.start : edit.end], edit.text)
