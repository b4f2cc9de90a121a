"""What becomes of accepted text in the live document. Pure: texts and times are handed in, measurements come out.

Follows each accepted text through every change of its document: where it stands, and which of its characters no edit has
touched (ARC: accepted and retained characters; an edit is what remains of a change without its common beginning and end).
Definitions: docs/telemetry.md (`survive`), after Copilot's `stillInCode` and ARC and Cody's persistence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foretype_context.syntax.document import Change, Edit
from foretype_wire.telemetry import SURVIVAL_AGES_S

from foretype_client.feedback.events import Graft
from foretype_client.telemetry.distance import fourgram_share, levenshtein

_TRACKED: Final = 512
_NEAR: Final = 1_500
"""Characters around the expected place in which an accepted text is looked for, as Copilot's client does."""


class Due(NamedTuple):
    """An accepted text whose age has come: what was accepted, what stands there now, and how much of it was never touched."""

    graft: Graft
    age_s: int
    now: str
    arc: int


class SurvivingShare(NamedTuple):
    """How much of an accepted text is left. `levenshtein` in characters; `fourgram` 0–1."""

    due: Due
    levenshtein: int
    fourgram: float


def measure(due: Due) -> SurvivingShare:
    """Compare. Costs up to some ten milliseconds where a long text was rewritten, so call it in a thread."""
    if due.now == due.graft.text:
        return SurvivingShare(due, 0, 1.0)
    return SurvivingShare(due, levenshtein(due.graft.text, due.now), fourgram_share(due.graft.text, due.now))


@dataclass(slots=True)
class _Tracked:
    """`spans` are the untouched parts, as offsets in the document; `found` once the document has been seen with the text."""

    graft: Graft
    start: int
    end: int
    spans: list[tuple[int, int]]
    found: bool = False
    ages: list[int] = field(default_factory=lambda: list(SURVIVAL_AGES_S))

    def place(self, at: int, length: int) -> None:
        self.start, self.end, self.spans, self.found = at, at + length, [(at, at + length)], True

    @property
    def arc(self) -> int:
        return sum(end - start for start, end in self.spans) if self.found else 0


class Survival:
    """Accepted texts of all documents of one editor."""

    def __init__(self, *, tracked: int = _TRACKED) -> None:
        self._most = tracked
        self._texts: dict[str, str] = {}
        self._tracked: dict[str, list[_Tracked]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tracked.values()))

    def opened(self, uri: str, text: str) -> None:
        """The document `uri` is open from now on."""
        self.closed(uri)
        self._texts[uri] = text

    def changed(self, change: Change) -> None:
        """A document has changed. Costs nothing unless something is tracked in it."""
        uri, text = change.after.uri, change.after.text
        self._texts[uri] = text
        for one in self._tracked.get(uri, ()):
            if one.found:
                _move(one, change.edit, change.before)
            else:
                _find(one, text)

    def closed(self, uri: str) -> None:
        """What happens to the document now is not seen any more."""
        self._texts.pop(uri, None)
        self._tracked.pop(uri, None)

    def accepted(self, graft: Graft) -> None:
        """Follow `graft` from now on; the oldest leaves when there are too many."""
        one = _Tracked(graft, graft.start, graft.start + len(graft.text), [])
        text = self._texts.get(graft.uri)
        if text is not None:
            _find(one, text)
        self._tracked.setdefault(graft.uri, []).append(one)
        if len(self) > self._most:
            oldest = min(self._tracked, key=lambda uri: self._tracked[uri][0].graft.at_s)
            self._tracked[oldest].pop(0)
            if not self._tracked[oldest]:
                del self._tracked[oldest]

    def ids(self) -> set[str]:
        """Suggestions whose text is followed."""
        return {one.graft.id for tracked in self._tracked.values() for one in tracked}

    def due(self, now: float) -> list[Due]:
        """Ages that have come since the last call. After a pause (a laptop that slept) only the oldest of them is true."""
        found: list[Due] = []
        for uri, tracked in list(self._tracked.items()):
            text = self._texts.get(uri, "")
            for one in list(tracked):
                passed = [age for age in one.ages if now - one.graft.at_s >= age]
                if not passed:
                    continue
                del one.ages[: len(passed)]
                # What stands there now says nothing about ages that went by unseen.
                found.append(Due(one.graft, passed[-1], text[one.start : one.end] if one.found else "", one.arc))
                if not one.ages:
                    tracked.remove(one)
            if not tracked:
                del self._tracked[uri]
        return found


def _move(one: _Tracked, edit: Edit, former: str) -> None:
    new_end = edit.start + len(edit.text)
    if edit.end <= one.start:
        one.start, one.end = one.start + edit.growth, one.end + edit.growth
        one.spans = [(start + edit.growth, end + edit.growth) for start, end in one.spans]
        return
    if edit.start >= one.end:
        return
    if edit.start <= one.start and edit.end >= one.end and one.spans:
        # All of it lies inside of what was replaced: a formatter, or a file read again. It may still be there.
        kept = former[one.start : one.end]
        found = edit.text.find(kept)
        if kept.strip() and found >= 0:
            at = edit.start + found
            shift = at - one.start
            one.start, one.end = at, at + len(kept)
            one.spans = [(start + shift, end + shift) for start, end in one.spans]
            return
    one.spans = list(_without(one.spans, edit))
    # Where an edit reaches over an end, so much of the new text counts as standing for what it replaced inside.
    start = one.start if edit.start >= one.start else max(edit.start, new_end - (edit.end - one.start))
    end = one.end + edit.growth if edit.end <= one.end else min(new_end, edit.start + (one.end - edit.start))
    one.start, one.end = start, max(start, end)


def _without(spans: Sequence[tuple[int, int]], edit: Edit) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    for start, end in spans:
        if start < edit.start:
            parts.append((start, min(end, edit.start)))
        if end > edit.end:
            parts.append((max(start, edit.end) + edit.growth, end + edit.growth))
    return parts


def _find(one: _Tracked, text: str) -> None:
    """Look for the accepted text where it should be, then around there; documents may have other line breaks."""
    for wanted in dict.fromkeys((one.graft.text, one.graft.text.replace("\n", "\r\n"))):
        at = one.graft.start if text.startswith(wanted, one.graft.start) else -1
        if at < 0:
            low = max(0, one.graft.start - _NEAR)
            at = text.find(wanted, low, one.graft.start + len(wanted) + _NEAR)
        if at >= 0:
            one.place(at, len(wanted))
            return
