"""What a report needs: editor and model of every event, sums by them, and whether single users may be shown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_KEYS = ("tenant", "team", "user_id", "language", "variant", "day")
_NEW_KEYS = ("editor", "model")
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
_NEW_COUNTERS = ["accepts", "awaited", "cancelled", "result_characters", "judged", "parsed", "keys", "deletions"]
_AGES = ("accepts", "characters", "arc", "mostly_unchanged")


def upgrade() -> None:
    for name in _NEW_KEYS:
        op.add_column("events", sa.Column(name, sa.String(64), nullable=False, server_default=""))
    op.add_column("tenants", sa.Column("user_reports", sa.Boolean, nullable=False, server_default=sa.false()))
    counters = [sa.Column(name, sa.BigInteger, nullable=False) for name in (*_COUNTERS, *_NEW_COUNTERS)]
    _again("daily", counters, _COUNTERS, _NEW_COUNTERS)
    age = sa.Column("age_s", sa.BigInteger, primary_key=True, autoincrement=False)
    sums = [sa.Column(name, sa.BigInteger, nullable=False) for name in _AGES]
    _again("daily_survival", [age, *sums], ["age_s", *_AGES], [])


def _again(table: str, columns: list[sa.Column[int]], kept: list[str], new: list[str]) -> None:
    """The table with more keys, since a key of SQLite cannot be changed; sums that nobody made before are zero."""
    keys = [sa.Column(name, sa.String(10 if name == "day" else 64), primary_key=True) for name in (*_KEYS, *_NEW_KEYS)]
    op.create_table(f"{table}_new", *keys, *columns)
    into = ", ".join((*_KEYS, *kept, *_NEW_KEYS, *new))
    values = ", ".join((*_KEYS, *kept, *("''" for _ in _NEW_KEYS), *("0" for _ in new)))
    op.execute(f"INSERT INTO {table}_new ({into}) SELECT {values} FROM {table}")
    op.drop_table(table)
    op.rename_table(f"{table}_new", table)
