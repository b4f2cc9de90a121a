"""A pool and the doors of its gateway: what sessions do reaches the book of caches, and operators reach it."""

from __future__ import annotations

import time
from collections.abc import Callable

from foretype_wire.messages import Changed

from foretype_backend.doors.contract import DocumentedApp
from foretype_backend.doors.prefix import PurgeDoor
from foretype_backend.doors.stream import StreamDoor
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.fleet.prefix_door import PrefixDoor
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
