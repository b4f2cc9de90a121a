"""What this user takes of what the local candidate shows, by language, and which rule of showing follows from it.

The rule of showing (:mod:`foretype_client.adaptive.threshold`) compares a text's chance of being right with what a look at it costs, alike
for everybody. Some take more than that chance says, half a line or a word of it, or write what repeats; some take nothing.
Looks and takes are counted, the takes that the chances promised beside them, and a bound of their ratio scales the
rule: a user who surely takes more sees texts from a lower chance on, a user who surely takes nothing from a higher one.
In between the rule is the same for all. Counts stay on this machine: numbers by language, no text, no times.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from foretype_client.adaptive.threshold import SHOW_RULE, ShowRule
from foretype_client.feedback.events import Accepted, Ended, EndReason, FeedbackEvent, PartiallyAccepted, Taken

_USUAL: Final = 1.0
"""Takes of a usual developer for each that the chances promise; replay of the A-line rule."""

_PRIOR: Final = 15.0
"""Promised takes that a user is believed to be usual for, before anything is known."""

_Z: Final = 1.28
"""Of a one-sided bound, 90 %."""

_MOST: Final = 2.0
_NOTHING: Final = 0.05
"""Below this share of the usual takes, surely, somebody takes nothing. Above it no rule is raised: a user who takes a tenth of what
others take, the long texts say, would lose that tenth."""

_LOOK_MS: Final = 300.0
"""A text that went sooner was not looked at."""

_MEMORY: Final = 600.0
"""Looks after which an older one counts a third."""

_PENDING: Final = 64
_LOOKS_KEPT: Final = 2_000


class Habit(msgspec.Struct, kw_only=True):
    """What was seen of one language.

    Attributes:
        looks: texts that were taken, or stood long enough to be read.
        promised: the sum of their chances.
        taken: how many of them were taken; a part counts as its share of the characters.
    """

    looks: float = 0.0
    promised: float = 0.0
    taken: float = 0.0

    def add(self, chance: float, share: float) -> None:
        keep = 1 - 1 / _MEMORY
        self.looks = self.looks * keep + 1
        self.promised = self.promised * keep + chance
        self.taken = self.taken * keep + share

    def scale(self) -> float:
        """What a chance is multiplied with before the rule looks at it; 1 where nothing is sure."""
        seen = self.taken / _USUAL + _PRIOR
        ratio, spread = seen / (self.promised + _PRIOR), math.exp(_Z / math.sqrt(seen))
        if ratio / spread > 1:
            return min(_MOST, ratio / spread)
        # The prior would hide that nobody took anything: what was seen alone must be below.
        most = (self.taken / _USUAL + _Z * math.sqrt(self.taken / _USUAL + 1)) / self.promised if self.promised else 1.0
        return 1 / _MOST if most < _NOTHING else 1.0


class LookedAtText(NamedTuple):
    """A text that was looked at: its chance of being right, and the share of its characters that was taken."""

    language: str
    chance: float
    share: float


class Habits:
    """Follows one flow, and gives the rule of a language.

    Args:
        known: by language id, from former sessions.
    """

    def __init__(self, known: Mapping[str, Habit] | None = None) -> None:
        self.of: dict[str, Habit] = dict(known or {})
        self._looks: list[LookedAtText] = []
        self._shown: OrderedDict[str, tuple[str, float, float]] = OrderedDict()

    def rule(self, language: str) -> ShowRule:
        """The rule of showing for a language."""
        habit = self.of.get(language)
        return SHOW_RULE if habit is None else SHOW_RULE.scaled(habit.scale())

    def showed(self, id: str, language: str, chance: float) -> None:
        """The local candidate `id` was given out with this chance of being right."""
        if id not in self._shown:
            self._shown[id] = language, chance, 0.0
            while len(self._shown) > _PENDING:
                self._shown.popitem(last=False)

    def told(self, event: FeedbackEvent) -> None:
        """What became of a suggestion."""
        shown = self._shown.get(event.id)
        if shown is None:
            return
        language, chance, share = shown
        match event:
            case PartiallyAccepted():
                share = event.accepted_characters / max(1, event.characters)
                self._shown[event.id] = language, chance, min(1.0, share)
                return
            case Accepted():
                counts, share = (
                    event.how is not Taken.TYPED or share > 0,
                    1.0 if event.how is not Taken.TYPED else share,
                )
            case Ended():
                gone = event.reason in (EndReason.DIVERGED, EndReason.LEFT)
                counts = share > 0 or (gone and event.visible_ms >= _LOOK_MS)
            case _:
                return
        del self._shown[event.id]
        if counts:
            self._looks.append(LookedAtText(language, chance, share))
            del self._looks[:-_LOOKS_KEPT]
            self.of.setdefault(language, Habit()).add(chance, share)

    def take(self) -> list[LookedAtText]:
        """What was looked at since the last call, to be saved."""
        looks, self._looks = self._looks, []
        return looks

    def use(self, known: Mapping[str, Habit]) -> None:
        """What is known by now, of other sessions too; looks that nobody took yet are added."""
        self.of = dict(known)
        for look in self._looks:
            self.of.setdefault(look.language, Habit()).add(look.chance, look.share)
