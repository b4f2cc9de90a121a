"""Where a next edit is, as the editor has it: a document, a cell of a notebook, or a file that is not open."""

from __future__ import annotations

from typing import NamedTuple

from foretype_context.edits.evidence import NextEdit
from foretype_context.syntax.document import Edit

from foretype_lsp.documents.documents import Open
from foretype_lsp.documents.positions import Lines, Position


class EditPlace(NamedTuple):
    """A next edit and what it is of.

    Attributes:
        uri: what the editor calls it; `document` the document of ours, which is a notebook's for its cells.
        version: as the editor counts; None where it is not open.
        text: of the whole document, in characters of which `found` is; `lines` begin at `start` of it.
        origin: document whose edits say so.
    """

    uri: str
    document: str
    version: int | None
    text: str
    start: int
    lines: Lines
    found: NextEdit
    origin: str


def in_open(part: Open | None, found: NextEdit, origin: str) -> EditPlace | None:
    """A place in what is open; None where it is not that part's alone, character for character, or in a line that only IPython understands."""
    if part is None or part.excluded is not None:
        return None
    document, start, lines = part.document, part.start, part.lines
    touched = (lines.position_at(min(max(at - start, 0), lines.chars)).line for at in found.edit[:2])
    if any(part.excluded_at(Position(line, 0)) for line in touched):
        return None
    return _checked(EditPlace(part.uri, document.uri, part.version, document.text, start, lines, found, origin))


def in_file(uri: str, text: str, lines: Lines, found: NextEdit, origin: str) -> EditPlace | None:
    """A place in a file that is not open."""
    return _checked(EditPlace(uri, uri, None, text, 0, lines, found, origin))


def _checked(place: EditPlace) -> EditPlace | None:
    return place if _is_within(place, place.found.edit) else None


def _is_within(place: EditPlace, edit: Edit) -> bool:
    start, end = edit.start - place.start, edit.end - place.start
    if start < 0 or end > place.lines.chars or "\ufffd" in edit.text:
        return False
    return place.lines.part(start, end) == place.text[edit.start : edit.end]
