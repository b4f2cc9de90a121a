"""Requests for suggestions that wait: at most one per document, each answered exactly once.

A newer request for the same document makes the older one void at once, since some editors never cancel (Neovim 0.12). An
answer is also void when its document has changed, since not every editor checks that its cursor is where it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foretype_client.flow.suggestion import SelectedCompletion, Suggestion
from foretype_client.policy.trigger import Trigger
from foretype_context.syntax.document import Snapshot
from foretype_wire.redaction import log_fault
from foretype_wire.tasks import end_tasks

from foretype_lsp.documents.documents import Open
from foretype_lsp.suggestions.items import CursorLine, accepted_characters, item

if TYPE_CHECKING:
    from foretype_client.flow.flow import CompletionFlow

_log: Final = logging.getLogger(__name__)

_SENT_KEPT: Final = 64


class _Sent(NamedTuple):
    """A suggestion as it was given; `typed` of its characters stood in the document."""

    uri: str
    insert_text: str
    typed: int


class WaitingRequest(NamedTuple):
    """One request for a suggestion, by value: the document moves on while the answer is awaited.

    Attributes:
        superseded: done as soon as a newer request for the same document is there.
    """

    held: Open
    snapshot: Snapshot
    line: CursorLine
    offset: int
    trigger: Trigger
    selected: SelectedCompletion | None
    superseded: asyncio.Future[None]


class WaitingRequests:
    """The requests that wait, and the items that were given.

    Attributes:
        counts: how requests ended: `answered` in all; of these `suggested`, `superseded`, `cancelled`, `stale`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._live: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[Suggestion | None]] = set()
        self._sent: OrderedDict[str, _Sent] = OrderedDict()

    async def close(self) -> None:
        """End the questions that were superseded and that the flow still works at."""
        await end_tasks(*self._tasks)

    def supersede(self, uri: str) -> asyncio.Future[None]:
        """Make the waiting request of a document void; the future says the same of the one that takes its place."""
        if (older := self._live.pop(uri, None)) is not None and not older.done():
            older.set_result(None)
        superseded = self._live[uri] = asyncio.get_running_loop().create_future()
        return superseded

    def accepted_characters(self, id: str, accepted_utf16: int) -> int | None:
        """Characters of a suggestion that an `acceptedLength` stands for; None if it was never given, or long ago."""
        sent = self._sent.get(id)
        return None if sent is None else accepted_characters(sent.insert_text, sent.typed, accepted_utf16)

    def document_of(self, id: str) -> str | None:
        """The document that a suggestion was given for; None if it was never given, or long ago."""
        sent = self._sent.get(id)
        return None if sent is None else sent.uri

    async def answer(self, flow: CompletionFlow, asked: WaitingRequest, *, multi_line: bool) -> dict[str, Any] | None:
        """An LSP `InlineCompletionList`, or None if the question is void. Raises CancelledError alone.

        No items and None differ: Neovim takes what it shows off the screen for the one, and keeps it for the other.
        """
        try:
            suggestion = await self._suggestion(flow, asked)
        except asyncio.CancelledError:
            self.counts["cancelled"] += 1
            raise
        finally:
            self.counts["answered"] += 1
            if self._live.get(asked.snapshot.uri) is asked.superseded:
                del self._live[asked.snapshot.uri]
        if asked.superseded.done():
            return None
        if asked.held.document.version != asked.snapshot.version:
            self.counts["stale"] += suggestion is not None
            return None  # not every client checks that its cursor is where it was (neovim #36529)
        if suggestion is None:
            return {"items": []}
        text = suggestion.text if multi_line else suggestion.text.partition("\n")[0]
        text = asked.held.part_of(text, asked.line.text[: asked.line.column])
        if not text:
            return {"items": []}
        made = item(asked.line, suggestion.id, text, suggestion.replaces)
        insert_text = made["insertText"]
        self._remember(suggestion.id, _Sent(asked.snapshot.uri, insert_text, len(insert_text) - len(text)))
        self.counts["suggested"] += 1
        return {"items": [made]}

    async def _suggestion(self, flow: CompletionFlow, asked: WaitingRequest) -> Suggestion | None:
        """What the flow says, or None as soon as a newer request is there: some editors never cancel."""
        if not asked.superseded.done() and asked.held.document.version == asked.snapshot.version:
            task = asyncio.create_task(
                flow.suggest(asked.snapshot, asked.offset, trigger=asked.trigger, selected=asked.selected)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            try:
                await asyncio.wait((task, asked.superseded), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                task.cancel()
                raise
            if task.done() and not asked.superseded.done():
                return task.result()
            # The flow has the newer request by now and knows whether the older one's work is of use to it.
            task.add_done_callback(_log_fault)
        self.counts["superseded"] += 1
        return None

    def _remember(self, id: str, sent: _Sent) -> None:
        self._sent[id] = sent
        self._sent.move_to_end(id)
        if len(self._sent) > _SENT_KEPT:
            self._sent.popitem(last=False)


def _log_fault(task: asyncio.Task[Suggestion | None]) -> None:
    """Of a question whose answer nobody waits for any more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log_fault(_log, "a question that was superseded failed", error)
