"""What every store of the gateway shares: URLs, engines, migration, tables that are what their version says.

SQLite by default, PostgreSQL in production. Faults are told as `StoreError`, in words that name the remedy.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote
from weakref import WeakSet

from foretype_wire.tasks import in_own_thread
from sqlalchemy import Connection, MetaData, String, column, create_engine, event, inspect, select, table
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from foretype_backend.errors import StoreError

if TYPE_CHECKING:
    from alembic.config import Config  # with what it imports 10 MiB, for stores of another version alone

_BUSY_MS: Final = 10_000
_LOCK: Final = 0x666F7265
"""Of PostgreSQL's advisory lock: gateways that start together migrate one after the other."""
_MIGRATING = threading.Lock()
"""Alembic keeps the migration that runs in its module's globals: one at a time in a process."""
_DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


class Schema(NamedTuple):
    """Tables and how they came to be.

    Attributes:
        migrations: Alembic's folder.
        head: the newest revision.
        marker: a table that stands only where a migration has run.
        field: the configuration key of the store's URL, for messages.
        version_table: where the revision is kept; two stores may share a PostgreSQL database.
    """

    metadata: MetaData
    migrations: Path
    head: str
    marker: str
    field: str
    version_table: str = "alembic_version"


def url_of(given: str, field: str) -> URL:
    """A store's URL: `sqlite:///PATH`, `postgresql://…`, or the path of a SQLite file. Raises StoreError."""
    if "://" not in given:
        return URL.create(_DRIVERS["sqlite"], database=str(Path(given).absolute()))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError) as error:
        raise StoreError(f"{field}: {error}; it looks like postgresql://user@host/foretype or a path") from error
    driver = _DRIVERS.get(url.drivername.partition("+")[0])
    if driver is None:
        raise StoreError(f"{field}: {url.drivername!r} is not supported; use sqlite or postgresql")
    return url.set(drivername=driver)


def file_of(url: URL) -> Path | None:
    """Of a store in a SQLite file; None for a server, and for a database in memory."""
    named = url.drivername.startswith("sqlite") and url.database and not url.database.startswith((":memory:", "file:"))
    return Path(str(url.database)) if named else None


def is_there(given: str, field: str) -> bool:
    """Whether there may be a store: False for a SQLite file that nobody has made, which opening would make. Raises StoreError."""
    file = file_of(url_of(given, field))
    try:
        return file is None or file.exists()
    except PermissionError as error:
        raise StoreError(
            f"this user may not look for {file} ({error.strerror}); run this as its owner, or name another with {field}"
        ) from error


async def open_database(
    given: str, schema: Schema, *, upgrade: bool = True, connect_s: int | None = None
) -> AsyncEngine:
    """Open a store, and bring its tables to this version.

    Args:
        connect_s: how long it may take to be connected to; by default as long as the system allows.

    Raises:
        StoreError: it cannot be reached, read or written, was written by a newer version, or its tables are not what
            its version says they are.
    """
    url = url_of(given, schema.field)
    place = place_of(url)
    async with as_store_error(place, schema.field):
        patient = url if connect_s is None else url.update_query_dict({"connect_timeout": str(connect_s)})
        await in_own_thread(lambda: _bring_up(patient, schema, place, upgrade))
    return _engine(url)


def open_later(given: str, schema: Schema) -> AsyncEngine:
    """A store that is connected to when it is first used. Raises StoreError: it is no URL of one."""
    return _engine(url_of(given, schema.field))


async def open_to_read(given: str, schema: Schema) -> AsyncEngine:
    """Open a store of this version for statements that change nothing: nobody who writes is waited for.

    Raises:
        StoreError: it cannot be reached, or has another version.
    """
    url = url_of(given, schema.field)
    place, engine = place_of(url), _engine(url)
    try:
        async with as_store_error(place, schema.field), engine.connect() as connection:
            plain = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await plain.run_sync(migrate, schema, place, False)
    except BaseException:
        await engine.dispose()
        raise
    return engine


def _bring_up(url: URL, schema: Schema, place: str, upgrade: bool) -> None:
    """In a thread: a migration that awaited half-way would let another one of this process at Alembic's globals."""
    if (file := file_of(url)) is not None:
        _make_file(file)
    engine = _hooked(create_engine(_blocking(url), **_options(url)))
    try:
        with _MIGRATING, engine.begin() as connection:
            migrate(connection, schema, place, upgrade)
            _check_tables(connection, schema.metadata, place)
    finally:
        engine.dispose()


@asynccontextmanager
async def as_store_error(place: str, field: str) -> AsyncGenerator[None]:
    """Whatever a driver raises inside becomes a StoreError; `field` is the configuration's of that store."""
    try:
        yield
    except (SQLAlchemyError, *_driver_errors(), OSError) as error:
        raise explain(error, place, field) from error


def _driver_errors() -> tuple[type[Exception], ...]:
    """What PostgreSQL's driver raises past SQLAlchemy; nothing where no store has needed it, for it takes 8 MiB."""
    psycopg: Any = sys.modules.get("psycopg")
    return () if psycopg is None else (psycopg.Error,)


def place_of(url: URL) -> str:
    """What messages call the store; a password is never part of it."""
    return f"the store {url.database}" if url.drivername.startswith("sqlite") else f"the store {url!r}"


def migrate(connection: Connection, schema: Schema, place: str, upgrade: bool, to: str | None = None) -> None:
    """Upgrade to `to` (by default the head) inside of the caller's transaction.

    Raises:
        StoreError: the store is newer than this version, or has tables but no version, or is older and may not be changed.
    """
    to = to or schema.head
    if upgrade and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    current = _revision(connection, schema)
    if current == to:
        return
    config = _history(connection, schema, current, place)
    if not upgrade:
        raise StoreError(f"{place} has version {current or 'none'}, not {to}; start the gateway once to upgrade it")
    from alembic import command

    command.upgrade(config, to)


async def look(given: str, schema: Schema) -> None:
    """Reach a store, and read what version it has; nothing of it is made or changed. One that is yet to be made is all right.

    Raises:
        StoreError: in the words of :func:`open_database`; a store that it would upgrade is none of that.
    """
    url = url_of(given, schema.field)
    place, file = place_of(url), file_of(url)
    if file is not None:
        if not file.exists():
            return
        url = url.set(database=f"file:{quote(str(file))}", query={"mode": "ro", "uri": "true"})
    engine = _engine(url)
    try:
        async with as_store_error(place, schema.field), engine.connect() as connection:
            plain = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await plain.run_sync(_look, schema, place)
    finally:
        await engine.dispose()


def _look(connection: Connection, schema: Schema, place: str) -> None:
    current = _revision(connection, schema)
    if current == schema.head:
        _check_tables(connection, schema.metadata, place)
    else:
        _history(connection, schema, current, place)


def _revision(connection: Connection, schema: Schema) -> str | None:
    if not inspect(connection).has_table(schema.version_table):
        return None
    number = column("version_num", String)
    return connection.execute(select(number).select_from(table(schema.version_table, number))).scalar()


def _history(connection: Connection, schema: Schema, current: str | None, place: str) -> Config:
    """What leads from `current` to the head. Raises StoreError where nothing does."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(schema.migrations))
    config.attributes |= {"connection": connection, "schema": schema}
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise StoreError(
            f"{place} has version {current}, which this Foretype does not know (it knows up to {schema.head}); "
            f"install the newer Foretype that wrote it, or give another {schema.field}"
        )
    if current is None and schema.marker in inspect(connection).get_table_names():
        raise StoreError(
            f"{place} was migrated halfway: it has tables and no version; restore it from a backup, or move it away"
        )
    return config


def _make_file(path: Path) -> None:
    """Owner's alone from its first byte. Raises OSError.

    A file that is there is never opened here: closing it would drop the locks that other connections of this process hold
    (sqlite.org/howtocorrupt.html, 2.2), and another process could take their log of changes away.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


class _SqliteConnection(sqlite3.Connection):
    """Set up when it is made, and closes its cursors before itself.

    Set up where nobody can be cancelled between: a pool forgets a connection whose first statements were. A statement that was
    cancelled later stays open, and its cursor stays with whatever keeps the cancellation's stack. SQLite keeps the transaction and the
    files of a connection that was closed before its statements: nobody could write until the garbage collector came by.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors = WeakSet[sqlite3.Cursor]()
        # The driver's own transactions leave out DDL; ours are begun below, so that a migration is all or nothing.
        self.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            try:
                self.execute(f"PRAGMA {pragma}").close()
            except sqlite3.Error as error:
                if "readonly" not in str(error) and "read-only" not in str(error):
                    super().close()
                    raise

    def cursor(self, *args: Any, **kwargs: Any) -> sqlite3.Cursor:
        made = super().cursor(*args, **kwargs)
        self._cursors.add(made)
        return made

    def close(self) -> None:
        """Also twice: a close that was cancelled goes on while its thread is stopped, which closes too. No cursor can be closed after it."""
        cursors, self._cursors = list(self._cursors), WeakSet[sqlite3.Cursor]()
        for cursor in cursors:
            cursor.close()
        super().close()


def _engine(url: URL) -> AsyncEngine:
    options = _options(url)
    if url.drivername == _DRIVERS["sqlite"]:
        from foretype_backend.sqlite_thread import StoppedOnce  # with its driver, for stores in files alone

        options["connect_args"]["async_creator_fn"] = StoppedOnce
    engine = create_async_engine(url, **options)
    _hooked(engine.sync_engine)
    return engine


def _options(url: URL) -> dict[str, Any]:
    if url.drivername.startswith("sqlite"):
        return {"connect_args": {"timeout": _BUSY_MS / 1000, "factory": _SqliteConnection}}
    return {"pool_pre_ping": True, "pool_size": 4}


def _blocking(url: URL) -> URL:
    """The same store by a driver that blocks; psycopg's is one for both."""
    return url.set(drivername=url.drivername.removesuffix("+aiosqlite"))


def _hooked(engine: Engine) -> Engine:
    if engine.dialect.name != "sqlite":
        return engine

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _check_tables(connection: Connection, metadata: MetaData, place: str) -> None:
    """A store that was migrated halfway, or by hand, must be told apart from one that is right."""
    found = inspect(connection)
    names = set(found.get_table_names())
    for wanted in metadata.sorted_tables:
        if wanted.name not in names:
            raise StoreError(_halfway(place, f"it has no table {wanted.name}"))
        missing = {one.name for one in wanted.columns} - {one["name"] for one in found.get_columns(wanted.name)}
        if missing:
            raise StoreError(_halfway(place, f"table {wanted.name} has no column {', '.join(sorted(missing))}"))


def _halfway(place: str, what: str) -> str:
    return f"{place} was migrated halfway: {what}; restore it from a backup, or move it away for a new one"


def explain(error: BaseException, place: str, field: str) -> StoreError:
    """Turn what a driver raised into what an operator can act on. Values of a statement never reach the message."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = str(cause).split("\n", 1)[0].strip() or type(cause).__name__
    lower = text.lower()
    if "readonly" in lower or "read-only" in lower or "permission denied" in lower:
        without = ", or start with --no-telemetry" if field.startswith("telemetry.") else ""
        return StoreError(f"{place} is read-only ({text}); make it writable{without}")
    if "disk is full" in lower or "no space left" in lower or "disk full" in lower:
        return StoreError(
            f"{place} is full ({text}); make room: what is not stored is kept where it is, and sent again"
        )
    if "unable to open" in lower or "not a database" in lower or "malformed" in lower:
        return StoreError(f"{place} cannot be opened ({text}); check the path, or move the file away for a new one")
    if "already exists" in lower:
        return StoreError(
            f"{place} was migrated halfway ({text}); restore it from a backup, or move it away for a new one"
        )
    if "locked" in lower:
        return StoreError(f"{place} is locked by another process ({text}); end it, or give another {field}")
    if "password" in lower:
        return StoreError(
            f"{place} lets nobody in so ({text}); give its password in the environment variable PGPASSWORD, and the user in {field}"
        )
    if "connect" in lower or "refused" in lower or "does not exist" in lower:
        return StoreError(f"{place} cannot be reached ({text}); check {field} and the server")
    kind = type(error).__name__ if isinstance(error, SQLAlchemyError) else type(cause).__name__
    return StoreError(f"{place}: {kind}: {text}")
