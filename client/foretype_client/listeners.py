"""Who is told of the open documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from foretype_context.syntax.document import Change, Document, Snapshot

from foretype_client.ports import Clock
from foretype_client.sources.all_sources import Sources


class DocumentListener(Protocol):
    """A completion flow, as its documents see it."""

    def document_opened(self, snapshot: Snapshot) -> None: ...
    def document_changed(self, change: Change) -> None: ...
    def document_closed(self, snapshot: Snapshot) -> None: ...


_Flow = TypeVar("_Flow", bound=DocumentListener)


@dataclass(slots=True)
class Listeners(Generic[_Flow]):
    """The sources of other files' snippets, then the flow: both may come late and go again.

    Attributes:
        flow: None while there is none.
        clock: monotonic seconds.
    """

    sources: Sources
    flow: _Flow | None
    clock: Clock

    def opened(self, document: Document) -> None:
        self.sources.opened(document.uri, document.text)
        if self.flow is not None:
            self.flow.document_opened(document.snapshot())

    def changed(self, document: Document) -> Change:
        """Tell what was applied to a document last."""
        change = document.change(self.clock())
        self.sources.changed(document.uri, document.text)
        if self.flow is not None:
            self.flow.document_changed(change)
        return change

    def closed(self, document: Document) -> None:
        self.sources.closed(document.uri)
        if self.flow is not None:
            self.flow.document_closed(document.snapshot())
