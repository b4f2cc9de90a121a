"""What is listed of the identity store, by commands and by the gateway's pages: keys without secrets, and a month's usage."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from foretype_backend.config.settings import PricesConfig
from foretype_backend.errors import EntryError
from foretype_backend.identity.directory import KeyRecord
from foretype_backend.identity.usage_report import usage_report

if TYPE_CHECKING:
    from foretype_backend.identity.store import IdentityStore

USAGE_COLUMNS: Final = (
    "requests",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "wasted_tokens",
    "engine_seconds",
    "cost",
)
"""What `usage_of` counts for a team and for a user, in the order in which it is shown."""


def key_row(record: KeyRecord) -> dict[str, Any]:
    """A key: its id, rights and times."""
    return {
        "id": record.id,
        "tenant": record.tenant,
        "user": record.user,
        "scopes": sorted(record.scopes),
        "expires": _iso(record.expires_ms),
        "revoked": _iso(record.revoked_ms),
    }


async def keys_of(store: IdentityStore, tenant: str | None) -> list[dict[str, Any]]:
    """Of a tenant, or of all. Raises StoreError."""
    rows = await store.key_rows(tenant)
    return [key_row(row.record) | {"created": _iso(row.created_ms), "successor": row.successor} for row in rows]


async def usage_of(store: IdentityStore, month: str, tenant: str | None, prices: PricesConfig) -> dict[str, Any]:
    """Of a month, 2026-09; "" is this one. Raises StoreError."""
    month = month or datetime.now(UTC).strftime("%Y-%m")
    if re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month) is None:
        raise EntryError(f"--month: {month!r} is no month; write it as 2026-09")
    rows = [row for row in await store.usage_of(month) if tenant in (None, row[0][0])]
    if tenant is not None and not rows:
        await store.tenant(tenant)  # which says so where there is none of that name
    return usage_report(month, rows, prices)


def _iso(unix_ms: int | None) -> str | None:
    return None if unix_ms is None else datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="seconds")
