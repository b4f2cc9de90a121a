"""Rows of one experiment from the telemetry store: counts by user, block, variant and language, added up by the database.

The definitions are those of :mod:`foretype_backend.telemetry.aggregate`; what an event belongs to is what its profile said, never when
the client's clock says that it was. What came after the planned end, or in a block that is not over, does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, case, func, or_, select

from foretype_backend.experiments.assign import block_at, day_of
from foretype_backend.experiments.experiment import Experiment
from foretype_backend.experiments.rows import UserDay
from foretype_backend.telemetry.schema import events
from foretype_backend.telemetry.store import Store

SETTLES_MS: Final = 600_000
"""After a block, before it is judged: what was accepted at its end is looked at after five minutes, and told a little later."""

_E = events.c
_RETAINED_AT_S: Final = 300
"""RCPO's primary age."""
_GIVEN_UP: Final = ("cancelled", "dropped")
_AWAITED: Final = ("interactive", "block", "")
_KEYS: Final = ("user_id", "block", "variant", "language")


class FirstTokens(NamedTuple):
    """p99 of request to first text in milliseconds, of so many requests; None without any."""

    p99_ms: float | None
    n: int


def blocks_of(experiment: Experiment, now_ms: int) -> range:
    """The blocks that can be judged: begun by the start, over by now, or by the stop."""
    hours = experiment.spec.block_hours
    first = block_at(experiment.started_ms, hours)
    if experiment.stopped_ms:
        return range(first, block_at(experiment.stopped_ms, hours) + 1)
    return range(first, max(first, block_at(now_ms - SETTLES_MS, hours)))


async def rows_of(store: Store, experiment: Experiment, now_ms: int) -> list[UserDay]:
    """Everything that was told of the experiment, of blocks that are over. Raises StoreError."""
    blocks = blocks_of(experiment, now_ms)
    found: dict[tuple[Any, ...], dict[str, int]] = {}
    async with store.transaction() as connection:
        for query in (_plain(experiment, blocks), _sessions(experiment, blocks)):
            for row in (await connection.execute(query)).mappings():
                key = tuple(row[name] for name in _KEYS)
                counts = found.setdefault(key, {})
                counts |= {name: int(row[name] or 0) for name in row if name not in _KEYS}
    return planned(experiment, (_row(experiment, key, counts) for key, counts in sorted(found.items())))


async def first_tokens(store: Store, experiment: Experiment, now_ms: int) -> dict[str, FirstTokens]:
    """p99 of the time to the first token, by variant. Raises StoreError."""
    told: dict[str, FirstTokens] = {}
    async with store.transaction() as connection:
        for name in experiment.spec.names:
            mine = (
                *_belongs(experiment, blocks_of(experiment, now_ms)),
                _E.variant == f"{experiment.name}/{name}",
                _E.event == "result",
                _E.request_class.in_(_AWAITED),
                _E.first_ms.is_not(None),
            )
            n = int((await connection.execute(select(func.count()).where(*mine))).scalar_one())
            at = select(_E.first_ms).where(*mine).order_by(_E.first_ms).offset(max(0, -(-n * 99 // 100) - 1)).limit(1)
            p99_ms = (await connection.execute(at)).scalar() if n else None
            told[name] = FirstTokens(p99_ms, n)
    return told


def planned(experiment: Experiment, rows: Iterable[UserDay]) -> list[UserDay]:
    """Rows of the planned days: those with work in them, from the first one on."""
    kept = list(rows)
    days = sorted({row.day for row in kept})[: experiment.spec.planned_days]
    return [row for row in kept if row.day in days]


def _belongs(experiment: Experiment, blocks: range) -> tuple[Any, ...]:
    found = [_E.experiment == experiment.name, _E.block >= blocks.start, _E.block < blocks.stop]
    return (*found, _E.tenant == experiment.tenant) if experiment.tenant else tuple(found)


def _user(experiment: Experiment) -> Any:
    """Two tenants may have users of one name."""
    return _E.user_id if experiment.tenant else (_E.tenant + "/" + _E.user_id)


def _plain(experiment: Experiment, blocks: range) -> Select[Any]:
    """Counters that need no grouping by session."""
    limit_ms = experiment.spec.guardrails.first_token_ms
    result, waited = _E.event == "result", _E.request_class.in_(_AWAITED)
    user = _user(experiment).label("user_id")

    def sum_of(value: Any, *conditions: Any) -> Any:
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = whole & condition
        return func.sum(case((whole, value), else_=0))

    asked = _E.event == "opportunity"
    retained = (_E.event == "survive") & (_E.age_s == _RETAINED_AT_S) & _E.branch_changed.is_(False)
    columns = {
        "opportunities": sum_of(1, asked),
        "judged": sum_of(1, asked, _E.parses.is_not(None)),
        "parsed": sum_of(1, asked, _E.parses.is_(True)),
        "computed_tokens": sum_of(_E.prompt_tokens - _E.cached_tokens, _E.event == "request")
        + sum_of(_E.generated_tokens, result),
        "awaited": sum_of(1, result, waited),
        "cancelled": sum_of(1, result, waited, _E.finish.in_(_GIVEN_UP)),
        "first_tokens": sum_of(1, result, waited, _E.first_ms.is_not(None)),
        "late": sum_of(1, result, waited, _E.first_ms > limit_ms),
        "retained": sum_of(_E.arc, retained),
        "measured": sum_of(1, retained),
    }
    keys = (user, _E.block, _E.variant, _E.language)
    return (
        select(*keys, *(column.label(name) for name, column in columns.items()))
        .where(*_belongs(experiment, blocks))
        .group_by(*keys)
    )


def _sessions(experiment: Experiment, blocks: range) -> Select[Any]:
    """Suggestion sessions that were read for 750 ms, or accepted."""
    visible = func.sum(case((_E.event == "display", _E.visible_ms), else_=0.0))
    one = (
        select(
            _user(experiment).label("user_id"),
            func.min(_E.block).label("block"),
            func.min(_E.variant).label("variant"),
            func.max(_E.language).label("language"),
            visible.label("visible_ms"),
            func.max(case((_E.event == "accept", 1), else_=0)).label("accepted"),
            func.sum(case((_E.event == "accept", _E.characters), else_=0)).label("taken"),
        )
        .where(*_belongs(experiment, blocks), _E.event.in_(("display", "accept")))
        .group_by(_E.tenant, _E.user_id, _E.session, _E.shown)
        .subquery()
    )
    c = one.c
    keys = tuple(c[name] for name in _KEYS)
    return select(
        *keys,
        func.sum(case((or_(c.visible_ms >= 750.0, c.accepted == 1), 1), else_=0)).label("displays"),
        func.sum(c.accepted).label("accepts"),
        func.sum(c.taken).label("chars_accepted"),
    ).group_by(*keys)


def _row(experiment: Experiment, key: tuple[Any, ...], counts: dict[str, int]) -> UserDay:
    user, block, variant, language = key
    taken, measured = counts.get("chars_accepted", 0), counts.get("measured", 0)
    retained = min(counts.get("retained", 0), taken) if measured or not taken else None
    judged = counts.get("judged", 0)
    return UserDay(
        user=user,
        day=day_of(int(block), experiment.spec.block_hours),
        block=int(block),
        variant=str(variant).removeprefix(f"{experiment.name}/"),
        language=language,
        opportunities=counts.get("opportunities", 0),
        displays=counts.get("displays", 0),
        accepts=counts.get("accepts", 0),
        chars_accepted=taken,
        chars_retained=retained,
        awaited=counts.get("awaited", 0),
        cancelled=counts.get("cancelled", 0),
        first_tokens=counts.get("first_tokens", 0),
        late=counts.get("late", 0),
        judged=judged or None,
        broken=judged - counts.get("parsed", 0) if judged else None,
        computed_tokens=counts.get("computed_tokens", 0),
    )
