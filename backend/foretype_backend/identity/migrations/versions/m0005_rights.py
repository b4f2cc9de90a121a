"""Teams with a right to the cache of a repository."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "id_rights",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("repository", sa.String(128), primary_key=True),
        sa.Column("team", sa.String(64), primary_key=True),
    )
