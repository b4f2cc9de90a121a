"""A document that somebody edits, for programs that keep the text themselves: changes, questions, and what became of the answers."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from foretype_context.syntax.document import Document, Edit, Snapshot

from foretype_client.flow.flow import CompletionFlow
from foretype_client.flow.suggestion import Suggestion
from foretype_client.listeners import Listeners
from foretype_client.policy.trigger import Trigger
from foretype_client.sources.all_sources import Sources


class OpenDocument:
    """An open document of a client (`Client.edit`); leaving its `with` block closes it and stops what was asked for it.

    Offsets count characters of the text as it stands.
    """

    def __init__(self, flow: CompletionFlow, sources: Sources, document: Document) -> None:
        self._flow = flow
        self._listeners = Listeners(sources, flow, flow.clock)
        self._document = document

    def __enter__(self) -> Self:
        self._listeners.opened(self._document)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listeners.closed(self._document)

    @property
    def text(self) -> str:
        """The text as it stands."""
        return self._document.text

    def snapshot(self) -> Snapshot:
        """The document as it stands, to keep."""
        return self._document.snapshot()

    def edit(self, start: int, end: int, text: str) -> int:
        """Put `text` in the place of the characters from `start` to `end`; returns the offset behind it.

        A question that is still open is answered with None: its answer would be for the text of before.

        Raises:
            EditRangeError: the place lies outside of the text, which stays as it is.
        """
        self._document.apply([Edit(start, end, text)], self._document.version + 1)
        self._listeners.changed(self._document)
        return start + len(text)

    async def suggest(self, offset: int, *, automatic: bool = False) -> Suggestion | None:
        """What could stand at `offset`; None where there is nothing to show, or the text changed meanwhile.

        What was suggested before and still fits what was typed since is the answer at once, with the id that it had. Cancelling
        the task that waits here lets the question go. What goes wrong at the gateway is no error: it stands in `Client.status`.

        Args:
            automatic: as if the cursor had only come to stand here. Then a question waits until the keys rest, and an answer
                that is likely wrong is not shown.
        """
        trigger = Trigger.AUTOMATIC if automatic else Trigger.INVOKED
        return await self._flow.suggest(self.snapshot(), offset, trigger=trigger)

    def shown(self, suggestion: Suggestion) -> None:
        """The suggestion stands before the user's eyes."""
        self._flow.shown(suggestion.id)

    def accept(self, suggestion: Suggestion, offset: int) -> int:
        """The user takes the suggestion for `offset`: it is written there. Returns the offset behind it."""
        self._flow.accepted(suggestion.id)
        return self.edit(offset, offset + suggestion.replaces, suggestion.text)
