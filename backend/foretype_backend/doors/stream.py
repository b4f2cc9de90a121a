"""The stream door: one long-lived WebSocket per client at `/v1/stream`.

Who may connect, and what is told to all. A wrong Origin, Host or token ends a connection before its first frame; what happens on
one that was taken stands in :mod:`foretype_backend.doors.connection`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from foretype_context.prompt.profile import Budgets, Service
from foretype_wire.messages import Changed, Goaway, Hello, Profile
from foretype_wire.subscriptions import Subscribers
from msgspec.structs import replace
from starlette.websockets import WebSocket

from foretype_backend.admission.bounds import Bound
from foretype_backend.admission.degradation import FREE_TIER, profile_at
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.doors.auth import CLOSE_CREDENTIALS, CLOSE_FORBIDDEN, Gatekeeper
from foretype_backend.doors.connection import StreamConnection
from foretype_backend.doors.feedback import FeedbackIntake, FeedbackSink
from foretype_backend.experiments.assign import ToldArm
from foretype_backend.identity.directory import Denial, Principal, Scope, Tier
from foretype_backend.identity.logins import PROTOCOL
from foretype_backend.serving.completion import developer_of
from foretype_backend.serving.fair_turns import Turns
from foretype_backend.serving.next_edits import NextEditService
from foretype_backend.serving.render import Renderer
from foretype_backend.serving.served_revision import BlockPool, ChoosesRevision, ServedRevision
from foretype_backend.serving.service import CompletionService

if TYPE_CHECKING:  # it brings the libraries of a database
    from foretype_backend.experiments.live import LiveExperiments

CLOSE_RESTART: Final = 1012
CLOSE_TRY_LATER: Final = 1013
_TOLD_AT_ONCE: Final = 16


class StreamDoor:
    """All stream connections of a gateway."""

    def __init__(
        self,
        service: CompletionService,
        renderer: Renderer,
        profile: Profile,
        keeper: Gatekeeper,
        *,
        limits: LimitsConfig,
        feedback: FeedbackSink,
        max_connections: int = 20_000,
        max_connections_per_tenant: int | None = None,
        block: BlockPool | None = None,
        next_edits: NextEditService | None = None,
        turns: Turns | None = None,
        experiments: LiveExperiments | None = None,
        revisions: ChoosesRevision | None = None,
        free_budgets: Budgets | None = None,
    ) -> None:
        self.service = service
        self.main = ServedRevision("", service, renderer, free_budgets)
        """What `[model]` describes."""
        self._revisions = revisions
        self.profile = profile
        """Of the full service."""
        self._at: dict[tuple[str, Service, bool], Profile] = {}
        self.keeper = keeper
        self.limits = limits
        self.places = Bound(max_connections, max_connections_per_tenant or max_connections)
        """For connections."""
        self.turns = turns or Turns()
        self.remembered = Bound(limits.segments_bytes, limits.segments_bytes_per_tenant)
        """Bytes of the texts of all connections."""
        self.draining = False
        """No connection is taken any more; those that are open were asked to move on."""
        self.block = block
        self.next_edits = next_edits
        self.experiments = experiments
        self.feedback = FeedbackIntake(feedback, service.metrics.feedback)
        self.changed: Subscribers[str, Changed] = Subscribers()
        """Told of a session's changed documents, so that caches can retire what they hold of them."""
        self.left: Subscribers[str] = Subscribers()
        """Told when a session has ended."""
        self.connections: set[StreamConnection] = set()
        self.activity = asyncio.Event()
        """Set whenever a connection came or left."""
        self._names = itertools.count(1)

    async def __call__(self, websocket: WebSocket) -> None:
        """Serve one connection until it ends."""
        admitted = self._admit(websocket)
        offered = websocket.scope.get("subprotocols") or ()
        await websocket.accept(PROTOCOL if PROTOCOL in offered else None)  # else a browser that offers some gives up
        if isinstance(admitted, tuple):
            code, reason = admitted
            await websocket.close(code, reason)
            return
        connection = StreamConnection(self, websocket, f"c{next(self._names)}", admitted)
        self.connections.add(connection)
        self.places.add(admitted.tenant)
        self.activity.set()
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self.places.add(admitted.tenant, -1)
            self.activity.set()

    def use(self, limits: LimitsConfig, max_connections: int, max_connections_per_tenant: int) -> None:
        """Take other bounds; what is held stays."""
        self.limits = limits
        self.places.in_all, self.places.each = max_connections, max_connections_per_tenant
        self.remembered.in_all, self.remembered.each = limits.segments_bytes, limits.segments_bytes_per_tenant

    def disconnect(self, session: str) -> None:
        for service in self._services():
            service.disconnect(session)

    def _services(self) -> Iterator[CompletionService]:
        """Of all pools that a connection may ask."""
        yield self.service
        if self._revisions is not None:
            yield from (one.service for one in self._revisions.all())
        if self.block is not None:
            yield self.block.service
        if self.next_edits is not None and self.next_edits.service is not self.service:
            yield self.next_edits.service

    def profile_of(self, principal: Principal) -> Profile:
        """What clients of a tenant are told: the profile of its tier, at its rung of the ladder."""
        return self._profile_at(self.main, self.profile, principal.tenant, free=principal.tier is Tier.FREE)

    def _profile_at(self, revision: ServedRevision, full: Profile, tenant: str, *, free: bool) -> Profile:
        at = revision.name, revision.service.ladder.rung(tenant, free=free), free
        found = self._at.get(at)
        if found is None:
            budgets = revision.free_budgets if free and revision.free_budgets is not None else full.budgets
            found = profile_at(full if budgets is full.budgets else replace(full, budgets=budgets), at[1])
            self._at[at] = found
        return found

    def revision_of(self, principal: Principal, hello: Hello, session: str) -> ServedRevision:
        """Which revision answers a client now."""
        if self._revisions is None:
            return self.main
        developer = developer_of(principal.tenant, principal.user or hello.user, session)
        return self._revisions.of(developer, free=principal.tier is Tier.FREE) or self.main

    def told(self, principal: Principal, hello: Hello, revision: ServedRevision) -> ToldArm:
        """What one client is told: its tenant's profile, as an experiment may change it.

        A client that is answered by another revision gets that one's profile, and takes no part in experiments.
        """
        if revision.profile is not None:
            free = principal.tier is Tier.FREE
            return ToldArm(self._profile_at(revision, revision.profile, principal.tenant, free=free))
        plain = self.profile_of(principal)
        return (
            ToldArm(plain) if self.experiments is None else self.experiments.told(self.profile, plain, principal, hello)
        )

    def update_profile(self, profile: Profile, free_budgets: Budgets | None = None) -> None:
        """Use another profile from now on, and tell every client."""
        self.profile, self.main.free_budgets = profile, free_budgets
        self._at.clear()
        self.tell_all()

    def tell_all(self) -> None:
        """Tell every client what is told to it now."""
        self._tell([one for one in self.connections if one.session.hello is not None])

    def tell(self, tenants: Collection[str]) -> None:
        """Tell the clients of these tenants what is told to them now; of all free ones where `FREE_TIER` is among them."""
        free = FREE_TIER in tenants
        self._tell(
            [
                one
                for one in self.connections
                if (one.principal.tenant in tenants or (free and one.principal.tier is Tier.FREE))
                and one.session.hello is not None
            ]
        )

    def _tell(self, connections: Sequence[StreamConnection], told: int = 0) -> None:
        """A few in each turn of the event loop, so that no request waits for all."""
        next_ = told + _TOLD_AT_ONCE
        for connection in connections[told:next_]:
            connection.tell()
        if len(connections) > next_:
            asyncio.get_running_loop().call_soon(self._tell, connections, next_)

    def goaway(self, grace_ms: float) -> None:
        """Ask every client to move on within `grace_ms`, and take no new one."""
        self.draining = True
        for connection in self.connections:
            connection.send(Goaway(grace_ms=grace_ms))

    def forget(self, tenant: str) -> None:
        """Drop the segments and ids of a tenant's open connections."""
        for connection in self.connections:
            if connection.principal.tenant == tenant:
                connection.forget()

    def recheck(self) -> None:
        """Close every connection whose credential is no longer taken."""
        for connection in list(self.connections):
            if not self.keeper.still(connection.principal):
                connection.close(CLOSE_CREDENTIALS, "the credential was revoked or has expired")

    def _admit(self, websocket: WebSocket) -> Principal | tuple[int, str]:
        """Who connects, or the code and reason to close with."""
        if not self.keeper.listed(websocket.headers):
            return CLOSE_FORBIDDEN, "this Host or Origin is not listed"
        principal = self.keeper.authenticate(websocket.headers, Scope.COMPLETE)
        if isinstance(principal, Denial):
            return CLOSE_CREDENTIALS, "no or wrong credential"
        if self.draining:
            return CLOSE_RESTART, "this gateway is going away; connect again"
        if self.places.own_full(principal.tenant):
            return CLOSE_TRY_LATER, "your tenant has all the connections that one may have; close some"
        if self.places.full(principal.tenant):
            return CLOSE_TRY_LATER, "this gateway has all the connections it takes; try again later"
        return principal
