"""A report from the stores that a configuration names: what `foretype report` and the gateway's page both ask."""

from __future__ import annotations

from typing import Any

from foretype_backend.admission.metering import UsageRow
from foretype_backend.config.config import Config
from foretype_backend.config.state_files import identity_url, telemetry_url
from foretype_backend.database import is_there
from foretype_backend.errors import StoreError
from foretype_backend.reports.period import Period
from foretype_backend.reports.report import make_report


async def read_report(
    config: Config, period: Period, *, tenant: str, team: str | None, url: str | None = None
) -> dict[str, Any]:
    """Open, read and close. Raises StoreError.

    Args:
        url: of the events, in place of the configuration's.
    """
    from foretype_backend.telemetry.store import Store

    opened = await Store.open_to_read(_place(config, url))
    try:
        usage = await _usage(config, period, tenant) if config.prices.engine_hour else None
        return await make_report(opened, period, tenant=tenant, team=team, prices=config.prices, usage=usage)
    finally:
        await opened.close()


async def tenants_of(config: Config, url: str | None = None) -> list[str]:
    """Whose events are kept: for who runs the gateway, and never for a tenant. Raises StoreError."""
    from foretype_backend.telemetry.store import Store

    opened = await Store.open_to_read(_place(config, url))
    try:
        return [one.tenant for one in await opened.consents()]
    finally:
        await opened.close()


def _place(config: Config, url: str | None) -> str:
    place = url or telemetry_url(config)
    if not is_there(place, "--store"):
        raise StoreError(
            f"{place} is not there: no gateway has kept anything in it; give --store URL or --profile FILE"
        )
    return place


async def _usage(config: Config, period: Period, tenant: str) -> UsageRow | None:
    """Of a gateway that knows its users; the others count no engine's time."""
    from foretype_backend.identity.store import IdentityStore

    if not is_there(identity_url(config), "identity.url"):
        return None
    opened = await IdentityStore.open(identity_url(config))
    try:
        return await opened.used(tenant, period.first, period.last)
    finally:
        await opened.close()
