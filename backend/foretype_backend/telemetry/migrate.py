"""Brings a store's tables to this version, with Alembic, in one transaction."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from foretype_backend.telemetry.errors import StoreError

__all__ = ["HEAD", "migrate"]

HEAD: Final = "0002"
_LOCK: Final = 0x666F7265
"""Of PostgreSQL's advisory lock: gateways that start together migrate one after the other."""


def migrate(connection: Connection, place: str, upgrade: bool, to: str = HEAD) -> None:
    """Upgrade to `to` inside of the caller's transaction.

    Raises:
        StoreError: the store is newer than this version, or has tables but no version, or is older and may not be changed.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    current = MigrationContext.configure(connection).get_current_revision()
    if current == to:
        return
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise StoreError(
            f"{place} has version {current}, which this Foretype does not know (it knows up to {HEAD}); "
            "install the newer Foretype that wrote it, or give another telemetry.url"
        )
    if current is None and "events" in inspect(connection).get_table_names():
        raise StoreError(
            f"{place} was migrated halfway: it has tables and no version; restore it from a backup, or move it away"
        )
    if not upgrade:
        raise StoreError(f"{place} has version {current or 'none'}, not {to}; start the gateway once to upgrade it")
    command.upgrade(config, to)
