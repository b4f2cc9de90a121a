"""Who offers next edits: one interface for the engine and for the floors it is measured beside. Pure, with injected time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from foretype_context.edits.evidence import NextEdit
from foretype_context.edits.followed import Followed
from foretype_context.edits.pace import Eagerness, Pace, RememberedEdit
from foretype_context.syntax.document import Edit
from foretype_context.syntax.languages import language_of

_ORIGINS: Final = 3
_NOWHERE: Final = RememberedEdit("", "", "", "")


class Offer(NamedTuple):
    """`edit` of the text that `path` has now.

    Attributes:
        evidence: what it rests on.
        jump_only: the place is known, not what belongs there.
    """

    path: str
    edit: Edit
    evidence: str
    jump_only: bool = False


class Predictor(Protocol):
    """Is told what happens, as a language server is, and asked what comes next.

    Attributes:
        clock: seconds, by which an answer's time is told: of this thread where it is computed here, of the wall where it is waited for.
    """

    clock: Callable[[], float]

    def opened(self, path: str, text: str) -> None:
        """A document was opened, or its text came anew from outside."""
        ...

    def changed(self, path: str, edits: Sequence[Edit], at_s: float, *, accepted: bool = False) -> None:
        """As :meth:`foretype_context.edits.followed.Followed.changed`."""
        ...

    def wait_s(self, *, in_line: bool) -> float:
        """How long it waits after the last change; `in_line` while the cursor stands in the line of that."""
        ...

    def next(self, path: str, cursor: int) -> Offer | None:
        """What is offered to somebody who stands at `cursor` and has stopped typing for so long."""
        ...

    def refused(self, offer: Offer) -> None: ...


def usual_wait_s(*, in_line: bool, eagerness: Eagerness = Eagerness.MEDIUM) -> float:
    """The language server's wait for somebody who has refused and accepted nothing yet."""
    return Pace().wait_s(0.0, 0.0, eagerness=eagerness, in_line=in_line)


class Rules:
    """The engine without a model, as the language server runs it over open documents: one after the other, then what each says of others."""

    clock = staticmethod(time.thread_time)

    def __init__(self, eagerness: Eagerness = Eagerness.MEDIUM) -> None:
        self._eagerness, self._pace = eagerness, Pace()
        self._open: dict[str, Followed] = {}
        self._changed: list[str] = []  # paths, the last one first: what they say of others
        self._origin = ""

    def opened(self, path: str, text: str) -> None:
        self._open[path] = Followed(language_of(path), text)

    def changed(self, path: str, edits: Sequence[Edit], at_s: float, *, accepted: bool = False) -> None:
        self._open[path].changed(edits, at_s, accepted=accepted)
        if not accepted:
            self._changed = [path, *(one for one in self._changed if one != path)][:_ORIGINS]

    def wait_s(self, *, in_line: bool) -> float:
        return usual_wait_s(in_line=in_line, eagerness=self._eagerness)

    def next(self, path: str, cursor: int) -> Offer | None:
        found = self._open[path].next(cursor)
        self._origin = path
        if found is not None:
            return self._offer(path, found)
        for origin in self._changed:
            elsewhere = self._open[origin].elsewhere(origin)
            if elsewhere is None:
                continue
            self._origin = origin
            for other in dict.fromkeys((path, *self._open)):
                if other != origin and (found := self._open[other].follow(elsewhere, other)) is not None:
                    return self._offer(other, found)
        return None

    def refused(self, offer: Offer) -> None:
        """Told to the document whose edits it rests on."""
        self._open[self._origin].refused(self._open[offer.path].text, offer.edit)

    def _offer(self, path: str, found: NextEdit) -> Offer | None:
        """None for what this eagerness does not show."""
        shown = self._pace.allows(found.evidence, self._eagerness, _NOWHERE, 0.0, 0.0)
        return Offer(path, found.edit, found.evidence.value, found.jump_only) if shown else None
