"""What is done from time to time: sums by day, and forgetting what was kept for as long as its tenant agreed to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Final

from sqlalchemy import delete, insert, select

from foretype_backend.telemetry.aggregate import refresh
from foretype_backend.telemetry.schema import events, state
from foretype_backend.telemetry.store import Store
from foretype_backend.telemetry.texts import Texts

__all__ = ["tidy", "unsummed"]

_SUMMED: Final = "summed_to_ms"


async def unsummed(store: Store) -> set[tuple[str, str]]:
    """Days (with their tenant) with events that were committed after the last sums, whoever committed them."""
    async with store.transaction() as connection:
        to_ms = (await connection.execute(select(state.c.value).where(state.c.name == _SUMMED))).scalar()
        query = select(events.c.tenant, events.c.day).where(events.c.received_ms >= (to_ms or 0)).distinct()
        return {(row[0], row[1]) for row in await connection.execute(query)}


async def tidy(store: Store, texts: Texts | None, days: Iterable[tuple[str, str]], *, today: date, now_ms: int) -> None:
    """Sum `days`, then remove events and texts that are over their retention. Sums stay."""
    await refresh(store, days)
    async with store.transaction() as connection:
        # A minute of margin: an event may have been received before the sums, and committed after them.
        await connection.execute(delete(state).where(state.c.name == _SUMMED))
        await connection.execute(insert(state).values(name=_SUMMED, value=now_ms - 60_000))
    consents = await store.consents()
    first = [(one.tenant, (today - timedelta(days=one.events_days)).isoformat()) for one in consents]
    if await store.expire(today.isoformat(), first):
        await store.compact()
    for one in consents:
        if texts is not None:
            # Without consent nothing may stay, however young.
            keep = today - timedelta(days=one.text_days) if one.store_text else today + timedelta(days=1)
            await texts.delete(tenant=one.tenant, before_day=keep.isoformat())
