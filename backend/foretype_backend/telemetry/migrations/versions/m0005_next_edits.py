"""Sums of next edits by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NEW = (
    "next_shown",
    "next_accepted",
    "next_rejected",
    "next_jumps",
    "next_jumped",
    "next_measured",
    "next_kept",
    "next_looked_at",
    "next_reversed",
)


def upgrade() -> None:
    for name in _NEW:
        op.add_column("daily", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
