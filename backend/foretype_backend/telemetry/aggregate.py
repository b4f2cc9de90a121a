"""Sums by tenant, team, user, language, variant, editor, model and day, computed in the database from the events.

Definitions: docs/telemetry.md. A suggestion session (`shown`) is one, however many displays it had
(type-through merges); Read(T) = visible for T in all, or accepted; AR_T = accepted sessions / Read(T) sessions, never without its
T; wAR_T the same in characters; CPO = accepted characters / opportunities; RCPO@t = ARC@t / opportunities. A session belongs to the
day of its first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Select, and_, case, delete, func, insert, literal, or_, select

from foretype_backend.telemetry.schema import COUNTERS, DIMENSIONS, daily, daily_survival, events
from foretype_backend.telemetry.store import Store

_E = events.c
_COUNTED: Final = ("opportunity", "request", "result", "typing", "next_edit", "next_survive")
_NEXT_AGE_S: Final = 300
"""At which it is counted whether next edits were taken back."""
_WAITED_FOR: Final = ("interactive", "block", "")
"""Classes of requests; older clients do not name it."""
_MOSTLY: Final = 0.33
"""A text is mostly unchanged where Levenshtein / max(length) is below this (PR_33@t)."""
_GIVEN_UP: Final = ("cancelled", "dropped")
_OF_SESSIONS: Final = ("display", "accept", "dismiss")
_SESSION: Final = (_E.tenant, _E.team, _E.user_id, _E.session, _E.shown)


async def refresh(store: Store, days: Iterable[tuple[str, str]]) -> None:
    """Compute the sums of `(tenant, day)` anew, each in one transaction."""
    none: dict[str, Any] = dict.fromkeys(COUNTERS, 0)
    for tenant, day in sorted(set(days)):
        async with store.transaction() as connection:
            for table in (daily, daily_survival):
                await connection.execute(delete(table).where(table.c.tenant == tenant, table.c.day == day))
            sums: dict[tuple[Any, ...], dict[str, Any]] = {}
            for query in (_simple(tenant, day), _sessions(tenant, day)):  # different counters of the same keys
                for row in (await connection.execute(query)).mappings():
                    key = tuple(row[name] for name in DIMENSIONS)
                    counters = {name: int(value or 0) for name, value in row.items() if name not in DIMENSIONS}
                    sums[key] = sums.get(key, none) | counters
            if sums:
                rows = [dict(zip(DIMENSIONS, key, strict=True)) | counters for key, counters in sums.items()]
                await connection.execute(insert(daily), rows)
            ages = _survival(tenant, day)
            columns = [column.name for column in daily_survival.columns]
            await connection.execute(insert(daily_survival).from_select(columns, ages))


async def with_days_of_sessions(store: Store, days: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """These days, and those on which suggestion sessions of theirs began or went on: a session is in the sums of its first day."""
    found = set(days)
    for tenant, day in sorted(found):
        first, last = func.min(_E.day), func.max(_E.day)
        ends = select(first, last).where(*_near(tenant, day)).group_by(*_SESSION).having(first < last).distinct()
        async with store.reading() as connection:
            for one in await connection.execute(ends):
                found |= {(tenant, one[0]), (tenant, one[1])}
    return found


def _near(tenant: str, day: str) -> tuple[Any, ...]:
    return _E.tenant == tenant, _E.day.in_(_neighbours(day)), _E.event.in_(_OF_SESSIONS)


def _sum_of(kind: str, column: Any = None) -> Any:
    value = literal(1) if column is None else column
    return func.coalesce(func.sum(case((_E.event == kind, value), else_=0)), 0)


def _simple(tenant: str, day: str) -> Select[Any]:
    """Counters that need no grouping by session."""
    waited = and_(_E.event == "result", _E.request_class.in_(_WAITED_FOR))
    later = and_(_E.event == "next_survive", _E.age_s == _NEXT_AGE_S)

    def ended(end: str) -> Any:
        return func.sum(case((and_(_E.event == "next_edit", _E.end == end), 1), else_=0))

    empty = case((and_(_E.event == "result", _E.characters == 0), 1), else_=0)
    return (
        select(
            *(_E[name] for name in DIMENSIONS),
            _sum_of("opportunity").label("opportunities"),
            _sum_of("request").label("requests"),
            _sum_of("request", _E.prompt_tokens).label("prompt_tokens"),
            _sum_of("request", _E.cached_tokens).label("cached_tokens"),
            _sum_of("result", _E.generated_tokens).label("generated_tokens"),
            _sum_of("result").label("results"),
            func.sum(empty).label("empty_results"),
            _sum_of("result", _E.characters).label("result_characters"),
            func.sum(case((waited, 1), else_=0)).label("awaited"),
            func.sum(case((and_(waited, _E.finish.in_(_GIVEN_UP)), 1), else_=0)).label("cancelled"),
            _sum_of("opportunity", case((_E.parses.is_not(None), 1), else_=0)).label("judged"),
            _sum_of("opportunity", case((_E.parses.is_(True), 1), else_=0)).label("parsed"),
            _sum_of("typing", _E["keys"]).label("keys"),
            _sum_of("typing", _E.deletions).label("deletions"),
            _sum_of("next_edit").label("next_shown"),
            ended("accepted").label("next_accepted"),
            ended("rejected").label("next_rejected"),
            _sum_of("next_edit", case((_E.jump.is_(True), 1), else_=0)).label("next_jumps"),
            _sum_of("next_edit", case((_E.jumped.is_(True), 1), else_=0)).label("next_jumped"),
            func.sum(case((later, _E.inserted + _E.deleted), else_=0)).label("next_measured"),
            func.sum(case((later, _E.inserted_kept + _E.deleted_kept), else_=0)).label("next_kept"),
            func.sum(case((later, 1), else_=0)).label("next_looked_at"),
            func.sum(case((and_(later, _E.reversed.is_(True)), 1), else_=0)).label("next_reversed"),
        )
        .where(_E.tenant == tenant, _E.day == day, _E.event.in_(_COUNTED))
        .group_by(*(_E[name] for name in DIMENSIONS))
    )


def _neighbours(day: str) -> list[str]:
    middle = date.fromisoformat(day)
    return [(middle + timedelta(days=step)).isoformat() for step in (-1, 0, 1)]


def _sessions(tenant: str, day: str) -> Select[Any]:
    """Suggestion sessions that began on `day`; one that passes midnight has events on the next."""
    visible = func.sum(case((_E.event == "display", _E.visible_ms), else_=0.0))
    accepted = func.max(case((_E.event == "accept", 1), else_=0))
    one = (
        select(
            *_SESSION[:3],
            func.max(_E.language).label("language"),
            func.max(_E.variant).label("variant"),
            func.max(_E.editor).label("editor"),
            func.max(_E.model).label("model"),
            func.min(_E.day).label("day"),
            visible.label("visible_ms"),
            accepted.label("accepted"),
            func.sum(case((_E.event == "accept", _E.characters), else_=0)).label("taken"),
            func.sum(case((_E.event == "accept", 1), else_=0)).label("accepts"),
            func.max(case((_E.event == "display", _E.characters), else_=0)).label("characters"),
            func.max(case((_E.event == "display", 1), else_=0)).label("displayed"),
            func.max(case((_E.event == "dismiss", 1), else_=0)).label("dismissed"),
        )
        .where(*_near(tenant, day))
        .group_by(*_SESSION)
        .subquery()
    )
    c = one.c

    def read(milliseconds: float) -> Any:
        return or_(c.visible_ms >= milliseconds, c.accepted == 1)

    # An accept whose display is still on its way counts as a session too, or there would be more accepts than sessions.
    return (
        select(
            *(c[name] for name in DIMENSIONS),
            func.count().label("sessions"),
            func.sum(case((read(750.0), 1), else_=0)).label("read_750"),
            func.sum(case((read(300.0), 1), else_=0)).label("read_300"),
            func.sum(c.accepted).label("accepted_sessions"),
            func.sum(c.taken).label("accepted_characters"),
            func.sum(c.accepts).label("accepts"),
            func.sum(case((read(750.0), c.characters), else_=0)).label("read_characters_750"),
            func.sum(case((read(300.0), c.characters), else_=0)).label("read_characters_300"),
            func.sum(c.dismissed).label("dismissed"),
        )
        .where(c.day == day)
        .group_by(*(c[name] for name in DIMENSIONS))
    )


def _survival(tenant: str, day: str) -> Select[Any]:
    """By age; measurements after a change of branch say nothing about the text (Copilot drops them too)."""
    longer = case((_E.characters > _E.length_now, _E.characters), else_=_E.length_now)
    unchanged = or_(_E.levenshtein < _MOSTLY * longer, and_(longer == 0, _E.levenshtein == 0))
    return (
        select(
            *(_E[name] for name in DIMENSIONS),
            _E.age_s,
            func.count(),
            func.sum(_E.characters),
            func.sum(_E.arc),
            func.sum(case((unchanged, 1), else_=0)),
        )
        .where(_E.tenant == tenant, _E.day == day, _E.event == "survive", _E.branch_changed.is_(False))
        .group_by(*(_E[name] for name in DIMENSIONS), _E.age_s)
    )


class Figures(NamedTuple):
    """One group's figures. Ratios are None where their denominator is 0.

    Attributes:
        rcpo, pr_33: by age in seconds.
        retained: sum of ARC, characters, by age in seconds.
    """

    group: dict[str, str]
    counts: dict[str, int]
    ar_750: float | None
    ar_300: float | None
    war_750: float | None
    war_300: float | None
    cpo: float | None
    cached_share: float | None
    rcpo: dict[int, float | None]
    pr_33: dict[int, float | None]
    retained: dict[int, int]


async def figures(store: Store, *, by: Sequence[str] = (), tenant: str | None = None) -> list[Figures]:
    """Sums over everything, or for each value of the dimensions `by`.

    Raises:
        ValueError: a name in `by` is no dimension.
    """
    if unknown := set(by) - set(DIMENSIONS):
        raise ValueError(f"{', '.join(sorted(unknown))}: no dimension; they are {', '.join(DIMENSIONS)}")
    keys = [daily.c[name] for name in by]
    sums = select(*keys, *(func.sum(daily.c[name]).label(name) for name in COUNTERS)).group_by(*keys).order_by(*keys)
    ages = [daily_survival.c[name] for name in (*by, "age_s")]
    names = ("accepts", "arc", "mostly_unchanged")
    lasting = select(*ages, *(func.sum(daily_survival.c[name]).label(name) for name in names)).group_by(*ages)
    if tenant is not None:
        sums, lasting = sums.where(daily.c.tenant == tenant), lasting.where(daily_survival.c.tenant == tenant)
    async with store.transaction() as connection:
        rows = (await connection.execute(sums)).mappings().all()
        old = (await connection.execute(lasting)).mappings().all()
    ages_of: dict[tuple[str, ...], list[Any]] = {}
    for one in old:
        ages_of.setdefault(tuple(str(one[name]) for name in by), []).append(cast("Any", one))
    made: list[Figures] = []
    for row in rows:
        group = {name: str(row[name]) for name in by}
        counts = {name: int(row[name] or 0) for name in COUNTERS}
        mine = ages_of.get(tuple(group.values()), [])
        made.append(
            Figures(
                group=group,
                counts=counts,
                ar_750=_ratio(counts["accepted_sessions"], counts["read_750"]),
                ar_300=_ratio(counts["accepted_sessions"], counts["read_300"]),
                war_750=_ratio(counts["accepted_characters"], counts["read_characters_750"]),
                war_300=_ratio(counts["accepted_characters"], counts["read_characters_300"]),
                cpo=_ratio(counts["accepted_characters"], counts["opportunities"]),
                cached_share=_ratio(counts["cached_tokens"], counts["prompt_tokens"]),
                rcpo={int(one["age_s"]): _ratio(int(one["arc"]), counts["opportunities"]) for one in mine},
                pr_33={int(one["age_s"]): _ratio(int(one["mostly_unchanged"]), int(one["accepts"])) for one in mine},
                retained={int(one["age_s"]): int(one["arc"]) for one in mine},
            )
        )
    return made


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
