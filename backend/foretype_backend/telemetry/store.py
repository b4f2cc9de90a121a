"""The store: SQLite by default, PostgreSQL in production. Opening migrates; a write is durable when it returns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from sqlalchemy import Connection, delete, event, inspect, select, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from foretype_backend.telemetry.errors import StoreError, explain
from foretype_backend.telemetry.migrate import migrate
from foretype_backend.telemetry.schema import EVENT_COLUMNS, daily, daily_survival, events, metadata, tenants

__all__ = ["Consent", "Store", "url_of"]

_BUSY_MS: Final = 10_000
_NAMES: Final = ", ".join(EVENT_COLUMNS)
_INSERT: Final = f"INSERT INTO events ({_NAMES}) VALUES ({', '.join('?' * len(EVENT_COLUMNS))}) ON CONFLICT DO NOTHING"
_INCOMING: Final = "CREATE TEMPORARY TABLE IF NOT EXISTS incoming (LIKE events) ON COMMIT DELETE ROWS"
_TAKE_IN: Final = f"INSERT INTO events ({_NAMES}) SELECT {_NAMES} FROM incoming ON CONFLICT DO NOTHING"
_MAGIC: Final = b"SQLite format 3\0"
_DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


class Consent(NamedTuple):
    """What a tenant agreed to, and for how many days things are kept."""

    tenant: str
    store_text: bool = False
    train: bool = False
    events_days: int = 90
    text_days: int = 30


def url_of(given: str) -> URL:
    """A store's URL: `sqlite:///PATH`, `postgresql://…`, or the path of a SQLite file. Raises StoreError."""
    if "://" not in given:
        return URL.create(_DRIVERS["sqlite"], database=str(Path(given).absolute()))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError) as error:
        raise StoreError(f"telemetry.url: {error}; it looks like postgresql://user@host/foretype or a path") from error
    driver = _DRIVERS.get(url.drivername.partition("+")[0])
    if driver is None:
        raise StoreError(f"telemetry.url: {url.drivername!r} is not supported; use sqlite or postgresql")
    return url.set(drivername=driver)


class Store:
    """One open store. Every method raises StoreError alone.

    Args:
        engine: of a database whose tables are those of `schema`.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.place = _place(engine.url)

    @classmethod
    async def open(cls, url: str, *, upgrade: bool = True) -> Store:
        """Open, and bring the tables to this version.

        Raises:
            StoreError: it cannot be reached, read or written, was written by a newer version, or its tables are not what
                its version says they are.
        """
        parsed = url_of(url)
        engine = _engine(parsed)
        store = cls(engine)
        try:
            if parsed.drivername.startswith("sqlite") and parsed.database and not parsed.database.startswith("file:"):
                async with store._mapped():
                    await asyncio.to_thread(_make_file, Path(parsed.database))
            async with store._mapped(), engine.begin() as connection:
                await connection.run_sync(migrate, store.place, upgrade)
                await connection.run_sync(_check_tables, store.place)
        except BaseException:
            await engine.dispose()
            raise
        return store

    async def close(self) -> None:
        await self.engine.dispose()

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    async def write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Commit rows (in the order of `EVENT_COLUMNS`), those that are there already left as they are."""
        if not rows:
            return
        async with self._mapped(), self.engine.begin() as connection:
            if self.is_sqlite:
                await connection.exec_driver_sql(_INSERT, list(rows))
                return
            # COPY into a table of this session's own, for COPY itself knows no ON CONFLICT: a fifth of the time that
            # arrays or a statement per row take.
            await connection.exec_driver_sql(_INCOMING)
            raw: Any = (await connection.get_raw_connection()).driver_connection
            async with raw.cursor() as cursor, cursor.copy(f"COPY incoming ({_NAMES}) FROM STDIN") as copy:
                for row in rows:
                    await copy.write_row(row)
            await connection.exec_driver_sql(_TAKE_IN)

    async def consent(self, tenant: str) -> Consent:
        async with self._mapped(), self.engine.connect() as connection:
            row = (await connection.execute(select(tenants).where(tenants.c.tenant == tenant))).one_or_none()
        return Consent(tenant) if row is None else Consent(*row)

    async def consents(self) -> list[Consent]:
        """Of every tenant that has said something or has events."""
        async with self._mapped(), self.engine.connect() as connection:
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
        from sqlalchemy import func

        query = select(func.count()).select_from(events)
        for name, value in where.items():
            query = query.where(events.c[name] == value)
        async with self._mapped(), self.engine.connect() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def keys(self, session: str) -> set[int]:
        """Sequence numbers that are stored of one client session."""
        query = select(events.c.seq).where(events.c.session == session)
        async with self._mapped(), self.engine.connect() as connection:
            return set((await connection.execute(query)).scalars())

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
    async def _mapped(self) -> AsyncGenerator[None]:
        try:
            yield
        except (SQLAlchemyError, psycopg.Error, OSError) as error:
            raise explain(error, self.place) from error


def _place(url: URL) -> str:
    return f"the store {url.database}" if url.drivername.startswith("sqlite") else f"the store {url!r}"


def _make_file(path: Path) -> None:
    """Owner's alone from its first byte. Raises OSError, or StoreError for a file that is something else."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        path.touch(mode=0o600)
    elif path.stat().st_size and not path.is_dir():
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise StoreError(f"the store {path} cannot be opened (it is no SQLite database); move the file away")


def _engine(url: URL) -> AsyncEngine:
    if not url.drivername.startswith("sqlite"):
        return create_async_engine(url, pool_pre_ping=True, pool_size=4)
    engine = create_async_engine(url, connect_args={"timeout": _BUSY_MS / 1000})

    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection: Any, _record: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        # The driver's own transactions leave out DDL; ours are begun below, so that a migration is all or nothing.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            try:
                cursor.execute(f"PRAGMA {pragma}")
            except Exception as error:
                if "readonly" not in str(error) and "read-only" not in str(error):
                    raise
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begun(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _check_tables(connection: Connection, place: str) -> None:
    """A store that was migrated halfway, or by hand, must be told apart from one that is right."""
    found = inspect(connection)
    names = set(found.get_table_names())
    for table in metadata.sorted_tables:
        if table.name not in names:
            raise StoreError(_halfway(place, f"it has no table {table.name}"))
        missing = {column.name for column in table.columns} - {
            column["name"] for column in found.get_columns(table.name)
        }
        if missing:
            raise StoreError(_halfway(place, f"table {table.name} has no column {', '.join(sorted(missing))}"))


def _halfway(place: str, what: str) -> str:
    return f"{place} was migrated halfway: {what}; restore it from a backup, or move it away for a new one"
