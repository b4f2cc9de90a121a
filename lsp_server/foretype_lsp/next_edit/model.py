"""What a model says of the next edit, where the rules are silent: of one window around the cursor, and taken only where it parses."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from foretype_context.edit_models.question import (
    EditQuestion,
    EditWindow,
    RecentEdit,
    WindowEdit,
    question_at,
    window_at,
    window_before,
)
from foretype_context.edits.evidence import Evidence, NextEdit, named
from foretype_context.text.document import Document, Edit
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import NextEdit as Ask

from foretype_lsp.next_edit.tracking import Tracking

if TYPE_CHECKING:
    from foretype_client.session.session import Session

__all__ = ["EditModel", "FromModel", "GatewayModel"]

_log: Final = logging.getLogger(__name__)

_DEADLINE_MS: Final = 2_000.0
"""An answer that comes later is about a place that was left."""
_REFUSED: Final = 256


class EditModel(Protocol):
    """A gateway's model of next edits."""

    @property
    def wanted(self) -> EditWindow | None:
        """How it is asked; None while there is none."""
        ...

    async def ask(self, document: Document, question: EditQuestion) -> WindowEdit | None:
        """Its edit, or None, also where there is no answer. Cancelling stops it."""
        ...


class GatewayModel:
    """The one that the gateway's profile names."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def wanted(self) -> EditWindow | None:
        profile = self._session.profile
        return profile.next_edit if profile is not None and self._session.connected else None

    async def ask(self, document: Document, question: EditQuestion) -> WindowEdit | None:
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
        self.model: EditModel | None = None
        self._tracking = tracking
        self._refused = deque[tuple[str, str]](maxlen=_REFUSED)

    def refused(self, text: str, edit: Edit) -> None:
        """The developer did not want this: not here again, nor where the same line stands."""
        self._refused.append(named(text, edit))

    async def next(self, document: Document, cursor: int, stop: asyncio.Future[None]) -> NextEdit | None:
        """What it says of a document as it is now; nothing where nothing was done yet, or as soon as `stop` is done."""
        model, text = self.model, document.text
        wanted = None if model is None else model.wanted
        if model is None or wanted is None:
            return None
        edits, last = await self._tracking.recent(document)
        if not edits or stop.done() or document.text != text:
            return None
        window = window_at(text, cursor, wanted.lines_above, wanted.lines_below)
        before = None
        if last is not None:
            start, end, inserted = last.edit
            before = window_before(last.before, start, end, len(inserted), window)
        shown = [msgspec.structs.replace(one, path=document.path) for one in edits]
        question = question_at(text, cursor, wanted, path=document.path, before=before, edits=shown)
        if question is None:
            return None
        asking = asyncio.create_task(model.ask(document, question))
        try:
            await asyncio.wait((asking, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                asking.cancel()
        said = asking.result() if asking.done() and not asking.cancelled() and not stop.done() else None
        if said is None or document.text != text:
            return None
        edit = Edit(window.start + said.start, window.start + said.end, said.text)
        if named(text, edit) in self._refused or _takes_back(question, said, edits):
            return None
        return NextEdit(edit, Evidence.MODEL, 0) if await self._tracking.parses(document, edit) else None


def _takes_back(question: EditQuestion, said: WindowEdit, edits: list[RecentEdit]) -> bool:
    """Whether it undoes what was done lately, or changes nothing."""
    result = question.window[: said.start] + said.text + question.window[said.end :]
    if result in (question.window, question.before):
        return True
    return any(one.new in question.window and one.new not in result and one.old in result for one in edits if one.old)
