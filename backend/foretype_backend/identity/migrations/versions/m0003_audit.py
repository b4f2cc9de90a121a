"""The audit log, which grows alone: the database itself refuses to change or remove an entry."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_REFUSED = "the audit log is append-only"


def upgrade() -> None:
    op.create_table(
        "id_audit",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("key", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("seal", sa.String(64), nullable=False),
    )
    op.execute("INSERT INTO id_state (name, value) VALUES ('audit', 0)")
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER id_audit_no_{change.lower()} BEFORE {change} ON id_audit "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
            )
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION id_audit_grows() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER id_audit_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON id_audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION id_audit_grows()"
    )
