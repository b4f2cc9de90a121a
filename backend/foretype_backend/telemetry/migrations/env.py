"""Alembic's entry: the gateway hands over an open connection, inside of a transaction that is all or nothing."""

from __future__ import annotations

from alembic import context

from foretype_backend.telemetry.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
