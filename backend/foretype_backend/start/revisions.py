"""Revisions of the model with a profile of their own, from `[pool.revisions]`: each is prepared as `[model]` is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import cast

import msgspec
from foretype_context.prompt.profile import Profile

from foretype_backend.config.config import Config
from foretype_backend.config.rules import of_revision
from foretype_backend.doors.stream import StreamDoor
from foretype_backend.engines.port import Engine
from foretype_backend.fleet.doors import follow_sessions
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.fleet.served_revisions import ServedRevisions
from foretype_backend.serving.served_revision import ServedRevision
from foretype_backend.start.prepare import Parts, prepare
from foretype_backend.start.profile import check_profile, layout_of, make_profile
from foretype_backend.start.server_canary import check_server


@dataclass(frozen=True, slots=True)
class RevisionParts:
    """What one is made of.

    Attributes:
        config: the gateway's, with this revision's model in place of `[model]`.
    """

    config: Config
    parts: Parts

    @property
    def pool(self) -> ReplicaPool:
        return cast("ReplicaPool", self.parts.engine)


def prepare_revisions(config: Config) -> dict[str, RevisionParts]:
    """Read their files and make their pools, not started. Raises ConfigError."""
    found: dict[str, RevisionParts] = {}
    for name, model in config.pool.revisions.items():
        own = msgspec.structs.replace(config, model=model)
        if name == config.pool.free_revision and config.pool.fast.discovery is not None:
            found_at = msgspec.structs.replace(config.pool.fast.discovery, pool="free")
            fast = msgspec.structs.replace(config.pool.fast, discovery=found_at)
            own = msgspec.structs.replace(own, pool=msgspec.structs.replace(config.pool, fast=fast))
        with of_revision(name):
            parts = prepare(own)
            check_profile(own, parts)
        found[name] = RevisionParts(own, parts)
    return found


def keep_revisions_apart(main: Engine, revisions: Mapping[str, RevisionParts]) -> None:
    """Before any pool starts: whose replicas are whose is decided by what they announce, and by that alone."""
    if not revisions:
        return
    pool = cast("ReplicaPool", main)
    pool.narrow(lambda revision: revision not in revisions)
    for name, one in revisions.items():
        own = name == one.config.pool.free_revision  # whom no roll-out concerns
        one.pool.narrow(name.__eq__, awaited=False, counts=None if own else pool.revisions)


def choose_revisions(
    main: Engine,
    revisions: Mapping[str, RevisionParts],
    served: Mapping[str, ServedRevision],
    *,
    tell: Callable[[], None],
) -> ServedRevisions:
    """What says which of them answers a client.

    Args:
        main: the pool of what `[model]` describes.
        served: the others, by name.
        tell: tells every client what is told to it now.
    """

    def profile_of(name: str) -> Profile:
        with of_revision(name):
            return make_profile(revisions[name].config, revisions[name].parts)

    return ServedRevisions(
        cast("ReplicaPool", main),
        {name: one.pool for name, one in revisions.items()},
        served=served,
        profile_of=profile_of,
        tell=tell,
        free=next((one.config.pool.free_revision for one in revisions.values()), None),
    )


async def open_revisions(
    stream: StreamDoor, chooser: ServedRevisions, revisions: Mapping[str, RevisionParts], closing: AsyncExitStack
) -> None:
    """Start the pools. Nobody is waited for: a revision is told of when the first of its replicas has passed the canary."""
    closing.push_async_callback(chooser.close)
    for one in revisions.values():
        await check_server(one.config, one.parts, layout=layout_of(one.config, one.parts))
        follow_sessions(stream, one.pool)
        await one.pool.start()
    chooser.start()
