"""What is listed of the identity store, by commands and by the gateway's pages: keys without secrets, and a month's usage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from foretype_backend.admission.metering import UsageRow
from foretype_backend.config.settings import PricesConfig
from foretype_backend.errors import EntryError
from foretype_backend.identity.directory import KeyRecord

if TYPE_CHECKING:
    from foretype_backend.identity.store import IdentityStore


def cost_of(row: UsageRow, prices: PricesConfig) -> float:
    """Cached prompt tokens have a price of their own; what was generated and wasted is paid for."""
    computed = row.prompt_tokens - row.cached_tokens
    tokens = (
        computed * prices.prompt_per_million
        + row.cached_tokens * prices.cached_per_million
        + row.generated_tokens * prices.generated_per_million
    )
    return tokens / 1e6 + row.engine_us / 3.6e9 * prices.engine_hour


def usage_report(
    month: str, rows: Sequence[tuple[tuple[str, str, str, str], UsageRow]], prices: PricesConfig
) -> dict[str, Any]:
    """`rows` by (tenant, team, user, class). Keys: `tenants`, `teams`, `users`, `classes`, `total`; tokens are exact."""
    levels = {"tenants": ("tenant",), "teams": ("tenant", "team"), "users": ("tenant", "team", "user")}
    names = ("tenant", "team", "user", "class")
    report: dict[str, Any] = {"month": month}
    for level, shown in {**levels, "classes": ("tenant", "class")}.items():
        sums: dict[tuple[str, ...], UsageRow] = {}
        for key, row in rows:
            of = tuple(key[names.index(name)] for name in shown)
            sums[of] = sums[of].plus(row) if of in sums else row
        report[level] = [dict(zip(shown, of, strict=True)) | _figures(row, prices) for of, row in sums.items()]
    total: dict[str, Any] = {}
    for row in report["tenants"]:
        total = {name: total.get(name, 0) + row[name] for name in row if name != "tenant"}
    return report | {"total": total}


def _figures(row: UsageRow, prices: PricesConfig) -> dict[str, Any]:
    return {
        "requests": row.requests,
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "generated_tokens": row.generated_tokens,
        "wasted_tokens": row.wasted_tokens,
        "engine_seconds": round(row.engine_us / 1e6, 3),
        "cost": round(cost_of(row, prices), 6),
    }


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
