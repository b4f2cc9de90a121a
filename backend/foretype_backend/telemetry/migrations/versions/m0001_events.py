"""Events and consent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TEXTS = {
    "team": 64,
    "kind": 16,
    "day": 10,
    "clock": 8,
    "language": 64,
    "variant": 64,
    "subject": 64,
    "shown": 64,
    "parent": 64,
    "label": 32,
    "source": 32,
}


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("store_text", sa.Boolean, nullable=False),
        sa.Column("train", sa.Boolean, nullable=False),
        sa.Column("events_days", sa.Integer, nullable=False),
        sa.Column("text_days", sa.Integer, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("user_id", sa.String(64), primary_key=True),
        sa.Column("session", sa.String(64), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.String(length), nullable=False) for name, length in _TEXTS.items()),
        sa.Column("t_ms", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.Float(53), nullable=False),
        sa.Column("received_ms", sa.BigInteger, nullable=False),
        sa.Column("characters", sa.BigInteger, nullable=False),
        sa.Column("lines", sa.BigInteger, nullable=False),
        sa.Column("value_ms", sa.Float(53), nullable=False),
        sa.Column("age_s", sa.BigInteger, nullable=False),
        sa.Column("arc", sa.BigInteger, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("events_by_day", "events", ["tenant", "day", "kind"])
    op.create_index("events_by_receipt", "events", ["received_ms"])
