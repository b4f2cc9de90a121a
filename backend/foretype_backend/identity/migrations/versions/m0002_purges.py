"""Epochs of purged repositories, and the gateways that follow the store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "id_epochs",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("scope", sa.String(128), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "id_gateways",
        sa.Column("name", sa.String(320), primary_key=True),
        sa.Column("token", sa.String(32), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
    )
