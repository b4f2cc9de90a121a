"""What each message about next edits does: the question, and what the editor tells of its answer.

One place at a time, and of the text that the editor has: a change, a newer question or a text of another version make a question void.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from foretype_context.edits.next_edit import NextEdit
from foretype_context.text.document import Edit

from foretype_lsp import messages
from foretype_lsp.documents.documents import Held, Open
from foretype_lsp.documents.positions import Position
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.errors import InvalidParamsError
from foretype_lsp.next_edit.offers import ACCEPT_COMMAND, Offer, Offers, item
from foretype_lsp.next_edit.on_screen import OnScreen
from foretype_lsp.next_edit.policy import Pace, Told
from foretype_lsp.next_edit.tracking import Tracking
from foretype_lsp.settings import Settings

__all__ = ["DID_SHOW", "ENDED", "JUMPED", "QUESTION", "NextEditing"]

QUESTION: Final = "textDocument/copilotInlineEdit"
DID_SHOW: Final = "textDocument/didShowInlineEdit"
JUMPED: Final = "foretype/nextEditJumped"
ENDED: Final = "foretype/nextEditEnded"

_Answer = dict[str, Any]


def _nothing() -> _Answer:
    return {"edits": []}


class NextEditing:
    """Handlers of the messages, and of the command, by their names.

    Args:
        clock: monotonic seconds.

    Attributes:
        capability: what is said of them beside the standard's own capabilities.
    """

    capability: Final = {"foretype": {"nextEdit": True}}

    def __init__(
        self, settings: Settings, documents: SharedDocuments, on_screen: OnScreen, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._documents = documents
        self._on_screen = on_screen
        self._clock = clock
        self._tracking = Tracking(documents, clock)
        self._offers = Offers()
        self._pace = Pace()
        self._live: dict[str, asyncio.Future[None]] = {}
        documents.changing.add(self._changed)
        documents.closing.add(self._closed)
        self.handlers: dict[str, Callable[[Any], Any]] = {
            QUESTION: self._on_asked,
            DID_SHOW: self._on_shown,
            JUMPED: self._on_jumped,
            ENDED: self._on_ended,
        }
        self.commands: dict[str, Callable[..., Any]] = {ACCEPT_COMMAND: self._on_accepted}

    def suggestion_accepted(self, uri: str) -> None:
        """The last change of a document was an inline suggestion that was taken."""
        self._tracking.accepted(uri)

    def close(self) -> None:
        self._tracking.close()

    # What the editor asks and tells

    def _on_asked(self, params: object) -> Coroutine[Any, Any, _Answer] | _Answer:
        """Note what is asked now; the coroutine waits for the answer."""
        asked = messages.read(params, messages.InlineEdit)
        held = self._documents.find(asked.text_document.uri)
        if held is None:
            return _nothing()
        uri = held.document.uri
        superseded = self._supersede(uri)
        position = asked.position.position
        void = (
            not self._settings.options.next_edit.enabled
            or asked.text_document.version != held.version
            or self._documents.obstacle(held) is not None
            or not self._tracking.follows(held.document)
            or self._on_screen.has_inline(uri, held.document.version, held.offset_at(position))
            or self._pace.cool_down_s(self._clock()) > 0
        )
        return _nothing() if void else self._answer(asked.text_document.uri, held, position, superseded)

    def _on_shown(self, params: object) -> None:
        offer = self._offers.get(messages.read(params, messages.Shown).item.suggestion_id or "")
        if offer is not None and not offer.ended and offer.shown_s is None:
            offer.shown_s = self._clock()
            self._on_screen.next_edit_shown(offer.asked_in, offer.version, offer.id)

    def _on_jumped(self, params: object) -> None:
        if (offer := self._offers.get(messages.read(params, messages.NextEditJumped).id)) is not None:
            offer.jumped = True

    def _on_ended(self, params: object) -> None:
        ended = messages.read(params, messages.NextEditEnded)
        offer = self._offers.get(ended.id)
        if offer is None or offer.ended:
            return
        if ended.reason == "rejected":
            self._pace.rejected(offer.told, self._clock())
            self._tracking.refused(offer.uri, offer.text, offer.found.edit)
        self._end(offer)

    def _on_accepted(self, *arguments: Any) -> None:
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise InvalidParamsError(f"{ACCEPT_COMMAND} takes [id]: the argument of the edit's own command")
        offer = self._offers.get(arguments[0])
        if offer is not None and not offer.accepted:
            self._take(offer)

    # What the documents tell

    def _changed(self, held: Held) -> None:
        uri = held.document.uri
        self._supersede(uri, newer=False)
        offer = self._offers.live(uri)
        if offer is not None:
            if self._tracking.follows_acceptance(uri):
                self._take(offer)
            else:
                self._end(offer)

    def _closed(self, held: Held) -> None:
        uri = held.document.uri
        self._supersede(uri, newer=False)
        self._on_screen.closed(uri)
        if (offer := self._offers.live(uri)) is not None:
            self._end(offer)

    # Inside

    def _supersede(self, uri: str, *, newer: bool = True) -> asyncio.Future[None]:
        """Make the question of a document that waits void; the future says the same of the one that takes its place."""
        if (older := self._live.pop(uri, None)) is not None and not older.done():
            older.set_result(None)
        superseded = asyncio.get_running_loop().create_future()
        if newer:
            self._live[uri] = superseded
        return superseded

    async def _answer(self, asked_as: str, held: Open, position: Position, superseded: asyncio.Future[None]) -> _Answer:
        document, version = held.document, held.document.version
        uri = document.uri
        chained = self._tracking.follows_acceptance(uri)
        wait_s = self._pace.wait_s(self._tracking.since_change(uri), self._clock(), chained=chained)
        await asyncio.wait((superseded,), timeout=wait_s)
        if superseded.done():
            return _nothing()
        cursor = held.offset_at(position)
        found = await self._tracking.next(document, cursor)
        now = self._documents.find(asked_as)
        if superseded.done() or found is None or now is None:
            return _nothing()
        if now.document is not document or document.version != version or self._documents.obstacle(now) is not None:
            return _nothing()
        if self._on_screen.has_inline(uri, version, cursor):
            return _nothing()
        return self._offered(asked_as, now, found) or _nothing()

    def _offered(self, asked_as: str, held: Open, found: NextEdit) -> _Answer | None:
        """The answer with an edit, where it is one of what was asked about, and may be shown."""
        document, now_s = held.document, self._clock()
        uri, text = document.uri, document.text
        found = _with_line_ends_of(text, found)
        start, end, new = found.edit
        first = held.offset_at(Position(0, 0))
        if not _is_within(held, found.edit, first):
            return None
        told = Told(uri, _line_of(text, found.edit), text[start:end], new)
        eagerness, quiet_s = self._settings.options.next_edit.eagerness, self._tracking.since_change(uri)
        if not self._pace.allows(found.evidence, eagerness, told, quiet_s, now_s):
            return None
        if (older := self._offers.live(uri)) is not None:
            self._end(older)
        offer = Offer(self._offers.new_id(), uri, uri, document.version, text, found, told, now_s)
        self._offers.add(offer)
        self._tracking.expect(uri, f"{text[:start]}{new}{text[end:]}")
        return {"edits": [item(offer.id, asked_as, held.version, found, held.lines, first)]}

    def _take(self, offer: Offer) -> None:
        offer.accepted = True
        self._pace.accepted(self._clock())
        self._end(offer)

    def _end(self, offer: Offer) -> None:
        offer.ended = True
        self._on_screen.next_edit_gone(offer.id)


def _line_of(text: str, edit: Edit) -> str:
    first = text.rfind("\n", 0, edit.start) + 1
    last = text.find("\n", edit.end)
    return text[first : len(text) if last < 0 else last].strip()


def _with_line_ends_of(text: str, found: NextEdit) -> NextEdit:
    """The engine ends lines with a line feed."""
    if "\n" not in found.edit.text or "\r\n" not in text:
        return found
    ends = found.edit.text.replace("\r\n", "\n").replace("\n", "\r\n")
    return found._replace(edit=found.edit._replace(text=ends))


def _is_within(held: Open, edit: Edit, first: int) -> bool:
    """Whether an edit is one of what the editor calls this document: of a notebook's cell, and character for character."""
    start, end = edit.start - first, edit.end - first
    if start < 0 or end > held.lines.chars or "\ufffd" in edit.text:
        return False
    lines = held.lines.position_at(start).line, held.lines.position_at(end).line
    if any(held.excluded_at(Position(line, 0)) for line in range(lines[0], lines[1] + 1)):
        return False
    return held.lines.part(start, end) == held.document.text[edit.start : edit.end]
