"""A recorded session: what would have been offered while somebody worked, and what they did then.

Asked after every change that was followed by quiet, as long as the server waits. Nothing is taken: the session goes on
as it was. What is shown is right if, the next time the place that it names is edited, the text comes to what it said or is on a shortest
way there; wrong if the place becomes another thing, or nothing comes of it within ten minutes or before the recording ends. It is counted
once, however long it stands.

Every burst elsewhere than the one before it is an opportunity: what was on offer at that moment was it (`right`), was something else
(`wrong`), or there was nothing (`silent`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from foretype_context.edits.bursts import Burst, Bursts, ChangeOrigin
from foretype_context.edits.followed import applied
from foretype_context.edits.pace import is_in_line
from foretype_context.syntax.document import Edit

from foretype_eval.next_edit.changes import around_place, leads_to, line_at
from foretype_eval.next_edit.offers import Offer, Predictor
from foretype_eval.next_edit.tally import TAB_KEYS, ClusterTally, WrongOffer, by_hand
from foretype_eval.replay.edit_events import Changed, Loaded, Recording

_HORIZON_S: Final = 600.0
_DRAWN_S: Final = 0.1
"""From a settled text to something on the screen: what comes and goes within it was never shown."""
_DONE_SHOWN: Final = 3


@dataclass(slots=True)
class _Shown:
    """An offer and its place as it moves; `touched` once the developer began to edit there."""

    offer: Offer
    text: str
    since_s: float
    start: int
    end: int
    touched: bool = False
    done: tuple[str, ...] = ()


@dataclass(slots=True)
class _Document:
    text: str
    bursts: Bursts
    tally: ClusterTally
    cursor: int = 0
    shown: list[_Shown] = field(default_factory=list["_Shown"])
    standing: Offer | None = None
    before_burst: tuple[str, Offer | None] = ("", None)
    last_end: int = -1
    """Where the burst before this one ended."""
    done: list[str] = field(default_factory=list[str])


class Session:
    """One predictor through one recording."""

    def __init__(self, recording: Recording, predictor: Predictor) -> None:
        self._events, self._predictor = recording.events, predictor
        self._open: dict[str, _Document] = {}
        self.tallies: dict[str, ClusterTally] = {}
        self.opportunities = Counter[str]()

    def run(self) -> None:
        """Plays all of it."""
        waits: Changed | None = None
        for event in self._events:
            if waits is not None and event.time_s >= self._due_s(waits):
                self._ask(waits.path, self._due_s(waits))
                waits = None
            if isinstance(event, Loaded):
                self._load(event)
            elif isinstance(event, Changed):
                waits = event
                self._change(event)
            elif event.path in self._open:
                self._open[event.path].cursor = event.offset
        if waits is not None:
            self._ask(waits.path, self._due_s(waits))
        for document in self._open.values():
            self._close(document)

    def at_opportunities(self) -> dict[str, Any]:
        return {name: self.opportunities[name] for name in ("right", "wrong", "silent")}

    def _load(self, event: Loaded) -> None:
        old = self._open.get(event.path)
        if old is not None and old.text == event.text:
            return
        if old is not None:
            self._close(old)
        tally = self.tallies.setdefault(event.path, ClusterTally(event.path))
        self._open[event.path] = _Document(event.text, Bursts(event.text), tally)
        self._predictor.opened(event.path, event.text)

    def _change(self, event: Changed) -> None:
        document = self._open[event.path]
        before, after = document.text, applied(document.text, event.edits)
        ended = document.bursts.changed(event.edits, after, event.time_s, accepted=event.accepted)
        if ended is not None:
            self._ended(document, ended, before, event.time_s)
        if (begun := document.bursts.open) is not None and begun.before == before:
            document.before_burst = before, document.standing
        document.standing = None
        document.tally.keys += 1
        document.text = after
        for edit in event.edits:
            document.cursor = edit.start + len(edit.text)
            for shown in document.shown:
                _move(shown, edit)
        self._predictor.changed(event.path, event.edits, event.time_s, accepted=event.accepted)

    def _ended(self, document: _Document, burst: Burst, now: str, now_s: float) -> None:
        """A burst is over: was it offered, and what of the places that it touched?"""
        before, offer = document.before_burst
        start, end, text = burst.edit
        elsewhere = document.last_end >= 0 and abs(start - document.last_end) > 1 and before == burst.before
        if elsewhere and burst.how is not ChangeOrigin.UNDONE and burst.how is not ChangeOrigin.FORMATTED:
            document.tally.opportunities += 1
            met = offer is not None and _leads_to(before, offer, burst)
            self.opportunities["right" if met else "silent" if offer is None else "wrong"] += 1
            document.tally.met += met
        document.last_end = start + len(text)
        document.done.insert(0, f"{burst.before[start:end]!r} → {text!r} in {line_at(burst.before, start)!r}")
        for shown in list(document.shown):
            if shown.touched or now_s - shown.since_s > _HORIZON_S:
                self._judge(document, shown, now)

    def _due_s(self, last: Changed) -> float:
        """When something would be seen."""
        document = self._open[last.path]
        in_line = bool(last.edits) and is_in_line(document.text, last.edits[-1], document.cursor)
        return last.time_s + self._predictor.wait_s(in_line=in_line) + _DRAWN_S

    def _ask(self, path: str, at_s: float) -> None:
        document = self._open[path]
        started = self._predictor.clock()
        offer = self._predictor.next(path, document.cursor)
        document.tally.ms.append(1000 * (self._predictor.clock() - started))
        for one in self._open.values():
            one.standing = None
        if offer is None:
            return
        document = self._open[offer.path]
        document.standing = offer
        if not any(_same(shown, offer) for shown in document.shown):
            place = around_place(document.text, offer.edit.start) if offer.jump_only else offer.edit[:2]
            done = tuple(document.done[:_DONE_SHOWN])
            document.shown.append(_Shown(offer, document.text, at_s, *place, done=done))

    def _close(self, document: _Document) -> None:
        if (ended := document.bursts.end()) is not None:
            self._ended(document, ended, document.text, ended.ended_s)
        for shown in list(document.shown):
            self._judge(document, shown, document.text)

    def _judge(self, document: _Document, shown: _Shown, now: str) -> None:
        document.shown.remove(shown)
        jump = shown.offer.jump_only
        right = shown.touched if jump else leads_to(shown.text, shown.offer.edit, now)
        document.tally.judged(shown.offer.evidence, right=right)
        if right and jump:
            document.tally.jumps += 1
        elif right:
            document.tally.keys_saved += by_hand(shown.offer.edit) - TAB_KEYS
        if right:
            return
        line, then = line_at(shown.text, shown.offer.edit.start), applied(shown.text, (shown.offer.edit,))
        document.tally.mistakes.append(
            WrongOffer(
                document.tally.cluster,
                shown.offer.path,
                shown.offer.evidence,
                line,
                line_at(then, shown.offer.edit.start),
                shown.done,
            )
        )


def _leads_to(before: str, offer: Offer, burst: Burst) -> bool:
    if offer.jump_only:
        start, end = around_place(before, offer.edit.start)
        return start <= burst.edit.start <= end
    return leads_to(before, offer.edit, burst.after)


def _move(shown: _Shown, edit: Edit) -> None:
    shift = edit.growth
    if edit.end < shown.start or (edit.end == shown.start and shown.start < shown.end):
        shown.start += shift
        shown.end += shift
    elif edit.start <= shown.end:
        shown.touched = True
        shown.start = min(shown.start, edit.start)
        shown.end = max(shown.end, edit.end) + shift


def _same(shown: _Shown, offer: Offer) -> bool:
    if shown.touched or shown.offer.jump_only != offer.jump_only:
        return False
    if offer.jump_only:
        return shown.start <= offer.edit.start <= shown.end
    return (shown.start, shown.end, shown.offer.edit.text) == offer.edit
