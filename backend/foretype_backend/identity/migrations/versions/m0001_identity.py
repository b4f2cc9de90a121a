"""Tenants, teams, users, keys, and what they used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_COUNTERS = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens", "wasted_tokens", "engine_us")


def upgrade() -> None:
    op.create_table(
        "id_tenants",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("tier", sa.String(8), nullable=False),
        sa.Column("weight", sa.Float(53), nullable=False),
        sa.Column("budgets", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "id_teams",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
    )
    op.create_table(
        "id_users",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
    )
    op.create_table(
        "id_keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("user_name", sa.String(128), nullable=False),
        sa.Column("scopes", sa.String(128), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=True),
        sa.Column("revoked_ms", sa.BigInteger, nullable=True),
        sa.Column("successor", sa.String(16), nullable=False),
    )
    op.create_index("id_keys_by_tenant", "id_keys", ["tenant"])
    op.create_table(
        "id_usage",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("team", sa.String(64), primary_key=True),
        sa.Column("user_name", sa.String(128), primary_key=True),
        sa.Column("class", sa.String(16), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNTERS),
    )
    op.create_index("id_usage_by_day", "id_usage", ["day"])
    op.create_table(
        "id_flushes",
        sa.Column("gateway", sa.String(64), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "id_state",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO id_state (name, value) VALUES ('version', 0)")
