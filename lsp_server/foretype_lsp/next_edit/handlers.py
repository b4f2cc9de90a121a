"""What each message about next edits does: the question, and what the editor tells of its answer.

One place at a time, and of the text that the editor has: a change, a newer question or a text of another version make a question void.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from foretype_client.telemetry.next_edits import NextEditLog
from foretype_context.edits.evidence import Evidence, NextEdit
from foretype_context.edits.pace import Pace, RememberedEdit
from foretype_context.syntax.languages import language_of
from foretype_context.text.document import Document, Edit

from foretype_lsp import messages
from foretype_lsp.documents.documents import HeldText, Open
from foretype_lsp.documents.positions import Position
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.errors import InvalidParamsError
from foretype_lsp.next_edit.model import EditModel, FromModel
from foretype_lsp.next_edit.offers import ACCEPT_COMMAND, GivenEdit, Offers, item
from foretype_lsp.next_edit.on_screen import OnScreen
from foretype_lsp.next_edit.other_files import EditsInOtherFiles
from foretype_lsp.next_edit.places import EditPlace, in_open
from foretype_lsp.next_edit.tracking import Tracking
from foretype_lsp.settings import Settings

__all__ = ["DID_SHOW", "ENDED", "JUMPED", "QUESTION", "NextEditing"]

_NEAR_LINES: Final = 2
"""Below the cursor; an edit there is shown in place."""

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
        self._others = EditsInOtherFiles(settings, documents, self._tracking, clock)
        self._from_model = FromModel(self._tracking)
        self._live: dict[str, asyncio.Future[None]] = {}
        self._taken: GivenEdit | None = None
        self._log: NextEditLog | None = None
        documents.opening.add(self._opened)
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

    def use(self, model: EditModel | None) -> None:
        """Ask this model from now on where the rules are silent; None: none."""
        self._from_model.model = model

    def tell(self, log: NextEditLog | None) -> None:
        """Tell what becomes of next edits to this one from now on; None: to nobody."""
        self._log = log

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
        offer = self._offers.get(messages.read(params, messages.NextEditJumped).id)
        if offer is not None and not offer.ended:
            offer.jumped = True
            if offer.found.jump_only:  # there is nothing else to take
                self._take(offer)

    def _on_ended(self, params: object) -> None:
        ended = messages.read(params, messages.NextEditEnded)
        offer = self._offers.get(ended.id)
        if offer is None or offer.ended:
            return
        if ended.reason == "rejected":
            self._pace.rejected(offer.told, self._clock())
            if offer.found.evidence is Evidence.MODEL:
                self._from_model.refused(offer.text, offer.found.edit)
            else:
                self._tracking.refused(offer.origin, offer.text, offer.found.edit)
        self._end(offer, ended.reason)

    def _on_accepted(self, *arguments: Any) -> None:
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise InvalidParamsError(f"{ACCEPT_COMMAND} takes [id]: the argument of the edit's own command")
        offer = self._offers.get(arguments[0])
        if offer is not None and not offer.accepted:
            self._take(offer)

    # What the documents tell

    def _opened(self, held: HeldText) -> None:
        """It may be the file that a next edit is of, and the editor has jumped to it."""
        uri = held.document.uri
        offer = self._offers.live(uri)
        if offer is None or offer.asked_in == uri:
            return
        if offer.text == held.document.text:
            self._tracking.expect(uri, None if offer.found.jump_only else offer.result)
        else:
            self._end(offer, "hidden")

    def _changed(self, held: HeldText) -> None:
        uri = held.document.uri
        self._supersede(uri, newer=False)
        offer = self._offers.live(uri)
        if offer is not None:
            if self._tracking.follows_acceptance(uri):
                self._take(offer)
            else:
                self._end(offer, "typed")

    def _closed(self, held: HeldText) -> None:
        uri = held.document.uri
        self._supersede(uri, newer=False)
        self._on_screen.closed(uri)
        if (offer := self._offers.live(uri)) is not None:
            self._end(offer, "closed")

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
        uri, cursor = document.uri, held.offset_at(position)
        chained = self._tracking.follows_acceptance(uri)
        wait_s = self._pace.wait_s(
            self._tracking.since_change(uri),
            self._clock(),
            eagerness=self._settings.options.next_edit.eagerness,
            chained=chained,
            in_line=self._tracking.is_in_typed_line(uri, cursor),
        )
        await asyncio.wait((superseded,), timeout=wait_s)
        if superseded.done():
            return _nothing()
        found = await self._tracking.next(document, cursor)
        if found is not None and not self._shows(found.evidence):
            found = None
        place: EditPlace | None = None
        if found is not None:
            place = self._in(document, found)
        elif isinstance(held, HeldText) and not superseded.done():
            place = await self._others.next(held, superseded.done, self._shows)
            if place is None and not superseded.done() and self._may_ask_model(uri):
                said = await self._from_model.next(document, cursor, superseded)
                place = None if said is None else self._in(document, said)
        now = self._documents.find(asked_as)
        if superseded.done() or place is None or now is None:
            return _nothing()
        if now.document is not document or document.version != version or self._documents.obstacle(now) is not None:
            return _nothing()
        if self._on_screen.has_inline(uri, version, cursor):
            return _nothing()
        if place.lines is now.lines:
            place = place._replace(uri=asked_as)
        return self._offered(now, place, cursor, self._taken if chained else None) or _nothing()

    def _in(self, document: Document, found: NextEdit) -> EditPlace | None:
        return in_open(self._documents.part_at(document, found.edit.start), found, document.uri)

    def _shows(self, evidence: Evidence) -> bool:
        return self._pace.shows(evidence, self._settings.options.next_edit.eagerness, self._clock())

    def _may_ask_model(self, uri: str) -> bool:
        eagerness, quiet_s = self._settings.options.next_edit.eagerness, self._tracking.since_change(uri)
        return self._pace.allows(Evidence.MODEL, eagerness, RememberedEdit(uri, "", "", ""), quiet_s, self._clock())

    def _offered(self, held: Open, place: EditPlace, cursor: int, before: GivenEdit | None) -> _Answer | None:
        """The answer with an edit, where it is one of what it says it is, and may be shown.

        Args:
            before: the one that it follows, which was taken.
        """
        asked_in, now_s = held.document.uri, self._clock()
        uri, text, found = place.document, place.text, place.found
        start, end, new = found.edit
        told = RememberedEdit(uri, _line_of(text, found.edit), text[start:end], new)
        eagerness, quiet_s = self._settings.options.next_edit.eagerness, self._tracking.since_change(place.origin)
        if not self._pace.allows(found.evidence, eagerness, told, quiet_s, now_s):
            return None
        if (older := self._offers.live(asked_in)) is not None:
            if (older.uri, older.text, older.found) == (uri, text, found):  # the same, asked for again
                return {"edits": [item(older.id, place)]}
            self._end(older, "replaced")
        id = self._offers.new_id()
        chain, order = (before.chain, before.order + 1) if before is not None else (id, 1)
        offer = GivenEdit(
            id=id,
            uri=uri,
            asked_in=asked_in,
            version=held.document.version,
            text=text,
            origin=place.origin,
            found=found,
            told=told,
            given_s=now_s,
            chain=chain,
            order=order,
            jump=found.jump_only or place.lines is not held.lines or _is_far(text, found.edit, cursor),
        )
        self._offers.add(offer)
        self._tracking.expect(uri, None if found.jump_only else offer.result)
        return {"edits": [item(offer.id, place)]}

    def _take(self, offer: GivenEdit) -> None:
        offer.accepted = True
        self._taken = offer
        self._pace.accepted(self._clock())
        self._end(offer, "accepted")

    def _end(self, offer: GivenEdit, reason: str) -> None:
        """It is not on the screen any more; said of what was on it, once."""
        self._on_screen.next_edit_gone(offer.id)
        if offer.ended:
            return
        offer.ended = True
        if self._log is not None and (offer.shown_s is not None or offer.accepted):
            held = self._documents.get(offer.uri)
            language = language_of(offer.uri) if held is None else held.document.language
            self._log.ended(offer.outcome(language, reason))


def _is_far(text: str, edit: Edit, cursor: int) -> bool:
    return edit.start < cursor or text.count("\n", cursor, edit.start) > _NEAR_LINES


def _line_of(text: str, edit: Edit) -> str:
    first = text.rfind("\n", 0, edit.start) + 1
    last = text.find("\n", edit.end)
    return text[first : len(text) if last < 0 else last].strip()
