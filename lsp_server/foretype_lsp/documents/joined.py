"""A notebook as one text: its cells in their order, each below a header, and the way between a cell and that text.

A question about a cell has the cells above it as text before the cursor, and those below as text after it. A change of
one cell is one edit of the joined text. Nothing here knows of messages or of open documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from foretype_context.syntax.document import Edit, difference

from foretype_lsp.documents.cells import CellKind, commented, header, kind_of, shown
from foretype_lsp.documents.positions import Lines, Position
from foretype_lsp.messages import ContentChange

_BETWEEN: Final = "\n\n"


@dataclass(slots=True, eq=False)
class CellText:
    """One cell.

    Attributes:
        language: its language id; what it is to the notebook is `kind`.
        lines: its own text, by the editor's positions.
        shown: the text that stands for it in the joined one.
        version: of its text, as the editor counts.
    """

    uri: str
    markup: bool
    language: str
    lines: Lines
    version: int = 0
    kind: CellKind = CellKind.CODE
    shown: str = ""

    def change(self, changes: Iterable[ContentChange]) -> None:
        """Apply changes in order, each in the coordinates that the one before left behind."""
        for change in changes:
            if change.range is None:
                self.lines = Lines(change.text, self.lines.encoding)
            else:
                self.lines.replace(change.range.start.position, change.range.end.position, change.text)

    def show(self, notebook_language: str) -> None:
        text = self.lines.text
        self.kind = kind_of(text, self.language, notebook_language=notebook_language, markup=self.markup)
        self.shown = shown(text, self.kind, notebook_language)

    def offset_at(self, position: Position, notebook_language: str) -> int:
        """Where a position of the cell is in `shown`."""
        offset = self.lines.offset_at(position)
        if self.kind is CellKind.CODE:
            return offset
        return offset + len(commented(notebook_language)) * (self.lines.position_at(offset).line + 1)


class Joined:
    """The cells of a notebook and the text that they make.

    Attributes:
        language: the one that most code cells are written in, the first of equals; without any code that of its creation.
    """

    def __init__(self, cells: Sequence[CellText], language: str) -> None:
        self.cells = list(cells)
        self.language = language
        self._show_all()

    @property
    def text(self) -> str:
        return _BETWEEN.join(header(cell.kind, self.language) + cell.shown for cell in self.cells)

    def start_of(self, wanted: CellText) -> int:
        """Where `wanted.shown` starts in the text. Raises ValueError: it is no cell of this notebook."""
        start = 0
        for cell in self.cells:
            start += len(header(cell.kind, self.language))
            if cell is wanted:
                return start
            start += len(cell.shown) + len(_BETWEEN)
        raise ValueError(f"no cell {wanted.uri} in this notebook")

    def splice(self, start: int, delete: int, cells: Sequence[CellText]) -> None:
        """Put `cells` in the place of `delete` cells from `start`; numbers beyond the end mean the end."""
        self.cells[start : start + delete] = cells
        self._show_all()

    def change(self, cell: CellText, changes: Iterable[ContentChange], version: int) -> Edit:
        """Change a cell's text; what of the joined text that changes. Raises ValueError: it is no cell of this notebook."""
        start, before = self.start_of(cell), header(cell.kind, self.language)
        old = before + cell.shown
        cell.change(changes)
        cell.version = version
        cell.show(self.language)
        # A cell that becomes one of bash, or stops being one, keeps its header: only text has another.
        first, last, text = difference(old, header(cell.kind, self.language) + cell.shown)
        return Edit(start - len(before) + first, start - len(before) + last, text)

    def _show_all(self) -> None:
        languages = Counter(cell.language for cell in self.cells if not cell.markup)
        if languages:
            self.language = max(languages, key=lambda language: languages[language])
        for cell in self.cells:
            cell.show(self.language)
