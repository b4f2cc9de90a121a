"""The identity store: SQLite by default, PostgreSQL in production. Every change moves the version that gateways watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import date
from typing import Any, Final, NamedTuple

from foretype_context.text.pasted import shell_line
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from foretype_backend.admission.limits import Budget
from foretype_backend.admission.metering import UsageKey, UsageRow
from foretype_backend.config.config import Config
from foretype_backend.config.state_files import identity_url
from foretype_backend.database import as_store_error, open_database, open_later, open_to_read, place_of
from foretype_backend.errors import EntryError, StoreError
from foretype_backend.identity.audit import AuditLog, open_log
from foretype_backend.identity.audit_chain import Act, Entry
from foretype_backend.identity.directory import Directory, KeyRecord, Scope, Tenant, Tier, User
from foretype_backend.identity.keys import ApiKey
from foretype_backend.identity.schema import (
    COUNTERS,
    SCHEMA,
    epochs,
    experiments,
    flushes,
    keys,
    rights,
    state,
    teams,
    tenants,
    usage,
    users,
)

_CONNECT_S: Final = 2
"""At the start, where there is a copy: psycopg takes no less."""
_STORE_S: Final = 2.0
"""So long a store may take to be connected to before its copy is read: it may be in another region, with TLS."""
_FLUSHES_KEPT_MS: Final = 30 * 86_400_000
"""Every start of a gateway process has a row; none sends a batch again that it sent a month ago."""


MakeAct = Callable[[AsyncConnection], Awaitable[Act]]


class KeyRow(NamedTuple):
    """A key as `foretype keys list` shows it."""

    record: KeyRecord
    created_ms: int
    successor: str


class IdentityStore:
    """One open store. Every method raises StoreError alone.

    Args:
        audit: writes who did what; every change is in it, in the same transaction.
        copy: is read while the store itself does not answer; it may be a moment behind.

    Attributes:
        from_copy: what was read last came from there.
        patience_s: how long the store may take to be connected to before that.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        audit: AuditLog | None = None,
        copy: AsyncEngine | None = None,
        *,
        from_copy: bool = False,
    ) -> None:
        self.engine = engine
        self.audit = audit or AuditLog()
        self.place = place_of(engine.url)
        self.from_copy = from_copy
        self.patience_s = 0.0 if copy is None else _STORE_S
        self._copy = copy

    @classmethod
    async def open(
        cls, url: str, *, upgrade: bool = True, audit: AuditLog | None = None, read_url: str | None = None
    ) -> IdentityStore:
        """Open, and bring the tables to this version. Raises StoreError: neither the store nor its copy can be read."""
        if read_url is None:
            return cls(await open_database(url, SCHEMA, upgrade=upgrade), audit)
        copy = open_later(read_url, SCHEMA)
        try:
            return cls(await open_database(url, SCHEMA, upgrade=upgrade, connect_s=_CONNECT_S), audit, copy)
        except StoreError as away:
            await copy.dispose()
            try:
                return cls(open_later(url, SCHEMA), audit, await open_to_read(read_url, SCHEMA), from_copy=True)
            except StoreError:
                raise away from None

    async def close(self) -> None:
        await self.engine.dispose()
        if self._copy is not None:
            await self._copy.dispose()

    async def version(self) -> int:
        """What moves with every change."""
        async with self.reading() as connection:
            return int((await connection.execute(_VERSION)).scalar_one())

    async def snapshot(self) -> Directory:
        """Everybody, as of one version."""
        async with self.reading() as connection:
            version = int((await connection.execute(_VERSION)).scalar_one())
            return Directory(
                [_tenant(row) for row in await connection.execute(select(tenants))],
                [User(tenant=r.tenant, name=r.name, team=r.team, enabled=r.enabled) for r in await _all(connection)],
                [_key(row).record for row in await connection.execute(select(keys))],
                version=version,
                epochs={(r.tenant, r.scope): r.epoch for r in await connection.execute(select(epochs))},
                rights=await _rights(connection),
                experiments=(await connection.execute(_RUNNING)).all(),
            )

    async def add_tenant(self, tenant: Tenant, now_ms: int) -> None:
        async with self.changing(_tenant_act("tenant.add", tenant)) as connection:
            if await _tenant_row(connection, tenant.name):
                raise EntryError(f"tenant {tenant.name!r} exists already; change it with `foretype tenants set`")
            await connection.execute(insert(tenants).values(**_columns(tenant), created_ms=now_ms))

    async def set_tenant(self, tenant: Tenant) -> None:
        """Change a tenant. Its epoch does not change here: it only grows, by :class:`.purges.Purges`."""
        values = _columns(tenant)
        del values["epoch"]
        async with self.changing(_tenant_act("tenant.set", tenant)) as connection:
            await need_tenant(connection, tenant.name)
            await connection.execute(update(tenants).where(tenants.c.name == tenant.name).values(**values))

    async def tenant(self, name: str) -> Tenant:
        async with self.reading() as connection:
            return await need_tenant(connection, name)

    async def add_team(self, tenant: str, team: str) -> None:
        async with self.changing(Act("team.add", team, tenant)) as connection:
            await need_tenant(connection, tenant)
            known = select(teams).where(teams.c.tenant == tenant, teams.c.name == team)
            if (await connection.execute(known)).first():
                raise EntryError(f"team {team!r} of {tenant!r} exists already")
            await connection.execute(insert(teams).values(tenant=tenant, name=team))

    async def team_names(self) -> list[tuple[str, str]]:
        async with self.reading() as connection:
            rows = await connection.execute(select(teams).order_by(teams.c.tenant, teams.c.name))
            return [(row.tenant, row.name) for row in rows]

    async def put_user(self, user: User) -> None:
        """Add a user, or change one."""
        act = Act("user.put", user.name, user.tenant, {"team": user.team, "enabled": user.enabled})
        async with self.changing(act) as connection:
            await need_tenant(connection, user.tenant)
            team = select(teams).where(teams.c.tenant == user.tenant, teams.c.name == user.team)
            if user.team and not (await connection.execute(team)).first():
                remedy = f"add it with `{shell_line('foretype', 'tenants', 'add-team', user.tenant, user.team)}`"
                raise EntryError(f"{user.tenant!r} has no team {user.team!r}; {remedy}")
            where = (users.c.tenant == user.tenant, users.c.name == user.name)
            changed = await connection.execute(update(users).where(*where).values(team=user.team, enabled=user.enabled))
            if not changed.rowcount:
                row = {"tenant": user.tenant, "name": user.name, "team": user.team, "enabled": user.enabled}
                await connection.execute(insert(users).values(**row))

    async def add_key(self, key: ApiKey, record: KeyRecord, now_ms: int) -> None:
        """Keep the hash of a key. The user of the record, if any, must be known."""
        details = {"user": record.user, "scopes": ",".join(sorted(record.scopes)), "expires_ms": record.expires_ms}
        async with self.changing(Act("key.create", key.id, record.tenant, details)) as connection:
            await need_tenant(connection, record.tenant)
            await _need_user(connection, record)
            await _insert_key(connection, key, record, now_ms)

    async def rotate_key(
        self, id: str, new: ApiKey, now_ms: int, overlap_ms: int, *, life_ms: int | None = None
    ) -> KeyRecord:
        """Give a key a successor of the same rights; the old one works for `overlap_ms` more.

        Args:
            life_ms: until the successor expires; None for as long as the old one was given.

        Returns:
            the new record.
        """
        details = {"successor": new.id, "overlap_ms": overlap_ms}
        async with self.changing(_of_key("key.rotate", id, details)) as connection:
            row = await _need_key(connection, id)
            if row.record.revoked_ms is not None or row.successor:
                raise EntryError(f"key {id!r} was revoked or rotated already; rotate its successor, or create a key")
            old = row.record
            if life_ms is None and old.expires_ms is not None:
                life_ms = old.expires_ms - row.created_ms
            record = KeyRecord(
                id=new.id,
                hash=new.hash,
                tenant=old.tenant,
                user=old.user,
                scopes=old.scopes,
                expires_ms=None if life_ms is None else now_ms + life_ms,
            )
            await _insert_key(connection, new, record, now_ms)
            ends = now_ms + overlap_ms if old.expires_ms is None else min(old.expires_ms, now_ms + overlap_ms)
            values = {"expires_ms": ends, "successor": new.id}
            await connection.execute(update(keys).where(keys.c.id == id).values(**values))
            return record

    async def revoke_key(self, id: str, now_ms: int) -> None:
        async with self.changing(_of_key("key.revoke", id)) as connection:
            await connection.execute(update(keys).where(keys.c.id == id).values(revoked_ms=now_ms))

    async def key_rows(self, tenant: str | None = None) -> list[KeyRow]:
        query = select(keys).order_by(keys.c.tenant, keys.c.created_ms)
        async with self.reading() as connection:
            rows = await connection.execute(query if tenant is None else query.where(keys.c.tenant == tenant))
            return [_key(row) for row in rows]

    async def add_usage(self, gateway: str, seq: int, rows: Sequence[tuple[UsageKey, UsageRow]], now_ms: int) -> bool:
        """Add a gateway's batch; False where it was added before (its acknowledgement was lost)."""
        async with self.writing() as connection:
            mine = flushes.c.gateway == gateway
            last = (await connection.execute(select(flushes.c.seq).where(mine))).scalar()
            if last is not None and last >= seq:
                return False
            for key, row in rows:
                where = (
                    usage.c.tenant == key.tenant,
                    usage.c.team == key.team,
                    usage.c.user_name == key.user,
                    usage.c["class"] == key.class_,
                    usage.c.day == key.day,
                )
                added = {name: usage.c[name] + value for name, value in row._asdict().items()}
                if not (await connection.execute(update(usage).where(*where).values(**added))).rowcount:
                    names = dict(zip(("tenant", "team", "user_name", "class", "day"), key, strict=True))
                    await connection.execute(insert(usage).values(**names, **row._asdict()))
            noted = {"seq": seq, "at_ms": now_ms}
            if last is None:
                await connection.execute(delete(flushes).where(flushes.c.at_ms < now_ms - _FLUSHES_KEPT_MS))
                await connection.execute(insert(flushes).values(gateway=gateway, **noted))
            else:
                await connection.execute(update(flushes).where(mine).values(**noted))
            return True

    async def usage_of(self, month: str) -> list[tuple[tuple[str, str, str, str], UsageRow]]:
        """Sums of a month (YYYY-MM) by tenant, team, user and class."""
        names = (usage.c.tenant, usage.c.team, usage.c.user_name, usage.c["class"])
        query = (
            select(*names, *(func.sum(usage.c[name]) for name in COUNTERS))
            .where(usage.c.day >= f"{month}-01", usage.c.day <= f"{month}-31")
            .group_by(*names)
            .order_by(*names)
        )
        async with self.reading() as connection:
            return [
                ((row[0], row[1], row[2], row[3]), UsageRow(*(int(value) for value in row[4:])))
                for row in await connection.execute(query)
            ]

    async def used(self, tenant: str, first: date, last: date) -> UsageRow:
        """What a tenant used from one day to another, both counted."""
        query = select(*(func.sum(usage.c[name]) for name in COUNTERS)).where(
            usage.c.tenant == tenant, usage.c.day.between(first.isoformat(), last.isoformat())
        )
        async with self.reading() as connection:
            row = (await connection.execute(query)).one()
            return UsageRow(*(int(value or 0) for value in row))

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection]:
        """One transaction: a snapshot must not mix two versions."""
        async with as_store_error(self.place, SCHEMA.field), AsyncExitStack() as stack:
            connection = await self._connected(stack)
            if self.engine.dialect.name == "postgresql":
                connection = await connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    async def _connected(self, stack: AsyncExitStack) -> AsyncConnection:
        if self._copy is None:
            return await stack.enter_async_context(self.engine.connect())
        try:
            async with asyncio.timeout(self.patience_s):
                connection = await stack.enter_async_context(self.engine.connect())
        except (OperationalError, OSError, TimeoutError):
            connection = await stack.enter_async_context(self._copy.connect())
            self.from_copy = True
        else:
            self.from_copy = False
        return connection

    async def note(self, act: Act) -> Entry:
        """Write an act that is done elsewhere, before it is done: one that cannot be written is then left undone."""
        async with self.writing() as connection:
            return await self.audit.write(connection, act)

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[AsyncConnection]:
        """A change that no gateway has to follow; an administrative one writes its act first (:meth:`.audit.AuditLog.write`)."""
        async with as_store_error(self.place, SCHEMA.field), self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def changing(self, act: Act | MakeAct) -> AsyncGenerator[AsyncConnection]:
        """A change that gateways follow, which the audit log then tells of.

        The version moves first, then the log grows: their row locks put changes in one order.

        Args:
            act: or what makes it of the store as it is before the change.
        """
        async with self.writing() as connection:
            await connection.execute(update(state).where(state.c.name == "version").values(value=state.c.value + 1))
            await self.audit.write(connection, act if isinstance(act, Act) else await act(connection))
            yield connection


def _tenant_act(action: str, tenant: Tenant) -> Act:
    values = _columns(tenant)
    details = {name: values[name] for name in ("tier", "weight", "budgets", "enabled")}
    return Act(action, tenant.name, tenant.name, details)


def _of_key(action: str, id: str, details: Mapping[str, str | int] | None = None) -> MakeAct:
    """The tenant of the entry is the key's."""

    async def make(connection: AsyncConnection) -> Act:
        return Act(action, id, (await _need_key(connection, id)).record.tenant, details or {})

    return make


@asynccontextmanager
async def audited(config: Config, url: str | None = None, actor: str | None = None) -> AsyncGenerator[IdentityStore]:
    """The store of a configuration, open with its audit log; made where there is none. Raises ConfigError or StoreError.

    Args:
        url: of another store than the configuration's.
        actor: see :func:`.audit.open_log`.
    """
    place = url or identity_url(config)
    copy = None if url else config.identity.read_url
    store = await IdentityStore.open(place, audit=open_log(config, place, actor), read_url=copy)
    try:
        yield store
    finally:
        await store.close()


_LIFE = [
    column for column in experiments.columns if column.name not in ("findings", "looked_ms")
]  # nobody follows those
_RUNNING = select(*_LIFE).where(experiments.c.state == "running").order_by(experiments.c.name)
_VERSION = select(state.c.value).where(state.c.name == "version")


async def _all(connection: AsyncConnection) -> Sequence[Any]:
    return (await connection.execute(select(users))).all()


async def _rights(connection: AsyncConnection) -> dict[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], frozenset[str]] = {}
    for row in await connection.execute(select(rights)):
        key = (row.tenant, row.repository)
        found[key] = found.get(key, frozenset()) | ({row.team} if row.team else frozenset())
    return found


async def _tenant_row(connection: AsyncConnection, name: str) -> Any:
    return (await connection.execute(select(tenants).where(tenants.c.name == name))).first()


async def need_tenant(connection: AsyncConnection, name: str) -> Tenant:
    """The tenant of this name. Raises EntryError."""
    row = await _tenant_row(connection, name)
    if row is None:
        raise EntryError(f"there is no tenant {name!r}; add it with `{shell_line('foretype', 'tenants', 'add', name)}`")
    return _tenant(row)


async def _need_user(connection: AsyncConnection, record: KeyRecord) -> None:
    query = select(users).where(users.c.tenant == record.tenant, users.c.name == record.user)
    if record.user and (await connection.execute(query)).first() is None:
        remedy = f"add it with `{shell_line('foretype', 'tenants', 'add-user', record.tenant, record.user)}`"
        raise EntryError(f"{record.tenant!r} has no user {record.user!r}; {remedy}")


async def _need_key(connection: AsyncConnection, id: str) -> KeyRow:
    row = (await connection.execute(select(keys).where(keys.c.id == id))).first()
    if row is None:
        raise EntryError(f"there is no key {id!r}; `foretype keys list` shows them")
    return _key(row)


async def _insert_key(connection: AsyncConnection, key: ApiKey, record: KeyRecord, now_ms: int) -> None:
    values = {
        "id": key.id,
        "hash": key.hash,
        "tenant": record.tenant,
        "user_name": record.user,
        "scopes": ",".join(sorted(record.scopes)),
        "created_ms": now_ms,
        "expires_ms": record.expires_ms,
        "successor": "",
    }
    await connection.execute(insert(keys).values(**values))


def _columns(tenant: Tenant) -> dict[str, Any]:
    budgets = {name: [budget.tokens_per_s, budget.burst_tokens] for name, budget in tenant.budgets.items()}
    return {
        "name": tenant.name,
        "tier": tenant.tier.value,
        "weight": tenant.weight,
        "budgets": json.dumps(budgets, sort_keys=True),
        "epoch": tenant.epoch,
        "enabled": tenant.enabled,
    }


def _tenant(row: Any) -> Tenant:
    budgets = {
        name: Budget(tokens_per_s=rate, burst_tokens=burst) for name, (rate, burst) in json.loads(row.budgets).items()
    }
    return Tenant(
        name=row.name, tier=Tier(row.tier), weight=row.weight, budgets=budgets, epoch=row.epoch, enabled=row.enabled
    )


def _key(row: Any) -> KeyRow:
    record = KeyRecord(
        id=row.id,
        hash=row.hash,
        tenant=row.tenant,
        user=row.user_name,
        scopes=frozenset(Scope(scope) for scope in row.scopes.split(",") if scope),
        expires_ms=row.expires_ms,
        revoked_ms=row.revoked_ms,
    )
    return KeyRow(record, row.created_ms, row.successor)
