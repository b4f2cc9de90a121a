"""What a model says of the next edit, where the rules are silent: of one window around the cursor, and taken only where it parses."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Final

from foretype_context.edit_models.question import EditQuestion, EditWindow, WindowEdit
from foretype_context.edits.evidence import Evidence, NextEdit
from foretype_context.edits.model_question import ModelQuestions
from foretype_context.syntax.document import Document, Edit
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import NextEdit as Ask

from foretype_lsp.next_edit.tracking import Tracking

if TYPE_CHECKING:
    from foretype_client.session.session import Session

_log: Final = logging.getLogger(__name__)

_DEADLINE_MS: Final = 2_000.0
"""An answer that comes later is about a place that was left."""


class GatewayModel:
    """The model of next edits that the gateway's profile names."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def wanted(self) -> EditWindow | None:
        """How it is asked; None while there is none."""
        profile = self._session.profile
        return profile.next_edit if profile is not None and self._session.connected else None

    async def ask(self, document: Document, question: EditQuestion) -> WindowEdit | None:
        """Its edit, or None, also where there is no answer. Cancelling stops it."""
        call = Ask(
            id=f"next-{secrets.token_hex(8)}",
            document=document.uri,
            version=document.version,
            language=document.language,
            question=question,
            deadline_ms=_DEADLINE_MS,
        )
        try:
            return (await self._session.next_edit(call)).edit
        except (RequestRefusedError, GatewayGoneError) as error:
            _log.debug("no next edit of the model: %s", type(error).__name__)
            return None


class FromModel:
    """Asks the model that is there."""

    def __init__(self, tracking: Tracking) -> None:
        self.model: GatewayModel | None = None
        self._tracking = tracking
        self._questions = ModelQuestions()

    def refused(self, text: str, edit: Edit) -> None:
        """The developer did not want this: not here again, nor where the same line stands."""
        self._questions.refused(text, edit)

    async def next(self, document: Document, cursor: int, stop: asyncio.Future[None]) -> NextEdit | None:
        """What it says of a document as it is now; None if nothing was changed yet, or as soon as `stop` is done."""
        model, text = self.model, document.text
        wanted = None if model is None else model.wanted
        if model is None or wanted is None:
            return None
        edits, last = await self._tracking.recent(document)
        if stop.done() or document.text != text:
            return None
        asked = self._questions.ask(text, cursor, wanted, document.path, edits, last)
        if asked is None:
            return None
        asking = asyncio.create_task(model.ask(document, asked.question))
        try:
            await asyncio.wait((asking, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                asking.cancel()
        said = asking.result() if asking.done() and not asking.cancelled() and not stop.done() else None
        edit = None if said is None or document.text != text else self._questions.take(text, asked, said)
        if edit is None or not await self._tracking.parses(document, edit):
            return None
        return NextEdit(edit, Evidence.MODEL, 0)
