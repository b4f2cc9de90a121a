"""The language server: what each message does.

Handlers run in the order of the messages. One that has to wait takes what it needs from the document first, and the wait is
a task of its own, so a running generation never delays a change. Nothing here raises at the editor: a request that cannot be
served is answered `null`, and the reason is in the log and in the status.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any, Final, TypeVar, cast

import msgspec
from cattrs import Converter
from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from foretype_lsp import messages
from foretype_lsp.chat.commands import ACTION_KINDS as CHAT_KINDS
from foretype_lsp.chat.commands import Chat
from foretype_lsp.documents.documents import ChangeResult
from foretype_lsp.documents.notebook_sync import SYNC_OPTIONS, NotebookSync
from foretype_lsp.documents.positions import Encoding
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.editor import Editor
from foretype_lsp.errors import InvalidParamsError
from foretype_lsp.model_choice import ModelChoice
from foretype_lsp.next_edit.actions import ACTION_KIND, NextEditActions
from foretype_lsp.next_edit.handlers import NextEditMessages
from foretype_lsp.next_edit.offering import NextEdits
from foretype_lsp.next_edit.on_screen import OnScreen
from foretype_lsp.options import Problem, section_of
from foretype_lsp.settings import Settings
from foretype_lsp.status import Counts, Status, StatusMachine
from foretype_lsp.suggestions.handlers import Suggestions
from foretype_lsp.transport.protocol import Protocol as JsonRpc

_log: Final = logging.getLogger(__name__)

STATUS: Final = "foretype/status"
DID_CHANGE_STATUS: Final = "foretype/didChangeStatus"

_About = TypeVar("_About", messages.DidOpen, messages.DidChange)


class Server(LanguageServer):
    """pygls server with the handlers of Foretype: messages are read here and done by the parts.

    Args:
        overrides: options by their camelCase names that win over the editor's (the command line's).
        popup: offer suggestions in the ordinary completion menu, and next edits among the code actions, for editors that draw
            neither. Others ask for code actions at every movement of the cursor.
    """

    protocol: JsonRpc  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, overrides: dict[str, object] | None = None, *, popup: bool = False) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "foretype",
            version("foretype"),
            types.TextDocumentSyncKind.Incremental,
            SYNC_OPTIONS,
            protocol_cls=JsonRpc,
            converter_factory=_converter,
        )
        self.stopped = asyncio.Event()
        self.exit_code = 1
        self.editor = Editor(self.protocol, f"foretype-lsp/{self.version}")
        self.settings = Settings(overrides)
        self.status = StatusMachine(version("foretype"))
        self.documents = SharedDocuments(self.settings, time.monotonic)
        on_screen = OnScreen()
        self.suggestions = Suggestions(self.editor, self.settings, self.documents, self.status, on_screen, popup=popup)
        self.next_edits = NextEdits(self.settings, self.documents, on_screen, time.monotonic)
        self._next_edit_messages = NextEditMessages(self.next_edits)
        self.suggestions.accepted.add(self.next_edits.suggestion_accepted)
        # Behind next edits, which are told of a change that they know.
        self.documents.changing.add(self.suggestions.changed)
        self.protocol.experimental.update(self._next_edit_messages.capability)
        self._edit_actions = NextEditActions(self.editor, self.documents, self.next_edits) if popup else None
        self.chat = Chat(self.editor, self.documents)
        self.models = ModelChoice(self.editor, self.settings)
        self._notebooks = NotebookSync(self.documents, self.suggestions.closed)
        self._reported: set[Problem] = set()
        self.protocol.disconnected.add(self.stopped.set)
        self.settings.changed.add(self._on_settings)
        self.status.changed.add(self._tell)
        self._register()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Into the log; pygls would open a pop-up."""
        _log.error("%s: %s", getattr(source, "__name__", source), type(error).__name__)

    # Life

    def _register(self) -> None:
        features: dict[str, Callable[[Any], Any]] = {
            types.INITIALIZE: self._on_initialize,
            types.INITIALIZED: self._on_initialized,
            types.EXIT: self._on_exit,
            types.WORKSPACE_DID_CHANGE_CONFIGURATION: self._on_configuration,
            types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: self._on_folders,
            types.TEXT_DOCUMENT_DID_OPEN: self._on_open,
            types.TEXT_DOCUMENT_DID_CHANGE: self._on_change,
            types.TEXT_DOCUMENT_DID_CLOSE: self._on_close,
            types.TEXT_DOCUMENT_DID_SAVE: self._on_save,
            types.WORKSPACE_DID_CHANGE_WATCHED_FILES: self._on_files,
            types.WINDOW_WORK_DONE_PROGRESS_CANCEL: self._on_progress_cancel,
            types.WORKSPACE_EXECUTE_COMMAND: self._on_command,
            types.TEXT_DOCUMENT_CODE_ACTION: self._on_code_action,
            STATUS: lambda params: msgspec.to_builtins(self._current_status()),
            **self._notebooks.handlers,
            **self.suggestions.handlers,
            **self._next_edit_messages.handlers,
        }
        manager = self.protocol.fm  # its decorators take plain functions only
        cast("dict[str, Any]", manager.features).update(features)  # pyright: ignore[reportUnknownMemberType]
        self._commands: dict[str, Callable[..., Any]] = {
            **self.suggestions.commands,
            **self._next_edit_messages.commands,
            **({} if self._edit_actions is None else self._edit_actions.commands),
            **self.chat.commands,
            **self.models.commands,
        }
        cast("dict[str, Any]", manager.commands).update(self._commands)  # pyright: ignore[reportUnknownMemberType]
        # Without an options object pygls has the handler but does not advertise it (pygls #577).
        options = cast("dict[str, Any]", manager.feature_options)  # pyright: ignore[reportUnknownMemberType]
        options[self.suggestions.question] = self.suggestions.question_options
        kinds = [ACTION_KIND, *CHAT_KINDS] if self._edit_actions else CHAT_KINDS
        options[types.TEXT_DOCUMENT_CODE_ACTION] = types.CodeActionOptions(kinds)

    def _on_initialize(self, params: types.InitializeParams) -> None:
        encoding = self.workspace.position_encoding or Encoding.UTF16
        folders = [folder.uri for folder in params.workspace_folders or ()]
        if not folders and params.root_uri:
            folders = [params.root_uri]
        self.documents.begin(Encoding(getattr(encoding, "value", encoding)), folders)
        self.editor.introduced(params)
        raw = self.protocol.raw_params.get("initializationOptions")
        if self.editor.grows and isinstance(raw, dict | None):
            raw = {"suggestionGrew": True, **cast("dict[str, Any]", raw or {})}
        self.settings.take(raw)

    def _on_initialized(self, params: object) -> None:
        self.editor.initialized.set()
        self._report_problems()
        self._tell(self.status.status)

    def _on_exit(self, params: object) -> None:
        self.exit_code = 0 if self.protocol.shut_down else 1
        self.stopped.set()

    def _on_configuration(self, params: object) -> None:
        settings = cast("dict[str, Any] | None", messages.find(params, dict, "settings"))
        given = None if settings is None else section_of(settings)
        if given is not None:  # clients that only say that something changed are asked for nothing
            # who says nothing about trust leaves it as it is
            self.settings.take(given, trusted=self.settings.options.trusted)

    def _on_folders(self, params: object) -> None:  # pygls has taken note of them before
        self.documents.use_folders(list(self.workspace.folders))

    def _on_settings(self) -> None:
        options, problems = self.settings.options, self.settings.problems
        self.status.configured(tuple(map(str, problems)))
        self.status.switched(options.enabled("*") or any(options.enable.values()))
        if self.editor.initialized.is_set():
            self._report_problems()

    def _report_problems(self) -> None:
        for problem in self.settings.problems:
            if problem not in self._reported:
                self._reported.add(problem)
                _log.warning("%s", problem)
                message = types.LogMessageParams(types.MessageType.Warning, f"Foretype: {problem}")
                self.window_log_message(message)

    # Documents

    def _on_open(self, params: object) -> None:
        document = self._read_about_text(params, messages.DidOpen).text_document
        none = self.documents.open(document.uri, document.text, language=document.language_id, version=document.version)
        if none is not None:
            _log.info("%s", none)

    def _on_change(self, params: object) -> None:
        change = self._read_about_text(params, messages.DidChange)
        document = change.text_document
        result = self.documents.change(document.uri, change.content_changes, version=document.version)
        if result is not ChangeResult.APPLIED:
            _log.debug("change ignored: %s", result)

    def _read_about_text(self, params: object, type_: type[_About]) -> _About:
        """Parameters that carry text. If they cannot be read, the text is not known any more: guessing would be wrong."""
        try:
            return messages.read(params, type_)
        except InvalidParamsError:
            if (uri := messages.find(params, str, "textDocument", "uri")) is not None:
                self.documents.lose(uri)
            raise

    def _on_close(self, params: object) -> None:
        held = self.documents.close(messages.read(params, messages.DidClose).text_document.uri)
        if held is not None:
            self.suggestions.closed(held.document.uri)

    def _on_save(self, params: object) -> None:
        self.documents.saved(messages.read(params, messages.DidSave).text_document.uri)

    def _on_files(self, params: object) -> None:
        for change in messages.read(params, messages.WatchedFiles).changes:
            self.documents.saved(change.uri)

    def _on_progress_cancel(self, params: object) -> None:
        self.editor.progress_cancelled.tell(getattr(params, "token", None))

    # Commands

    def _on_code_action(self, params: object) -> Any:
        asked = messages.read(params, messages.CodeAction)
        if asked.automatic:
            return []
        actions = self.chat.code_actions(asked)
        return actions if self._edit_actions is None else self._edit_actions.before(actions, asked)

    def _on_command(self, params: object) -> Any:
        asked = messages.read(params, messages.ExecuteCommand)
        if (command := self._commands.get(asked.command)) is None:
            raise InvalidParamsError(f"no command {asked.command!r}; there are {', '.join(self._commands)}")
        return command(*(asked.arguments or ()))

    # Status

    def _tell(self, status: Status) -> None:
        """There is something new in the status."""
        _log.info("status: %s %s", status.state, status.detail)
        if self.editor.initialized.is_set():
            self.protocol.notify(DID_CHANGE_STATUS, msgspec.to_builtins(self._current_status()))

    def _current_status(self) -> Status:
        documents = self.documents
        names = ("answered", "suggested", "superseded", "cancelled", "stale", "accepted")
        counts = Counts(**{name: self.suggestions.counts[name] for name in names})
        if documents.flow is not None:
            flow = documents.flow.status()
            counts = msgspec.structs.replace(
                counts,
                last_latency_ms=flow.last_shown_ms,
                last_ttft_ms=flow.last_ttft_ms,
                cached_share=flow.cached_share,
                requests=flow.requests,
                cache_hits=flow.cache_hits,
            )
        counts = msgspec.structs.replace(counts, late=documents.sources.late.total())
        return self.status.counted(counts, index=documents.sources_status(), late=documents.sources.last_reason)


@cache
def _converter() -> Converter:
    """One for all servers of a process: it writes code for each type it meets, which takes longer than all the rest."""
    return default_converter()
