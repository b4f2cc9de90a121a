"""Places of commits at which the adaptive model proposes a text, each looked at once for all rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from foretype_client.adaptive.candidates import LocalCandidate
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.threshold import SHOW_RULE
from foretype_context.syntax.languages import language_of
from foretype_context.text.document import Document, Snapshot

from foretype_lab.adaptive.fit import EditsSoFar, WithFiles
from foretype_lab.adaptive.typed import drawn
from foretype_lab.together.network_says import Said
from foretype_lab.together.rules import Place

__all__ = ["Places", "Ruled", "Score", "Told", "told_of"]

Score = Callable[[str, Snapshot, int, str], Said]

_LEAST: Final = 0.05
"""Less probable texts are not asked about: no network makes so much of them."""


class Told(NamedTuple):
    """A place, and whether the text was all that was written on the line."""

    place: Place
    right: bool


class Places:
    """What there is to say at a place, kept, so that every rule judges the same.

    A text that was proposed a key before, and goes on as it was typed, keeps what the network said of it.
    """

    def __init__(self, model: AdaptiveModel, score: Score) -> None:
        self.model = model
        self.scored = 0
        self._score = score
        self._known: dict[tuple[str, str], Place | None] = {}
        self._before: tuple[str, str, Said] | None = None
        """File, text up to the end of what was proposed last, and what the network said to it."""

    def forget(self) -> None:
        """Another commit: the same text stands among other files."""
        self._known.clear()
        self._before = None

    def at(self, snapshot: Snapshot, offset: int) -> Place | None:
        typed = snapshot.text[:offset]
        key = (snapshot.uri, typed)
        if key not in self._known:
            self._known[key] = self._look(snapshot, offset, typed)
        return self._known[key]

    def _look(self, snapshot: Snapshot, offset: int, typed: str) -> Place | None:
        found, agreed = self.model.weighed(snapshot, offset, least=_LEAST)
        if found is None:
            return None
        whole = typed + found.text
        if self._before is not None and self._before[:2] == (snapshot.uri, whole):
            said = self._before[2]
        else:
            said = self._score(snapshot.uri, snapshot, offset, found.text)
            self.scored += 1
            self._before = (snapshot.uri, whole, said)
        return Place(found.text, found.confidence, agreed, said)


class Ruled:
    """A system to type with: shows what the rule of showing allows at the chance that `chance` gives a place."""

    unfinished = False

    def __init__(self, places: Places, chance: Callable[[Place], float]) -> None:
        self._places = places
        self._chance = chance

    def learn(self, uri: str, text: str) -> None:
        self._places.model.learn(uri, text)

    def prepare(self, uri: str) -> None:
        self._places.model.prepare(uri)

    def suggest(self, snapshot: Snapshot, offset: int) -> LocalCandidate | None:
        place = self._places.at(snapshot, offset)
        if place is None:
            return None
        chance = self._chance(place)
        if not SHOW_RULE.allows(place.text, chance, max(place.agreed, chance)):
            return None
        return LocalCandidate(place.text, chance)


def told_of(commits: Iterable[WithFiles], places: Places, *, keys_max: int) -> Iterable[Told]:
    """Every place of the lines that `typed` draws, nothing accepted; a text that goes on as it was typed counts once."""
    for commit, files in commits:
        places.forget()
        edits = EditsSoFar(places.model, commit, files)
        for line in drawn(commit, keys_max, random.Random(commit.id)):
            stretch = line.stretch
            edits.reached(stretch.path)
            scored = places.scored
            for at in range(line.begin, line.end + 1):
                left = stretch.before + stretch.target[:at]
                document = Document(stretch.path, left + stretch.after, language=language_of(stretch.path))
                place = places.at(document.snapshot(), len(left))
                if place is not None and places.scored > scored:
                    scored = places.scored
                    yield Told(place, place.text == stretch.target[at : line.end])
