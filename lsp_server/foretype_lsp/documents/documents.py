"""Open documents: what the editor says they are, kept in step with the documents that prompts are made from.

Everything here is defined for input that is wrong, since an editor cannot be asked to repeat itself: nothing raises, and
what cannot be followed is marked as lost instead of being guessed at, until the editor sends the whole text again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from foretype_context.folder.exclude import holds_key, reason_in_line, reason_to_exclude
from foretype_context.syntax.document import Document, Edit, Snapshot, difference
from foretype_context.syntax.languages import language_of
from foretype_context.text.strings import join_surrogates, well_formed
from foretype_context.text.uris import path_of_uri

from foretype_lsp.documents.positions import Encoding, Lines, Position
from foretype_lsp.documents.window import Window, around
from foretype_lsp.messages import ContentChange

_PAIRS: Final = frozenset({"()", "[]", "{}", '""', "''", "``"})

MAX_DOCUMENT_BYTES: Final = 5_000_000
"""Above this a document is a window of its file: what is around the place that was asked about."""

MAX_FOLLOWED_BYTES: Final = 64_000_000
"""Above this a file gets no suggestions, so its text is not kept either; its lines would take several times as much memory."""

_HEAD_CHARS: Final = 4096


class ChangeResult(StrEnum):
    """What became of a notification about a document, for the log."""

    APPLIED = "applied"
    UNKNOWN = "the document was never opened"
    LOST = "the text is unknown until the editor sends it whole"
    EXCLUDED = "the document gets no suggestions"


class Open(Protocol):
    """What an editor may ask about: a document, or a cell of a notebook, which is a part of one.

    Attributes:
        uri: what the editor calls it.
        document: what the client works on; of a cell that of its notebook.
        start: where in `document` its text begins.
        lines: the text by the editor's positions; of a cell its own.
        version: of `lines`, as the editor counts.
        file, excluded, lost: as in :class:`HeldText`.
    """

    @property
    def uri(self) -> str: ...
    @property
    def document(self) -> Document: ...
    @property
    def start(self) -> int: ...
    @property
    def lines(self) -> Lines: ...
    @property
    def version(self) -> int: ...
    @property
    def file(self) -> str: ...
    @property
    def excluded(self) -> str | None: ...
    @property
    def lost(self) -> bool: ...
    def snapshot(self) -> Snapshot: ...

    def offset_at(self, position: Position) -> int:
        """Where in `document` a position is."""
        ...

    def excluded_at(self, position: Position) -> str | None:
        """Why a place of it gets no suggestions, or None."""
        ...

    def part_of(self, suggestion: str, before: str) -> str:
        """What of a suggestion may be put in here, where `before` is left of the cursor on its line."""
        ...


@dataclass(slots=True)
class HeldText:
    """A document the editor has open.

    Attributes:
        lines: of the whole text, whatever of it `document` holds.
        file: path on disk, or a name for a document that is on none.
        excluded: why it gets no suggestions, or None.
        lost: its text can no longer be known: a change could not be read.
        window: what of a large text `document` holds; None where it holds all of it.
        followed: its lines are kept, also where it is excluded: the reason may go.
    """

    document: Document
    lines: Lines
    file: str
    excluded: str | None = None
    lost: bool = False
    window: Window | None = None
    followed: bool = True

    @property
    def usable(self) -> bool:
        return self.excluded is None and not self.lost

    @property
    def uri(self) -> str:
        return self.document.uri

    @property
    def start(self) -> int:
        return 0 if self.window is None else -self.window.start

    @property
    def version(self) -> int:
        return self.document.version

    def snapshot(self) -> Snapshot:
        return self.document.snapshot()

    def offset_at(self, position: Position) -> int:
        offset = self.lines.offset_at(position)
        return offset if self.window is None else self.window.inside(offset)

    def excluded_at(self, position: Position) -> str | None:
        return reason_in_line(self.lines.line(min(max(position.line, 0), len(self.lines) - 1)))

    def part_of(self, suggestion: str, before: str) -> str:
        return suggestion

    def position_at(self, offset: int) -> Position:
        return self.lines.position_at(offset if self.window is None else self.window.start + offset)

    def reaches(self, position: Position) -> bool:
        """Whether the document holds what is around a place, and not more than is good."""
        chars = self.lines.chars
        return (
            chars <= MAX_DOCUMENT_BYTES
            if self.window is None
            else self.window.serves(self.lines.offset_at(position), chars)
        )

    def move(self, position: Position) -> None:
        """Fill the document with the lines around a place. Its readers must take it for a new document: they hear of no change."""
        window = self.window = around(self.lines, self.lines.offset_at(position))
        moved = difference(self.document.text, well_formed(self.lines.part(*window)))
        self.document.apply([moved], self.document.version)
        self.document.apply([], self.document.version)  # for them nothing has changed since

    def apply(self, edits: Sequence[Edit], version: int) -> None:
        """Make of the document what `lines` are already, after edits of the whole text, each in what the one before left."""
        own = list(edits)
        if self.window is not None:
            own.clear()
            for edit in edits:
                self.window, inside = self.window.after(edit)
                own += [] if inside is None else [inside]
        self.document.apply(own, version)


def typed_to(open: Open, changes: Sequence[ContentChange]) -> int | None:
    """Where the cursor stands after `changes`, which are applied: behind what one of them put in; else None, unknown."""
    if len(changes) != 1 or (change := changes[0]).range is None or not change.text:
        return None
    start = open.offset_at(min(change.range.start.position, change.range.end.position))
    # What opens is closed by the editor in the same change, right of the cursor.
    return start + (1 if change.text in _PAIRS else len(join_surrogates(change.text)))


class Documents:
    """All open documents by URI (compared unquoted: clients differ in what they escape).

    Attributes:
        cells: of the notebooks that are open, by their unquoted URIs. What they are joined to is among the documents.
    """

    def __init__(self, encoding: Encoding = Encoding.UTF16, roots: Sequence[str] = ()) -> None:
        """`roots` are the open folders: paths in prompts are relative to the innermost one."""
        self.encoding = encoding
        self.roots = tuple(roots)
        self.cells: dict[str, Open] = {}
        self._held: dict[str, HeldText] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldText]:
        return iter(self._held.values())

    def get(self, uri: str) -> HeldText | None:
        return self._held.get(unquote(uri))

    def find(self, uri: str) -> Open | None:
        """A document, or a cell of a notebook."""
        return self.cells.get(unquote(uri)) or self._held.get(unquote(uri))

    def part_at(self, document: Document, offset: int) -> Open | None:
        """What an editor calls the part of a document that a place is in: the document, or a notebook's last cell that begins above it."""
        cells = [cell for cell in self.cells.values() if cell.document is document]
        if not cells:
            return self.get(document.uri)
        above = bisect_right(cells, offset, key=lambda cell: cell.start)
        return cells[above - 1] if above else None

    def open(
        self, uri: str, text: str, *, language: str = "", version: int = 0, limit_bytes: int = MAX_FOLLOWED_BYTES
    ) -> HeldText:
        """Open a document, or open it again with another text."""
        text = join_surrogates(text)
        excluded = _reason_to_exclude(path_of(uri), text, limit_bytes)
        return self._hold(uri, text, language=language, version=version, excluded=excluded)

    def change(self, uri: str, changes: Sequence[ContentChange], *, version: int | None = None) -> ChangeResult:
        """Apply changes in order, each in the coordinates that the one before left behind.

        The whole text may come for a document that is unknown, lost or excluded, and makes it usable again. A version that
        does not grow is taken as it is told: order on the wire is order of events.
        """
        held, edits = self.get(uri), list[Edit]()
        whole = max((i for i, change in enumerate(changes) if change.range is None), default=None)
        if whole is not None:
            held, edits = self._replaced(held, uri, changes[whole].text, version)
            changes = changes[whole + 1 :]
        if held is None:
            return ChangeResult.UNKNOWN
        if held.lost:
            return ChangeResult.LOST
        if held.excluded is not None and not held.followed:
            return ChangeResult.EXCLUDED
        edits += _edits(held.lines, changes)
        if changes and (
            held.excluded is not None or held.lines.chars > MAX_FOLLOWED_BYTES or is_suspicious(held.lines, changes)
        ):
            held = self._judged_anew(held, edits, _next(held, version))
        elif held.excluded is None:
            held.apply(edits, _next(held, version))
        return ChangeResult.APPLIED if held.excluded is None else ChangeResult.EXCLUDED

    def _judged_anew(self, held: HeldText, edits: Sequence[Edit], version: int) -> HeldText:
        """A reason to leave the text out may have come, or gone: `lines` are as they are after the edits."""
        excluded = _reason_to_exclude(held.file, held.lines.text, MAX_FOLLOWED_BYTES)
        if excluded is None and held.excluded is None:
            held.apply(edits, version)
            return held
        language = held.document.language
        return self._hold(held.document.uri, held.lines.raw, language=language, version=version, excluded=excluded)

    def lose(self, uri: str) -> None:
        """A change could not be read: from here on the text is unknown."""
        if held := self.get(uri):
            held.lost = True

    def close(self, uri: str) -> HeldText | None:
        return self._held.pop(unquote(uri), None)

    def _replaced(self, held: HeldText | None, uri: str, text: str, version: int | None) -> tuple[HeldText, list[Edit]]:
        """Take over a whole text; where the old one is held only what differs is an edit, still to be applied to the document."""
        text = join_surrogates(text)
        excluded = _reason_to_exclude(path_of(uri), text, MAX_FOLLOWED_BYTES)
        if held is None or not held.usable or excluded is not None:
            language, known = (held.document.language, _next(held, version)) if held else ("", version or 0)
            return self._hold(uri, text, language=language, version=known, excluded=excluded), []
        before, held.lines = held.lines.text, Lines(text, self.encoding)
        return held, [difference(before, held.lines.text)]

    def _relative(self, path: str) -> str:
        file = PurePath(path)
        inside = [root for root in map(PurePath, self.roots) if file.is_relative_to(root)]
        return file.relative_to(max(inside, key=lambda root: len(root.parts))).as_posix() if inside else file.name

    def _hold(self, uri: str, text: str, *, language: str, version: int, excluded: str | None) -> HeldText:
        path = path_of(uri)
        # For good by its name or size, it is nothing to keep; what stands in it may be taken out of it again.
        followed = excluded is None or (len(text) <= MAX_FOLLOWED_BYTES and _reason_to_exclude(path, "", 1) is None)
        lines = Lines(text if followed else "", self.encoding)
        window = None if lines.chars <= MAX_DOCUMENT_BYTES else around(lines, 0)
        text = "" if excluded else lines.text if window is None else lines.part(*window)
        document = Document(
            uri, text, language=language or language_of(path), path=self._relative(path), version=version
        )
        held = self._held[unquote(uri)] = HeldText(document, lines, path, excluded, window=window, followed=followed)
        return held


def path_of(uri: str) -> str:
    """File system path of a `file:` URI; otherwise the path part, so that `untitled:a.py` still has a file name."""
    try:
        scheme, _, path, _, _ = urlsplit(uri)
        return str(path_of_uri(uri) or "") if scheme == "file" else unquote(path)
    except ValueError:  # not a URI, such as an unclosed bracket in the host
        return uri


def _edits(lines: Lines, changes: Sequence[ContentChange]) -> Iterator[Edit]:
    for change in changes:
        if change.range is not None:
            start, end, text = lines.replace(change.range.start.position, change.range.end.position, change.text)
            yield Edit(start, end, text)


def _next(held: HeldText, version: int | None) -> int:
    return held.document.version + 1 if version is None else version


def _reason_to_exclude(path: str, text: str, limit_bytes: int) -> str | None:
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    head = text[:_HEAD_CHARS].encode("utf-8", "surrogatepass")
    reason = reason_to_exclude(path, size_bytes, head, limit_bytes=limit_bytes, edited=True)
    return "holds a private key" if reason is None and holds_key(text) else reason


def is_suspicious(lines: Lines, changes: Sequence[ContentChange]) -> bool:
    """Whether a change may have put in what a file is left out for."""
    at = {min(change.range.start.position.line, len(lines) - 1) for change in changes if change.range is not None}
    return any("-----" in change.text for change in changes) or any("-----" in lines.line(line) for line in at)
