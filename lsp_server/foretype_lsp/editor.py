"""The editor at the other end: what it has said of itself, and how it is reached."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from foretype_wire.subscriptions import Subscribers
from lsprotocol import types

from foretype_lsp.transport.protocol import Protocol
from foretype_lsp.transport.stdio import process_alive

__all__ = ["Editor"]


class Editor:
    """One editor, unknown until `initialize`.

    Attributes:
        initialized: set once the editor may be told something.
        pid: its process, if that can be watched.
        name: of this server and of the editor, for the gateway's logs. `program`: what the editor calls itself.
        shows_progress: it knows work-done progress. `watches_files`: it can be asked to tell of files that others change.
        grows: it has said that it understands `foretype/suggestionGrew`.
        progress_cancelled: told the token of work that the user has cancelled.
    """

    def __init__(self, protocol: Protocol, name: str) -> None:
        self.initialized = asyncio.Event()
        self.pid: int | None = None
        self.name = name
        self.program = ""
        self.shows_progress = self.watches_files = self.grows = False
        self.progress_cancelled: Subscribers[object] = Subscribers()
        self._protocol = protocol

    def introduced(self, params: types.InitializeParams) -> None:
        """Take note of what the editor says of itself."""
        if params.client_info is not None:
            self.program = params.client_info.name
            self.name += f" {params.client_info.name} {params.client_info.version or ''}".rstrip()
        # A process that is not there now is in another name space (an editor outside of a container): not to be watched.
        if params.process_id is not None and process_alive(params.process_id):
            self.pid = params.process_id
        window, workspace = params.capabilities.window, params.capabilities.workspace
        self.shows_progress = bool(window and window.work_done_progress)
        watching = workspace.did_change_watched_files if workspace else None
        self.watches_files = bool(watching and watching.dynamic_registration)
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
