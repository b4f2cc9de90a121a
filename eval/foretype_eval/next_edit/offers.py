"""Who offers next edits: one interface for the engine and for the floors it is measured beside. Pure, with injected time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from foretype_context.syntax.languages import language_of
from foretype_context.text.document import Edit
from foretype_lsp.next_edit.followed import Change, Followed

__all__ = ["Offer", "Predictor", "Rules"]


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
    """Is told what happens, as a language server is, and asked what comes next."""

    def opened(self, path: str, text: str) -> None:
        """A document was opened, or its text came anew from outside."""
        ...

    def changed(self, path: str, change: Change) -> None: ...

    def next(self, path: str, cursor: int) -> Offer | None:
        """What is offered to somebody who stands at `cursor` and has stopped typing."""
        ...

    def refused(self, offer: Offer) -> None: ...


class Rules:
    """The engine without a model, as the language server runs it."""

    def __init__(self) -> None:
        self._open: dict[str, Followed] = {}

    def opened(self, path: str, text: str) -> None:
        self._open[path] = Followed(language_of(path), text)

    def changed(self, path: str, change: Change) -> None:
        self._open[path].changed(change)

    def next(self, path: str, cursor: int) -> Offer | None:
        found = self._open[path].next(cursor)
        return None if found is None else Offer(path, found.edit, found.evidence.value, found.jump_only)

    def refused(self, offer: Offer) -> None:
        followed = self._open[offer.path]
        followed.refused(followed.text, offer.edit)
