"""Parameters of `notebookDocument/*` (LSP 3.17, Notebook Document Synchronization), as far as the server reads them.

What cells put out, when they ran and their metadata are not read: the types leave them out.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from foretype_lsp.messages import ContentChange, Identifier, Params, TextDocument

MARKUP: Final = 1

_Index = Annotated[int, Meta(ge=0)]


class Cell(Params, frozen=True):
    """`document` is the URI of the cell's text; every kind but text is code."""

    document: str
    kind: int = 2


class Notebook(Params, frozen=True):
    uri: str
    cells: list[Cell]


class DidOpenNotebook(Params, frozen=True):
    notebook_document: Notebook
    cell_text_documents: list[TextDocument]


class Array(Params, frozen=True):
    start: _Index
    delete_count: _Index
    cells: list[Cell] | None = None


class Structure(Params, frozen=True):
    """Cells that came and went: what came with a text of its own is in `did_open`, other cells were there before."""

    array: Array
    did_open: list[TextDocument] | None = None


class TextContent(Params, frozen=True):
    document: Identifier
    changes: list[ContentChange]


class CellChanges(Params, frozen=True):
    structure: Structure | None = None
    data: list[Cell] | None = None
    text_content: list[TextContent] | None = None


class NotebookChange(Params, frozen=True):
    cells: CellChanges | None = None


class DidChangeNotebook(Params, frozen=True):
    notebook_document: Identifier
    change: NotebookChange


class DidCloseNotebook(Params, frozen=True):
    notebook_document: Identifier
