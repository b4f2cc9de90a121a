"""Revisions with a grammar, tokenizer or budgets of their own, each a pool of its own behind one name: who is answered by which, and told so.

What replicas announce decides whose pool they are in, so that no request meets a replica of another vocabulary. A developer's revision
follows from the roll-out as within a pool; a client that moves gets the other profile, and until then asks the former
revision's replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from foretype_context.prompt.profile import Profile
from foretype_wire.redaction import log_fault
from foretype_wire.tasks import end_tasks

from foretype_backend.errors import ConfigError, EngineUnavailableError
from foretype_backend.fleet.members.revisions import wanted_revisions
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.serving.served_revision import ServedRevision

_log = logging.getLogger("foretype.gateway")
_TURN_S: Final = 0.1


class ServedRevisions:
    """See the module.

    Args:
        main: the pool of what `[model]` describes; it knows the roll-out.
        pools: of the others, by revision.
        served: the others, by revision.
        profile_of: of a revision one of whose replicas has come; raises ConfigError where they do not fit.
        free: the revision of tenants of the free tier, which no roll-out concerns.
        tell: tells every client what is told to it now.
    """

    def __init__(
        self,
        main: ReplicaPool,
        pools: Mapping[str, ReplicaPool],
        *,
        served: Mapping[str, ServedRevision],
        profile_of: Callable[[str], Profile],
        tell: Callable[[], None],
        free: str | None = None,
    ) -> None:
        self._main = main
        self._pools = dict(pools)
        self._served = dict(served)
        self._profile_of = profile_of
        self._tell = tell
        self._free = free
        self._ready: tuple[str, ...] = ()
        self._told: object = None
        self._unfit = set[str]()
        self._turning: asyncio.Task[None] | None = None

    def of(self, developer: str, *, free: bool) -> ServedRevision | None:
        if free and self._free in self._ready:
            return self._served[self._free]
        mains = self._main.revisions_in_service()
        for name in wanted_revisions(self._main.rollout, developer):
            if name in self._ready:
                return self._served[name]
            if name in mains:
                return None
        return None if mains or not self._ready else self._served[self._ready[0]]

    def all(self) -> Iterable[ServedRevision]:
        return self._served.values()

    def turn(self) -> None:
        """Look who can be asked; where that or the roll-out has changed, everybody is told."""
        self._ready = tuple(name for name in self._served if self._can_be_asked(name))
        now = (self._main.rollout, self._ready, self._main.revisions_in_service())
        if now != self._told:
            self._tell()
            self._told = now

    def start(self) -> None:
        self._turning = asyncio.get_running_loop().create_task(self._turn_on(), name="revisions of the model")

    async def close(self) -> None:
        await end_tasks(self._turning)
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))

    def _can_be_asked(self, name: str) -> bool:
        if not self._pools[name].in_service():
            self._unfit.discard(name)
            return False
        one = self._served[name]
        if one.profile is None and name not in self._unfit:
            try:
                one.profile = self._profile_of(name)
            except (ConfigError, EngineUnavailableError) as error:
                self._unfit.add(name)
                _log.warning("revision %s is not asked: %s", name, error)
            else:
                one.renderer.context_limit_tokens = one.profile.context_limit_tokens
        return one.profile is not None

    async def _turn_on(self) -> None:
        while True:
            try:
                self.turn()
            except Exception as error:  # noqa: BLE001 - without the next turn nobody is told of a roll-out any more
                log_fault(_log, "looking at the revisions of the model failed", error)
            await asyncio.sleep(_TURN_S)
