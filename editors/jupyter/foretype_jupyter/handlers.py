"""The WebSocket at `foretype/ws`: for whom the Jupyter server knows, from its own pages alone."""

from __future__ import annotations

import contextlib
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.utils import ensure_async, url_path_join
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler
from traitlets import Float, List, Unicode
from traitlets.config import Configurable

from foretype_jupyter.relay import Relay
from foretype_jupyter.routing import Message

_SERVICE_RESTART = 1012


class Foretype(Configurable):
    """Settings of the Jupyter server, in `jupyter_server_config.py`."""

    command = List(
        Unicode(),
        [sys.executable, "-P", "-m", "foretype_lsp"],
        help="The language server, by its absolute path.",
    ).tag(config=True)
    arguments = List(
        Unicode(),
        help="More arguments for it, which win over what its users set; for example ['--no-telemetry'].",
    ).tag(config=True)
    linger_s = Float(60.0, help="Seconds that it waits for another page when the last is gone.").tag(config=True)


class PageSocket(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One page."""

    def initialize(self, relay: Relay) -> None:
        self._relay = relay

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        if not await ensure_async(self.authorizer.is_authorized(self, self.current_user, "execute", "foretype")):
            raise HTTPError(403)
        await super().get(*args, **kwargs)

    async def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)
        await self._relay.join(self)

    def on_message(self, message: str | bytes) -> None:
        self._relay.receive(self, message)

    def on_close(self) -> None:
        self._relay.leave(self)
        super().on_close()

    def send(self, message: Message) -> None:
        with contextlib.suppress(WebSocketClosedError):
            self.write_message(message)

    def end(self, reason: str) -> None:
        self.close(_SERVICE_RESTART, reason)


def add_handlers(app: Any) -> None:
    settings = Foretype(parent=app)
    root = getattr(app.contents_manager, "root_dir", None)
    relay = Relay(
        [*settings.command, *settings.arguments],
        Path(root).absolute() if root and Path(root).is_dir() else None,
        version=version("foretype-jupyter"),
        linger_s=settings.linger_s,
        log=app.log,
    )
    url = url_path_join(app.web_app.settings["base_url"], "foretype", "ws")
    app.web_app.add_handlers(".*$", [(url, PageSocket, {"relay": relay})])
