"""Parts of the pages as HTML, of what stands in stores: what commands read too. Brings the databases' libraries."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from html import escape
from typing import Final

from foretype_backend.config.config import Config
from foretype_backend.config.state_files import identity_url
from foretype_backend.database import is_there
from foretype_backend.experiments.store import ExperimentStore
from foretype_backend.identity.listing import USAGE_COLUMNS, keys_of, usage_of
from foretype_backend.identity.store import IdentityStore
from foretype_backend.reports.page import part as report_part
from foretype_backend.reports.page import table
from foretype_backend.reports.period import Period
from foretype_backend.reports.report import read_report

_NO_IDENTITIES: Final = "<p>This gateway has one token and knows no tenants: there is nothing to list.</p>"


async def experiments(config: Config, tenant: str | None) -> str:
    """Of a tenant and of everybody, or of all tenants. Raises StoreError."""
    head = "<h1>Experiments</h1>"
    async with _identities(config) as opened:
        if opened is None:
            return head + _NO_IDENTITIES
        store = ExperimentStore(opened)
        own = [one for one in await store.experiments() if tenant is None or one.tenant in ("", tenant)]
        found = {one.name: (await store.findings(one.name))[0] for one in own}
    rows = [
        (one.name, one.tenant or "all", one.team or "all", str(one.state), _day(one.started_ms), _day(one.stopped_ms),
         str(found[one.name].get("verdict", "")), one.reason)
        for one in own
    ]  # fmt: skip
    heads = ("experiment", "tenant", "team", "state", "started", "stopped", "verdict", "reason")
    return f"{head}\n{table('Experiments', heads, rows, text=True)}" if rows else f"{head}\n<p>There is none.</p>"


async def keys(config: Config, tenant: str | None) -> str:
    """Raises StoreError."""
    head = "<h1>Keys</h1>"
    async with _identities(config) as opened:
        if opened is None:
            return head + _NO_IDENTITIES
        found = await keys_of(opened, tenant)
    names = ("id", "tenant", "user", "scopes", "created", "expires", "revoked", "successor")
    rows = [tuple(", ".join(row[n]) if n == "scopes" else str(row[n] or "") for n in names) for row in found]
    told = "<p>Made, rotated and revoked by <code>foretype keys</code>.</p>"
    return f"{head}\n{told}\n{table('Keys', names, rows, text=True)}"


async def usage(config: Config, month: str, tenant: str | None) -> str:
    """Raises StoreError."""
    head = "<h1>Usage</h1>"
    async with _identities(config) as opened:
        if opened is None:
            return head + _NO_IDENTITIES
        found = await usage_of(opened, month, tenant, config.prices)
    rows = [
        (f"{row['tenant']} / {row['team'] or '–'}", *(f"{row[name]:,}" for name in USAGE_COLUMNS))
        for row in found["teams"]
    ]
    form = (
        '<form data-part="usage"><label for="month">Month</label> '
        f'<input id="month" name="month" value="{escape(found["month"])}" placeholder="2026-09"> <button>Show</button></form>'
    )
    heads = ("tenant / team", *(name.replace("_", " ") for name in USAGE_COLUMNS))
    return f"{head}\n{form}\n{table(f'Usage {month}', heads, rows)}"


async def report(config: Config, period: Period, tenant: str, team: str) -> str:
    """Raises StoreError."""
    return report_part(await read_report(config, period, tenant=tenant, team=team or None))


@asynccontextmanager
async def _identities(config: Config) -> AsyncGenerator[IdentityStore | None]:
    """The open store; None where there is none. Raises StoreError."""
    if not is_there(identity_url(config), "identity.url"):
        yield None
        return
    opened = await IdentityStore.open(identity_url(config))
    try:
        yield opened
    finally:
        await opened.close()


def _day(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M") if unix_ms else ""
