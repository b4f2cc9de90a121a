"""The store: SQLite by default, PostgreSQL in production. Opening migrates; a write is durable when it returns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from foretype_backend.database import as_store_error, open_database, open_to_read, place_of
from foretype_backend.telemetry.consent import Consent
from foretype_backend.telemetry.schema import (
    COLUMNS_OF,
    EVENT_AT,
    EVENT_COLUMNS,
    SCHEMA,
    daily,
    daily_survival,
    events,
    metadata,
    tenants,
)


def _named(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)  # `end` is a word of SQL's


_INSERTIONS: Final = {
    kind: f"INSERT INTO events ({_named(columns)}) VALUES ({', '.join('?' * len(columns))}) ON CONFLICT DO NOTHING"
    for kind, columns in COLUMNS_OF.items()
}
_COPIES: Final = {kind: f"COPY incoming ({_named(columns)}) FROM STDIN" for kind, columns in COLUMNS_OF.items()}
_INCOMING: Final = "CREATE TEMPORARY TABLE IF NOT EXISTS incoming (LIKE events) ON COMMIT DELETE ROWS"
_ALL: Final = _named(EVENT_COLUMNS)
_TAKE_IN: Final = f"INSERT INTO events ({_ALL}) SELECT {_ALL} FROM incoming ON CONFLICT DO NOTHING"
_ALONE: Final = 0x74657874
"""Of PostgreSQL's advisory lock."""


class Store:
    """One open store. Every method raises StoreError alone.

    Args:
        engine: of a database whose tables are those of `schema`.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.place = place_of(engine.url)

    @classmethod
    async def open(cls, url: str, *, upgrade: bool = True) -> Store:
        """Open, and bring the tables to this version.

        Raises:
            StoreError: it cannot be reached, read or written, was written by a newer version, or its tables are not what
                its version says they are.
        """
        return cls(await open_database(url, SCHEMA, upgrade=upgrade))

    @classmethod
    async def open_to_read(cls, url: str) -> Store:
        """Open without a change, beside a gateway that writes. Raises StoreError, for a store of another version too."""
        return cls(await open_to_read(url, SCHEMA))

    async def close(self) -> None:
        await self.engine.dispose()

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    async def write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Commit rows (each as `COLUMNS_OF` its kind), those that are there already left as they are."""
        if not rows:
            return
        by_kind: dict[str, list[tuple[Any, ...]]] = {}
        for row in rows:
            by_kind.setdefault(row[EVENT_AT], []).append(row)
        async with self._mapped(), self.engine.begin() as connection:
            if self.is_sqlite:
                for kind, of_kind in by_kind.items():
                    await connection.exec_driver_sql(_INSERTIONS[kind], of_kind)
                return
            # COPY into a table of this session's own, for COPY itself knows no ON CONFLICT: a fifth of the time that
            # arrays or a statement per row take.
            await connection.exec_driver_sql(_INCOMING)
            raw: Any = (await connection.get_raw_connection()).driver_connection
            async with raw.cursor() as cursor:
                for kind, of_kind in by_kind.items():
                    async with cursor.copy(_COPIES[kind]) as copy:
                        for row in of_kind:
                            await copy.write_row(row)
            await connection.exec_driver_sql(_TAKE_IN)

    async def consent(self, tenant: str) -> Consent:
        async with self.reading() as connection:
            row = (await connection.execute(select(tenants).where(tenants.c.tenant == tenant))).one_or_none()
        return Consent(tenant) if row is None else Consent(*row)

    async def consents(self) -> list[Consent]:
        """Of every tenant that has said something or has events."""
        async with self.reading() as connection:
            said = {row.tenant: Consent(*row) for row in await connection.execute(select(tenants))}
            names = await connection.execute(select(events.c.tenant).distinct())
            for name in names.scalars():
                said.setdefault(name, Consent(name))
        return [said[name] for name in sorted(said)]

    async def set_consent(self, consent: Consent) -> None:
        async with self._mapped(), self.engine.begin() as connection:
            changed = await connection.execute(
                update(tenants).where(tenants.c.tenant == consent.tenant).values(**consent._asdict())
            )
            if changed.rowcount == 0:
                await connection.execute(tenants.insert().values(**consent._asdict()))

    async def count(self, **where: str) -> int:
        """Number of events with these column values."""
        query = select(func.count()).select_from(events)
        for name, value in where.items():
            query = query.where(events.c[name] == value)
        async with self.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def oldest_days(self) -> dict[str, str]:
        """Of each tenant with events, the day (UTC, YYYY-MM-DD) of its oldest."""
        query = select(events.c.tenant, func.min(events.c.day)).group_by(events.c.tenant)
        async with self.reading() as connection:
            return {row[0]: row[1] for row in await connection.execute(query)}

    async def keys(self, session: str) -> set[int]:
        """Sequence numbers that are stored of one client session."""
        query = select(events.c.seq).where(events.c.session == session)
        async with self.reading() as connection:
            return set((await connection.execute(query)).scalars())

    async def keeps(self, *, tenant: str, user: str) -> bool:
        """Whether there is anything of one user: events, or sums of those that are gone."""
        async with self.reading() as connection:
            for table in (events, daily, daily_survival):
                of = select(table.c.day).where(table.c.tenant == tenant, table.c.user_id == user).limit(1)
                if (await connection.execute(of)).first() is not None:
                    return True
        return False

    async def delete(self, *, tenant: str, user: str | None = None) -> int:
        """Remove everything of a tenant, or of one user of it, and every trace of it in the files. Returns the events."""
        async with self._mapped(), self.engine.begin() as connection:
            removed = 0
            for table in (events, daily, daily_survival):
                query = delete(table).where(table.c.tenant == tenant)
                if user is not None:
                    query = query.where(table.c.user_id == user)
                result = await connection.execute(query)
                removed += result.rowcount if table is events else 0
            if user is None:
                await connection.execute(delete(tenants).where(tenants.c.tenant == tenant))
        await self.compact()
        return removed

    async def expire(self, now_day: str, days_of: Iterable[tuple[str, str]]) -> int:
        """Remove events older than their tenant keeps them: `(tenant, first day to keep)`. Returns how many."""
        removed = 0
        async with self._mapped(), self.engine.begin() as connection:
            for tenant, first in days_of:
                old = delete(events).where(events.c.tenant == tenant, events.c.day < min(first, now_day))
                removed += (await connection.execute(old)).rowcount
        return removed

    async def compact(self) -> None:
        """Give what was deleted back, so that no page of a file still holds it."""
        async with self._mapped(), self.engine.connect() as connection:
            plain = await connection.execution_options(isolation_level="AUTOCOMMIT")
            if self.is_sqlite:
                await plain.exec_driver_sql("VACUUM")
                await plain.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            else:
                for name in metadata.tables:
                    await plain.exec_driver_sql(f"VACUUM FULL {name}")

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncConnection]:
        async with self._mapped(), self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Nobody else is in here, in any process: for what seals texts again and for what removes them."""
        async with self.transaction() as connection:
            if not self.is_sqlite:  # whose transaction keeps all others out
                await connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ALONE})")
            yield

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection]:
        """Nobody who writes waits for it; each statement sees the store as of one moment."""
        async with self._mapped(), self.engine.connect() as connection:
            yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    def _mapped(self) -> AbstractAsyncContextManager[None]:
        return as_store_error(self.place, SCHEMA.field)
