"""`notebookDocument/*`: what an editor says of its notebooks, and what the flow and the sources are told of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from lsprotocol import types

from foretype_lsp import messages
from foretype_lsp.documents.documents import ChangeResult
from foretype_lsp.documents.notebook_messages import DidChangeNotebook, DidCloseNotebook, DidOpenNotebook
from foretype_lsp.documents.notebooks import Changed, Closed, Event
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.errors import InvalidParamsError

_log: Final = logging.getLogger(__name__)

SYNC_OPTIONS: Final = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])
"""All cells of all notebooks: text is context too. Clients that do not say that they know notebooks are told nothing."""


class NotebookSync:
    """Handlers of the messages by their names."""

    def __init__(self, documents: SharedDocuments, closed: Callable[[str], None]) -> None:
        """`closed` is told the URI of a notebook's document that is not open any more."""
        self._documents = documents
        self._closed = closed
        self.handlers: dict[str, Callable[[Any], Any]] = {
            types.NOTEBOOK_DOCUMENT_DID_OPEN: self._on_open,
            types.NOTEBOOK_DOCUMENT_DID_CHANGE: self._on_change,
            types.NOTEBOOK_DOCUMENT_DID_CLOSE: self._on_close,
            types.NOTEBOOK_DOCUMENT_DID_SAVE: lambda params: None,  # nothing is read from a notebook's file
        }

    def _on_open(self, params: object) -> None:
        opened = messages.read(params, DidOpenNotebook)
        notebook = opened.notebook_document
        self._tell(self._documents.notebooks.open(notebook.uri, notebook.cells, opened.cell_text_documents))

    def _on_change(self, params: object) -> None:
        try:
            changed = messages.read(params, DidChangeNotebook)
        except InvalidParamsError:
            if (uri := messages.find(params, str, "notebookDocument", "uri")) is not None:
                self._documents.notebooks.lose(uri)
            raise
        if changed.change.cells is None:
            return
        told = self._documents.notebooks.change(changed.notebook_document.uri, changed.change.cells)
        if isinstance(told, ChangeResult):
            _log.debug("change of a notebook ignored: %s", told)
        else:
            self._tell(told)

    def _on_close(self, params: object) -> None:
        self._tell(self._documents.notebooks.close(messages.read(params, DidCloseNotebook).notebook_document.uri))

    def _tell(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Closed):
                self._documents.closed(event.held)
                self._closed(event.held.document.uri)
            elif isinstance(event, Changed):
                self._documents.changed(event.held, event.typed_to)
            elif (none := self._documents.opened(event.held)) is not None:
                _log.info("%s", none)
