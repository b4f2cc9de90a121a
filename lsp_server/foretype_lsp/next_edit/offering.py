"""Finds the next edit of a place that was asked about, and keeps what becomes of those that were offered.

One place at a time, and of the text that the editor has: a change, a newer question or a text of another version make a question void.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from foretype_client.telemetry.next_edits import NextEditLog
from foretype_context.edits.evidence import Evidence, NextEdit, named
from foretype_context.edits.pace import Pace, RememberedEdit
from foretype_context.syntax.document import Change, Document, Edit
from foretype_context.syntax.languages import language_of

from foretype_lsp.documents.documents import HeldText, Open
from foretype_lsp.documents.positions import Position
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.next_edit.model import FromModel, GatewayModel
from foretype_lsp.next_edit.offers import GivenEdit, Offers
from foretype_lsp.next_edit.on_screen import OnScreen
from foretype_lsp.next_edit.other_files import EditsInOtherFiles
from foretype_lsp.next_edit.places import EditPlace, in_open
from foretype_lsp.next_edit.tracking import Tracking
from foretype_lsp.settings import Settings

_NEAR_LINES: Final = 2
"""Below the cursor; an edit there is shown in place."""


class Offered(NamedTuple):
    """The answer to a question.

    Attributes:
        place: as the editor has it now.
        here: it is in what was asked about.
    """

    offer: GivenEdit
    place: EditPlace
    here: bool


Answer = Callable[[], Coroutine[Any, Any, Offered | None]]
"""Waits for it, to be called once; who does not want it any more drops it."""


class _Question(NamedTuple):
    """What was asked: `uri` is what the editor calls `held`, which was at `version`."""

    uri: str
    held: Open
    version: int
    cursor: int
    by_hand: bool
    superseded: asyncio.Future[None]


class NextEdits:
    """The next edits of one server, whichever way the editor asks.

    Args:
        clock: monotonic seconds.
    """

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

    def suggestion_accepted(self, uri: str) -> None:
        """The last change of a document was an inline suggestion that was taken."""
        self._tracking.accepted(uri)

    def use(self, model: GatewayModel | None) -> None:
        """Ask this model from now on where the rules are silent; None: none."""
        self._from_model.model = model

    def tell(self, log: NextEditLog | None) -> None:
        """Tell what becomes of next edits to this one from now on; None: to nobody."""
        self._log = log

    def expect_questions(self) -> None:
        """Somebody may ask by hand, long after a change: note all of them, not only once one was asked for."""
        self._tracking.asked = True

    def close(self) -> None:
        self._tracking.close()

    # Questions

    def ask(self, uri: str, position: Position, *, version: int | None = None, by_hand: bool = False) -> Answer | None:
        """Note what is asked now; what is returned waits for the answer. None where there can be none.

        Args:
            version: that the document must have, where the editor names one.
            by_hand: the user asked: there is no waiting for more to be typed, and nothing else on the screen is in the way.
        """
        held = self._documents.find(uri)
        if held is None:
            return None
        document, cursor = held.document, held.offset_at(position)
        question = _Question(uri, held, document.version, cursor, by_hand, self._supersede(document.uri))
        void = (
            not self._settings.options.next_edit.enabled
            or version not in (None, held.version)
            or self._documents.obstacle(held) is not None
            or not self._tracking.follows(document)
            or self._is_hidden(question)
            or self._pace.cool_down_s(self._clock()) > 0
        )
        return None if void else partial(self._answer, question)

    def _supersede(self, uri: str, *, newer: bool = True) -> asyncio.Future[None]:
        """Make the question of a document that waits void; the future says the same of the one that takes its place."""
        if (older := self._live.pop(uri, None)) is not None and not older.done():
            older.set_result(None)
        superseded = asyncio.get_running_loop().create_future()
        if newer:
            self._live[uri] = superseded
        return superseded

    async def _answer(self, asked: _Question) -> Offered | None:
        document, superseded = asked.held.document, asked.superseded
        uri = document.uri
        chained = self._tracking.follows_acceptance(uri)
        wait_s = self._pace.wait_s(
            self._tracking.since_change(uri),
            self._clock(),
            eagerness=self._settings.options.next_edit.eagerness,
            chained=chained,
            in_line=self._tracking.is_in_typed_line(uri, asked.cursor),
            by_hand=asked.by_hand,
        )
        await asyncio.wait((superseded,), timeout=wait_s)
        if superseded.done():
            return None
        place = await self._place(asked)
        now = self._documents.find(asked.uri)
        if superseded.done() or place is None or now is None:
            return None
        if now.document is not document or document.version != asked.version:
            return None
        if self._documents.obstacle(now) is not None or self._is_hidden(asked):
            return None
        here = place.lines is now.lines
        if here:
            place = place._replace(uri=asked.uri)
        return self._offered(asked, place, self._taken if chained else None, here=here)

    async def _place(self, asked: _Question) -> EditPlace | None:
        """In what was asked about, in other files, or what the model says: the first of these that says anything."""
        document, superseded = asked.held.document, asked.superseded
        found = await self._tracking.next(document, asked.cursor)
        if found is not None and self._shows(found.evidence):
            return self._in(document, found)
        if not isinstance(asked.held, HeldText) or superseded.done():
            return None
        place = await self._others.next(asked.held, superseded.done, self._shows)
        if place is None and not superseded.done() and self._may_ask_model(document.uri):
            said = await self._from_model.next(document, asked.cursor, superseded)
            return None if said is None else self._in(document, said)
        return place

    def _is_hidden(self, asked: _Question) -> bool:
        """Whether an inline suggestion stands there: one of both is visible, and who asks by hand looks for this one."""
        document = asked.held.document
        return not asked.by_hand and self._on_screen.has_inline(document.uri, document.version, asked.cursor)

    def _in(self, document: Document, found: NextEdit) -> EditPlace | None:
        return in_open(self._documents.part_at(document, found.edit.start), found, document.uri)

    def _shows(self, evidence: Evidence) -> bool:
        return self._pace.shows(evidence, self._settings.options.next_edit.eagerness, self._clock())

    def _may_ask_model(self, uri: str) -> bool:
        eagerness, quiet_s = self._settings.options.next_edit.eagerness, self._tracking.since_change(uri)
        return self._pace.allows(Evidence.MODEL, eagerness, RememberedEdit(uri, "", "", ""), quiet_s, self._clock())

    def _offered(self, asked: _Question, place: EditPlace, before: GivenEdit | None, *, here: bool) -> Offered | None:
        """The answer with an edit, where it is one of what it says it is, and may be shown.

        Args:
            before: the one that it follows, which was taken.
        """
        asked_in, now_s = asked.held.document.uri, self._clock()
        uri, text, found = place.document, place.text, place.found
        start, end, new = found.edit
        told = RememberedEdit(uri, named(text, found.edit)[0], text[start:end], new)
        eagerness, quiet_s = self._settings.options.next_edit.eagerness, self._tracking.since_change(place.origin)
        if not self._pace.allows(found.evidence, eagerness, told, quiet_s, now_s):
            return None
        if (older := self._offers.live(asked_in)) is not None:
            if (older.uri, older.text, older.found) == (uri, text, found):  # the same, asked for again
                return Offered(older, place, here)
            self.end(older, "replaced")
        id = self._offers.new_id()
        chain, order = (before.chain, before.order + 1) if before is not None else (id, 1)
        offer = GivenEdit(
            id=id,
            uri=uri,
            asked_in=asked_in,
            version=asked.version,
            text=text,
            origin=place.origin,
            found=found,
            told=told,
            given_s=now_s,
            chain=chain,
            order=order,
            jump=found.jump_only or not here or _is_far(text, found.edit, asked.cursor),
        )
        self._offers.add(offer)
        self.expect(offer)
        return Offered(offer, place, here)

    # What becomes of them

    def get(self, id: str) -> GivenEdit | None:
        return self._offers.get(id)

    def expect(self, offer: GivenEdit) -> None:
        """The change of its document that comes now may be this edit."""
        self._tracking.expect(offer.uri, None if offer.found.jump_only else offer.result)

    def shown(self, offer: GivenEdit, *, drawn: bool = True) -> None:
        """It is on the screen; where it is not drawn in the text, an inline suggestion may stand there as well."""
        if not offer.ended and offer.shown_s is None:
            offer.shown_s = self._clock()
            if drawn:
                self._on_screen.next_edit_shown(offer.asked_in, offer.version, offer.id)

    def jumped(self, offer: GivenEdit) -> None:
        """The cursor went there."""
        if not offer.ended:
            offer.jumped = True
            if offer.found.jump_only:  # there is nothing else to take
                self.take(offer)

    def refused(self, offer: GivenEdit) -> None:
        """The user took it off the screen."""
        if offer.ended:
            return
        self._pace.rejected(offer.told, self._clock())
        if offer.found.evidence is Evidence.MODEL:
            self._from_model.refused(offer.text, offer.found.edit)
        else:
            self._tracking.refused(offer.origin, offer.text, offer.found.edit)
        self.end(offer, "rejected")

    def take(self, offer: GivenEdit) -> None:
        """It was applied, or there is nothing to apply and the user went there. Counts once."""
        if offer.accepted:
            return
        offer.accepted = True
        self._taken = offer
        self._pace.accepted(self._clock())
        self.end(offer, "accepted")

    def end(self, offer: GivenEdit, reason: str) -> None:
        """It is not on the screen any more; said of what was on it, once."""
        self._on_screen.next_edit_gone(offer.id)
        if offer.ended:
            return
        offer.ended = True
        if self._log is not None and (offer.shown_s is not None or offer.accepted):
            held = self._documents.get(offer.uri)
            language = language_of(offer.uri) if held is None else held.document.language
            self._log.ended(offer.outcome(language, reason))

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
            self.end(offer, "hidden")

    def _changed(self, held: HeldText, _: Change) -> None:
        uri = held.document.uri
        self._supersede(uri, newer=False)
        offer = self._offers.live(uri)
        if offer is not None:
            if self._tracking.follows_acceptance(uri):
                self.take(offer)
            else:
                self.end(offer, "typed")

    def _closed(self, held: HeldText) -> None:
        uri = held.document.uri
        self._supersede(uri, newer=False)
        self._on_screen.closed(uri)
        if (offer := self._offers.live(uri)) is not None:
            self.end(offer, "closed")


def _is_far(text: str, edit: Edit, cursor: int) -> bool:
    return edit.start < cursor or text.count("\n", cursor, edit.start) > _NEAR_LINES
