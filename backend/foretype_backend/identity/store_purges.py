"""Purges on every gateway: epochs in the identity store, and which gateway processes have put them in place.

A purge reaches gateways as a revoked key does: the store's version rises, and every gateway polls that version (:mod:`.store_watch`).
Beyond that a purge needs answers: each process writes the version that it has put in place beside its name, and the purge waits for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foretype_backend.errors import EntryError, PurgeError, StoreError
from foretype_backend.identity.audit_chain import Act
from foretype_backend.identity.schema import SCOPE_MAX_CHARS, epochs, gateways, state, tenants
from foretype_backend.identity.store import IdentityStore, need_tenant
from foretype_backend.prefix.purge_report import Purged, Unreached

BEAT_S: Final = 10.0
FRESH_S: Final = 30.0
"""A purge waits for a process whose row is younger than this. An older row's process has crashed or lost the store: it is reported at once."""
GONE_S: Final = 86_400.0
"""A row that was not renewed for a day is deleted."""
REACH_S: Final = 5.0
"""How long a purge waits. Gateways poll every half second; a gateway that has not followed by then is reported."""
_LOOK_S: Final = 0.1


class GatewayRow(NamedTuple):
    """A gateway process, the version that it has put in place, and when it last wrote this row (Unix milliseconds)."""

    name: str
    token: str
    version: int
    seen_ms: int


class GatewayStates(NamedTuple):
    reached: tuple[str, ...]
    awaited: tuple[str, ...]
    silent: tuple[tuple[str, float], ...]
    """Names, and seconds since their rows were written."""


def gateway_states(rows: Iterable[GatewayRow], version: int, now_ms: int) -> GatewayStates:
    """Which gateways have put `version` in place, which will in a moment, and which are silent."""
    reached: list[str] = []
    awaited: list[str] = []
    silent: list[tuple[str, float]] = []
    for row in sorted(rows):
        silent_s = max(0.0, (now_ms - row.seen_ms) / 1000)
        if row.version >= version:
            reached.append(row.name)
        elif silent_s <= FRESH_S:
            awaited.append(row.name)
        else:
            silent.append((row.name, silent_s))
    return GatewayStates(tuple(reached), tuple(awaited), tuple(silent))


class Presence:
    """One process's row. Every method but :meth:`due` raises StoreError.

    Args:
        name: where the gateway listens, and which worker it is; the same after a restart.
        token: unique to this process.
        wall_ms: Unix milliseconds.
    """

    def __init__(self, store: IdentityStore, name: str, token: str, *, wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._row = GatewayRow(name, token, -1, 0)

    def due(self, version: int) -> bool:
        """Whether the row has to be written: the version is another, or the row is old."""
        return version != self._row.version or self._wall_ms() - self._row.seen_ms >= BEAT_S * 1000

    async def beat(self, version: int) -> None:
        """Write that this version is in place, and delete rows that no process renews any more."""
        row = self._row._replace(version=version, seen_ms=self._wall_ms())
        dead = or_(
            gateways.c.seen_ms < row.seen_ms - GONE_S * 1000,
            and_(gateways.c.name == row.name, gateways.c.seen_ms < row.seen_ms - FRESH_S * 1000),
        )
        async with self._store.writing() as connection:
            changed = await connection.execute(update(gateways).where(self._own_row).values(**row._asdict()))
            if not changed.rowcount:
                await connection.execute(insert(gateways).values(**row._asdict()))
            await connection.execute(delete(gateways).where(dead))
        self._row = row

    async def leave(self) -> None:
        """Delete the row: this process ends."""
        async with self._store.writing() as connection:
            await connection.execute(delete(gateways).where(self._own_row))

    @property
    def _own_row(self) -> ColumnElement[bool]:
        return and_(gateways.c.name == self._row.name, gateways.c.token == self._row.token)


class Purges:
    """Ends epochs for every gateway of a store. Raises StoreError.

    Args:
        wall_ms: Unix milliseconds.
        reach_s: how long gateways may take to follow.
    """

    def __init__(self, store: IdentityStore, *, wall_ms: Callable[[], int], reach_s: float = REACH_S) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._reach_s = reach_s

    async def purge(self, tenant: str, scope: str = "", *, actor: str = "") -> Purged:
        """End the epoch of a repository, or without one of the whole tenant, and wait until every gateway has followed.

        Args:
            actor: the purging user for the audit log; "" stands for whoever opened the store.

        Raises:
            EntryError: there is no such tenant, or the scope is too long to be a repository's; nothing was purged.
        """
        epoch, version = await self._end(tenant, scope, actor)
        clock = asyncio.get_running_loop().time
        ends_s = clock() + self._reach_s
        found = gateway_states(await self.gateways(), version, self._wall_ms())
        while found.awaited and clock() < ends_s:
            await asyncio.sleep(_LOOK_S)
            found = gateway_states(await self.gateways(), version, self._wall_ms())
        late = [Unreached(name, f"did not follow within {self._reach_s:g} s; it will") for name in found.awaited]
        silent = [Unreached(name, _silence(for_s)) for name, for_s in found.silent]
        return Purged(epoch=epoch, reached=found.reached, not_reached=(*late, *silent))

    async def gateways(self) -> list[GatewayRow]:
        async with self._store.reading() as connection:
            return [GatewayRow(*row) for row in await connection.execute(select(gateways))]

    async def keep(self, found: Mapping[tuple[str, str], int]) -> None:
        """Raise repositories to the epochs that a gateway had kept by itself; tenants that the store does not know are left out."""
        async with self._store.reading() as connection:
            known = {row.name for row in await connection.execute(select(tenants.c.name))}
            kept = {(row.tenant, row.scope): row.epoch for row in await connection.execute(select(epochs))}
        higher = {key: epoch for key, epoch in found.items() if key[0] in known and key[1] and epoch > kept.get(key, 0)}
        if higher:
            async with self._store.changing(Act("purge.keep", details={"repositories": len(higher)})) as connection:
                for (tenant, scope), epoch in higher.items():
                    if epoch > await _epoch_of(connection, tenant, scope):
                        await _set_epoch(connection, tenant, scope, epoch)

    async def _end(self, tenant: str, scope: str, actor: str) -> tuple[int, int]:
        """The new epoch, and the version of the store that has it."""
        if len(scope) > SCOPE_MAX_CHARS:
            raise EntryError(
                f"a repository's id has at most {SCOPE_MAX_CHARS} characters; `foretype prefix show` prints it"
            )
        async with self._store.changing(Act("purge", scope, tenant, actor=actor)) as connection:
            known = await need_tenant(connection, tenant)
            if not scope:
                epoch = known.epoch + 1
                await connection.execute(update(tenants).where(tenants.c.name == tenant).values(epoch=epoch))
            else:
                epoch = await _epoch_of(connection, tenant, scope) + 1
                await _set_epoch(connection, tenant, scope, epoch)
            version = (await connection.execute(select(state.c.value).where(state.c.name == "version"))).scalar_one()
        return epoch, int(version)


class StorePurger:
    """:class:`.purge.Purger` over a store, for a gateway's door."""

    def __init__(self, purges: Purges) -> None:
        self._purges = purges

    async def purge(self, tenant: str, scope: str = "", *, actor: str = "") -> Purged:
        """See :class:`.purge.Purger`."""
        try:
            return await self._purges.purge(tenant, scope, actor=actor)
        except EntryError as error:
            raise PurgeError(str(error), field="tenant" if len(scope) <= SCOPE_MAX_CHARS else "repository") from error
        except StoreError as error:
            raise PurgeError(str(error)) from error


async def _epoch_of(connection: AsyncConnection, tenant: str, scope: str) -> int:
    """A repository's epoch; 0 before its first purge."""
    found = await connection.execute(select(epochs.c.epoch).where(_row_of(tenant, scope)))
    return found.scalar() or 0


async def _set_epoch(connection: AsyncConnection, tenant: str, scope: str, epoch: int) -> None:
    if not (await connection.execute(update(epochs).where(_row_of(tenant, scope)).values(epoch=epoch))).rowcount:
        await connection.execute(insert(epochs).values(tenant=tenant, scope=scope, epoch=epoch))


def _row_of(tenant: str, scope: str) -> ColumnElement[bool]:
    return and_(epochs.c.tenant == tenant, epochs.c.scope == scope)


def _silence(for_s: float) -> str:
    return f"not heard of for {for_s:.0f} s: it ended without a word, or has lost the store"
