"""A pool and the doors of its gateway: what sessions do reaches the book of caches, and operators reach it."""

from __future__ import annotations

import time
from collections.abc import Callable

from foretype_client.wire import Changed
from starlette.applications import Starlette

from foretype_backend.app import stream_door
from foretype_backend.doors.prefix import PrefixDoor
from foretype_backend.pools.pool import ReplicaPool
from foretype_backend.prefix.epochs import EpochFile

__all__ = ["attach_pool"]


def attach_pool(
    app: Starlette,
    pool: ReplicaPool,
    *,
    epochs: EpochFile | None = None,
    shared: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Connects an application made by :func:`foretype_backend.app.create_app` with the pool that is its engine.

    Args:
        shared: tenants come from an identity store.
        clock: the pool's.
    """
    stream = stream_door(app)

    def changed(session: str, change: Changed) -> None:
        pool.book.changed(session, change.documents, clock())

    def forget(tenant: str) -> None:
        for connection in stream.connections:
            if connection.principal.tenant == tenant:
                connection.forget()

    stream.changed = changed
    stream.left = lambda session: pool.book.left(session, clock())
    door = PrefixDoor(pool, epochs, shared=shared, forget=forget, clock=clock)
    app.add_route("/admin/prefix", door.show, methods=["GET"])
    app.add_route("/admin/prefix/purge", door.purge, methods=["POST"])
