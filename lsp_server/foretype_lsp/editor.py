"""The editor at the other end: what it has said of itself, and how it is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, cast

from foretype_wire.subscriptions import Subscribers
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from foretype_lsp.documents.positions import Position
from foretype_lsp.errors import CONTENT_MODIFIED, CommandRefusedError
from foretype_lsp.transport.protocol import Protocol
from foretype_lsp.transport.stdio import process_alive

_HIDING_ERRORS: Final = frozenset({"helix"})
"""What editors call themselves that only log the error of a command."""


class Editor:
    """One editor, unknown until `initialize`.

    Attributes:
        initialized: set once the editor may be told something.
        pid: its process, if that can be watched.
        name: of this server and of the editor, for the gateway's logs. `program`: what the editor calls itself.
        shows_progress: it knows work-done progress. `watches_files`: it can be asked to tell of files that others change.
        applies_edits: it applies edits that name the version they are of, and refuses them for another.
        shows_documents: it can be asked to bring the cursor somewhere.
        grows: it has said that it understands `foretype/suggestionGrew`.
        hides_errors: it only logs what a command answers with an error.
        progress_cancelled: told the token of work that the user has cancelled.
    """

    def __init__(self, protocol: Protocol, name: str) -> None:
        self.initialized = asyncio.Event()
        self.pid: int | None = None
        self.name = name
        self.program = ""
        self.shows_progress = self.watches_files = self.grows = False
        self.applies_edits = self.shows_documents = self.hides_errors = False
        self.progress_cancelled: Subscribers[object] = Subscribers()
        self._protocol = protocol

    def introduced(self, params: types.InitializeParams) -> None:
        """Take note of what the editor says of itself."""
        if params.client_info is not None:
            self.program = params.client_info.name
            self.name += f" {params.client_info.name} {params.client_info.version or ''}".rstrip()
            self.hides_errors = self.program in _HIDING_ERRORS
        # A process that is not there now is in another name space (an editor outside of a container): not to be watched.
        if params.process_id is not None and process_alive(params.process_id):
            self.pid = params.process_id
        window, workspace = params.capabilities.window, params.capabilities.workspace
        self.shows_progress = bool(window and window.work_done_progress)
        watching = workspace.did_change_watched_files if workspace else None
        self.watches_files = bool(watching and watching.dynamic_registration)
        edits = workspace.workspace_edit if workspace else None
        self.applies_edits = bool(workspace and workspace.apply_edit and edits and edits.document_changes)
        shown = window.show_document if window else None
        self.shows_documents = bool(shown and shown.support)
        own = params.capabilities.experimental
        self.grows = isinstance(own, dict) and cast("dict[str, Any]", own).get("foretype.suggestionGrew") is True

    @property
    def raw_params(self) -> dict[str, Any]:
        """Parameters of the message that is being handled, as the editor sent them."""
        return self._protocol.raw_params

    def notify(self, method: str, params: Any = None) -> None:
        self._protocol.notify(method, params)

    def send_request(self, method: str, params: Any = None) -> Any:
        """Ask the editor; a `concurrent.futures.Future` of its answer."""
        return self._protocol.send_request(method, params)

    async def choose(self, text: str, titles: Iterable[str]) -> str | None:
        """Ask the user, by a request that every editor knows; one of the titles, or None where they chose none of them."""
        actions = [types.MessageActionItem(title) for title in titles]
        question = types.ShowMessageRequestParams(types.MessageType.Info, text, actions)
        answer = await asyncio.wrap_future(self.send_request(types.WINDOW_SHOW_MESSAGE_REQUEST, question))
        title: object = getattr(answer, "title", None)
        if isinstance(answer, dict):
            title = cast("dict[str, object]", answer).get("title")
        return title if isinstance(title, str) and title in [action.title for action in actions] else None

    def show_message(self, kind: types.MessageType, text: str) -> None:
        """Tell the user something."""
        self.notify(types.WINDOW_SHOW_MESSAGE, types.ShowMessageParams(kind, text))

    def inform(self, text: str) -> None:
        """Tell the user that something was done."""
        self.show_message(types.MessageType.Info, f"Foretype: {text}")

    def warn(self, text: str) -> None:
        """Tell the user of something that did not work."""
        self.show_message(types.MessageType.Warning, f"Foretype: {text}")

    @contextmanager
    def refusals_shown(self) -> Generator[None]:
        """For a command: what is refused within it is shown, where the editor would hide the error."""
        try:
            yield
        except JsonRpcException as refused:
            if self.hides_errors:
                self.warn(refused.message)
            raise

    async def apply(self, edit: types.WorkspaceEdit, label: str) -> dict[str, Any]:
        """Hand an edit to the editor: `{edit, applied, reason?}`. Raises CommandRefusedError if it does not want it."""
        if not self.applies_edits:
            # An edit without a version could land in text that was typed while it was on its way.
            reason = "the editor does not support edits with a document version"
            return {"edit": edit, "applied": False, "reason": reason}
        asked = types.ApplyWorkspaceEditParams(edit, label)
        answered: Any = await asyncio.wrap_future(self.send_request(types.WORKSPACE_APPLY_EDIT, asked))
        if not answered.applied:
            why = answered.failure_reason or "it gave no reason"
            raise CommandRefusedError(f"the editor did not apply the edit: {why}", CONTENT_MODIFIED)
        return {"edit": edit, "applied": True}


def range_of(start: Position, end: Position) -> types.Range:
    return types.Range(types.Position(start.line, start.character), types.Position(end.line, end.character))


def workspace_edit(uri: str, version: int, span: types.Range, text: str) -> types.WorkspaceEdit:
    """An edit of one document as it is at a version."""
    document = types.OptionalVersionedTextDocumentIdentifier(uri, version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, [types.TextEdit(span, text)])])
