"""Open notebooks: one document each, which their cells are joined to, and the cells as what an editor asks about.

As with documents nothing raises, and what cannot be followed is lost until the editor opens the notebook again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple
from urllib.parse import unquote

from foretype_context.folder.exclude import holds_key, reason_in_line
from foretype_context.syntax.document import Document, Edit, Snapshot, difference
from foretype_context.syntax.languages import PLAINTEXT, language_spec

from foretype_lsp.documents.cells import masked, without_headers
from foretype_lsp.documents.documents import (
    MAX_DOCUMENT_BYTES,
    ChangeResult,
    Documents,
    HeldText,
    is_suspicious,
    typed_to,
)
from foretype_lsp.documents.joined import CellText, Joined
from foretype_lsp.documents.notebook_messages import MARKUP, Cell, CellChanges, Structure
from foretype_lsp.documents.positions import Lines, Position
from foretype_lsp.messages import TextDocument

_FRAGMENT: Final = "#cells"
"""Behind a notebook's URI: the editor may have the same file open as a text, too."""

_LANGUAGES: Final = {"ipython": "python", "c++": "cpp", "bash": "shellscript", "sh": "shellscript"}
"""What kernels call their languages, where LSP has another name; all are compared in lower case."""


class Opened(NamedTuple):
    """A document that is new to the client, or usable again."""

    held: HeldText


class Changed(NamedTuple):
    """`typed_to`: where in the document the cursor stands after one change that put something in; else None."""

    held: HeldText
    typed_to: int | None


class Closed(NamedTuple):
    held: HeldText


Event = Opened | Changed | Closed


@dataclass(slots=True, eq=False)
class _Notebook:
    uri: str
    joined: Joined
    held: HeldText


class OpenCell:
    """A cell, by what :class:`foretype_lsp.documents.documents.Open` asks."""

    def __init__(self, notebook: _Notebook, text: CellText) -> None:
        self._notebook = notebook
        self._text = text

    @property
    def uri(self) -> str:
        return self._text.uri

    @property
    def document(self) -> Document:
        return self._notebook.held.document

    @property
    def start(self) -> int:
        return self._notebook.joined.start_of(self._text)

    @property
    def lines(self) -> Lines:
        return self._text.lines

    @property
    def version(self) -> int:
        return self._text.version

    @property
    def file(self) -> str:
        return self._notebook.held.file

    @property
    def excluded(self) -> str | None:
        return self._notebook.held.excluded or str(self._text.kind) or None

    @property
    def lost(self) -> bool:
        return self._notebook.held.lost

    def snapshot(self) -> Snapshot:
        return self._notebook.held.snapshot()

    def offset_at(self, position: Position) -> int:
        return self.start + self._text.offset_at(position, self._notebook.joined.language)

    def excluded_at(self, position: Position) -> str | None:
        line = self.lines.line(min(position.line, len(self.lines) - 1))
        if masked(line, self._notebook.joined.language):
            return "a line that only IPython understands"
        return reason_in_line(line)

    def part_of(self, suggestion: str, before: str) -> str:
        return without_headers(suggestion, before, self._notebook.joined.language)


class Notebooks:
    """All open notebooks. Their documents and cells are in `documents`, by their URIs."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._open: dict[str, _Notebook] = {}

    def open(self, uri: str, cells: Sequence[Cell], texts: Sequence[TextDocument]) -> list[Event]:
        """Open a notebook, or open it again with other cells."""
        events: list[Event] = list(self.close(uri))
        made = self._made(cells, {text.uri: text for text in texts}, {})
        joined = Joined(made or (), PLAINTEXT)
        notebook = _Notebook(uri, joined, self._hold(uri, joined, 0))
        notebook.held.lost = made is None
        self._open[unquote(uri)] = notebook
        self._enter(notebook)
        return [*events, Opened(notebook.held)]

    def change(self, uri: str, changes: CellChanges) -> list[Event] | ChangeResult:
        """Apply what changed: first which cells there are, then their texts. Returns what became of the document."""
        notebook = self._open.get(unquote(uri))
        if notebook is None:
            return ChangeResult.UNKNOWN
        if notebook.held.lost:
            return ChangeResult.LOST
        events, edits, typed, suspicious = list[Event](), list[Edit](), None, False
        kinds = {cell.document: cell.kind for cell in changes.data or ()}
        same_kinds = all(cell.markup == (kinds.get(cell.uri, cell.markup) == MARKUP) for cell in notebook.joined.cells)
        if changes.structure is not None or not same_kinds:
            if not self._restructure(notebook, changes.structure, kinds):
                notebook.held.lost = True
                return ChangeResult.LOST
            text = notebook.joined.text
            if notebook.held.document.language != notebook.joined.language or not _fits(notebook.held, len(text)):
                events += self._reopen(notebook)
            else:
                edits.append(difference(notebook.held.document.text, text))
                suspicious = "-----" in edits[0].text
        for content in changes.text_content or ():
            cell = next((one for one in notebook.joined.cells if one.uri == content.document.uri), None)
            if cell is None:
                notebook.held.lost = True
                return ChangeResult.LOST
            version = cell.version + 1 if content.document.version is None else content.document.version
            edits.append(notebook.joined.change(cell, content.changes, version))
            typed = typed_to(OpenCell(notebook, cell), content.changes)
            suspicious = suspicious or is_suspicious(cell.lines, content.changes)
            if not _fits(notebook.held, len(notebook.held.document.text) + sum(len(edit.text) for edit in edits)):
                events += self._reopen(notebook)
                edits.clear()
        if edits and suspicious and holds_key(notebook.joined.text):
            notebook.held = self._hold(notebook.uri, notebook.joined, notebook.held.document.version + 1)
            events.append(Changed(notebook.held, None))  # of a text that is left out from now on
        elif edits:
            notebook.held.document.apply(edits, notebook.held.document.version + 1)
            events.append(Changed(notebook.held, typed))
        return events

    def lose(self, uri: str) -> None:
        """A change could not be read: from here on the cells are unknown."""
        if (notebook := self._open.get(unquote(uri))) is not None:
            notebook.held.lost = True

    def close(self, uri: str) -> list[Closed]:
        if (notebook := self._open.pop(unquote(uri), None)) is None:
            return []
        self._leave(notebook)
        self._documents.close(notebook.held.document.uri)
        return [Closed(notebook.held)]

    def _restructure(self, notebook: _Notebook, structure: Structure | None, kinds: dict[str, int]) -> bool:
        """Take cells out and put others in; False where what the editor says does not fit what is here."""
        joined = notebook.joined
        self._leave(notebook)
        if structure is not None:
            start, delete = structure.array.start, structure.array.delete_count
            opened = {text.uri: text for text in structure.did_open or ()}
            known = {cell.uri: cell for cell in joined.cells}
            cells = self._made(structure.array.cells or (), opened, known)
            if cells is None or start + delete > len(joined.cells):
                return False
            joined.splice(start, delete, cells)
        for cell in joined.cells:
            cell.markup = kinds.get(cell.uri, MARKUP if cell.markup else 0) == MARKUP
        joined.splice(0, 0, ())  # every cell is shown anew
        self._enter(notebook)
        return True

    def _reopen(self, notebook: _Notebook) -> Iterator[Event]:
        old = notebook.held
        notebook.held = self._hold(notebook.uri, notebook.joined, old.document.version + 1)
        if old.excluded is None:
            yield Closed(old)
        if notebook.held.excluded is None:
            yield Opened(notebook.held)

    def _hold(self, uri: str, joined: Joined, version: int) -> HeldText:
        held = self._documents.open(
            uri + _FRAGMENT, joined.text, language=joined.language, version=version, limit_bytes=MAX_DOCUMENT_BYTES
        )
        if suffixes := language_spec(joined.language).suffixes:  # a model would take the notebook's own for JSON
            held.document.path = str(PurePath(held.document.path).with_suffix(suffixes[0]))
        return held

    def _made(
        self, cells: Sequence[Cell], texts: dict[str, TextDocument], known: dict[str, CellText]
    ) -> list[CellText] | None:
        """Cells with their texts, each from `texts` or as it is `known`; None where one's text is in neither."""
        made: list[CellText] = []
        for cell in cells:
            if (text := texts.get(cell.document)) is not None:
                language = text.language_id.lower()
                lines = Lines(text.text, self._documents.encoding)
                language = _LANGUAGES.get(language, language)
                made.append(CellText(cell.document, cell.kind == MARKUP, language, lines, text.version))
            elif (old := known.get(cell.document)) is not None:
                old.markup = cell.kind == MARKUP
                made.append(old)
            else:
                return None
        return made

    def _enter(self, notebook: _Notebook) -> None:
        for cell in notebook.joined.cells:
            self._documents.cells[unquote(cell.uri)] = OpenCell(notebook, cell)

    def _leave(self, notebook: _Notebook) -> None:
        for cell in notebook.joined.cells:
            self._documents.cells.pop(unquote(cell.uri), None)


def _fits(held: HeldText, chars: int) -> bool:
    """Whether its document can hold a joined text as long as that."""
    return held.excluded is None and chars <= MAX_DOCUMENT_BYTES
