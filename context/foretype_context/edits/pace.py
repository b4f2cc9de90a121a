"""When a next edit may be shown: how long a document has to be quiet, and what refusals cost. Pure, with injected time.

The numbers are those of Copilot's client, except the least wait, which is the engine's. A refusal makes every wait
longer by half and an acceptance shorter by a fifth, each fading over ten minutes; after a refusal there is silence, and
longer on its line. A user who wants few next edits is shown few.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from foretype_context.edits.evidence import Evidence
from foretype_context.edits.next_edit import SETTLED_S
from foretype_context.syntax.document import Edit

USER_COOL_DOWN_S: Final = 5.0
"""After a refusal, in every document."""
LINE_COOL_DOWN_S: Final = 60.0
"""After a refusal, on its line, and for what says the same elsewhere in its document."""

_WAIT_MOST_S: Final = 3.0
_REFUSED_TIMES: Final = 1.5
_ACCEPTED_TIMES: Final = 0.8
_FADES_S: Final = 600.0
_OUTCOMES: Final = 10
_OUTCOMES_LEAST: Final = 4
"""Fewer say nothing of somebody."""
_CONTENT: Final = 0.4
"""Share of acceptances below which only what is surest is shown."""
_REFUSED: Final = 64
_STALE_S: Final = 10.0
"""A cursor that moves this long after the last change is reading."""
_STALE_RENAME_S: Final = 300.0
"""What is certain is still true then."""


class Eagerness(StrEnum):
    """How sure a next edit must be to be shown: each level shows what the one before shows, and more.

    `low`: a rename that was followed once by hand, and changed signatures. `medium`: what a declaration's new name says alone, and what two
    edits that are alike say. `high`: what a model says.
    """

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


LINE_S: Final = {Eagerness.LOW: 2.0, Eagerness.MEDIUM: 2.0, Eagerness.HIGH: 1.0}
"""While the cursor stands in the line that was changed last: who renames a variable may be about to give it another value. In a recorded
session half of the further edits in a line began more than 1.1 s after the one before, and a quarter more than 2.2 s."""

_SURE: Final = frozenset({"rename", "signature"})
_LASTING: Final = _SURE | {"declaration"}
"""A rename is still to be followed long after it was typed."""
_LEVELS: Final = {
    Eagerness.LOW: _SURE,
    Eagerness.MEDIUM: _SURE | {"declaration", "like_edits"},
    Eagerness.HIGH: _SURE | {"declaration", "like_edits", "model"},
}
"""Of the renames of ordinary commits that a use by hand confirmed, 76 of 81 were right at the next place, of the others one in four was
not: a new name is often a new thing. What rests on one example is shown at no level: of 84 in held-out commits 3 were right."""


class RememberedEdit(NamedTuple):
    """A next edit, by what a refusal is remembered by: its line, what it replaces, and what by."""

    uri: str
    line: str
    old: str
    new: str


class _Outcome(NamedTuple):
    at_s: float
    accepted: bool


class Pace:
    """How often and how soon one user is shown next edits."""

    def __init__(self) -> None:
        self._outcomes = deque[_Outcome](maxlen=_OUTCOMES)
        self._refused_s = -math.inf
        self._refused = deque[tuple[float, RememberedEdit]](maxlen=_REFUSED)

    def wait_s(
        self,
        quiet_s: float,
        now_s: float,
        *,
        eagerness: Eagerness,
        chained: bool = False,
        in_line: bool = False,
        by_hand: bool = False,
    ) -> float:
        """How much longer to wait for a document that has been quiet for so long.

        Args:
            chained: the last change was an edit that was taken: there is no wait.
            in_line: the cursor stands in the line of the last change (:func:`is_in_line`).
            by_hand: the user asked: who does has finished, whatever was refused before.
        """
        if chained:
            return 0.0
        if by_hand:
            return max(0.0, SETTLED_S - quiet_s)
        settled_s = LINE_S[self._eagerness(eagerness, now_s)] if in_line else SETTLED_S
        for outcome in self._recent(now_s):
            times = _ACCEPTED_TIMES if outcome.accepted else _REFUSED_TIMES
            settled_s *= times ** (1 - (now_s - outcome.at_s) / _FADES_S)
        return max(0.0, min(max(settled_s, SETTLED_S), _WAIT_MOST_S) - quiet_s)

    def cool_down_s(self, now_s: float) -> float:
        """How long there is silence yet."""
        return max(0.0, self._refused_s + USER_COOL_DOWN_S - now_s)

    def shows(self, evidence: Evidence, eagerness: Eagerness, now_s: float) -> bool:
        """Whether edits that rest on this may be shown at all."""
        return str(evidence) in _LEVELS[self._eagerness(eagerness, now_s)]

    def allows(
        self, evidence: Evidence, eagerness: Eagerness, told: RememberedEdit, quiet_s: float, now_s: float
    ) -> bool:
        """Whether an edit may be shown."""
        name = str(evidence)
        if not self.shows(evidence, eagerness, now_s):
            return False
        if quiet_s > (_STALE_RENAME_S if name in _LASTING else _STALE_S):
            return False
        recent = [one for at_s, one in self._refused if one.uri == told.uri and now_s - at_s < LINE_COOL_DOWN_S]
        return not any(one.line == told.line or one[2:] == told[2:] for one in recent)

    def accepted(self, now_s: float) -> None:
        self._outcomes.append(_Outcome(now_s, accepted=True))
        self._refused_s = -math.inf

    def rejected(self, told: RememberedEdit, now_s: float) -> None:
        """The user took it off the screen."""
        self._outcomes.append(_Outcome(now_s, accepted=False))
        self._refused_s = now_s
        self._refused.append((now_s, told))

    def _eagerness(self, wanted: Eagerness, now_s: float) -> Eagerness:
        recent = list(self._recent(now_s))
        unhappy = len(recent) >= _OUTCOMES_LEAST and sum(one.accepted for one in recent) < _CONTENT * len(recent)
        return Eagerness.LOW if unhappy else wanted

    def _recent(self, now_s: float) -> Iterator[_Outcome]:
        return (outcome for outcome in self._outcomes if now_s - outcome.at_s < _FADES_S)


def is_in_line(text: str, last: Edit, cursor: int) -> bool:
    """Whether a place stands in the line that an edit changed, or in one of its lines.

    Args:
        text: after the edit.
    """
    end = last.start + len(last.text)
    return "\n" not in text[cursor : last.start] and "\n" not in text[end:cursor]
