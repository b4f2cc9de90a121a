"""A column for each field of the wire that is counted or grouped by, where eleven columns held other things by kind."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_KEYS = ("tenant", "user_id", "session")
_SAME = (
    *("team", "day", "t_ms", "at_ms", "received_ms", "clock", "language", "variant", "editor", "model"),
    *("experiment", "block", "data"),
)

_ID = sa.String(64)
_LABEL = sa.String(32)
_COUNT = sa.BigInteger()
_MS = sa.Float(53)
_FLAG = sa.Boolean()

_FIELDS: dict[str, tuple[Any, dict[str, str]]] = {
    "id": (_ID, dict.fromkeys(("*",), "NULLIF(e.subject, '')")),
    "shown": (_ID, dict.fromkeys(("display", "accept", "dismiss", "survive"), "e.shown")),
    "opportunity": (_ID, dict.fromkeys(("request", "display"), "NULLIF(e.parent, '')")),
    "chain": (_ID, {"next_edit": "e.shown"}),
    "outcome": (_LABEL, {"opportunity": "e.label"}),
    "request_class": (_LABEL, {"request": "e.label", "result": "e.source"}),
    "finish": (_LABEL, {"result": "e.label"}),
    "served_from": (_LABEL, {"display": "e.source"}),
    "end": (_LABEL, dict.fromkeys(("display", "next_edit"), "e.label")),
    "kind": (_LABEL, dict.fromkeys(("accept", "dismiss"), "e.label")),
    "how": (_LABEL, {"accept": "e.source"}),
    "evidence": (_LABEL, {"next_edit": "e.source"}),
    "answer": (_LABEL, {"feel": "e.label"}),
    "prompt_tokens": (_COUNT, {"request": "e.characters"}),
    "cached_tokens": (_COUNT, {"request": "e.lines"}),
    "generated_tokens": (_COUNT, {"result": "e.lines"}),
    "characters": (_COUNT, dict.fromkeys(("result", "display", "accept", "survive"), "e.characters")),
    "lines": (_COUNT, dict.fromkeys(("display", "accept"), "e.lines")),
    "age_s": (_COUNT, dict.fromkeys(("survive", "next_survive"), "e.age_s")),
    "arc": (_COUNT, {"survive": "e.arc"}),
    "length_now": (_COUNT, {"survive": "{length_now}"}),
    "levenshtein": (_COUNT, {"survive": "{levenshtein}"}),
    "keys": (_COUNT, {"typing": "e.characters"}),
    "deletions": (_COUNT, {"typing": "e.lines"}),
    "suggestions": (_COUNT, {"feel": "e.lines"}),
    # What is left of a next edit was told with the sum of both alone; each stands with the edit.
    "inserted": (_COUNT, {"next_edit": "e.characters", "next_survive": "COALESCE({edit_characters}, e.characters)"}),
    "deleted": (_COUNT, {"next_edit": "e.lines", "next_survive": "COALESCE({edit_lines}, 0)"}),
    "inserted_kept": (_COUNT, {"next_survive": "{inserted_kept}"}),
    "deleted_kept": (_COUNT, {"next_survive": "{deleted_kept}"}),
    "first_ms": (_MS, {"result": "e.first_ms"}),
    "last_ms": (_MS, {"result": "e.value_ms"}),
    "visible_ms": (_MS, dict.fromkeys(("display", "next_edit"), "e.value_ms")),
    "p50_ms": (_MS, {"feel": "e.value_ms"}),
    "p95_ms": (_MS, {"feel": "e.characters / 1000.0"}),
    "parses": (_FLAG, {"opportunity": "CASE WHEN e.characters = 1 THEN e.lines = 1 END"}),
    "branch_changed": (_FLAG, {"survive": "e.label = 'branch_changed'"}),
    "jump": (_FLAG, {"next_edit": "e.age_s = 1"}),
    "jumped": (_FLAG, {"next_edit": "e.arc = 1"}),
    "reversed": (_FLAG, {"next_survive": "e.lines = 1"}),
}
"""Column: type, and the former expression by kind (`*`: of all)."""


def upgrade() -> None:
    op.create_table(
        "events_new",
        *(sa.Column(name, sa.String(64), primary_key=True) for name in _KEYS),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("t_ms", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.Float(53), nullable=False),
        sa.Column("received_ms", sa.BigInteger, nullable=False),
        sa.Column("clock", sa.String(8), nullable=False),
        *(sa.Column(name, sa.String(64), nullable=False) for name in ("language", "variant", "editor", "model")),
        sa.Column("experiment", sa.String(64), nullable=False),
        sa.Column("block", sa.BigInteger, nullable=False),
        *(sa.Column(name, type_, nullable=True) for name, (type_, _) in _FIELDS.items()),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    same = (*_KEYS, "seq", *_SAME)
    into = ", ".join(f'"{name}"' for name in (*same, "event", *_FIELDS))
    values = ", ".join((*(f"e.{name}" for name in same), "e.kind", *(_of(by) for _, by in _FIELDS.values())))
    op.execute(f"INSERT INTO events_new ({into}) SELECT {values} FROM events e")
    _name_unknown()
    op.drop_table("events")
    op.rename_table("events_new", "events")
    op.create_index("events_by_day", "events", ["tenant", "day", "event"])
    op.create_index("events_by_receipt", "events", ["received_ms"])
    where = sa.text("experiment <> ''")
    op.create_index(
        "events_by_experiment", "events", ["experiment", "block"], sqlite_where=where, postgresql_where=where
    )


def _of(by_kind: dict[str, str]) -> str:
    filled = {kind: value.format_map(_Former()) for kind, value in by_kind.items()}
    if "*" in filled:
        return filled["*"]
    return f"CASE {' '.join(f'WHEN e.kind = {kind!r} THEN {value}' for kind, value in filled.items())} END"


class _Former(dict[str, str]):
    """What stood in `data` alone, by name; `edit_…` are columns of the next edit that an event is of."""

    def __missing__(self, name: str) -> str:
        if name.startswith("edit_"):
            same = " AND ".join(f"n.{key} = e.{key}" for key in (*_KEYS, "subject"))
            return f"(SELECT MAX(n.{name.removeprefix('edit_')}) FROM events n WHERE n.kind = 'next_edit' AND {same})"
        if op.get_bind().dialect.name == "sqlite":
            return f"json_extract(NULLIF(e.data, ''), '$.{name}')"
        return f"(NULLIF(e.data, '')::json ->> '{name}')::bigint"


def _name_unknown() -> None:
    """An event of a kind that this version does not know says in `data` what it called itself."""
    bind = op.get_bind()
    keys = (*_KEYS, "seq")
    query = f"SELECT {', '.join(keys)}, label, data FROM events WHERE kind = 'unknown' AND label <> ''"
    where = " AND ".join(f"{name} = :{name}" for name in keys)
    for row in bind.execute(sa.text(query)).mappings().all():
        named = {"event": row["label"], **json.loads(row["data"] or "{}")}
        values = {name: row[name] for name in keys}
        bind.execute(
            sa.text(f"UPDATE events_new SET data = :data WHERE {where}"), {**values, "data": json.dumps(named)}
        )
