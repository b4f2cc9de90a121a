"""A pool and the doors of its gateway: what sessions do reaches the book of caches, and operators reach it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from foretype_wire.messages import Changed
from starlette.responses import JSONResponse, Response

from foretype_backend.doors.answers.operators import Cached
from foretype_backend.doors.auth import is_owner
from foretype_backend.doors.contract import Asks, DocumentedAnswer, DocumentedApp
from foretype_backend.doors.prefix import PurgeDoor, tenant_of
from foretype_backend.doors.stream import StreamDoor
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.identity.directory import Principal
from foretype_backend.prefix.directory import HeldDocument
from foretype_backend.prefix.purge_report import Purger
from foretype_backend.prefix.rights import CacheRights
from foretype_backend.serving.completion import developer_of


def attach_pool(
    app: DocumentedApp, stream: StreamDoor, pool: ReplicaPool, *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Connects the doors of a gateway with the pool that is its engine.

    Args:
        clock: the pool's.
    """
    follow_sessions(stream, pool, clock=clock)
    stream.feedback.told.add(
        lambda sender, events: pool.revisions.told(developer_of(sender.tenant, sender.user, sender.connection), events)
    )
    salts = stream.service.salts
    PrefixDoor(pool, clock=clock, rights=lambda: salts.rights if salts is not None else CacheRights()).register(app)


def follow_sessions(stream: StreamDoor, pool: ReplicaPool, *, clock: Callable[[], float] = time.monotonic) -> None:
    """What sessions do, and purges, reach the book of a pool's caches."""

    def changed(session: str, change: Changed) -> None:
        pool.book.changed(session, change.documents, clock())

    stream.changed.add(changed)
    stream.left.add(lambda session: pool.book.left(session, clock()))
    salts = stream.service.salts
    if salts is not None:
        salts.ended.add(pool.purge)


def attach_purger(app: DocumentedApp, purger: Purger, pool: ReplicaPool | None = None) -> None:
    """Opens the door by which operators end caches, on a gateway with salts. `pool` counts what is believed to be cached."""
    blocks = None if pool is None else pool.count
    PurgeDoor(purger, blocks).register(app)


class PrefixDoor:
    """`GET /admin/prefix?repository=…`.

    Args:
        pool: keeps the book of caches.
        clock: the pool's, seconds.
        rights: of the teams, now.
    """

    def __init__(
        self,
        pool: ReplicaPool,
        *,
        clock: Callable[[], float] = time.monotonic,
        rights: Callable[[], CacheRights] = CacheRights,
    ) -> None:
        self._pool = pool
        self._rights = rights
        self._clock = clock

    def register(self, app: DocumentedApp) -> None:
        app.door(
            "GET", "/admin/prefix", self.show, tag="operators", answers={200: DocumentedAnswer("by document", [Cached])}
        )

    async def show(self, principal: Asks, repository: str = "", tenant: str | None = None) -> Response:
        """What is cached of a repository, by document, largest first.

        Believed, or known by the replicas' events. Of a gateway with a pool of replicas; `tenant` counts from its owner alone.
        """
        tenant = tenant_of(principal, tenant)
        held = self._pool.book.contents(tenant, repository)
        now = self._clock()
        statistics = self._pool.pool_statistics()
        named = _shown_as(principal, list(statistics.replicas))
        replicas = {named[name]: one._asdict() for name, one in statistics.replicas.items()}
        if not is_owner(principal):
            replicas = {name: {**one, "reason": ""} for name, one in replicas.items()}
        return JSONResponse(
            {
                "tenant": tenant,
                "repository": repository,
                "tokens": sum(one.tokens for one in held),
                "block_tokens": self._pool.book.block_tokens,
                "documents": [_row(one, now, named) for one in held],
                "sharing": _sharing(
                    self._rights().of_tenant(tenant), self._pool.book.directory.apart(tenant), repository
                ),
                "replicas": replicas,
                "agreement": statistics.agreement._asdict(),
            }
        )


def _sharing(teams: Mapping[str, list[str]], apart: Mapping[str, list[str]], repository: str) -> list[dict[str, Any]]:
    """Of one repository, or of all that have rights or caches of somebody's own."""
    names = [repository] if repository else sorted({*teams, *apart})
    return [{"repository": name, "teams": teams.get(name), "apart": apart.get(name, [])} for name in names]


def _shown_as(principal: Principal, names: list[str]) -> dict[str, str]:
    """The owner sees addresses; a tenant's administrator tells replicas apart by their numbers."""
    return {name: name if is_owner(principal) else f"replica {at}" for at, name in enumerate(names)}


def _row(held: HeldDocument, now: float, named: dict[str, str]) -> dict[str, Any]:
    return {
        "document": held.document,
        "scope": held.scope.value,
        "blocks": held.blocks,
        "tokens": held.tokens,
        "retired_blocks": held.retired_blocks,
        "sessions": held.sessions,
        "replicas": [named.get(name, name) for name in held.replicas],
        "since_s": round(now - held.since, 1),
        "last_used_s": round(now - held.last_used, 1),
    }
