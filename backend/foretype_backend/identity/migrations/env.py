"""Alembic's entry: the gateway hands over an open connection, inside of a transaction that is all or nothing."""

from __future__ import annotations

from alembic import context

_schema = context.config.attributes["schema"]
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=_schema.metadata,
    version_table=_schema.version_table,
    transactional_ddl=True,
)
context.run_migrations()
