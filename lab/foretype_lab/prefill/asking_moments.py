"""When the client would ask during a recorded session, and what changed since it asked before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from foretype_client.policy.trigger import EditorRequest, Now, Policy, PolicyOptions, PolicyState, Skip, Trigger
from foretype_context.folder.exclude import reason_to_exclude
from foretype_context.syntax.document import Document, Edit, Snapshot
from foretype_eval.replay.edit_events import Event, Loaded, Moved, Recording

_NEAR_LINES: Final = 10
_CARET_FOLLOWS_S: Final = 0.05
"""An editor reports the caret up to this long after the change that moved it (1 to 3 ms at the median of a real session)."""

_HEAD_CHARS: Final = 4_096


class Cause(StrEnum):
    """What the user did since the request before."""

    IN_LINE = "in_line"
    ENTER = "enter"  # the lines changed at the caret: Enter, a pasted block, two lines joined
    NEAR_JUMP = "near_jump"  # up to ten lines away
    FAR_JUMP = "far_jump"
    FILE_SWITCH = "file_switch"
    COLD = "cold"  # first request in this file


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One request.

    Attributes:
        time_s: when the user asked, in the recording's time; what a prompt plan knows of idleness.
        inserted: all text inserted since the request before, joined where it was typed on end.
        typed: the same of edits of at most two characters.
    """

    time_s: float
    snapshot: Snapshot
    offset: int
    cause: Cause
    inserted: tuple[str, ...]
    typed: tuple[str, ...]


def moments_of(
    recording: Recording,
    *,
    debounce_ms: float = 75.0,
    after_deletions: bool = True,
) -> Iterator[Moment]:
    """The requests of a session.

    One after each change that the trigger policy lets through and that no other change or move of the caret overtakes.

    Args:
        debounce_ms: quiet time after a change.
        after_deletions: also after changes that insert nothing.
    """
    session = _Session(Policy(PolicyOptions(debounce_ms=debounce_ms)))
    for event in recording.events:
        if not session.follows(event):
            yield from session.due(event.time_s, event)
        session.take(event, after_deletions=after_deletions)
    yield from session.due(float("inf"), None)


@dataclass(slots=True)
class _File:
    document: Document
    excluded: str | None
    caret: int = 0
    selecting: bool = False
    asked: bool = False


@dataclass(frozen=True, slots=True)
class _Pending:
    """A change after which a request may follow, and the spans of text that it left."""

    path: str
    at_s: float
    spans: tuple[tuple[int, int], ...]


def shifted(offset: int, edit: Edit) -> int:
    """Where a place is after an edit; text inserted exactly there stands before it."""
    start, end, text = edit
    if offset < start:
        return offset
    return offset + len(text) - (end - start) if end <= offset else start + len(text)


@dataclass(slots=True)
class _Inserted:
    """Runs of text, joined where one continues the other."""

    runs: list[str] = field(default_factory=list[str])
    _end: tuple[str, int] = ("", -1)

    def add(self, path: str, edit: Edit) -> None:
        if not edit.text:
            return
        if self._end == (path, edit.start) and edit.end == edit.start:
            self.runs[-1] += edit.text
        else:
            self.runs.append(edit.text)
        self._end = (path, edit.start + len(edit.text))

    def taken(self) -> tuple[str, ...]:
        runs, self.runs, self._end = tuple(self.runs), [], ("", -1)
        return runs


class _Session:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._files: dict[str, _File] = {}
        self._inserted = _Inserted()
        self._typed = _Inserted()
        self._pending: _Pending | None = None
        # Where the request before stood, kept up with the edits since; whether they changed the lines there.
        self._last_path = ""
        self._mark = self._mark_low = 0
        self._lines_changed = False

    def follows(self, event: Event) -> bool:
        """Whether the event only tells where the change before it left the caret."""
        return (
            self._pending is not None
            and isinstance(event, Moved)
            and event.path == self._pending.path
            and event.time_s - self._pending.at_s <= _CARET_FOLLOWS_S
        )

    def due(self, now_s: float, event: Event | None) -> Iterator[Moment]:
        """The request that is waiting, if it goes out before `event` at `now_s`."""
        if self._pending is None:
            return
        path, changed_s = self._pending.path, self._pending.at_s
        file = self._files[path]
        if isinstance(event, Moved) and event.path == path and (event.offset, event.selecting) == (file.caret, False):
            return
        at_caret = any(start <= file.caret <= end for start, end in self._pending.spans)
        self._pending = None
        # A key acts at the caret; what changes elsewhere is a tool's work, and no editor asks then.
        if file.selecting or not at_caret:
            return
        snapshot, offset = file.document.snapshot(), file.caret
        line = snapshot.line_of(offset)
        decision = self._policy.decide(
            PolicyState(),
            EditorRequest(
                trigger=Trigger.AUTOMATIC,
                left=snapshot.text[snapshot.line_start(line) : offset],
                right=snapshot.text[offset : snapshot.line_end(line)],
                changed_s=changed_s,
                characters=len(snapshot.text),
                excluded=file.excluded,
            ),
            changed_s,
        )
        if isinstance(decision, Skip) or (not isinstance(decision, Now) and decision.until_s > now_s):
            return
        yield self._moment(path, snapshot, offset, changed_s)

    def take(self, event: Event, *, after_deletions: bool) -> None:
        path = event.path
        if isinstance(event, Loaded):
            self._load(event)
            return
        file = self._files[path]
        if isinstance(event, Moved):
            file.caret, file.selecting = min(event.offset, len(file.document.text)), event.selecting
            return
        spans: list[tuple[int, int]] = []
        for edit in event.edits:
            self._edited(path, edit, file.document.text)
            file.document.apply([edit], file.document.version + 1)
            file.caret = shifted(file.caret, edit)
            end = edit.start + len(edit.text)
            spans = [(shifted(first, edit), shifted(last, edit)) for first, last in spans]
            spans.append((edit.start, end))
        file.selecting = False
        if not after_deletions and not any(edit.text for edit in event.edits):
            self._pending = None
            return
        self._pending = _Pending(path, event.time_s, tuple(spans))

    def _load(self, event: Loaded) -> None:
        path, known = event.path, self._files.get(event.path)
        # No grammar: where a prompt's parts stand does not depend on syntax, and parsing is most of the time.
        version = known.document.version + 1 if known is not None else 1
        document = Document(f"file:///{path}", event.text, language="plaintext", path=path, version=version)
        if known is not None:
            known.document, known.caret = document, min(known.caret, len(document.text))
            return
        head = event.text[:_HEAD_CHARS].encode("utf-8", "surrogatepass")
        self._files[path] = _File(document, reason_to_exclude(path, len(event.text.encode()), head))

    def _edited(self, path: str, edit: Edit, text: str) -> None:
        self._inserted.add(path, edit)
        if len(edit.text) <= 2:
            self._typed.add(path, edit)
        if path != self._last_path:
            return
        start, end, new = edit
        if start <= self._mark <= end and ("\n" in new or "\n" in text[start:end]):
            self._lines_changed = True
        self._mark = shifted(self._mark, edit)
        # The lower end stays before what is inserted exactly there.
        self._mark_low = (
            shifted(self._mark_low, edit)
            if start < self._mark_low and end <= self._mark_low
            else min(start, self._mark_low)
        )

    def _moment(self, path: str, snapshot: Snapshot, offset: int, time_s: float) -> Moment:
        file = self._files[path]
        cause = self._cause(file, path, snapshot, offset)
        file.asked = True
        self._last_path, self._mark, self._mark_low, self._lines_changed = path, offset, offset, False
        return Moment(
            time_s=time_s,
            snapshot=snapshot,
            offset=offset,
            cause=cause,
            inserted=self._inserted.taken(),
            typed=self._typed.taken(),
        )

    def _cause(self, file: _File, path: str, snapshot: Snapshot, offset: int) -> Cause:
        if not file.asked:
            return Cause.COLD
        if path != self._last_path:
            return Cause.FILE_SWITCH
        line = snapshot.line_of(offset)
        # What was inserted at the caret may stand on both sides of it: Enter between two brackets.
        distance = max(snapshot.line_of(self._mark_low) - line, line - snapshot.line_of(self._mark))
        if distance > 0:
            return Cause.NEAR_JUMP if distance <= _NEAR_LINES else Cause.FAR_JUMP
        return Cause.ENTER if self._lines_changed else Cause.IN_LINE
