"""What was typed in the open documents, told to the engine of next edits in a thread of its own: a key notes what it changed, no more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from foretype_context.edit_models.question import RecentEdit
from foretype_context.edits.bursts import Burst
from foretype_context.edits.elsewhere import Elsewhere
from foretype_context.edits.followed import MAX_CHARS, Followed
from foretype_context.edits.next_edit import NextEdit
from foretype_context.edits.pace import is_in_line
from foretype_context.syntax.document import Change, Document, Edit

from foretype_lsp.documents.documents import HeldText
from foretype_lsp.documents.shared import SharedDocuments

_T = TypeVar("_T")

_WAITING_MOST: Final = 256
"""Changes that wait for somebody to ask, at most."""

_LATELY_S: Final = 300.0

_TREES: Final = 3
"""Documents whose trees are kept: those that were asked about last."""


class _Waiting(NamedTuple):
    """A change that the engine was not told yet."""

    edits: Sequence[Edit]
    at_s: float
    accepted: bool


@dataclass(slots=True, eq=False)
class _Tracked:
    """One document.

    Attributes:
        base: its text before what `waiting` says.
        expected: what it is when the edit that was offered is taken.
        last: what changed it last.
        changed_s, accepted_s, typed_s: when it was changed, by an edit that was offered, and by anything else.
        engine: of the thread alone; None until somebody asks.
    """

    document: Document
    base: str
    waiting: list[_Waiting] = field(default_factory=list[_Waiting])
    expected: str | None = None
    last: Edit | None = None
    accepted_s: float = float("-inf")
    changed_s: float = float("-inf")
    typed_s: float = float("-inf")
    engine: Followed | None = None


class Tracking:
    """The documents that may get next edits: not those that get no suggestions, nor what is larger than `MAX_CHARS`.

    Args:
        clock: monotonic seconds.

    Attributes:
        asked: somebody has asked: who never does pays for nothing.
    """

    def __init__(self, documents: SharedDocuments, clock: Callable[[], float]) -> None:
        self.asked = False
        self._clock = clock
        self._all: dict[str, _Tracked] = {}
        self._pool = ThreadPoolExecutor(1, "next-edit")
        self._trees = deque[_Tracked]()  # of the thread alone
        documents.opening.add(self._opened)
        documents.changing.add(self._changed)
        documents.closing.add(lambda held: self._all.pop(held.document.uri, None))

    def follows(self, document: Document) -> bool:
        """Whether there may be next edits in a document."""
        tracked = self._all.get(document.uri)
        return tracked is not None and tracked.document is document

    def since_change(self, uri: str) -> float:
        """Seconds since a document was changed."""
        tracked = self._all.get(uri)
        return float("inf") if tracked is None else self._clock() - tracked.changed_s

    def follows_acceptance(self, uri: str) -> bool:
        """Whether the last change of a document was a next edit that was taken."""
        tracked = self._all.get(uri)
        return tracked is not None and tracked.accepted_s == tracked.changed_s > float("-inf")

    def is_in_typed_line(self, uri: str, offset: int) -> bool:
        """Whether a place stands in the line that was changed last: it may not be finished."""
        tracked = self._all.get(uri)
        if tracked is None or (last := tracked.last) is None or self.follows_acceptance(uri):
            return False
        return is_in_line(tracked.document.text, last, offset)

    def typed_in(self, *, but: str) -> list[str]:
        """Other documents that were typed in lately, the last one first."""
        since_s = self._clock() - _LATELY_S
        found = [(one.typed_s, uri) for uri, one in self._all.items() if one.typed_s >= since_s and uri != but]
        return [uri for _, uri in sorted(found, reverse=True)]

    def expect(self, uri: str, text: str | None) -> None:
        """The change that makes this of a document is an edit that was taken."""
        if (tracked := self._all.get(uri)) is not None:
            tracked.expected = text

    def accepted(self, uri: str) -> None:
        """The last change was a suggestion that was taken; too late where the thread knows of it already."""
        tracked = self._all.get(uri)
        if tracked is not None and tracked.waiting:
            tracked.waiting[-1] = tracked.waiting[-1]._replace(accepted=True)

    async def next(self, document: Document, cursor: int) -> NextEdit | None:
        """What is likely wanted next in a document as it is now, in characters of it."""
        self.asked = True
        now_s = self._clock()
        return await self._ask(document, lambda engine: engine.next(cursor, now_s))

    async def elsewhere(self, document: Document, path: str) -> Elsewhere | None:
        """What a document's edits say of other files; `path` is its own, relative to its folder."""
        now_s = self._clock()
        return await self._ask(document, lambda engine: engine.elsewhere(path, now_s))

    async def follow(self, document: Document, elsewhere: Elsewhere, path: str) -> NextEdit | None:
        """What another document's edits say of this one."""
        return await self._ask(document, lambda engine: engine.follow(elsewhere, path))

    async def recent(self, document: Document) -> tuple[list[RecentEdit], Burst | None]:
        """What was done in a document lately, for a model."""
        return await self._ask(document, lambda engine: engine.recent()) or ([], None)

    async def parses(self, document: Document, edit: Edit) -> bool:
        """Whether a document has no more errors of syntax with an edit than without."""
        return await self._ask(document, lambda engine: engine.parses(edit)) or False

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """Run what uses the engines' evidence."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _ask(self, document: Document, question: Callable[[Followed], _T]) -> _T | None:
        tracked = self._all.get(document.uri)
        if tracked is None or tracked.document is not document:
            return None
        catch_up = self._catching_up(tracked)

        def ask() -> _T | None:
            catch_up()
            self._keep_tree(tracked)
            return None if tracked.engine is None else question(tracked.engine)

        return await self.in_thread(ask)

    def refused(self, uri: str, text: str, edit: Edit) -> None:
        """The developer did not want this edit of `text`."""
        tracked = self._all.get(uri)
        if tracked is not None:
            self._pool.submit(lambda: None if tracked.engine is None else tracked.engine.refused(text, edit))

    def close(self) -> None:
        """What is computed now is nothing to anybody."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # What the documents tell

    def _opened(self, held: HeldText) -> None:
        document = held.document
        if held.window is None and len(document.text) <= MAX_CHARS:
            self._all[document.uri] = _Tracked(document, document.text)
        else:
            self._all.pop(document.uri, None)

    def _changed(self, held: HeldText, change: Change) -> None:
        document = held.document
        tracked = self._all.get(document.uri)
        if tracked is None or tracked.document is not document or len(document.text) > MAX_CHARS:
            self._opened(held)
            return
        tracked.changed_s = change.at_s
        accepted = tracked.expected is not None and tracked.expected == document.text
        if accepted:
            tracked.accepted_s = change.at_s
        else:
            tracked.typed_s = change.at_s
        tracked.expected = None
        tracked.last = change.edits[-1] if change.edits else None
        tracked.waiting.append(_Waiting(change.edits, change.at_s, accepted))
        if len(tracked.waiting) < _WAITING_MOST:
            return
        if self.asked:
            self._pool.submit(self._catching_up(tracked))
        else:
            tracked.base = document.text
            tracked.waiting.clear()

    def _catching_up(self, tracked: _Tracked) -> Callable[[], None]:
        """What the thread has to do to know what is known now."""
        document, base = tracked.document, tracked.base
        changes, tracked.waiting, tracked.base = tracked.waiting, [], document.text

        def catch_up() -> None:
            engine = tracked.engine or Followed(document.language, base)
            for edits, at_s, accepted in changes:
                engine.changed(edits, at_s, accepted=accepted)
            tracked.engine = engine

        return catch_up

    def _keep_tree(self, tracked: _Tracked) -> None:
        if tracked in self._trees:
            self._trees.remove(tracked)
        self._trees.append(tracked)
        if len(self._trees) > _TREES and (engine := self._trees.popleft().engine) is not None:
            engine.forget_tree()
