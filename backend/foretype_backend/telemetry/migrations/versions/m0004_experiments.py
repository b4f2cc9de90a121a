"""Which experiment and block of time an event belongs to, and when the first text of a result came."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("events", sa.Column("experiment", sa.String(64), nullable=False, server_default=""))
    op.add_column("events", sa.Column("block", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("events", sa.Column("first_ms", sa.Float(53), nullable=True))
    where = sa.text("experiment <> ''")
    op.create_index(
        "events_by_experiment", "events", ["experiment", "block"], sqlite_where=where, postgresql_where=where
    )
