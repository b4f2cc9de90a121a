"""Tables of the telemetry store. Migrations make them; a test holds both to be equal.

No column holds source text. `data` is a JSON object of what has no column of its own: numbers, and labels of known fields.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from foretype_wire.telemetry import (
    Accept,
    Dismiss,
    Display,
    Feel,
    NextEdit,
    NextSurvive,
    Opportunity,
    Request,
    Result,
    Survive,
    Typing,
)
from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

from foretype_backend.database import Schema

metadata: Final = MetaData()

tenants: Final = Table(
    "tenants",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("store_text", Boolean, nullable=False, default=False),
    Column("train", Boolean, nullable=False, default=False),
    Column("events_days", Integer, nullable=False),
    Column("text_days", Integer, nullable=False),
    Column("user_reports", Boolean, nullable=False, default=False),
)
"""Consent and retention. `store_text`: samples may be kept; `train`: exports may leave the store; `user_reports`: a report may show
single users."""

_IDS: Final = ("id", "shown", "opportunity", "chain")
_LABELS: Final = (
    "outcome",
    "request_class",
    "finish",
    "served_from",
    "end",
    "kind",
    "how",
    "evidence",
    "answer",
)
_NUMBERS: Final = (
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "characters",
    "lines",
    "age_s",
    "arc",
    "length_now",
    "levenshtein",
    "keys",
    "deletions",
    "suggestions",
    "inserted",
    "deleted",
    "inserted_kept",
    "deleted_kept",
)
_DURATIONS_MS: Final = ("first_ms", "last_ms", "visible_ms", "p50_ms", "p95_ms")
_FLAGS: Final = ("parses", "branch_changed", "jump", "jumped", "reversed")

FIELD_COLUMNS: Final = (*_IDS, *_LABELS, *_NUMBERS, *_DURATIONS_MS, *_FLAGS)
"""Columns that hold the field of that name of :mod:`foretype_wire.telemetry`; null where an event's kind has no such field."""

KINDS: Final[dict[str, type[Any]]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        *(Opportunity, Request, Result, Display, Accept, Dismiss, Survive),
        *(Typing, Feel, NextEdit, NextSurvive),
    )
}
"""Events of the wire that become rows, by the name of their kind."""

events: Final = Table(
    "events",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("user_id", String(64), primary_key=True),
    Column("session", String(64), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("team", String(64), nullable=False),
    Column("event", String(16), nullable=False),
    Column("day", String(10), nullable=False),
    Column("t_ms", BigInteger, nullable=False),
    Column("at_ms", Float(53), nullable=False),
    Column("received_ms", BigInteger, nullable=False),
    Column("clock", String(8), nullable=False),
    Column("language", String(64), nullable=False),
    Column("variant", String(64), nullable=False),
    Column("editor", String(64), nullable=False),
    Column("model", String(64), nullable=False),
    Column("experiment", String(64), nullable=False),
    Column("block", BigInteger, nullable=False),
    *(Column(name, String(64), nullable=True) for name in _IDS),
    *(Column(name, String(32), nullable=True) for name in _LABELS),
    *(Column(name, BigInteger, nullable=True) for name in _NUMBERS),
    *(Column(name, Float(53), nullable=True) for name in _DURATIONS_MS),
    *(Column(name, Boolean, nullable=True) for name in _FLAGS),
    Column("data", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""One row per event; the key makes sending it twice harmless.

`event` is its kind on the wire (`accept`), or `unknown`. `variant` is `experiment/arm` where there is an experiment; `block` is the number
of its block of time. `clock` is "" or says that `t_ms` was impossible (`future`, `past`) and was replaced by the time of receipt. All
others are the wire's fields, see `FIELD_COLUMNS`; `data` has those without a column.
"""

Index("events_by_day", events.c.tenant, events.c.day, events.c.event)
Index("events_by_receipt", events.c.received_ms)
_IN_EXPERIMENT: Final = events.c.experiment != ""
Index(
    "events_by_experiment",
    events.c.experiment,
    events.c.block,
    sqlite_where=_IN_EXPERIMENT,
    postgresql_where=_IN_EXPERIMENT,
)

EVENT_COLUMNS: Final = tuple(column.name for column in events.columns)


def _columns(fields: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in EVENT_COLUMNS if name not in FIELD_COLUMNS or name in fields)


COLUMNS_OF: Final = {name: _columns(kind.__struct_fields__) for name, kind in KINDS.items()} | {"unknown": _columns(())}
"""By what stands in `event`, the columns that such a row has, in the order of the table: half of all. Those that no field can hold
come first, and `data` last."""
EVENT_AT: Final = EVENT_COLUMNS.index("event")
"""Its place in a row of any kind."""

DIMENSIONS: Final = ("tenant", "team", "user_id", "language", "variant", "editor", "model", "day")
COUNTERS: Final = (
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
    "accepts",
    "awaited",
    "cancelled",
    "result_characters",
    "judged",
    "parsed",
    "keys",
    "deletions",
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


def _dimensions() -> list[Column[str]]:
    return [Column(name, String(10 if name == "day" else 64), primary_key=True) for name in DIMENSIONS]


daily: Final = Table(
    "daily",
    metadata,
    *_dimensions(),
    *(Column(name, BigInteger, nullable=False, default=0) for name in COUNTERS),
)
"""Sums by day, from `events`; kept longer than those. `read_T` counts suggestion sessions visible for T ms, or accepted;
`awaited` the results of requests that somebody waited for, of which `cancelled` were given up; `judged` texts that a grammar
could judge, of which `parsed` add no error. `next_…` are of next edits: those that were shown, and of these accepted, rejected by Esc,
shown as a jump at first, and jumped to; characters inserted or deleted by those that were taken, measured after five minutes, and of these
kept; accepted ones looked at after five minutes, and of these taken back."""

daily_survival: Final = Table(
    "daily_survival",
    metadata,
    *_dimensions(),
    Column("age_s", BigInteger, primary_key=True, autoincrement=False),
    Column("accepts", BigInteger, nullable=False),
    Column("characters", BigInteger, nullable=False),
    Column("arc", BigInteger, nullable=False),
    Column("mostly_unchanged", BigInteger, nullable=False),
)
"""What was left of accepted text at each age: sums of ARC, and accepts with Levenshtein / max(length) < 0.33."""

state: Final = Table(
    "state", metadata, Column("name", String(32), primary_key=True), Column("value", BigInteger, nullable=False)
)


HEAD: Final = "0006"
SCHEMA: Final = Schema(
    metadata=metadata,
    migrations=Path(__file__).with_name("migrations"),
    head=HEAD,
    marker="events",
    field="telemetry.url",
)
