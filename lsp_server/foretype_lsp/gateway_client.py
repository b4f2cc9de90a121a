"""The server's client: opened in the background, watched, and opened anew when the editor's options ask for it.

`initialize` is answered before any of this is even imported; until the flow is there requests are answered `null`, and until
the gateway is there the flow answers with what it knows itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from foretype_client.flow.suggestion import FlowState
from foretype_client.policy.trigger import PolicyOptions
from foretype_wire.messages import ErrorCode, Workspace
from foretype_wire.tasks import end_tasks

from foretype_lsp.indexing import Indexing
from foretype_lsp.make_question import MakeQuestion
from foretype_lsp.options import Options, Problem
from foretype_lsp.survey import HowItFeels
from foretype_lsp.trust import trusted_roots

if TYPE_CHECKING:
    from foretype_client.client import Client, ClientOptions
    from foretype_client.flow.inflight import Flight
    from foretype_client.ports import Endpoint
    from foretype_context.prompt.profile import Profile
    from foretype_wire.tracing.spans import Tracing

    from foretype_lsp.server import Server

_log: Final = logging.getLogger(__name__)

_NO_GOOD_MODEL: Final = (
    "no good model is configured: what shows by itself is what your files say; choose one with `foretype use` in a terminal, "
    'or here (VS Code "Foretype: Choose a Model", Neovim :ForetypeModel, Emacs M-x foretype-choose-model)'
)

_CHOOSE: Final = "`foretype use`"
"""What is refused with this remedy does not come back by itself, as an engine does that was lost: it is told until something is answered."""

STATUS_POLL_S: Final = 2.0
"""A connection that comes or goes is told at once. A request that failed, and that a pause ended, is seen this late; that an attempt to connect
failed in a quarter of it."""
_STATUS_REST_S: Final = 30.0
"""Where all is well nothing but what is told can change."""


class GatewayClient:
    """Keeps one client open for a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._changed = asyncio.Event()  # something about the connection is different
        self._indexing = Indexing(server.editor, server.settings, server.documents)
        self._indexing.changed.add(self._changed.set)
        self._question = HowItFeels(server.editor)
        self._make = MakeQuestion(server.editor, server.models)
        server.settings.changed.add(self._changed.set)
        server.documents.moved.add(self._changed.set)

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._server.editor.initialized.wait()
        options = self._server.settings.options
        begun = None if options.gateway_url else await _private_gateway(options)
        module = await asyncio.to_thread(import_module, "foretype_client.client")
        tracing = await asyncio.to_thread(_open_tracing)
        try:
            await self._serve(module, tracing, None if begun is None else (options, begun))
        finally:
            await end_tasks(begun)
            await self._question.close()
            await self._make.close()
            await self._indexing.close()
            if tracing is not None:
                await tracing.close()

    async def _serve(
        self, module: Any, tracing: Tracing | None, begun: tuple[Options, asyncio.Task[Endpoint]] | None
    ) -> None:
        """Serve until cancelled.

        Args:
            begun: a private gateway that is looked for, or started, already, and by which options.
        """
        server = self._server
        while True:
            await self._indexing.apply()
            options = server.settings.options
            roots = trusted_roots(options, server.documents.roots)
            client_options, problem = await asyncio.to_thread(self._client_options, options, roots)
            if problem is not None:
                server.settings.add_problem(problem)
            if begun is not None:
                if _needs_another_client(begun[0], options):
                    begun[1].cancel()
                else:
                    client_options = replace(client_options, begun=begun[1])
                begun = None  # the next client looks for itself
            server.status.connecting(options.gateway_url)
            async with module.open_client(client_options, tracing=tracing) as client:
                try:
                    await self._follow(client, options, roots)
                finally:
                    server.documents.follow(None)
                    server.chat.use(None)
                    server.next_edits.tell(None)
                    server.next_edits.use(None)

    async def _follow(self, client: Client, options: Options, roots: list[Path]) -> None:
        """Attach the flow and report its state, until the options ask for another client."""
        from foretype_client.chat import Tiers
        from foretype_client.feedback.events import Accepted, FeedbackEvent, Taken

        from foretype_lsp.next_edit.model import GatewayModel

        server = self._server

        def reacted(event: FeedbackEvent) -> None:
            if isinstance(event, Accepted) and event.how is Taken.INFERRED:
                server.suggestions.put_in(event.id)

        def landed(flight: Flight) -> None:
            if flight.error is not None:
                # A pause that is over by then is not told.
                asyncio.get_running_loop().call_later(STATUS_POLL_S, self._changed.set)
            elif client.flow.status().detail:
                self._changed.set()

        client.flow.reacted.add(reacted)
        client.flow.events.landed.add(landed)
        client.assemblers.settled.add(self._changed.set)
        client.session.connections.add(lambda connected: self._changed.set())
        client.flow.grew.add(lambda uri, suggestion: server.suggestions.grew(uri, suggestion.id))
        server.documents.follow(client.flow)
        server.chat.use(Tiers(client))
        server.next_edits.tell(client.next_edits)
        server.next_edits.use(GatewayModel(client.session))
        while not _needs_another_client(options, server.settings.options):
            self._changed.clear()
            now = trusted_roots(options, server.documents.roots)
            if now != roots:
                roots = now
                client.open_folders(await asyncio.to_thread(_workspaces, roots))
            self._report(client)
            server.status.indexed(server.documents.sources_status())
            self._question.look(client.feeling, allowed=server.settings.options.ask_how_it_feels)
            try:
                async with asyncio.timeout(_poll_s(client)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _report(self, client: Client) -> None:
        status, session, flow = self._server.status, client.session, client.flow.status()
        if flow.state is FlowState.PAUSED:
            status.lost(f"the gateway asked for a pause: {flow.detail or 'it is busy'}")
        elif session.connected and session.profile is not None:
            if client.assemblers.error:
                status.lost(client.assemblers.error)
            elif client.assembler is None:
                status.connecting(session.endpoint.url)  # its tokenizer is on the way
            elif flow.detail.startswith(ErrorCode.ENGINE_UNAVAILABLE) and _CHOOSE in flow.detail:
                status.lost(f"{flow.detail} (until then this machine alone suggests)")
            else:
                profile, gateway = session.profile, session.endpoint.url
                status.connected(profile.model, profile.service, self._advice(profile), gateway=gateway)
        elif reason := session.statistics().last_error:
            self._make.look(reason)
            status.lost(f"{reason} (it is tried again by itself; until then this machine alone suggests)")
        else:
            status.connecting(session.endpoint.url)

    def _advice(self, profile: Profile) -> str:
        """That there is no good model, to somebody who can change that."""
        if self._server.settings.options.gateway_url or not profile.min_mean_logprob.shows_nothing:
            return ""
        return _NO_GOOD_MODEL

    def _client_options(self, options: Options, roots: list[Path]) -> tuple[ClientOptions, Problem | None]:
        """Blocking: reads the token file, and asks git about the folders."""
        from foretype_client.client import ClientOptions
        from foretype_client.flow.flow import FlowOptions
        from foretype_client.flow.inflight import AnswerRules

        token, problem = options.token or None, None
        if options.token_file:
            try:
                token = Path(options.token_file).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                problem = Problem("tokenFile", f"cannot be read: {error}; going on without")
        policy = PolicyOptions(
            in_comments=options.in_comments, in_strings=options.in_strings, switches=options.policies
        )
        if options.debounce_ms is not None:
            policy = msgspec.structs.replace(policy, debounce_ms=options.debounce_ms)
        client_options = ClientOptions(
            gateway=options.gateway_url or None,
            token=token,
            token_in_clear=options.token_in_clear,
            state_dir=_path(options.state_dir),
            model=_path(options.model),
            client_name=self._server.editor.name,
            editor=self._server.editor.program,
            workspaces=_workspaces(roots),
            trusted=options.trusted,
            policy=policy,
            flow=FlowOptions(answer=AnswerRules.growing() if options.suggestion_grew else AnswerRules()),
            telemetry=options.telemetry,
            learn=True,
            sources=self._server.documents.sources,
        )
        return client_options, problem


async def _private_gateway(options: Options) -> asyncio.Task[Endpoint]:
    """Begin to find the user's private gateway, or to start it: it gets ready while this process imports what it needs itself."""
    starting = await asyncio.to_thread(import_module, "foretype_client.private_gateway.starting")
    return asyncio.create_task(
        starting.ensure_gateway(_path(options.state_dir), model=_path(options.model), clock=time.monotonic)
    )


def _path(given: str) -> Path | None:
    return Path(given).expanduser() if given else None


def _workspaces(roots: list[Path]) -> list[Workspace]:
    """Blocking: asks git."""
    from foretype_wire.workspace import workspace_of

    return [workspace_of(root) for root in roots]


def _open_tracing() -> Tracing | None:
    """As the environment says. Blocking: it imports OpenTelemetry where somebody asks for traces."""
    from foretype_wire.errors import TracingError
    from foretype_wire.tracing.opening import open_tracing

    try:
        return open_tracing("foretype-lsp", environ=os.environ, clock=time.monotonic)
    except TracingError as error:
        _log.warning("no traces: %s", error)
        return None


def _poll_s(client: Client) -> float:
    """How long what is told of the connection is taken for true, where nothing is heard."""
    if not client.session.connected:
        return STATUS_POLL_S / 4
    return STATUS_POLL_S if client.flow.status().state is FlowState.PAUSED else _STATUS_REST_S


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
        "in_comments",
        "in_strings",
        "telemetry",
        "trusted",
    )
    return any(getattr(before, name) != getattr(now, name) for name in names)
