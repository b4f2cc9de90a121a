"""The next edit for editors that have no place to draw it: a code action, asked for and taken by hand."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from pathlib import PurePath
from typing import Any, Final

from foretype_wire.redaction import log_fault
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from foretype_lsp import messages
from foretype_lsp.documents.documents import path_of
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.editor import Editor, range_of, workspace_edit
from foretype_lsp.errors import CommandRefusedError, DocumentChangedError, InvalidParamsError
from foretype_lsp.next_edit.offering import Answer, NextEdits, Offered
from foretype_lsp.next_edit.places import EditPlace

_log: Final = logging.getLogger(__name__)

TAKE_COMMAND: Final = "foretype.nextEdit.take"
ACTION_KIND: Final = "quickfix.foretype.nextEdit"
"""Helix sorts the actions of all servers by kind, quick fixes first."""

_MOST_S: Final = 2.0
"""The other actions wait for no more than this."""
_KEPT: Final = 16
_SHOWN_CHARS: Final = 24


class NextEditActions:
    """The code action of the next edit, and the command behind it."""

    def __init__(self, editor: Editor, documents: SharedDocuments, next_edits: NextEdits) -> None:
        self._editor = editor
        self._documents = documents
        self._next_edits = next_edits
        self._given: OrderedDict[str, Offered] = OrderedDict()
        self.commands: dict[str, Callable[..., Any]] = {TAKE_COMMAND: self._on_taken}
        next_edits.expect_questions()

    def before(
        self, others: list[dict[str, Any]], asked: messages.CodeAction
    ) -> list[dict[str, Any]] | Coroutine[Any, Any, list[dict[str, Any]]]:
        """The actions of a place with that of the next edit before them, where there is one."""
        if not asked.wants(ACTION_KIND):
            return others
        at = min(asked.range.start.position, asked.range.end.position)
        answer = self._next_edits.ask(asked.text_document.uri, at, by_hand=True)
        return others if answer is None else self._before(others, answer)

    async def _before(self, others: list[dict[str, Any]], answer: Answer) -> list[dict[str, Any]]:
        looking = asyncio.create_task(self._action(answer))
        try:
            await asyncio.wait((looking,), timeout=_MOST_S)
        finally:
            looking.cancel()
        if not looking.done() or looking.cancelled():
            return others
        if (fault := looking.exception()) is not None:
            log_fault(_log, "no next edit among the code actions", fault)
            return others
        action = looking.result()
        return others if action is None else [action, *others]

    async def _action(self, answer: Answer) -> dict[str, Any] | None:
        offered = await answer()
        if offered is None:
            return None
        self._next_edits.shown(offered.offer, drawn=False)
        id, title = offered.offer.id, _title(offered)
        self._given[id] = offered
        if len(self._given) > _KEPT:
            self._given.popitem(last=False)
        command = {"title": title, "command": TAKE_COMMAND, "arguments": [id]}
        return {"title": title, "kind": ACTION_KIND, "command": command}

    # The command

    def _on_taken(self, *arguments: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise InvalidParamsError(f"{TAKE_COMMAND} takes [id]: the argument of the action's own command")
        return self._told(arguments[0])

    async def _told(self, id: str) -> dict[str, Any]:
        with self._editor.refusals_shown():
            done = await self._take(id)
        if "reason" in done:
            self._editor.warn(f"nothing was changed: {done['reason']}")
        return done

    async def _take(self, id: str) -> dict[str, Any]:
        """Apply it where that can be done here, else go there: `{applied, edit?, reason?}`."""
        offered = self._given.pop(id, None)
        if offered is None or offered.offer.ended:
            raise DocumentChangedError
        offer, place, here = offered
        span = _range(place)
        if not here or offer.found.jump_only:
            await self._go(place, span.start)
            self._next_edits.jumped(offer)
            return {"applied": False}
        now = self._documents.find(place.uri)
        if now is None or place.version is None or now.version != place.version:
            raise DocumentChangedError
        if now.document.text != offer.text or self._documents.obstacle(now) is not None:
            raise DocumentChangedError
        edit = workspace_edit(place.uri, place.version, span, place.lines.ended(offer.found.edit.text))
        self._next_edits.expect(offer)
        offer.jumped = offer.jump and self._editor.shows_documents
        done = await self._editor.apply(edit, "Next edit")
        if done["applied"]:
            self._next_edits.take(offer)
            if self._editor.shows_documents:
                await self._follow(place, span.start)
        return done

    async def _follow(self, place: EditPlace, start: types.Position) -> None:
        """Go to what was applied: that it was is true either way."""
        try:
            await self._go(place, start)
        except JsonRpcException as error:
            _log.info("the cursor stays where it is: %s", error.message)

    async def _go(self, place: EditPlace, start: types.Position) -> None:
        """Bring the cursor to where a place begins. Raises CommandRefusedError."""
        where = f"{_name(place)}, line {start.line + 1}"
        if not self._editor.shows_documents:
            raise CommandRefusedError(f"the editor cannot be told where to go: {where}")
        asked = types.ShowDocumentParams(place.uri, take_focus=True, selection=types.Range(start, start))
        answered: Any = await asyncio.wrap_future(self._editor.send_request(types.WINDOW_SHOW_DOCUMENT, asked))
        if not answered.success:
            raise CommandRefusedError(f"the editor did not go to {where}")


def _range(place: EditPlace) -> types.Range:
    """Of what is replaced, as the editor counts."""
    edit, at = place.found.edit, place.lines.position_at
    return range_of(at(edit.start - place.start), at(edit.end - place.start))


def _title(offered: Offered) -> str:
    """One short line."""
    place = offered.place
    edit, line = place.found.edit, _range(place).start.line + 1
    if not offered.here:
        return f"Next edit: {_name(place)}, line {line}"
    if place.found.jump_only:
        return f"Next edit: look at line {line}"
    old, new = _short(place.text[edit.start : edit.end]), _short(edit.text)
    if old and new:
        return f"Next edit: line {line}, `{old}` → `{new}`"
    if not old and not new:  # of white space
        return f"Next edit: line {line}"
    return f"Next edit: line {line}, " + (f"insert `{new}`" if new else f"remove `{old}`")


def _name(place: EditPlace) -> str:
    """Of the file; of a cell that of its notebook."""
    return PurePath(path_of(place.document)).name or place.uri


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
