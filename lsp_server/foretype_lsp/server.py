"""The language server: what each message does.

Handlers run in the order of the messages. One that has to wait takes what it needs from the document first, and the wait is
a task of its own, so a running generation never delays a change. Nothing here raises at the editor: a request that cannot be
served is answered `null`, and the reason is in the log and in the status.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from functools import cache
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar, cast

import msgspec
from cattrs import Converter
from foretype_client.policy import Trigger
from foretype_client.sources.shelf import Sources
from foretype_client.suggestion import SelectedCompletion
from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from foretype_lsp import messages
from foretype_lsp.asking import Asked, Asking, Flow
from foretype_lsp.chat.commands import ACTION_KINDS, Chat
from foretype_lsp.completions import ACCEPT_COMMAND, EXPLAIN_COMMAND, menu_item, place_of
from foretype_lsp.documents import Documents, Held, Outcome, path_of
from foretype_lsp.globs import first_match
from foretype_lsp.log import set_level
from foretype_lsp.options import Options, Problem, parse
from foretype_lsp.positions import Encoding
from foretype_lsp.protocol import Protocol as JsonRpc
from foretype_lsp.status import Counts, Status, StatusMachine
from foretype_lsp.stdio import process_alive

__all__ = ["DID_CHANGE_STATUS", "STATUS", "SUGGESTION_GREW", "Server"]

_log: Final = logging.getLogger(__name__)

STATUS: Final = "foretype/status"
DID_CHANGE_STATUS: Final = "foretype/didChangeStatus"
SUGGESTION_GREW: Final = "foretype/suggestionGrew"
CURSOR_RESTED: Final = "foretype/cursorRested"
DID_SHOW: Final = "textDocument/didShowCompletion"
DID_PARTIALLY_ACCEPT: Final = "textDocument/didPartiallyAcceptCompletion"

_About = TypeVar("_About", messages.DidOpen, messages.DidChange)

_ASKS_AGAIN_S: Final = 0.3
"""An editor that is told of growth asks again within this time."""

_INVOKED: Final = 1
_AUTOMATIC: Final = 2
_POPUP_TRIGGERS: Final = [" ", "(", "[", "{", ".", ",", "=", ":", '"', "'"]
"""Beside the letters of words, where menus ask by themselves."""


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
        self._popup = popup
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
        self._flow: Flow | None = None
        self._asking = Asking()
        self._grew_s: dict[str, float] = {}
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
        self._flow = flow
        if flow is not None:
            for held in self.documents:
                if self._obstacle(held) is None:
                    flow.document_opened(held.snapshot())

    def use_sources(self, sources: Sources) -> None:
        """Tell these sources of documents and folders from now on; they learn of the documents that are open."""
        self.sources = sources
        for held in self.documents:
            if self._obstacle(held) is None:
                sources.opened(held.document.uri, held.document.text)

    def grew(self, uri: str, suggestion_id: str) -> None:
        """Tell a client that understands it that asking again at the same place now gives more."""
        if self.options.suggestion_grew:
            self._grew_s[uri] = asyncio.get_running_loop().time()
            self.protocol.notify(SUGGESTION_GREW, {"textDocument": {"uri": uri}, "id": suggestion_id})

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
            CURSOR_RESTED: self._on_rested,
            DID_SHOW: self._on_shown,
            DID_PARTIALLY_ACCEPT: self._on_partially_accepted,
            STATUS: lambda params: msgspec.to_builtins(self._current_status()),
        }
        # One of the two: an editor that knows both would ask both, and one question would void the other.
        asks, asked_by, answer = (
            (types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(_POPUP_TRIGGERS), self._on_completion)
            if self._popup
            else (types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions(), self._on_inline_completion)
        )
        features[asks] = answer
        manager = self.protocol.fm  # its decorators take plain functions only
        cast("dict[str, Any]", manager.features).update(features)  # pyright: ignore[reportUnknownMemberType]
        self._commands: dict[str, Callable[..., Any]] = {
            ACCEPT_COMMAND: self._on_accepted,
            EXPLAIN_COMMAND: self._on_explain,
            **self.chat.commands,
        }
        cast("dict[str, Any]", manager.commands).update(self._commands)  # pyright: ignore[reportUnknownMemberType]
        # Without an options object pygls has the handler but does not advertise it (pygls #577).
        options = cast("dict[str, Any]", manager.feature_options)  # pyright: ignore[reportUnknownMemberType]
        options[asks] = asked_by
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
            self._configure(cast("dict[str, Any]", settings).get("foretype", settings))
            self._report_problems()
            self.on_options()

    def _on_folders(self, params: object) -> None:  # pygls has taken note of them before
        self.documents.roots = tuple(path_of(uri) for uri in self.workspace.folders)
        self.sources.folders([Path(root) for root in self.documents.roots if root])

    def _configure(self, raw: object) -> None:
        given = cast("dict[str, object]", raw) if isinstance(raw, dict) else raw
        readable = isinstance(given, dict)
        self.options, self._problems = parse({**given, **self.overrides} if readable else self.overrides)
        if not readable:
            self._problems += parse(given)[1]
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
        if (obstacle := self._obstacle(held)) is not None:
            _log.info("no suggestions in %s: %s", held.file, obstacle)
            return
        self.sources.opened(held.document.uri, held.document.text)
        if self._flow is not None:
            self._flow.document_opened(held.snapshot())

    def _on_change(self, params: object) -> None:
        change = self._read_about_text(params, messages.DidChange)
        uri = change.text_document.uri
        outcome = self.documents.change(uri, change.content_changes, version=change.text_document.version)
        if outcome is not Outcome.APPLIED:
            _log.debug("change ignored: %s", outcome)
        elif (held := self.documents.get(uri)) and self._obstacle(held) is None:
            self.sources.changed(held.document.uri, held.document.text)
            if self._flow is not None:
                snapshot = held.snapshot()
                self._flow.document_changed(snapshot)
                if self.options.ask_early and (offset := held.typed_to(change.content_changes)) is not None:
                    self._flow.typed(snapshot, offset)

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
        if held is not None and self._flow is not None:
            self._flow.document_closed(held.snapshot())

    def _on_save(self, params: object) -> None:
        self.sources.saved(messages.read(params, messages.DidSave).text_document.uri)

    def _on_files(self, params: object) -> None:
        for change in messages.read(params, messages.WatchedFiles).changes:
            self.sources.saved(change.uri)

    def _on_progress_cancel(self, params: object) -> None:
        token: object = getattr(params, "token", None)
        self.chat.cancelled(token)
        self.on_progress_cancelled(token)

    def usable(self, uri: str) -> Held | str:
        """An open document that may be sent, or why not."""
        held = self.documents.get(uri)
        return Outcome.UNKNOWN if held is None else self._obstacle(held) or held

    def _obstacle(self, held: Held) -> str | None:
        """Why a document gets no suggestions, or None."""
        if held.excluded is not None:
            return held.excluded
        if held.lost:
            return Outcome.LOST
        if not self.options.enabled(held.document.language):
            return f"switched off for {held.document.language}"
        glob = first_match(self.options.excluded_globs, (held.file, held.document.path))
        return None if glob is None else f"excluded by {glob}"

    # Suggestions

    def _on_inline_completion(self, params: object) -> Coroutine[Any, Any, dict[str, Any] | None] | None:
        return self._ask(messages.read(params, messages.InlineCompletion))

    def _on_completion(self, params: object) -> Coroutine[Any, Any, dict[str, Any]]:
        request = messages.read(params, messages.Completion)
        automatic = messages.InlineCompletion(request.text_document, request.position, messages.Context(_AUTOMATIC))
        return _as_menu(self._ask(automatic))

    def _ask(self, request: messages.InlineCompletion) -> Coroutine[Any, Any, dict[str, Any] | None] | None:
        """Note what is asked now; the coroutine waits for the answer."""
        held = self.documents.get(request.text_document.uri)
        obstacle = None if held is None else self._obstacle(held)
        self.tell(self.status.asked(f"none in {PurePath(held.file).name}: {obstacle}" if held and obstacle else ""))
        if held is None or self._flow is None or obstacle is not None:
            self._asking.counts["answered"] += 1
            return None
        snapshot = held.snapshot()
        superseded = self._asking.supersede(snapshot.uri)
        if request.text_document.version not in (None, snapshot.version):
            self._asking.counts["answered"] += 1
            return None  # a position in a text that we do not have
        offset = held.offset_at(request.position.position)
        info = request.context.selected_completion_info
        # VS Code can be made to ask again only as if the user had: who typed on meanwhile has not.
        told = asyncio.get_running_loop().time() - self._grew_s.pop(snapshot.uri, -math.inf) < _ASKS_AGAIN_S
        invoked = request.context.trigger_kind == _INVOKED and not told
        trigger = Trigger.INVOKED if invoked else Trigger.AUTOMATIC
        selected = _selected(held, info) if info is not None else None
        asked = Asked(held, snapshot, place_of(held.lines, offset), offset, trigger, selected, superseded)
        return self._asking.answer(self._flow, asked, multi_line=self.options.multi_line)

    def _on_accepted(self, *arguments: Any) -> None:
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise messages.InvalidParams(f"{ACCEPT_COMMAND} takes [id]: the argument of the item's own command")
        self._asking.counts["accepted"] += 1
        if self._flow is not None:
            self._flow.accepted(arguments[0])

    def _on_explain(self, *arguments: Any) -> dict[str, Any] | None:
        """What a suggestion was made from: of the id in its item's command, or of the last one."""
        if len(arguments) > 1 or not all(isinstance(one, str) for one in arguments):
            raise messages.InvalidParams(f"{EXPLAIN_COMMAND} takes [id], or [] for the last suggestion")
        explained = self._flow.explain(*arguments) if self._flow is not None else None
        return None if explained is None else msgspec.to_builtins(explained)

    def _on_command(self, params: object) -> Any:
        asked = messages.read(params, messages.ExecuteCommand)
        if (command := self._commands.get(asked.command)) is None:
            raise messages.InvalidParams(f"no command {asked.command!r}; there are {', '.join(self._commands)}")
        return command(*(asked.arguments or ()))

    def _on_rested(self, params: object) -> None:
        rested = messages.read(params, messages.Rested)
        held = self.documents.get(rested.text_document.uri)
        if held is not None and self._flow is not None and self._obstacle(held) is None:
            self._flow.rested(held.snapshot(), held.offset_at(rested.position.position))

    def _on_shown(self, params: object) -> None:
        suggestion_id = messages.read(params, messages.Shown).item.suggestion_id
        if self._flow is not None and suggestion_id is not None:
            self._flow.shown(suggestion_id)

    def _on_partially_accepted(self, params: object) -> None:
        report = messages.read(params, messages.PartiallyAccepted)
        suggestion_id = report.item.suggestion_id or ""
        characters = self._asking.accepted_characters(suggestion_id, report.accepted_length)
        if self._flow is not None and characters is not None:
            self._flow.partially_accepted(suggestion_id, characters)

    # Status

    def _current_status(self) -> Status:
        flow = self._flow.status() if self._flow is not None else None
        names = ("answered", "suggested", "superseded", "cancelled", "stale", "accepted")
        counts = Counts(**{name: self._asking.counts[name] for name in names})
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
        if not self.options.index.enable:
            return "switched off"
        return "; ".join(f"{name}: {said}" for name, said in self.sources.status().items())


@cache
def _converter() -> Converter:
    """One for all servers of a process: it writes code for each type it meets, which takes longer than all the rest."""
    return default_converter()


async def _as_menu(answer: Coroutine[Any, Any, dict[str, Any] | None] | None) -> dict[str, Any]:
    """An answer as a `CompletionList`; incomplete, so that the menu asks again with the next key."""
    inline = (await answer if answer is not None else None) or {"items": []}
    return {"isIncomplete": True, "items": [menu_item(made) for made in inline["items"]]}


def _selected(held: Held, info: messages.Selected) -> SelectedCompletion:
    start, end = held.offset_at(info.range.start.position), held.offset_at(info.range.end.position)
    return SelectedCompletion(min(start, end), max(start, end), info.text)


def _uri_of(params: object) -> str | None:
    document = cast("dict[str, object]", params).get("textDocument") if isinstance(params, dict) else None
    uri = cast("dict[str, object]", document).get("uri") if isinstance(document, dict) else None
    return uri if isinstance(uri, str) else None
