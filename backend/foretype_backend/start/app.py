"""The gateway as an ASGI application: doors on one service."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from foretype_context.edit_models.format import edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.grammars.grammar import announced
from foretype_context.prompt.profile import Profile
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_wire.messages import Changed
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute

from foretype_backend.admission.bounds import Bound
from foretype_backend.chat.door import ChatDoor, chat_models
from foretype_backend.config.config import Config
from foretype_backend.config.settings import RUNNING_SERVERS, AdmissionConfig
from foretype_backend.doors.auth import Gatekeeper, GuardMiddleware
from foretype_backend.doors.contract import DocumentedApp
from foretype_backend.doors.documentation import DocumentDoor
from foretype_backend.doors.feedback import FeedbackSink
from foretype_backend.doors.health import HealthDoor
from foretype_backend.doors.http import HttpJobs
from foretype_backend.doors.infill import InfillDoor
from foretype_backend.doors.next_edit import NextEditDoor
from foretype_backend.doors.openai import OpenAIDoor
from foretype_backend.doors.stream import StreamDoor
from foretype_backend.engines.port import Engine
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import Denial, Directory
from foretype_backend.identity.logins import BrowserLogins
from foretype_backend.operations.admin import AdminDoor
from foretype_backend.operations.fleet_signals import SignalsDoor
from foretype_backend.operations.worker_peers import WorkerAddress, WorkerPeers
from foretype_backend.pages.door import PagesDoor
from foretype_backend.pages.parts import Fleet
from foretype_backend.playground.door import PlaygroundDoor
from foretype_backend.prefix.salt import SaltBook
from foretype_backend.serving.encoding import EncodePool
from foretype_backend.serving.fair_turns import Turns
from foretype_backend.serving.next_edits import NextEditService
from foretype_backend.serving.render import Renderer
from foretype_backend.serving.served_revision import ServedRevision
from foretype_backend.serving.service import CompletionService
from foretype_backend.serving.tracing import RequestTracer
from foretype_backend.telemetry.intake import Sender
from foretype_backend.telemetry.sink import TelemetrySink

if TYPE_CHECKING:  # they bring a database's libraries and an HTTP client
    from foretype_wire.tracing.spans import Tracing

    from foretype_backend.chat.edit_pool import EditPool
    from foretype_backend.chat.pool import QualityPool
    from foretype_backend.experiments.live import LiveExperiments
    from foretype_backend.fleet.served_revisions import ServedRevisions
    from foretype_backend.identity.identity import Identity
    from foretype_backend.start.revisions import RevisionParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What :func:`create_app` put together, for what runs it.

    Attributes:
        app: all doors.
        service: of the fast pool.
        revisions: of the model beside that of `service`, by name.
        chooser: among them; started and closed by the caller. None where there are none.
        peers: started and closed by the caller.
        requests: HTTP requests that are being answered.
        encoding: closed by the caller.
        late: takes how late the event loop was, in seconds.
    """

    app: DocumentedApp
    stream: StreamDoor
    service: CompletionService
    revisions: Mapping[str, ServedRevision]
    chooser: ServedRevisions | None
    chat: ChatDoor
    peers: WorkerPeers
    keeper: Gatekeeper
    requests: Bound
    encoding: EncodePool
    late: Callable[[float], None]

    def working(self) -> bool:
        """Whether the fast pool generates something."""
        return bool(self.service.statistics().running)

    def use(self, config: Config, profile: Profile) -> None:
        """Put another configuration in place while connections stay open."""
        self.keeper.use(config)
        for service in (self.service, *(one.service for one in self.revisions.values())):
            service.use(config.limits, _admission(config))
        connections, requests = _per_tenant(self.keeper, config)
        self.stream.use(config.limits, config.gateway.max_connections, connections)
        self.requests.in_all, self.requests.each = config.gateway.max_requests, requests
        free_budgets = config.model.free_budgets
        if (profile, free_budgets) != (self.stream.profile, self.stream.main.free_budgets):
            self.stream.update_profile(profile, free_budgets)


def create_app(
    config: Config,
    engine: Engine,
    tokenizer: Tokenizer,
    profile: Profile,
    *,
    tokenizer_file: bytes | None = None,
    feedback: FeedbackSink | None = None,
    changed: Callable[[str, Changed], object] | None = None,
    identity: Identity | None = None,
    salts: SaltBook | None = None,
    accounts: Accounts | None = None,
    quality: QualityPool | None = None,
    edit_pool: EditPool | None = None,
    place: WorkerAddress | None = None,
    tracing: Tracing | None = None,
    experiments: LiveExperiments | None = None,
    revisions: Mapping[str, RevisionParts] | None = None,
) -> Gateway:
    """Put the gateway together.

    Args:
        engine: started and closed by the caller.
        profile: what clients are told; its grammar renders every prompt.
        tokenizer_file: what is served at `/v1/tokenizers/{digest}`.
        feedback: takes feedback batches; the default discards them after counting.
        changed: told the session and its changed documents.
        identity: knows everybody's own credentials; started and closed by the caller.
        salts: isolate the prefix caches of tenants; a gateway with `identity` needs them.
        accounts: budgets of everybody, and what they used.
        quality: chat and whole blocks; started and closed by the caller.
        edit_pool: a model for next edits on a server of its own; started and closed by the caller.
        place: of this worker among several; `peers` is started and closed by the caller.
        experiments: change what clients are told; started and closed by the caller.
        revisions: of the model, with profiles and pools of their own.
        tracing: takes spans of requests to the fast pool, timed by `time.perf_counter`; closed by the caller.
    """
    limits = config.limits
    turns, encoding = Turns(), EncodePool()
    renderer = Renderer(
        tokenizer,
        announced(profile.grammar, profile.grammar_rules),
        context_limit_tokens=profile.context_limit_tokens,
        pool=encoding,
    )

    def denied(denial: Denial) -> None:
        service.metrics.denied(denial)

    def measured(seconds: float) -> None:
        service.metrics.stages.authenticated(seconds)

    logins = BrowserLogins(None if place is None else place.folder)
    keeper = Gatekeeper(config, identity, denied=denied, measured=measured, logins=logins)
    requests = Bound(config.gateway.max_requests, _per_tenant(keeper, config)[1])

    def serving(engine: Engine, renderer: Renderer) -> CompletionService:
        return CompletionService(
            engine,
            renderer.tokenizer,
            end_token_ids=renderer.end_token_ids,
            limits=limits,
            connections=lambda: len(stream.connections),
            salts=salts,
            admission=_admission(config),
            accounts=accounts,
            tracer=None if tracing is None else RequestTracer(tracing, pool="fast"),
        )

    service = serving(engine, renderer)
    others = _others(revisions or {}, serving, encoding)
    named = {name: "free" if name == config.pool.free_revision else f"fast {name}" for name in others}
    chooser = None
    if revisions:
        from foretype_backend.start.revisions import choose_revisions

        chooser = choose_revisions(engine, revisions, others, tell=lambda: stream.tell_all())
    edits = _own_edits(config, service, renderer) if edit_pool is None else edit_pool.edits
    stream = StreamDoor(
        service,
        renderer,
        profile,
        keeper,
        limits=limits,
        feedback=feedback or _discard,
        max_connections=config.gateway.max_connections,
        max_connections_per_tenant=_per_tenant(keeper, config)[0],
        turns=turns,
        block=None if quality is None else quality.block,
        next_edits=edits,
        experiments=experiments,
        revisions=chooser,
        free_budgets=config.model.free_budgets,
    )
    if experiments is not None:
        experiments.attach(
            profile=lambda: stream.profile,
            layouts=announced(profile.grammar, profile.grammar_rules).layouts,
            pools=("fast",) if quality is None or quality.block is None else ("fast", "quality"),
            followers=lambda: stream.connections,
            tell=stream.tell_all,
        )
    if changed is not None:
        stream.changed.add(changed)
    for one in (service, *(other.service for other in others.values())):
        one.rungs_changed.add(stream.tell)
    jobs = HttpJobs(service, renderer)
    if salts is not None:
        salts.ended.add(functools.partial(_forget, stream, jobs))
    if identity is not None:
        if experiments is not None:
            identity.watch.changed.add(experiments.follow)
            experiments.follow(identity.directory)
        follow = functools.partial(_follow, stream, salts, accounts)
        identity.watch.changed.add(follow)
        follow(identity.directory)
        service.metrics.watch_identity(lambda: identity.watch.age_s)
    if accounts is not None:
        service.metrics.watch_usage(lambda: accounts.meter.unstored_rows)
    openai = OpenAIDoor(
        jobs,
        profile,
        max_body_bytes=limits.max_frame_bytes,
        aliases=config.model.aliases,
        chat=chat_models(quality),
    )
    infill = InfillDoor(jobs, profile, max_body_bytes=limits.max_frame_bytes)
    chat = ChatDoor(quality, tokenizer, max_body_bytes=limits.max_frame_bytes, pool_of_threads=encoding)
    next_edit = NextEditDoor(edits, max_body_bytes=limits.max_frame_bytes)
    pools = _services(service, quality, edit_pool) | {named[name]: one.service for name, one in others.items()}
    metrics = {name: one.metrics for name, one in pools.items() if one is not service}
    families = functools.partial(service.metrics.families, metrics)
    kept = (lambda: feedback.kept) if isinstance(feedback, TelemetrySink) else tuple
    admin = AdminDoor(
        pools, stream, chat, clock=time.monotonic, families=families, identity=identity, place=place, kept=kept
    )
    health = HealthDoor(
        service,
        profile,
        keeper,
        tokenizers=({} if tokenizer_file is None else {profile.tokenizer_digest: tokenizer_file})
        | {one.parts.tokenizer.digest: one.parts.tokenizer_file for one in (revisions or {}).values()},
        connections=lambda: len(stream.connections),
        metrics=admin.peers.metrics,
        draining=lambda: stream.draining,
    )

    guard = Middleware(
        GuardMiddleware, keeper=keeper, max_body_bytes=limits.max_frame_bytes, requests=requests, turns=turns
    )
    app = DocumentedApp([guard])
    app.router.routes.append(WebSocketRoute("/v1/stream", stream.__call__))
    playground = PlaygroundDoor(tokenizer, stream.profile_of, keeper)
    signals = SignalsDoor(
        pools, admin.peers, together={one: "fast" for one in named.values() if one != "free"}, beside=_beside(quality)
    )
    pages = PagesDoor(config, admin, functools.partial(_fleet, pools))
    for door in (openai, chat, infill, next_edit, health, admin, signals, pages, playground, DocumentDoor(app.openapi)):
        door.register(app)
    service.metrics.watch_held(lambda: requests.statistics().held, lambda: stream.remembered.statistics().held)
    return Gateway(
        app=app,
        stream=stream,
        service=service,
        revisions=others,
        chooser=chooser,
        chat=chat,
        peers=admin.peers,
        keeper=keeper,
        requests=requests,
        encoding=encoding,
        late=service.metrics.watch_loop(),
    )


def _fleet(pools: Mapping[str, CompletionService]) -> Fleet:
    """Replicas of the pools that have any, by name."""
    found = {name: getattr(service.engine, "pool_statistics", None) for name, service in pools.items()}
    return {name: ask().replicas for name, ask in found.items() if ask is not None}


async def _discard(sender: Sender, batch: str, events: Sequence[dict[str, object]]) -> None:
    """Without a store, a batch is done with as soon as it was counted."""


def _forget(stream: StreamDoor, jobs: HttpJobs, tenant: str, _scope: str) -> None:
    """The tenant's cache begins anew: what the gateway remembers of its texts goes as well, and what of other stateless clients is encoded again."""
    stream.forget(tenant)
    jobs.forget()


def _follow(stream: StreamDoor, salts: SaltBook | None, accounts: Accounts | None, directory: Directory) -> None:
    """What changes at once with the tenants and keys: who stays connected, what they may use, whose cache is reachable."""
    stream.recheck()
    if accounts is not None:
        accounts.quotas.follow(directory.tenants, asyncio.get_running_loop().time())
    if salts is not None:
        salts.follow(directory.epochs(), directory.rights)


def _per_tenant(keeper: Gatekeeper, config: Config) -> tuple[int, int]:
    """Connections and HTTP requests of one tenant; a gateway without identities has only one, who may have everything."""
    gateway = config.gateway
    if keeper.identity is None:
        return gateway.max_connections, gateway.max_requests
    return gateway.max_connections_per_tenant, gateway.max_requests_per_tenant


def _own_edits(config: Config, service: CompletionService, renderer: Renderer) -> NextEditService | None:
    """Next edits of the model that completes, where it was trained on them too."""
    if config.model.next_edit is None:
        return None
    prompts = EditPrompts(renderer.tokenizer, edit_format(config.model.next_edit))
    return NextEditService(service, prompts, context_limit_tokens=renderer.context_limit_tokens, pool=renderer.pool)


def _others(
    revisions: Mapping[str, RevisionParts], serving: Callable[[Engine, Renderer], CompletionService], pool: EncodePool
) -> dict[str, ServedRevision]:
    """Revisions beside that of `[model]`; how long their prompts may be is known when a replica has come."""
    found: dict[str, ServedRevision] = {}
    for name, one in revisions.items():
        renderer = Renderer(one.parts.tokenizer, one.parts.grammar, context_limit_tokens=0, pool=pool)
        service = serving(one.parts.engine, renderer)
        found[name] = ServedRevision(name, service, renderer, one.config.model.free_budgets)
    return found


def _beside(quality: QualityPool | None) -> dict[str, str]:
    """Blocks and chat are pools of the same replicas, which are scaled by both."""
    many = quality is not None and quality.block is not None and quality.config.fleet is not None
    return {"block": "quality"} if many else {}


def _services(
    fast: CompletionService, quality: QualityPool | None, edits: EditPool | None
) -> dict[str, CompletionService]:
    """Every service of a gateway, by the name of its pool."""
    found = {"fast": fast} | ({} if quality is None else {"quality": quality.chat})
    found |= {} if edits is None else {"next_edit": edits.edits.service}
    return found if quality is None or quality.block is None else found | {"block": quality.block.service}


def _admission(config: Config) -> AdmissionConfig:
    """On one's own machine nothing is shed: a slow answer is better than none, and there is nobody to be fair to."""
    given = config.admission
    return (
        given
        if given.shed is not None
        else msgspec.structs.replace(given, shed=config.engine.name not in ("embedded", *RUNNING_SERVERS))
    )
