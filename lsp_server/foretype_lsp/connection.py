"""The server's client: opened in the background, watched, and opened anew when the editor's options ask for it.

`initialize` is answered before any of this is even imported; until the flow is there requests are answered `null`, and until
the gateway is there the flow answers with what it knows itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from foretype_client.flow.suggestion import FlowState
from foretype_client.policy.trigger import PolicyOptions

from foretype_lsp.indexing import Indexing
from foretype_lsp.options import Options, Problem
from foretype_lsp.server import Server
from foretype_lsp.status import Status

if TYPE_CHECKING:
    from foretype_client.client import Client, ClientOptions
    from foretype_wire.tracing.spans import Tracing

__all__ = ["STATUS_POLL_S", "Connection"]

_log: Final = logging.getLogger(__name__)

STATUS_POLL_S: Final = 2.0
"""A connection that comes or goes is told at once; that an attempt failed, or a pause ended, is seen this late at most."""


class Connection:
    """Keeps one client open for a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._changed = asyncio.Event()  # something about the connection is different
        self._indexing = Indexing(server, self._changed.set)
        server.on_options = self._changed.set

    async def run(self) -> None:
        """Serve until cancelled."""
        server = self._server
        await server.initialized.wait()
        module = await asyncio.to_thread(import_module, "foretype_client.client")
        tracing = await asyncio.to_thread(_open_tracing)
        try:
            await self._serve(module, tracing)
        finally:
            await self._indexing.close()
            if tracing is not None:
                await tracing.close()

    async def _serve(self, module: Any, tracing: Tracing | None) -> None:
        server = self._server
        while True:
            await self._indexing.apply()
            options = server.options
            client_options, problem = await asyncio.to_thread(self._client_options, options)
            if problem is not None:
                server.add_problem(problem)
            server.tell(server.status.connecting(options.gateway_url))
            async with module.open_client(client_options, tracing=tracing) as client:
                try:
                    await self._follow(client, options)
                finally:
                    server.attach(None)
                    server.chat.models = None

    async def _follow(self, client: Client, options: Options) -> None:
        """Attach the flow and report its state, until the options ask for another client."""
        from foretype_client.chat import Tiers

        server, session = self._server, client.session

        client.assemblers.settled.add(self._changed.set)
        session.connections.add(lambda connected: self._changed.set())
        client.flow.grew.add(lambda uri, suggestion: server.suggestions.grew(uri, suggestion.id))
        server.attach(client.flow)
        server.chat.models = Tiers(client)
        while not _needs_another_client(options, server.options):
            server.tell(self._state(client))
            server.tell(server.status.indexed(server.index_status()))
            self._changed.clear()
            try:
                async with asyncio.timeout(STATUS_POLL_S if client.session.connected else STATUS_POLL_S / 4):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _state(self, client: Client) -> Status | None:
        status, session, flow = self._server.status, client.session, client.flow.status()
        if flow.state is FlowState.PAUSED:
            return status.lost(f"the gateway asked for a pause: {flow.detail or 'it is busy'}")
        if session.connected and session.profile is not None:
            if client.assemblers.error:
                return status.lost(client.assemblers.error)
            if client.assembler is None:
                return status.connecting(session.endpoint.url)  # its tokenizer is on the way
            return status.connected(session.profile.model, session.profile.service)
        if reason := session.statistics().last_error:
            return status.lost(f"{reason} (it is tried again by itself; until then this machine alone suggests)")
        return status.connecting(session.endpoint.url)

    def _client_options(self, options: Options) -> tuple[ClientOptions, Problem | None]:
        """Blocking: reads the token file, and asks git about the folders."""
        from foretype_client.client import ClientOptions
        from foretype_client.flow.flow import FlowOptions
        from foretype_client.flow.inflight import AnswerRules
        from foretype_wire.workspace import workspace_of

        server = self._server
        token, problem = options.token or None, None
        if options.token_file:
            try:
                token = Path(options.token_file).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                problem = Problem("tokenFile", f"cannot be read: {error}; going on without")
        policy = PolicyOptions(switches=options.policies)
        if options.debounce_ms is not None:
            policy = msgspec.structs.replace(policy, debounce_ms=options.debounce_ms)
        client_options = ClientOptions(
            gateway=options.gateway_url or None,
            token=token,
            token_in_clear=options.token_in_clear,
            state_dir=Path(options.state_dir).expanduser() if options.state_dir else None,
            model=Path(options.model).expanduser() if options.model else None,
            client_name=server.client_name,
            workspaces=[workspace_of(Path(root)) for root in server.documents.roots if root and options.trusted],
            trusted=options.trusted,
            policy=policy,
            flow=FlowOptions(answer=AnswerRules.growing() if options.suggestion_grew else AnswerRules()),
            telemetry=options.telemetry,
            sources=server.sources,
        )
        return client_options, problem


def _open_tracing() -> Tracing | None:
    """As the environment says. Blocking: it imports OpenTelemetry where somebody asks for traces."""
    from foretype_wire.tracing.opening import TracingUnusable, open_tracing

    try:
        return open_tracing("foretype-lsp", environ=os.environ, clock=time.monotonic)
    except TracingUnusable as error:
        _log.warning("no traces: %s", error)
        return None


def _needs_another_client(before: Options, now: Options) -> bool:
    names = (
        "index",
        "excluded_globs",
        "gateway_url",
        "token",
        "token_file",
        "token_in_clear",
        "state_dir",
        "model",
        "debounce_ms",
        "suggestion_grew",
        "policies",
        "telemetry",
        "trusted",
    )
    return any(getattr(before, name) != getattr(now, name) for name in names)
