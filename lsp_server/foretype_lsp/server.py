"""The language server: what each message does.

Handlers run in the order of the messages. One that has to wait takes what it needs from the document first, and the wait is
a task of its own, so a running generation never delays a change. Nothing here raises at the editor: a request that cannot be
served is answered `null`, and the reason is in the log and in the status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
from cattrs import Converter
from foretype_client.sources.all_sources import Sources
from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from foretype_lsp import messages
from foretype_lsp.chat.commands import ACTION_KINDS, Chat
from foretype_lsp.documents.documents import Documents, Held, Outcome, path_of
from foretype_lsp.documents.positions import Encoding
from foretype_lsp.globs import first_match
from foretype_lsp.log import set_level
from foretype_lsp.options import Options, Problem, parse
from foretype_lsp.status import Counts, Status, StatusMachine
from foretype_lsp.suggestions.handlers import Suggestions
from foretype_lsp.suggestions.waiting_requests import Flow
from foretype_lsp.transport.protocol import Protocol as JsonRpc
from foretype_lsp.transport.stdio import process_alive

__all__ = ["DID_CHANGE_STATUS", "STATUS", "Server"]

_log: Final = logging.getLogger(__name__)

STATUS: Final = "foretype/status"
DID_CHANGE_STATUS: Final = "foretype/didChangeStatus"

_About = TypeVar("_About", messages.DidOpen, messages.DidChange)


class Server(LanguageServer):
    """pygls server with the handlers of Foretype. `attach` gives it a flow, which may come late and go again.

    Args:
        overrides: options by their camelCase names that win over the editor's (the command line's).
        popup: offer suggestions in the ordinary completion menu, for editors that have no inline completion.
    """

    protocol: JsonRpc  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, overrides: dict[str, object] | None = None, *, popup: bool = False) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "foretype",
            version("foretype"),
            types.TextDocumentSyncKind.Incremental,
            protocol_cls=JsonRpc,
            converter_factory=_converter,
        )
        self.overrides = overrides or {}
        self.options = Options()
        self.documents = Documents()
        self.status = StatusMachine(version("foretype"))
        self.initialized = asyncio.Event()
        self.stopped = asyncio.Event()
        self.exit_code = 1
        self.editor_pid: int | None = None
        self.client_name = f"foretype-lsp/{self.version}"
        self.on_options: Callable[[], None] = lambda: None
        self.on_progress_cancelled: Callable[[object], None] = lambda token: None
        self.sources = Sources.none()
        self.shows_progress = self.watches_files = False
        self.flow: Flow | None = None
        self.suggestions = Suggestions(self, popup=popup)
        self.chat = Chat(self)
        self._problems: list[Problem] = []
        self._reported: set[Problem] = set()
        self.protocol.on_disconnect = self.stopped.set
        self._register()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Into the log; pygls would open a pop-up."""
        _log.error("%s: %s", getattr(source, "__name__", source), type(error).__name__)

    # What others tell the server

    def attach(self, flow: Flow | None) -> None:
        """Use this flow from now on; it learns of the documents that are open."""
        self.flow = flow
        if flow is not None:
            for held in self.documents:
                if self.obstacle(held) is None:
                    flow.document_opened(held.snapshot())

    def use_sources(self, sources: Sources) -> None:
        """Tell these sources of documents and folders from now on; they learn of the documents that are open."""
        self.sources = sources
        for held in self.documents:
            if self.obstacle(held) is None:
                sources.opened(held.document.uri, held.document.text)

    def add_problem(self, problem: Problem) -> None:
        """Report something about an option that showed only when it was used."""
        self._problems.append(problem)
        self._report_problems()
        self.tell(self.status.configured(tuple(map(str, self._problems))))

    def tell(self, status: Status | None) -> None:
        """Send a status if there is something new in it."""
        if status is not None:
            _log.info("status: %s %s", status.state, status.detail)
            if self.initialized.is_set():
                self.protocol.notify(DID_CHANGE_STATUS, msgspec.to_builtins(self._current_status()))

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
            types.TEXT_DOCUMENT_CODE_ACTION: self.chat.code_actions,
            STATUS: lambda params: msgspec.to_builtins(self._current_status()),
            **self.suggestions.handlers,
        }
        manager = self.protocol.fm  # its decorators take plain functions only
        cast("dict[str, Any]", manager.features).update(features)  # pyright: ignore[reportUnknownMemberType]
        self._commands: dict[str, Callable[..., Any]] = {**self.suggestions.commands, **self.chat.commands}
        cast("dict[str, Any]", manager.commands).update(self._commands)  # pyright: ignore[reportUnknownMemberType]
        # Without an options object pygls has the handler but does not advertise it (pygls #577).
        options = cast("dict[str, Any]", manager.feature_options)  # pyright: ignore[reportUnknownMemberType]
        options[self.suggestions.question] = self.suggestions.question_options
        options[types.TEXT_DOCUMENT_CODE_ACTION] = types.CodeActionOptions(ACTION_KINDS)

    def _on_initialize(self, params: types.InitializeParams) -> None:
        encoding = self.workspace.position_encoding or Encoding.UTF16
        folders = [folder.uri for folder in params.workspace_folders or ()]
        if not folders and params.root_uri:
            folders = [params.root_uri]
        self.documents = Documents(Encoding(getattr(encoding, "value", encoding)), [*map(path_of, folders)])
        if params.client_info is not None:
            self.client_name += f" {params.client_info.name} {params.client_info.version or ''}".rstrip()
        # A process that is not there now is in another name space (an editor outside of a container): not to be watched.
        if params.process_id is not None and process_alive(params.process_id):
            self.editor_pid = params.process_id
        window, workspace = params.capabilities.window, params.capabilities.workspace
        self.shows_progress = bool(window and window.work_done_progress)
        watching = workspace.did_change_watched_files if workspace else None
        self.watches_files = bool(watching and watching.dynamic_registration)
        self.chat.configure(params.capabilities)
        experimental = params.capabilities.experimental
        grows = isinstance(experimental, dict) and cast("dict[str, Any]", experimental).get("foretype.suggestionGrew")
        raw = self.protocol.raw_params.get("initializationOptions")
        if grows is True and isinstance(raw, dict | None):
            raw = {"suggestionGrew": True, **cast("dict[str, Any]", raw or {})}
        self._configure(raw)

    def _on_initialized(self, params: object) -> None:
        self.initialized.set()
        self._report_problems()
        self.tell(self.status.status)

    def _on_exit(self, params: object) -> None:
        self.exit_code = 0 if self.protocol.shut_down else 1
        self.stopped.set()

    def _on_configuration(self, params: object) -> None:
        settings = cast("dict[str, Any]", params).get("settings") if isinstance(params, dict) else None
        if isinstance(settings, dict):  # clients that only say that something changed are asked for nothing
            given = cast("dict[str, Any]", settings).get("foretype", settings)
            self._configure(given, trusted=self.options.trusted)  # who says nothing about trust leaves it as it is
            self._report_problems()
            self.on_options()

    def _on_folders(self, params: object) -> None:  # pygls has taken note of them before
        self.documents.roots = tuple(path_of(uri) for uri in self.workspace.folders)
        self.sources.folders([Path(root) for root in self.documents.roots if root])

    def _configure(self, raw: object, *, trusted: bool = True) -> None:
        self.options, self._problems = parse(raw, self.overrides, trusted=trusted)
        _log.info("options: %s", self.options.redacted())
        self.tell(self.status.configured(tuple(map(str, self._problems))))
        self.tell(self.status.switched(self.options.enabled("*") or any(self.options.enable.values())))
        set_level(self.options.log_level)

    def _report_problems(self) -> None:
        for problem in self._problems:
            if problem not in self._reported:
                self._reported.add(problem)
                _log.warning("%s", problem)
                message = types.LogMessageParams(types.MessageType.Warning, f"Foretype: {problem}")
                self.window_log_message(message)

    # Documents

    def _on_open(self, params: object) -> None:
        document = self._read_about_text(params, messages.DidOpen).text_document
        held = self.documents.open(document.uri, document.text, language=document.language_id, version=document.version)
        if (obstacle := self.obstacle(held)) is not None:
            _log.info("no suggestions in %s: %s", held.file, obstacle)
            return
        self.sources.opened(held.document.uri, held.document.text)
        if self.flow is not None:
            self.flow.document_opened(held.snapshot())

    def _on_change(self, params: object) -> None:
        change = self._read_about_text(params, messages.DidChange)
        uri = change.text_document.uri
        outcome = self.documents.change(uri, change.content_changes, version=change.text_document.version)
        if outcome is not Outcome.APPLIED:
            _log.debug("change ignored: %s", outcome)
        elif (held := self.documents.get(uri)) and self.obstacle(held) is None:
            self.sources.changed(held.document.uri, held.document.text)
            if self.flow is not None:
                snapshot = held.snapshot()
                self.flow.document_changed(snapshot)
                if self.options.ask_early and (offset := held.typed_to(change.content_changes)) is not None:
                    self.flow.typed(snapshot, offset)

    def _read_about_text(self, params: object, type_: type[_About]) -> _About:
        """Parameters that carry text. If they cannot be read, the text is not known any more: guessing would be wrong."""
        try:
            return messages.read(params, type_)
        except messages.InvalidParams:
            if (uri := _uri_of(params)) is not None:
                self.documents.lose(uri)
            raise

    def _on_close(self, params: object) -> None:
        held = self.documents.close(messages.read(params, messages.DidClose).text_document.uri)
        if held is not None:
            self.sources.closed(held.document.uri)
            self.suggestions.closed(held.document.uri)
        if held is not None and self.flow is not None:
            self.flow.document_closed(held.snapshot())

    def _on_save(self, params: object) -> None:
        self.sources.saved(messages.read(params, messages.DidSave).text_document.uri)

    def _on_files(self, params: object) -> None:
        for change in messages.read(params, messages.WatchedFiles).changes:
            self.sources.saved(change.uri)

    def _on_progress_cancel(self, params: object) -> None:
        token: object = getattr(params, "token", None)
        self.chat.cancelled(token)
        self.on_progress_cancelled(token)

    def explain_none(self, why: str) -> None:
        """Say why the document that was asked about gets no suggestions; empty where it may get some."""
        self.tell(self.status.asked(why))

    def usable(self, uri: str) -> Held | str:
        """An open document that may be sent, or why not."""
        held = self.documents.get(uri)
        return Outcome.UNKNOWN if held is None else self.obstacle(held) or held

    def obstacle(self, held: Held) -> str | None:
        """Why a document gets no suggestions, or None."""
        if held.excluded is not None:
            return held.excluded
        if held.lost:
            return Outcome.LOST
        if not self.options.enabled(held.document.language):
            return f"switched off for {held.document.language}"
        glob = first_match(self.options.excluded_globs, (held.file, held.document.path))
        return None if glob is None else f"excluded by {glob}"

    # Commands

    def _on_command(self, params: object) -> Any:
        asked = messages.read(params, messages.ExecuteCommand)
        if (command := self._commands.get(asked.command)) is None:
            raise messages.InvalidParams(f"no command {asked.command!r}; there are {', '.join(self._commands)}")
        return command(*(asked.arguments or ()))

    # Status

    def _current_status(self) -> Status:
        flow = self.flow.status() if self.flow is not None else None
        names = ("answered", "suggested", "superseded", "cancelled", "stale", "accepted")
        counts = Counts(**{name: self.suggestions.counts[name] for name in names})
        if flow is not None:
            counts = msgspec.structs.replace(
                counts,
                last_latency_ms=flow.last_shown_ms,
                last_ttft_ms=flow.last_ttft_ms,
                cached_share=flow.cached_share,
                requests=flow.requests,
                cache_hits=flow.cache_hits,
            )
        counts = msgspec.structs.replace(counts, late=self.sources.late.total())
        return self.status.counted(counts, index=self.index_status(), late=self.sources.last_reason)

    def index_status(self) -> str:
        """What the sources of other files' snippets say about themselves, in one line."""
        if not self.options.trusted:
            return "nothing is read: the folder is not trusted"
        if not self.options.index.enable:
            return "switched off"
        return "; ".join(f"{name}: {said}" for name, said in self.sources.status().items())


@cache
def _converter() -> Converter:
    """One for all servers of a process: it writes code for each type it meets, which takes longer than all the rest."""
    return default_converter()


def _uri_of(params: object) -> str | None:
    document = cast("dict[str, object]", params).get("textDocument") if isinstance(params, dict) else None
    uri = cast("dict[str, object]", document).get("uri") if isinstance(document, dict) else None
    return uri if isinstance(uri, str) else None
