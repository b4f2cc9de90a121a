"""What is done from time to time: sums by day, and forgetting what was kept for as long as its tenant agreed to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import delete, insert, select

from foretype_backend.telemetry.aggregate import refresh, with_days_of_sessions
from foretype_backend.telemetry.consent import Consent
from foretype_backend.telemetry.schema import events, state
from foretype_backend.telemetry.store import Store

if TYPE_CHECKING:  # they bring an object store and ciphers, which a gateway that keeps no texts does without
    from foretype_backend.telemetry.texts import Resealed, Texts

_SUMMED: Final = "summed_to_ms"
_EXPIRED: Final = "expired_on_day"
"""When events over their retention were removed last, in days since the year 1."""
_STEP: Final = 20
"""Objects that are sealed again before others may go on."""
_AT_ONCE: Final = 2000
"""Objects that a gateway seals again in a minute."""


async def unsummed(store: Store) -> set[tuple[str, str]]:
    """Days (with their tenant) with events that were committed after the last sums, by any gateway."""
    to_ms = await _number(store, _SUMMED)
    async with store.transaction() as connection:
        query = select(events.c.tenant, events.c.day).where(events.c.received_ms >= (to_ms or 0)).distinct()
        return {(row[0], row[1]) for row in await connection.execute(query)}


async def _number(store: Store, name: str) -> int | None:
    async with store.transaction() as connection:
        return (await connection.execute(select(state.c.value).where(state.c.name == name))).scalar()


async def _remember(store: Store, name: str, value: int) -> None:
    async with store.transaction() as connection:
        await connection.execute(delete(state).where(state.c.name == name))
        await connection.execute(insert(state).values(name=name, value=value))


def _before(day: date, days: int) -> str:
    return (day - timedelta(days=days)).isoformat()


class Kept(NamedTuple):
    """How far back a tenant's events and texts go (UTC days, YYYY-MM-DD; None where there are none), and how far they may."""

    tenant: str
    oldest_event: str | None
    events_days: int
    oldest_text: str | None
    text_days: int


async def kept(store: Store, texts: Texts | None) -> list[Kept]:
    """Of every tenant, what is there now. Raises StoreError."""
    events_since = await store.oldest_days()
    found: list[Kept] = []
    for one in await store.consents():
        days = [] if texts is None else [path.split("/")[2] async for path in texts.paths(one.tenant)]
        oldest = events_since.get(one.tenant)
        found.append(Kept(one.tenant, oldest, one.events_days, min(days, default=None), one.text_days))
    return found


async def reseal(store: Store, texts: Texts, *, most: int, now_ms: int) -> Resealed:
    """Seal up to so many objects of former keys again, and remove those keys when nothing is left. Raises StoreError.

    In steps: each keeps out what removes texts, and on SQLite what writes events, for a moment alone.
    """
    from foretype_backend.telemetry.texts import Resealed

    done = 0
    while True:
        async with store.alone():
            step = await texts.reseal(min(_STEP, most - done))
            if not step.left:
                await texts.keys.retire(now_ms)
        done += step.done
        if not step.left or done >= most:
            return Resealed(done, step.left)


async def rotates(texts: Texts) -> bool:
    """Whether texts have a data key, so that a rotation may be under way and former keys may have to go."""
    from foretype_backend.telemetry.text_keys import MASTER

    return await texts.keys.newest() != MASTER


async def tidy(
    store: Store, texts: Texts | None, days: Iterable[tuple[str, str]], *, today: date, now_ms: int
) -> list[Consent]:
    """Sum `days`, then remove events and texts that are over their retention, and go on with a rotation. Sums stay.

    Those of a day whose events have gone are not made anew, of the few that may have come since. Returns what tenants agreed to.
    """
    consents = await store.consents()
    expired = await _number(store, _EXPIRED)
    gone = {one.tenant: _before(date.fromordinal(expired), one.events_days) for one in consents} if expired else {}
    days = await with_days_of_sessions(store, days)
    await refresh(store, [(tenant, day) for tenant, day in days if day >= gone.get(tenant, "")])
    # A minute of margin: an event may have been received before the sums, and committed after them.
    await _remember(store, _SUMMED, now_ms - 60_000)
    first = [(one.tenant, _before(today, one.events_days)) for one in consents]
    if await store.expire(today.isoformat(), first):
        await store.compact()
    await _remember(store, _EXPIRED, today.toordinal())
    if texts is None:
        return consents
    async with store.alone():
        for one in consents:
            # Without consent nothing may stay, however young.
            keep = today - timedelta(days=one.text_days) if one.store_text else today + timedelta(days=1)
            await texts.delete(tenant=one.tenant, before_day=keep.isoformat())
    if await rotates(texts):
        await reseal(store, texts, most=_AT_ONCE, now_ms=now_ms)
    return consents
