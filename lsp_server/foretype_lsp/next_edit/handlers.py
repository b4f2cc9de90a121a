"""The messages about next edits for editors that draw them: the question, and what the editor tells of its answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from foretype_lsp import messages
from foretype_lsp.errors import InvalidParamsError
from foretype_lsp.next_edit.offering import Answer, NextEdits, Offered
from foretype_lsp.next_edit.offers import ACCEPT_COMMAND, item

QUESTION: Final = "textDocument/copilotInlineEdit"
DID_SHOW: Final = "textDocument/didShowInlineEdit"
JUMPED: Final = "foretype/nextEditJumped"
ENDED: Final = "foretype/nextEditEnded"

_Answer = dict[str, Any]


class NextEditMessages:
    """Handlers of the messages, and of the command, by their names.

    Attributes:
        capability: what is said of them beside the standard's own capabilities.
    """

    capability: Final = {"foretype": {"nextEdit": True}}

    def __init__(self, next_edits: NextEdits) -> None:
        self._next_edits = next_edits
        self.handlers: dict[str, Callable[[Any], Any]] = {
            QUESTION: self._on_asked,
            DID_SHOW: self._on_shown,
            JUMPED: self._on_jumped,
            ENDED: self._on_ended,
        }
        self.commands: dict[str, Callable[..., Any]] = {ACCEPT_COMMAND: self._on_accepted}

    def _on_asked(self, params: object) -> Coroutine[Any, Any, _Answer] | _Answer:
        asked = messages.read(params, messages.InlineEdit)
        document = asked.text_document
        answer = self._next_edits.ask(
            document.uri, asked.position.position, version=document.version, by_hand=asked.by_hand
        )
        return _answered(None) if answer is None else _when_found(answer)

    def _on_shown(self, params: object) -> None:
        offer = self._next_edits.get(messages.read(params, messages.Shown).item.suggestion_id or "")
        if offer is not None:
            self._next_edits.shown(offer)

    def _on_jumped(self, params: object) -> None:
        offer = self._next_edits.get(messages.read(params, messages.NextEditJumped).id)
        if offer is not None:
            self._next_edits.jumped(offer)

    def _on_ended(self, params: object) -> None:
        ended = messages.read(params, messages.NextEditEnded)
        offer = self._next_edits.get(ended.id)
        if offer is None:
            return
        if ended.reason == "rejected":
            self._next_edits.refused(offer)
        else:
            self._next_edits.end(offer, ended.reason)

    def _on_accepted(self, *arguments: Any) -> None:
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise InvalidParamsError(f"{ACCEPT_COMMAND} takes [id]: the argument of the edit's own command")
        offer = self._next_edits.get(arguments[0])
        if offer is not None:
            self._next_edits.take(offer)


async def _when_found(answer: Answer) -> _Answer:
    return _answered(await answer())


def _answered(found: Offered | None) -> _Answer:
    return {"edits": [] if found is None else [item(found.offer.id, found.place)]}
