"""Sums by day, which outlive the events they come from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_COUNTERS = [
    "opportunities",
    "requests",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "results",
    "empty_results",
    "sessions",
    "read_750",
    "read_300",
    "accepted_sessions",
    "accepted_characters",
    "read_characters_750",
    "read_characters_300",
    "dismissed",
]


def _dimensions() -> list[sa.Column[str]]:
    names = ("tenant", "team", "user_id", "language", "variant", "day")
    return [sa.Column(name, sa.String(10 if name == "day" else 64), primary_key=True) for name in names]


def upgrade() -> None:
    op.create_table("daily", *_dimensions(), *(sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNTERS))
    op.create_table(
        "daily_survival",
        *_dimensions(),
        sa.Column("age_s", sa.BigInteger, primary_key=True, autoincrement=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("accepts", "characters", "arc", "mostly_unchanged")
        ),
    )
    op.create_table(
        "state",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
