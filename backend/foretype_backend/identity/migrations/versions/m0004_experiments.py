"""Live experiments, what gateways see of them, and which gateway decides."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "id_experiments",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("stopped_ms", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("by", sa.String(320), nullable=False),
        sa.Column("findings", sa.Text, nullable=False),
        sa.Column("looked_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "id_experiment_gateways",
        sa.Column("experiment", sa.String(32), primary_key=True),
        sa.Column("gateway", sa.String(384), primary_key=True),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
        sa.Column("followed", sa.BigInteger, nullable=False),
        sa.Column("left_out", sa.BigInteger, nullable=False),
        sa.Column("missing", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "id_leases",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("holder", sa.String(384), nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
