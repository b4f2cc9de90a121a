"""A developer who turns texts into wanted ones, edit by edit, and takes what is offered where it leads there. Pure, in virtual time.

Right offers are taken, and the next is asked for at once; a wrong one is refused, and nothing more is looked at before the next edit of
their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from foretype_context.edits.followed import applied
from foretype_context.edits.pace import is_in_line
from foretype_context.syntax.document import Edit
from foretype_context.text.lexemes import lex

from foretype_eval.next_edit.changes import around_place, edits_between, leads_to, line_at
from foretype_eval.next_edit.offers import Offer, Predictor
from foretype_eval.next_edit.tally import TAB_KEYS, ClusterTally, WrongOffer, by_hand

_KEY_S: Final = 0.1
_PAUSE_S: Final = 2.0
_LINE_PAUSES_S: Final = (0.04, 0.56, 1.33, 4.21)
"""Before another edit in the same line, in turns: the middles of the quarters of 28 such pauses in vscode-copilot-chat's recorded session."""
_BLANKS: Final = 8
"""Typed at once, as an editor indents; a longer run would look like a formatter's."""
_DONE_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class File:
    """A text that becomes another.

    Attributes:
        first: edits of `before` that are typed in this order; None: all that lead to `wanted`, from the top down.
    """

    path: str
    before: str
    wanted: str
    first: tuple[Edit, ...] | None = None


class Developer:
    """One developer with one predictor.

    Args:
        tally: gets keys, offers and their times; the caller counts opportunities.
    """

    def __init__(self, predictor: Predictor, files: Sequence[File], tally: ClusterTally) -> None:
        self.texts = {file.path: file.before for file in files}
        self._predictor, self._tally = predictor, tally
        self._files = files
        self._wanted = {file.path: file.wanted for file in files}
        self._now_s, self._pause_s = 0.0, _PAUSE_S
        self._done: list[str] = []
        self._line_pauses_s = itertools.cycle(_LINE_PAUSES_S)
        for file in files:
            predictor.opened(file.path, file.before)

    def work(self) -> None:
        """Types every file, in order, and takes what comes."""
        typed = met = 0
        for file in self._files:
            todo = list(file.first or ())
            while True:
                if file.first is None:
                    todo = edits_between(self.texts[file.path], file.wanted)
                if not todo:
                    break
                edit = todo.pop(0)
                self._type(file.path, edit)
                typed += 1
                self._pause(file.path, edit, todo)
                if self._pause_s >= self._predictor.wait_s(in_line=True):
                    met += self._look(file.path, edit.start + len(edit.text), todo)
        self._tally.opportunities += max(typed - 1, 0) + met
        self._tally.met += met

    def _pause(self, path: str, edit: Edit, todo: Sequence[Edit]) -> None:
        """How long the text stays as it is after `edit`; who goes elsewhere always waits long enough."""
        in_line = bool(todo) and is_in_line(self.texts[path], edit, todo[0].start)
        self._pause_s = next(self._line_pauses_s) if in_line else _PAUSE_S

    def _look(self, path: str, cursor: int, todo: list[Edit]) -> int:
        """Takes offers as long as they are right; what is left of `todo` moves with them."""
        met = 0
        while (offer := self._ask(path, cursor)) is not None:
            edit = self._wanted_at(offer)
            self._tally.judged(offer.evidence, right=edit is not None)
            if edit is None:
                self._tally.mistakes.append(self._mistake(offer, self.texts[offer.path]))
                self._predictor.refused(offer)
                break
            if offer.jump_only:
                self._tally.jumps += 1
                self._type(offer.path, edit)
            else:
                self._tally.keys_saved += by_hand(edit) - TAB_KEYS
                self._apply(offer.path, edit, accepted=True)
            if offer.path == path:
                todo[:] = [moved for one in todo if (moved := _moved(one, edit)) is not None]
            path, cursor = offer.path, edit.start + len(edit.text)
            met += 1
        return met

    def _wanted_at(self, offer: Offer) -> Edit | None:
        """What the developer does where an offer leads: the edit itself, or what is to be typed there; None: nothing."""
        text, wanted = self.texts[offer.path], self._wanted[offer.path]
        if not offer.jump_only:
            return offer.edit if leads_to(text, offer.edit, wanted) else None
        start, end = around_place(text, offer.edit.start)
        return next((edit for edit in edits_between(text, wanted) if start <= edit.start and edit.end <= end), None)

    def _ask(self, path: str, cursor: int) -> Offer | None:
        started = self._predictor.clock()
        offer = self._predictor.next(path, cursor)
        self._tally.ms.append(1000 * (self._predictor.clock() - started))
        return offer

    def _type(self, path: str, edit: Edit) -> None:
        self._now_s += self._pause_s
        text = self.texts[path]
        self._done.insert(0, f"{text[edit.start : edit.end]!r} → {edit.text!r} in {line_at(text, edit.start)!r}")
        if edit.end > edit.start:
            self._apply(path, Edit(edit.start, edit.end, ""))
            self._tally.keys += 1
        at = edit.start
        for part in _strokes(edit.text):
            self._apply(path, Edit(at, at, part))
            at += len(part)
        self._tally.keys += len(edit.text)

    def _apply(self, path: str, edit: Edit, *, accepted: bool = False) -> None:
        self._now_s += _KEY_S
        self.texts[path] = applied(self.texts[path], (edit,))
        self._predictor.changed(path, (edit,), self._now_s, accepted=accepted)

    def _mistake(self, offer: Offer, text: str) -> WrongOffer:
        then = applied(text, (offer.edit,))
        done = tuple(self._done[:_DONE_SHOWN])
        start = offer.edit.start
        return WrongOffer(
            self._tally.cluster, offer.path, offer.evidence, line_at(text, start), line_at(then, start), done
        )


def _strokes(text: str) -> Iterator[str]:
    """Word by word, for a key each costs ten times as much and tells an engine that waits for the end of a burst no more."""
    for lexeme in lex(text):
        for at in range(0, len(lexeme), _BLANKS) if lexeme.isspace() else (0,):
            yield lexeme[at : at + _BLANKS] if lexeme.isspace() else lexeme


def _moved(edit: Edit, other: Edit) -> Edit | None:
    """`edit` where the text stands after `other`; None where that did it already."""
    if edit.end <= other.start and not (edit.start == edit.end == other.start):
        return edit
    if edit.start >= other.end:
        shift = len(other.text) - (other.end - other.start)
        return Edit(edit.start + shift, edit.end + shift, edit.text)
    return None
