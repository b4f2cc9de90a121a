"""What became of next edits, as telemetry events. Pure, with injected time; texts stay here, lengths go out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from foretype_wire.telemetry import NextEdit, NextSurvive

from foretype_client.feedback.events import Graft
from foretype_client.telemetry.survival import Due, Survival


class TakenEdit(NamedTuple):
    """An edit that is in a document now. Never leaves the process.

    Attributes:
        start: character offset of its lines in the document.
        before, after: these lines, as they were and as they are.
        old, new: of them, what was replaced and by what.
    """

    uri: str
    start: int
    before: str
    after: str
    old: str
    new: str


class NextEditOutcome(NamedTuple):
    """One that was visible and is not any more; the fields of :class:`foretype_wire.telemetry.NextEdit`, and what was `taken`."""

    id: str
    chain: str
    order: int
    language: str
    evidence: str
    end: str
    shown_s: float
    inserted: int
    deleted: int
    elsewhere: bool
    jump: bool
    jumped: bool
    taken: TakenEdit | None


class NextEditLog:
    """Turns what became of one editor's next edits into telemetry events.

    Args:
        add: takes the class of an event, when it was (monotonic seconds), a language, and its fields.
        clock: monotonic seconds.
        survival: follows what was taken; what is due of it is told by :meth:`measured`.
    """

    def __init__(self, add: Callable[..., None], clock: Callable[[], float], survival: Survival) -> None:
        self._add = add
        self._clock = clock
        self._survival = survival
        self._taken: dict[str, tuple[TakenEdit, str]] = {}

    def ended(self, outcome: NextEditOutcome) -> None:
        now_s = self._clock()
        fields: dict[str, Any] = outcome._asdict()
        taken, language, shown_s = fields.pop("taken"), fields.pop("language"), fields.pop("shown_s")
        self._add(NextEdit, shown_s, language, visible_ms=round(max(0.0, now_s - shown_s) * 1000, 3), **fields)
        if taken is not None:
            live = self._survival.ids()
            self._taken = {id: one for id, one in self._taken.items() if id in live}
            self._taken[outcome.id] = taken, language
            self._survival.accepted(Graft(outcome.id, outcome.chain, taken.uri, taken.start, taken.after, now_s))

    def measured(self, due: Due) -> bool:
        """Tell of one whose age has come; False where it is none of these."""
        if (known := self._taken.get(due.graft.id)) is None:
            return False
        taken, language = known
        self._add(NextSurvive, due.graft.at_s + due.age_s, language, **_left(due, taken))
        return True


def _left(due: Due, taken: TakenEdit) -> dict[str, Any]:
    is_gone = due.now.count(taken.old) <= taken.after.count(taken.old)
    return {
        "id": due.graft.id,
        "age_s": due.age_s,
        "inserted": len(taken.new),
        "inserted_kept": len(taken.new) if taken.new in due.now else 0,
        "deleted": len(taken.old),
        "deleted_kept": len(taken.old) if is_gone else 0,
        "reversed": due.now == taken.before,
    }
