"""What each message about suggestions does: the questions, and what the editor tells of their answers."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import msgspec
from foretype_client.flow.suggestion import SelectedCompletion
from foretype_client.policy.trigger import Trigger
from foretype_wire.subscriptions import Subscribers
from lsprotocol import types

from foretype_lsp import messages
from foretype_lsp.documents.documents import Open
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.editor import Editor
from foretype_lsp.errors import InvalidParamsError
from foretype_lsp.next_edit.on_screen import OnScreen
from foretype_lsp.settings import Settings
from foretype_lsp.status import StatusMachine
from foretype_lsp.suggestions.items import ACCEPT_COMMAND, EXPLAIN_COMMAND, cursor_line, menu_item
from foretype_lsp.suggestions.waiting_requests import WaitingRequest, WaitingRequests

if TYPE_CHECKING:
    from foretype_client.flow.flow import CompletionFlow

SUGGESTION_GREW: Final = "foretype/suggestionGrew"
CURSOR_RESTED: Final = "foretype/cursorRested"
DID_SHOW: Final = "textDocument/didShowCompletion"
DID_PARTIALLY_ACCEPT: Final = "textDocument/didPartiallyAcceptCompletion"

_ASKS_AGAIN_S: Final = 0.3
"""An editor that is told of growth asks again within this time."""

_INVOKED: Final = 1
_AUTOMATIC: Final = 2
_POPUP_TRIGGERS: Final = [" ", "(", "[", "{", ".", ",", "=", ":", '"', "'"]
"""Beside the letters of words, where menus ask by themselves."""

_Answer = Coroutine[Any, Any, dict[str, Any] | None]


class Suggestions:
    """Handlers of the messages, and of the commands, by their names.

    Attributes:
        question: the method by which the editor asks, and `question_options`, with which it is advertised. One of the two that
            there are: an editor that knows both would ask both, and one question would void the other.
        counts: how questions ended (:class:`foretype_lsp.suggestions.waiting_requests.WaitingRequests`), and how many suggestions were `accepted`.
        accepted: told the document in which a suggestion was taken, right after the change.
    """

    def __init__(
        self,
        editor: Editor,
        settings: Settings,
        documents: SharedDocuments,
        status: StatusMachine,
        on_screen: OnScreen,
        *,
        popup: bool,
    ) -> None:
        self._editor = editor
        self._settings = settings
        self._documents = documents
        self._status = status
        self._on_screen = on_screen
        self.accepted: Subscribers[[str]] = Subscribers()
        self._waiting = WaitingRequests()
        self._grew_s: dict[str, float] = {}
        self._grew_early: dict[str, str] = {}
        self._answering: Counter[str] = Counter()
        # Ids of what a change has put in: not told yet, and told without the editor's word.
        self._put_in = self._known = ""
        self._asked_as: dict[str, str] = {}  # by the document's URI, which for a cell is its notebook's
        self.counts = self._waiting.counts
        self.question: str = types.TEXT_DOCUMENT_INLINE_COMPLETION
        self.question_options: object = types.InlineCompletionOptions()
        answer: Callable[[object], object] = self._on_inline_completion
        if popup:
            self.question, answer = types.TEXT_DOCUMENT_COMPLETION, self._on_completion
            self.question_options = types.CompletionOptions(_POPUP_TRIGGERS)
        self.handlers: dict[str, Callable[[Any], Any]] = {
            self.question: answer,
            CURSOR_RESTED: self._on_rested,
            DID_SHOW: self._on_shown,
            DID_PARTIALLY_ACCEPT: self._on_partially_accepted,
        }
        self.commands: dict[str, Callable[..., Any]] = {
            ACCEPT_COMMAND: self._on_accepted,
            EXPLAIN_COMMAND: self._on_explain,
        }

    def grew(self, uri: str, suggestion_id: str) -> None:
        """Tell a client that understands it that asking again at the same place now gives more."""
        if not self._settings.options.suggestion_grew:
            return
        if self._answering[uri]:
            self._grew_early[uri] = suggestion_id  # a client that has no answer yet takes it for no news
        else:
            self._tell_grew(uri, suggestion_id)

    def _tell_grew(self, uri: str, suggestion_id: str) -> None:
        self._grew_s[uri] = asyncio.get_running_loop().time()
        asked_as = self._asked_as.get(uri, uri)
        self._editor.notify(SUGGESTION_GREW, {"textDocument": {"uri": asked_as}, "id": suggestion_id})

    def put_in(self, suggestion_id: str) -> None:
        """The change of a document that is told now put a suggestion in: not every editor runs an item's command (Helix does not)."""
        self._put_in = suggestion_id

    def changed(self, *_: object) -> None:
        """A document was changed, and whoever tells edits apart knows of it."""
        self._known, self._put_in = self._put_in, ""
        if self._known:
            self._take(self._known)

    def _take(self, suggestion_id: str) -> None:
        self.counts["accepted"] += 1
        if (uri := self._waiting.document_of(suggestion_id)) is not None:
            self.accepted.tell(uri)

    async def close(self) -> None:
        """End what is still worked at, as the process ends."""
        await self._waiting.close()

    def closed(self, uri: str) -> None:
        """A document is not open any more: what grew in it is nothing to its next opening."""
        self._grew_s.pop(uri, None)
        self._grew_early.pop(uri, None)
        self._asked_as.pop(uri, None)

    def _on_inline_completion(self, params: object) -> _Answer | None:
        return self._ask(messages.read(params, messages.InlineCompletion))

    def _on_completion(self, params: object) -> Coroutine[Any, Any, dict[str, Any]]:
        request = messages.read(params, messages.Completion)
        automatic = messages.InlineCompletion(request.text_document, request.position, messages.Context(_AUTOMATIC))
        held = self._documents.find(request.text_document.uri)
        return _as_menu(self._ask(automatic), str if held is None else held.lines.ended)

    def _ask(self, request: messages.InlineCompletion) -> _Answer | None:
        """Note what is asked now; the coroutine waits for the answer."""
        documents, flow = self._documents, self._documents.flow
        held, position = documents.find(request.text_document.uri), request.position.position
        obstacle = None if held is None else documents.obstacle(held) or held.excluded_at(position)
        if held is not None and obstacle is not None:
            self._status.asked(f"none in {PurePath(held.file).name}: {obstacle}")
        else:
            spared = None if flow is None else flow.spared()
            self._status.asked(f"only when you ask: {spared}" if spared else "")
        if held is None or flow is None or obstacle is not None:
            self.counts["answered"] += 1
            return None
        documents.reach(held, position)
        snapshot = held.snapshot()
        superseded = self._waiting.supersede(snapshot.uri)
        self._asked_as[snapshot.uri] = request.text_document.uri
        if request.text_document.version not in (None, held.version):
            self.counts["answered"] += 1
            return None  # a position in a text that we do not have
        offset, line = held.offset_at(position), cursor_line(held.lines, held.lines.offset_at(position))
        info = request.context.selected_completion_info
        # VS Code can be made to ask again only as if the user had: who typed on meanwhile has not.
        told = asyncio.get_running_loop().time() - self._grew_s.pop(snapshot.uri, -math.inf) < _ASKS_AGAIN_S
        invoked = request.context.trigger_kind == _INVOKED and not told
        trigger = Trigger.INVOKED if invoked else Trigger.AUTOMATIC
        selected = _selected(held, info) if info is not None else None
        return self._answer(flow, WaitingRequest(held, snapshot, line, offset, trigger, selected, superseded))

    async def _answer(self, flow: CompletionFlow, asked: WaitingRequest) -> dict[str, Any] | None:
        """Nothing where a next edit is on the screen, unless the user asked by hand: one of both is visible."""
        uri, version = asked.snapshot.uri, asked.snapshot.version
        self._answering[uri] += 1
        try:
            answer = await self._waiting.answer(flow, asked, multi_line=self._settings.options.multi_line)
        finally:
            self._answering[uri] -= 1
            if not self._answering[uri]:
                del self._answering[uri]
                if (early := self._grew_early.pop(uri, None)) is not None:
                    # Behind the answer, which goes out at once.
                    asyncio.get_running_loop().call_soon(self._tell_grew, uri, early)
        if answer is None:
            return None
        if asked.trigger is Trigger.AUTOMATIC and self._on_screen.has_next_edit(uri, version):
            return {"items": []}
        self._on_screen.inline_answered(uri, version, asked.offset, found=bool(answer["items"]))
        return answer

    def _on_rested(self, params: object) -> None:
        rested = messages.read(params, messages.CursorRested)
        held, flow = self._documents.find(rested.text_document.uri), self._documents.flow
        if held is not None and flow is not None and self._documents.obstacle(held) is None:
            self._documents.reach(held, rested.position.position)
            flow.rested(held.snapshot(), held.offset_at(rested.position.position))

    def _on_shown(self, params: object) -> None:
        suggestion_id = messages.read(params, messages.Shown).item.suggestion_id
        if self._documents.flow is not None and suggestion_id is not None:
            self._documents.flow.shown(suggestion_id)

    def _on_partially_accepted(self, params: object) -> None:
        report = messages.read(params, messages.PartiallyAccepted)
        suggestion_id = report.item.suggestion_id or ""
        characters = self._waiting.accepted_characters(suggestion_id, report.accepted_length)
        if self._documents.flow is not None and characters is not None:
            self._documents.flow.partially_accepted(suggestion_id, characters)

    def _on_accepted(self, *arguments: Any) -> None:
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise InvalidParamsError(f"{ACCEPT_COMMAND} takes [id]: the argument of the item's own command")
        if arguments[0] != self._known:
            self._take(arguments[0])
        if self._documents.flow is not None:
            self._documents.flow.accepted(arguments[0])

    def _on_explain(self, *arguments: Any) -> dict[str, Any] | None:
        """What a suggestion was made from: of the id in its item's command, or of the last one."""
        if len(arguments) > 1 or not all(isinstance(one, str) for one in arguments):
            raise InvalidParamsError(f"{EXPLAIN_COMMAND} takes [id], or [] for the last suggestion")
        explained = self._documents.flow.explain(*arguments) if self._documents.flow is not None else None
        return None if explained is None else msgspec.to_builtins(explained)


async def _as_menu(answer: _Answer | None, ended: Callable[[str], str]) -> dict[str, Any]:
    """An answer as a `CompletionList`; incomplete, so that the menu asks again with the next key."""
    inline = (await answer if answer is not None else None) or {"items": []}
    return {"isIncomplete": True, "items": [menu_item(made, ended) for made in inline["items"]]}


def _selected(held: Open, info: messages.Selected) -> SelectedCompletion:
    start, end = held.offset_at(info.range.start.position), held.offset_at(info.range.end.position)
    return SelectedCompletion(min(start, end), max(start, end), info.text)
