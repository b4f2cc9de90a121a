"""The open documents, and those who are told of them: the flow, and the sources of other files' snippets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from foretype_client.listeners import Listeners
from foretype_client.ports import Clock
from foretype_client.sources.all_sources import Sources
from foretype_context.folder.globs import matches
from foretype_context.folder.ignore_rules import is_ignore_file
from foretype_context.syntax.document import Change, Document
from foretype_wire.subscriptions import Subscribers

from foretype_lsp.documents.documents import (
    MAX_DOCUMENT_BYTES,
    ChangeResult,
    Documents,
    HeldText,
    Open,
    path_of,
    typed_to,
)
from foretype_lsp.documents.notebooks import Notebooks
from foretype_lsp.documents.positions import Encoding, Position
from foretype_lsp.messages import ContentChange
from foretype_lsp.settings import Settings
from foretype_lsp.trust import why_unread

if TYPE_CHECKING:
    from foretype_client.flow.flow import CompletionFlow


class SharedDocuments:
    """Documents that others follow; one that gets no suggestions is told to nobody.

    The flow and the sources may come late and go again: who comes learns of what is open.

    Args:
        clock: monotonic seconds.

    Attributes:
        opening, changing, closing: told of a document that is open now, was changed, or is not open any more.
        moved: told when other folders are open.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._documents = Documents()
        self._notebooks = Notebooks(self._documents)
        self._listeners: Listeners[CompletionFlow] = Listeners(Sources.none(), None, clock)
        self._told: set[str] = set()
        self._globs = settings.options.excluded_globs
        settings.changed.add(self._on_settings)
        self.opening: Subscribers[[HeldText]] = Subscribers()
        self.changing: Subscribers[[HeldText, Change]] = Subscribers()
        self.closing: Subscribers[[HeldText]] = Subscribers()
        self.moved: Subscribers[[]] = Subscribers()

    @property
    def flow(self) -> CompletionFlow | None:
        """What answers for these documents now; None while there is none."""
        return self._listeners.flow

    @property
    def sources(self) -> Sources:
        return self._listeners.sources

    @property
    def roots(self) -> Sequence[Path]:
        """The open folders."""
        return [Path(root) for root in self._documents.roots if root]

    @property
    def notebooks(self) -> Notebooks:
        """After a change here the caller reports it with :meth:`opened`, :meth:`changed` or :meth:`closed`."""
        return self._notebooks

    def __len__(self) -> int:
        return len(self._documents)

    def get(self, uri: str) -> HeldText | None:
        return self._documents.get(uri)

    def find(self, uri: str) -> Open | None:
        """A document, or a cell of a notebook."""
        return self._documents.find(uri)

    def part_at(self, document: Document, offset: int) -> Open | None:
        """What the editor calls the part of a document that a place is in."""
        return self._documents.part_at(document, offset)

    def usable(self, uri: str) -> HeldText | str:
        """An open document that may be sent, or why not."""
        held = self._documents.find(uri)
        if held is not None and not isinstance(held, HeldText):
            return "commands know whole files, not cells of a notebook"
        if held is not None and held.window is not None:
            return f"larger than {MAX_DOCUMENT_BYTES:,} bytes: commands know whole files"
        return ChangeResult.UNKNOWN if held is None else self.obstacle(held) or held

    def obstacle(self, held: Open) -> str | None:
        """Why a document, or a cell of a notebook, gets no suggestions, or None."""
        if held.excluded is not None:
            return held.excluded
        if held.lost:
            return ChangeResult.LOST
        options = self._settings.options
        if not options.enabled(held.document.language):
            return f"switched off for {held.document.language}"
        paths = (held.file, held.document.path)
        glob = next((glob for glob in options.excluded_globs if any(matches(glob, path) for path in paths)), None)
        return None if glob is None else f"excluded by {glob}"

    def sources_status(self) -> str:
        """What the sources say about themselves, in one line."""
        return why_unread(self._settings.options) or "; ".join(
            f"{name}: {said}" for name, said in self.sources.status().items()
        )

    # Who is told

    def follow(self, flow: CompletionFlow | None) -> None:
        """Tell `flow` of documents from now on, in place of the one before."""
        self._listeners.flow = flow
        if flow is not None:
            for held in self.usable_ones():
                self._told.add(held.document.uri)
                flow.document_opened(held.snapshot())

    def use(self, sources: Sources) -> Sources:
        """Tell these sources of documents and folders from now on; the ones before, which nobody tells any more."""
        before, self._listeners.sources = self._listeners.sources, sources
        for held in self.usable_ones():
            self._told.add(held.document.uri)
            sources.opened(held.document.uri, held.document.text)
        return before

    # What the editor says

    def begin(self, encoding: Encoding, folders: Sequence[str]) -> None:
        """Positions are counted in `encoding`, and these URIs are the open folders."""
        self._documents = Documents(encoding, [*map(path_of, folders)])
        self._notebooks = Notebooks(self._documents)

    def use_folders(self, uris: Sequence[str]) -> None:
        self._documents.roots = tuple(map(path_of, uris))
        self.sources.folders(list(self.roots))
        self.moved.tell()

    def open(self, uri: str, text: str, *, language: str, version: int) -> str | None:
        """A document is open; why it gets no suggestions, or None."""
        return self.opened(self._documents.open(uri, text, language=language, version=version))

    def change(self, uri: str, changes: Sequence[ContentChange], *, version: int | None) -> ChangeResult:
        """A document has changed; a question that is expected behind what was typed is announced."""
        former = self._documents.get(uri)
        result = self._documents.change(uri, changes, version=version)
        held = self._documents.get(uri)
        if held is not None and result is ChangeResult.EXCLUDED:
            self.changed(held, None)
        if held is not None and result is ChangeResult.APPLIED:
            if former is not held and former is not None and former.uri in self._told:
                self.closed(former)  # it was lost: what was done to it meanwhile nobody knows
            last = changes[-1].range if changes else None
            if last is not None or held.window is None:
                self.reach(held, Position(0, 0) if last is None else last.start.position)
            self.changed(held, typed_to(held, changes))
        return result

    def reach(self, held: Open, position: Position) -> None:
        """Something is to be made for a place: the document of a large file holds what is around it from now on, for all as a new one."""
        if isinstance(held, HeldText) and not held.reaches(position):
            self.closed(held)
            held.move(position)
            self.opened(held)

    def lose(self, uri: str) -> None:
        """A change could not be read: guessing would be wrong."""
        self._documents.lose(uri)

    def close(self, uri: str) -> HeldText | None:
        held = self._documents.close(uri)
        if held is not None:
            self.closed(held)
        return held

    def saved(self, uri: str) -> None:
        self.sources.saved(uri)
        if is_ignore_file(PurePosixPath(path_of(uri))) and self.flow is not None:
            self.flow.excluded([])

    def opened(self, held: HeldText) -> str | None:
        """Tell of a document that is open now; why it gets no suggestions, or None."""
        if (obstacle := self.obstacle(held)) is not None:
            return f"no suggestions in {held.file}: {obstacle}"
        self._told.add(held.document.uri)
        self._listeners.opened(held.document)
        self.opening.tell(held)
        return None

    def changed(self, held: HeldText, offset: int | None) -> None:
        """Tell of a change; `offset` is where in the document the cursor stands after it, where that is known."""
        told = held.document.uri in self._told
        if self.obstacle(held) is not None:
            if told and not held.lost:
                self._leave_out([held])
            return
        if not told:
            self.opened(held)
            return
        change = self._listeners.changed(held.document)
        if (flow := self.flow) is not None and self._settings.options.ask_early and offset is not None:
            flow.typed(change.after, offset)
        self.changing.tell(held, change)

    def closed(self, held: HeldText) -> None:
        """Tell that a document is not open any more."""
        self._told.discard(held.document.uri)
        self._listeners.closed(held.document)
        self.closing.tell(held)

    def _leave_out(self, excluded: Sequence[HeldText], *, others_come: bool = False) -> None:
        """There is a reason now: nobody has them any more, and nothing that was made of them goes on."""
        for held in excluded:
            self.closed(held)
            if held.excluded is not None:  # nor does its file count, which may be saved at any time
                self.sources.opened(held.document.uri, "")
        if self.flow is not None:
            self.flow.excluded([held.document.uri for held in excluded], others_come=others_come)

    def _on_settings(self) -> None:
        """Other files are left out than before, or are let in again."""
        globs, self._globs = self._globs, self._settings.options.excluded_globs
        out = [held for held in self._documents if held.document.uri in self._told and self.obstacle(held) is not None]
        if out or globs != self._globs:
            self._leave_out(out, others_come=globs != self._globs)
        for held in self.usable_ones():
            if held.document.uri not in self._told:
                self.opened(held)

    def usable_ones(self) -> list[HeldText]:
        """Documents that get suggestions."""
        return [held for held in self._documents if self.obstacle(held) is None]
