"""User-days of an experiment from a gateway's telemetry store: its daily sums, nothing else."""

from __future__ import annotations

import asyncio
import datetime
from typing import Final

from foretype_backend.database import is_there
from foretype_backend.errors import ExperimentInputError, StoreError
from foretype_backend.experiments.rows import UserDay
from foretype_backend.telemetry.aggregate import Figures, figures
from foretype_backend.telemetry.store import Store

_RETAINED_AT_S: Final = 300
"""RCPO's primary age."""


def stored_rows(url: str, *, tenant: str | None = None, since: datetime.date | None = None) -> list[UserDay]:
    """One row per user, day, variant and language.

    Args:
        url: as the gateway's `telemetry.url`.
        since: first day of the experiment; earlier days lose their variant, and feed the variance reduction alone.

    Raises:
        ExperimentInputError: the store cannot be opened, or has no sums yet.
    """
    try:
        known = is_there(url, "--store")
    except StoreError as error:
        raise ExperimentInputError(str(error)) from error
    if not known:
        raise ExperimentInputError(f"--store: {url} is not there; give the gateway's telemetry.url")

    async def read() -> list[Figures]:
        store = await Store.open(url)
        try:
            return await figures(store, by=("user_id", "day", "variant", "language"), tenant=tenant)
        finally:
            await store.close()

    try:
        found = asyncio.run(read())
    except (StoreError, OSError) as error:
        raise ExperimentInputError(str(error)) from error
    if not found:
        of = f" of tenant {tenant!r}" if tenant is not None else ""
        raise ExperimentInputError(
            f"{url}: no daily sums{of} yet; the gateway makes them every minute from what clients report"
        )
    return [_row(one, since) for one in found]


def _row(one: Figures, since: datetime.date | None) -> UserDay:
    day, counts = datetime.date.fromisoformat(one.group["day"]), one.counts
    retained = one.retained.get(_RETAINED_AT_S)
    if retained is None and not counts["accepted_characters"]:
        retained = 0
    return UserDay(
        user=one.group["user_id"],
        day=day,
        variant=one.group["variant"] if since is None or day >= since else "",
        language=one.group["language"],
        opportunities=counts["opportunities"],
        displays=counts["read_750"],
        accepts=counts["accepted_sessions"],
        chars_accepted=counts["accepted_characters"],
        # What was accepted on the evening before may be measured today.
        chars_retained=None if retained is None else min(retained, counts["accepted_characters"]),
        computed_tokens=counts["prompt_tokens"] - counts["cached_tokens"] + counts["generated_tokens"],
    )
