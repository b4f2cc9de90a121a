"""What the store has of a period: sums by user and by one thing that tells them apart. Memory goes with users, never with events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, func, literal, select

from foretype_backend.reports.period import Period
from foretype_backend.telemetry.schema import COUNTERS, daily, daily_survival, events
from foretype_backend.telemetry.store import Store

SPLITS: Final = ("team", "language", "editor", "variant", "model", "user")
AGES_S: Final = (30, 120, 300, 600, 1800)
_COLUMNS: Final = {name: "user_id" if name == "user" else name for name in SPLITS}


@dataclass(slots=True)
class Sums:
    """Of one user in one team and one group.

    Attributes:
        counts: by the names of `COUNTERS`.
        lasting: by age in seconds: accepts, their characters, those never touched, accepts mostly unchanged.
    """

    team: str
    group: str
    user: str
    counts: dict[str, int]
    lasting: dict[int, tuple[int, int, int, int]] = field(default_factory=dict[int, tuple[int, int, int, int]])


@dataclass(frozen=True, slots=True)
class FeelingAnswer:
    """An answer to the question whether completions feel instant; milliseconds are the user's own."""

    team: str
    user: str
    answer: str
    p50_ms: float
    p95_ms: float


async def users(store: Store, tenant: str, period: Period, split: str) -> dict[tuple[str, str], set[str]]:
    """Who stands behind the figures of each team and value of `split`."""
    value = daily.c[_COLUMNS[split]]
    found: dict[tuple[str, str], set[str]] = {}
    query = select(daily.c.team, value, daily.c.user_id).where(_of(daily, tenant, period)).distinct()
    for team, name, user in await _rows(store, query):
        found.setdefault((team, name), set()).add(user)
    return found


async def sums(store: Store, tenant: str, period: Period, split: str | None, team: str | None) -> list[Sums]:
    """By user and value of `split`, or by user alone; of one team or of all."""
    made: dict[tuple[str, str, str], Sums] = {}
    for table, names in ((daily, COUNTERS), (daily_survival, ("accepts", "characters", "arc", "mostly_unchanged"))):
        of: Any = literal("").label("value") if split is None else table.c[_COLUMNS[split]].label("value")
        keys: list[Any] = [table.c.team, of, table.c.user_id]
        if table is daily_survival:
            keys.append(table.c.age_s)
        query = select(*keys, *(func.sum(table.c[name]) for name in names)).where(_of(table, tenant, period, team))
        grouped = [key for key in keys if split is not None or key is not of]
        for row in await _rows(store, query.group_by(*grouped)):
            key = (row[0], row[1], row[2])
            one = made.get(key)
            if one is None:
                one = made[key] = Sums(*key, counts=dict.fromkeys(COUNTERS, 0))
            if table is daily:
                one.counts = {name: int(value) for name, value in zip(names, row[3:], strict=True)}
            else:
                one.lasting[int(row[3])] = (int(row[4]), int(row[5]), int(row[6]), int(row[7]))
    return list(made.values())


async def answers(store: Store, tenant: str, period: Period, team: str | None) -> list[FeelingAnswer]:
    """To the question how it feels: at most one of each user in weeks."""
    where = [_of(events, tenant, period, team), events.c.event == "feel"]
    query = select(events.c.team, events.c.user_id, events.c.answer, events.c.p50_ms, events.c.p95_ms)
    return [FeelingAnswer(*row) for row in await _rows(store, query.where(*where))]


def _of(table: Any, tenant: str, period: Period, team: str | None = None) -> ColumnElement[bool]:
    days = table.c.day.between(period.first.isoformat(), period.last.isoformat())
    where = and_(table.c.tenant == tenant, days)
    return where if team is None else and_(where, table.c.team == team)


async def _rows(store: Store, query: Any) -> Sequence[Any]:
    """At most a few for each user. Not streamed: a cursor of PostgreSQL's lives in a transaction alone, and none is open here."""
    async with store.reading() as connection:
        return (await connection.execute(query)).all()
